"""What one waits for before a load begins: the command line, and a long script being read."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from figures import Figure, Finding, Goal
from session import Session

from pgpaces.generators import engine

SECTION = "Start"
LINES = (100_000, 400_000)
PAIR = "\\set x random(1, 100) + :x * 2\nSELECT :x FROM t WHERE a = :x;\n"


def section(_session: Session) -> Iterator[Finding]:
    """`pgpaces --help`, and scripts of two lengths, which show whether it is linear."""
    goal = Goal("ours", "at most", 150.0)
    yield Figure(SECTION, "pgpaces --help, the quickest of 10", "ms", (_help_ms(),), goal=goal)
    for lines in LINES:
        goal = Goal("ours", "at most", lines / 100_000)
        yield Figure(
            SECTION, f"a script of {lines} lines read", "s", (_parsing_s(lines),), goal=goal
        )


def _help_ms() -> float:
    def once() -> float:
        began = time.perf_counter()
        command = [sys.executable, "-m", "pgpaces", "--help"]
        subprocess.run(command, check=True, capture_output=True)
        return 1e3 * (time.perf_counter() - began)

    return min(once() for _ in range(10))


def _parsing_s(lines: int) -> float:
    began = time.perf_counter()
    engine.commands("t", PAIR * (lines // 2))
    return time.perf_counter() - began
