"""Background workloads, cell by cell: estimates over the trials of each cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from pgpaces.answers import across
from pgpaces.answers.cells import Row, board
from pgpaces.answers.summary import BackgroundSummary
from pgpaces.result import Estimate


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


def background_rows(rows: Iterable[Row]) -> tuple[BackgroundRow, ...]:
    """Every background workload in every cell, workload by workload."""
    by_name: dict[str, list[BackgroundRow]] = {}
    for row in rows:
        parts: dict[str, dict[str, list[BackgroundSummary]]] = {}
        for digest in row.trials:
            for each in digest.summary.background:
                machines = parts.setdefault(each.name, {})
                machines.setdefault(board(digest), []).append(each)
        for name, machines in parts.items():
            by_name.setdefault(name, []).append(_combined(row, name, list(machines.values())))
    return tuple(each for part in by_name.values() for each in part)


def _combined(
    row: Row, name: str, machines: Sequence[Sequence[BackgroundSummary]]
) -> BackgroundRow:
    every = [each for part in machines for each in part]
    due = sum(each.counts.due for each in every)
    within = sum(each.phi * each.counts.due for each in every) / due if due else 1.0

    def time(of: str) -> Estimate | None:
        return across.together(
            [[e for each in part if (e := each.latency.estimate(of))] for part in machines]
        )

    return BackgroundRow(
        row,
        name,
        due,
        across.share(
            [[(e.counts.missed, e.counts.due) for e in part] for part in machines], within
        ),
        across.together([[each.rate for each in part] for part in machines]),
        time("mean"),
        time("p95"),
        time("p99"),
    )
