"""Parts of trials, cell by cell: background workloads, and statements of scripts.

Rows of cells in; estimates over the trials of each cell out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct

from pgpaces.analysis import across
from pgpaces.analysis.cells import Row, board
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.spread import Spread
from pgpaces.analysis.summary import BackgroundSummary, StatementSummary
from pgpaces.spec.result import Estimate

K = TypeVar("K", bound=Hashable)
P = TypeVar("P")


class BackgroundRow(Struct, frozen=True):
    """One background workload in one cell. missed: share of due, 0 to 1; times in ms."""

    row: Row
    name: str
    due: int
    missed: Estimate | None
    rate: Estimate | None
    mean: Estimate | None
    p95: Estimate | None
    p99: Estimate | None


class StatementRow(Struct, frozen=True):
    """One SQL command of a script in one cell; times in ms."""

    row: Row
    script: str
    line: int
    text: str
    done: int
    failed: int
    retries: int
    mean: Estimate | None
    p95: Estimate | None

    @property
    def name(self) -> str:
        """Script and line."""
        return f"{self.script}:{self.line}"


def background_rows(rows: Iterable[Row]) -> tuple[BackgroundRow, ...]:
    """Every background workload in every cell, workload by workload."""
    parts = _by_part(rows, lambda digest: digest.summary.background, lambda each: each.name)
    return tuple(_background(row, name, machines) for row, name, machines in parts)


def statements_of(rows: Iterable[Row]) -> tuple[StatementRow, ...]:
    """Every statement in every cell, statement by statement in the order of the scripts."""
    parts = _by_part(
        rows, lambda digest: digest.summary.statements, lambda s: (s.script, s.line, s.text)
    )
    return tuple(_statement(row, machines) for row, _, machines in parts)


def _by_part(
    rows: Iterable[Row], parts: Callable[[Digest], Iterable[P]], key: Callable[[P], K]
) -> Iterator[tuple[Row, K, list[list[P]]]]:
    """For each part of trials, such as a statement, and each row: the part's values by machine."""
    groups: dict[K, list[tuple[Row, dict[str, list[P]]]]] = {}
    for row in rows:
        machines: dict[K, dict[str, list[P]]] = {}
        for digest in row.trials:
            for part in parts(digest):
                of_part = machines.setdefault(key(part), {})
                of_part.setdefault(board(digest), []).append(part)
        for name, of_part in machines.items():
            groups.setdefault(name, []).append((row, of_part))
    for name, group in groups.items():
        yield from ((row, name, list(of_part.values())) for row, of_part in group)


def _background(
    row: Row, name: str, machines: Sequence[Sequence[BackgroundSummary]]
) -> BackgroundRow:
    every = [each for part in machines for each in part]
    due = sum(each.counts.due for each in every)
    within = sum(each.phi * each.counts.due for each in every) / due if due else 1.0
    hits = [[(each.counts.missed, each.counts.due) for each in part] for part in machines]
    return BackgroundRow(
        row,
        name,
        due,
        across.share(hits, within),
        across.together([[each.rate for each in part] for part in machines]),
        *_times([[each.latency for each in part] for part in machines], "mean", "p95", "p99"),
    )


def _statement(row: Row, machines: Sequence[Sequence[StatementSummary]]) -> StatementRow:
    every = [each for part in machines for each in part]
    return StatementRow(
        row,
        every[0].script,
        every[0].line,
        every[0].text,
        sum(each.times.count for each in every),
        sum(each.failed for each in every),
        sum(each.retries for each in every),
        *_times([[each.times for each in part] for part in machines], "mean", "p95"),
    )


def _times(machines: Sequence[Sequence[Spread]], *names: str) -> Iterator[Estimate | None]:
    """The numbers of these names."""
    for name in names:
        yield across.together([[each.estimate(name) for each in part] for part in machines])
