"""Background workloads, cell by cell: estimates over the trials of each cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from pgpaces.answers import across
from pgpaces.answers.cells import Row, by_part
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
    parts = by_part(rows, lambda digest: digest.summary.background, lambda each: each.name)
    return tuple(_combined(row, name, machines) for row, name, machines in parts)


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
