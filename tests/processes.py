"""Processes of this machine: their children, whether they live, and freezing them."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.needs import check
from tests.waiting import until


def children(pid: int) -> list[int]:
    check("Linux")
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def command_of(pid: int) -> bytes:
    """The command line of a process; empty if that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextlib.contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """These processes stand still."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def started(path: Path) -> int:
    """The process that wrote its number there, once it did."""
    until(lambda: path.exists() and path.read_text().endswith("\n"), "the command began")
    return int(path.read_text())
