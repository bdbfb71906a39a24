"""Runs the tests in three parts beside each other: those of servers wait more than they work.

Behind them come those that look at this machine, alone: they would see what others do there.

`python tests/in_parts.py [PYTEST-OPTION...]`; the exit code is 1 where a part failed. The `&` of a
shell would have its programs ignore Ctrl-C, which tests send.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

ALONE = ["tests/integration/test_host.py"]
FILES = sorted(str(path) for path in Path("tests/integration").glob("test_*.py"))
SERVERS = [path for path in FILES if path not in ALONE]
OTHERS = ["tests/faults", "tests/unit", "tests/browser", "tests/conformance"]


def main(options: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", *options]
    with contextlib.ExitStack() as stack:
        parts = []
        for tests in (SERVERS[1::2], OTHERS):
            told = stack.enter_context(tempfile.TemporaryFile())
            part = subprocess.Popen([*command, *tests], stdout=told, stderr=subprocess.STDOUT)
            parts.append((part, told))
        failed = subprocess.run([*command, *SERVERS[::2]], check=False).returncode != 0
        for part, told in parts:
            failed = part.wait() != 0 or failed
            told.seek(0)
            sys.stdout.buffer.write(told.read())
    sys.stdout.flush()
    failed = subprocess.run([*command, *ALONE], check=False).returncode != 0 or failed
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
