"""What does not depend on the load: starting, a command's fixed cost, reading long scripts."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping

import programs
from figures import Figure, Finding, Goal
from session import Session

from pgpaces.spec.workload import commands_in

SECTION = "Start"
LINES = (100_000, 400_000)
PAIR = "\\set x random(1, 100) + :x * 2\nSELECT :x FROM t WHERE a = :x;\n"
LOAD_S = 1
RUNS = {
    "run -T 1s": ("run", "select-only", "--scale", "1", "--warmup", "0s", "-T", f"{LOAD_S}s"),
    "pgbench -T 1": ("pgbench", "-n", "-S", "-T", str(LOAD_S)),
}
SHOWN = {"show": ("show",), "runs": ("runs",), "why": ("why", "last")}
SWEEP = ("sweep", "select-only", "--scale", "1", "--warmup", "0s", "-T", f"{LOAD_S}s", "-c", "1,2")
# Trials of each of its two cells.
FEW, MANY = 1, 6


def section(session: Session) -> Iterator[Finding]:
    """`pgpaces --help`, what commands cost beside their load, and scripts of two lengths."""
    way = session.place.environment()
    times = [_command(("--help",), way)[0] for _ in range(10)]
    goal = Goal("ours", "at most", 150.0)
    yield Figure(
        SECTION, "pgpaces --help, the quickest of 10", "ms", (1e3 * min(times),), goal=goal
    )
    yield from _fixed(session, way)
    for lines in LINES:
        goal = Goal("ours", "at most", lines / 100_000)
        yield Figure(
            SECTION, f"a script of {lines} lines read", "s", (_parsing_s(lines),), goal=goal
        )


def _fixed(session: Session, way: Mapping[str, str]) -> Iterator[Finding]:
    """Of commands on a server that is there, with data that are there, after a first one."""
    target = ("--target", session.place.server.dsn("postgres"))
    for name, words in RUNS.items():
        _command((*words, *(target if words[0] == "run" else ())), way)
        found = [
            _command((*words, *(target if words[0] == "run" else ())), way)
            for _ in range(session.pairs)
        ]
        wall, cpu, memory = zip(*found, strict=True)
        beyond = tuple(value - LOAD_S for value in wall)
        yield Figure(SECTION, f"{name}, beyond the load", "s", beyond,
                     goal=Goal("ours", "at most", 0.6))  # fmt: skip
        yield Figure(SECTION, f"{name}, CPU", "s", cpu, goal=Goal("ours", "at most", 0.7))
        yield Figure(SECTION, f"{name}, memory", "MB", memory, goal=Goal("ours", "at most", 90))
    for name, words in SHOWN.items():
        wall, _, _ = zip(*(_command(words, way) for _ in range(session.pairs)), strict=True)
        yield Figure(SECTION, name, "s", wall, goal=Goal("ours", "at most", 0.4))
    few, many = (
        _command((*SWEEP, *target, "--trials", str(trials)), way)[0] for trials in (FEW, MANY)
    )
    each = (many - few) / (2 * (MANY - FEW)) - LOAD_S
    yield Figure(SECTION, "a trial of a sweep, beyond its load", "s", (each,),
                 goal=Goal("ours", "at most", 0.2))  # fmt: skip


def _command(words: tuple[str, ...], way: Mapping[str, str]) -> tuple[float, float, float]:
    """Seconds and CPU seconds of a command, its memory at most in MB."""
    began = time.perf_counter()
    ended = programs.run([sys.executable, "-m", "pgpaces", *words], way)
    return time.perf_counter() - began, ended.cpu_s, ended.memory_mb


def _parsing_s(lines: int) -> float:
    began = time.perf_counter()
    commands_in("t", PAIR * (lines // 2))
    return time.perf_counter() - began
