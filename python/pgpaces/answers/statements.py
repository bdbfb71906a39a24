"""The statements of scripts, cell by cell: estimates of their times over the trials of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from pgpaces.answers import across
from pgpaces.answers.cells import Row, by_part
from pgpaces.answers.summary import StatementSummary
from pgpaces.result import Estimate


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


def statements_of(rows: Iterable[Row]) -> tuple[StatementRow, ...]:
    """Every statement in every cell, statement by statement in the order of the scripts."""
    parts = by_part(
        rows, lambda digest: digest.summary.statements, lambda s: (s.script, s.line, s.text)
    )
    return tuple(_combined(row, machines) for row, _, machines in parts)


def _combined(row: Row, machines: Sequence[Sequence[StatementSummary]]) -> StatementRow:
    every = [each for part in machines for each in part]

    def combined(name: str) -> Estimate | None:
        return across.together(
            [[e for each in part if (e := each.times.estimate(name))] for part in machines]
        )

    return StatementRow(
        row,
        every[0].script,
        every[0].line,
        every[0].text,
        sum(each.times.count for each in every),
        sum(each.failed for each in every),
        sum(each.retries for each in every),
        combined("mean"),
        combined("p95"),
    )
