"""User-mode instructions and clock reads a transaction, beside pgbench's, by callgrind.

Ours with everything recorded, by epoll: valgrind does not run io_uring. Counted are the engine's
threads: the main thread stores and prints each second, however many transactions it has. What the
kernel does is not in it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import programs
from counting import Executed, executed, executed_by_threads
from figures import Figure, Finding, Goal, Note
from load import Order
from session import Session

SECTION = "Instructions"
# Transactions of all clients in the short and in the long run.
LENGTHS = (2560, 12_800)

# Counts a command in an environment.
Counting = Callable[[Sequence[str], Mapping[str, str]], Executed]


@dataclass(frozen=True)
class Count:
    """A transaction's."""

    instructions: float
    clock_reads: float


@dataclass(frozen=True)
class Case:
    """One thing to count, of both programs."""

    name: str
    script: Path
    protocol: str
    clients: int
    goal: Goal | None

    def label(self, how: str) -> str:
        """What the table calls it."""
        plural = "client" if self.clients == 1 else "clients"
        return f"{self.name}, {self.protocol}, {self.clients} {plural}{how}"


SIMPLE, PREPARED = Goal("ratio", "at most", 0.3), Goal("ratio", "at most", 0.25)
CASES = (
    *(Case("select-only", programs.SELECT, "prepared", c, PREPARED) for c in (1, 8, 64)),
    *(Case("select-only", programs.SELECT, "simple", c, SIMPLE) for c in (1, 8, 64)),
    Case("20 lines of \\set", programs.SETS, "simple", 1, None),
)


def section(session: Session) -> Iterator[Finding]:
    """A row for each case; with Describe as pgbench sends it, and without, as is our default."""
    if shutil.which("valgrind") is None:
        yield Note(SECTION, "not measured: valgrind is not installed")
        return
    yield Note(SECTION, "by callgrind and epoll, which valgrind runs; ours: the engine's threads")
    for case in CASES:
        yield from _compare(session, case)


def _compare(session: Session, case: Case) -> Iterator[Finding]:
    """Simple queries have no Describe, so there is one way of them only."""
    ways: list[Callable[[], Count]] = [
        lambda: _pgbench(session, case),
        lambda: _ours(session, case, describe=False),
    ]
    if case.protocol == "prepared":
        ways.append(lambda: _ours(session, case, describe=True))
    theirs, *ours = programs.columns(programs.alternately(1 if session.quick else 3, *ways))
    other = tuple(count.instructions for count in theirs)
    for counts, how in zip(ours, ("", ", Describe sent"), strict=False):
        mine = tuple(count.instructions for count in counts)
        label = case.label(how)
        # With Describe it is about the same.
        paged = not how and case.goal is not None
        yield Figure(SECTION, label, "instructions", mine, other, case.goal, gate=True, paged=paged)
    mine, other = (tuple(count.clock_reads for count in counts) for counts in (ours[0], theirs))
    yield Figure(SECTION, case.label(""), "clock reads", mine, other, paged=False)


def _each(session: Session, case: Case, commands: list[list[str]], count: Counting) -> Count:
    """The difference of a short and a long run."""
    environment = session.place.environment()
    short, long = (count(command, environment) for command in commands)
    few, many = _lengths(case)
    span = (many - few) * case.clients
    return Count(
        (long.instructions - short.instructions) / span,
        (long.clock_reads - short.clock_reads) / span,
    )


def _lengths(case: Case) -> tuple[int, int]:
    few, many = LENGTHS
    return few // case.clients, many // case.clients


def _pgbench(session: Session, case: Case) -> Count:
    program = session.place.program("pgbench")
    what = (program, case.script, case.protocol, case.clients)
    commands = [programs.pgbench(*what, "-t", n) for n in _lengths(case)]
    return _each(session, case, commands, executed)


def _ours(session: Session, case: Case, *, describe: bool) -> Count:
    orders = (
        Order(
            str(case.script),
            case.protocol,
            case.clients,
            describe=describe,
            transactions=count,
            poll=session.poll("epoll"),
            look=False,
        )
        for count in _lengths(case)
    )
    return _each(session, case, [programs.ours(order) for order in orders], executed_by_threads)
