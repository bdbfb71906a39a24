"""What ran beside the trial's own workload, cell by cell: as the trials of a cell say together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from pgpaces.answers import across
from pgpaces.answers.cells import Row, board
from pgpaces.answers.summary import BesideSummary
from pgpaces.result import Estimate


class BesideRow(Struct, frozen=True):
    """One workload beside another in one cell. missed: from 0 to 1 of what was due; times in ms."""

    row: Row
    name: str
    due: int
    missed: Estimate | None
    rate: Estimate | None
    mean: Estimate | None
    p95: Estimate | None
    p99: Estimate | None


def beside_of(rows: Iterable[Row]) -> tuple[BesideRow, ...]:
    """Every such workload in every cell, workload by workload."""
    found: dict[str, list[BesideRow]] = {}
    for row in rows:
        parts: dict[str, dict[str, list[BesideSummary]]] = {}
        for digest in row.trials:
            for each in digest.summary.beside:
                machines = parts.setdefault(each.name, {})
                machines.setdefault(board(digest), []).append(each)
        for name, machines in parts.items():
            found.setdefault(name, []).append(_together(row, name, list(machines.values())))
    return tuple(each for part in found.values() for each in part)


def _together(row: Row, name: str, machines: Sequence[Sequence[BesideSummary]]) -> BesideRow:
    every = [each for part in machines for each in part]
    due = sum(each.counts.due for each in every)
    within = sum(each.phi * each.counts.due for each in every) / due if due else 1.0

    def times(of: str) -> Estimate | None:
        return across.together(
            [[e for each in part if (e := each.latency.estimate(of))] for part in machines]
        )

    return BesideRow(
        row,
        name,
        due,
        across.share(
            [[(e.counts.missed, e.counts.due) for e in part] for part in machines], within
        ),
        across.together([[each.rate for each in part] for part in machines]),
        times("mean"),
        times("p95"),
        times("p99"),
    )
