"""The command from its first moment: Ctrl-C during imports, a reader of --help that leaves."""

from __future__ import annotations

import subprocess
import sys

import pytest

INTERRUPTED = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
sys.argv = ["pgpaces", "runs"]
from pgpaces.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["pgpaces.cli.main", "click", "pgpaces.cli.runs"])
def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback(module: str) -> None:
    code = INTERRUPTED.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["run", "--help"]])
def test_a_reader_of_help_that_has_gone_is_no_error(words: list[str]) -> None:
    command = [sys.executable, "-m", "pgpaces", *words]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    said = started.stderr.read()
    assert (started.wait(timeout=60), said) == (0, b"")
