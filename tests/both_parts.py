"""Runs the tests in two parts beside each other: those of servers wait more than they work.

`python tests/both_parts.py [PYTEST-OPTION...]`; the exit code is 1 where a part failed. The `&` of
a shell would have its programs ignore Ctrl-C, which tests send.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

SERVERS = ("tests/integration",)
OTHERS = ("tests/faults", "tests/unit", "tests/browser", "tests/conformance")


def main(options: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", *options]
    with tempfile.TemporaryFile() as told:
        others = subprocess.Popen([*command, *OTHERS], stdout=told, stderr=subprocess.STDOUT)
        failed = subprocess.run([*command, *SERVERS], check=False).returncode != 0
        failed = others.wait() != 0 or failed
        told.seek(0)
        sys.stdout.buffer.write(told.read())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
