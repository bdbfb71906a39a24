"""The statements of scripts, cell by cell: estimates of their times over the trials of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from pgpaces.answers import across
from pgpaces.answers.cells import Row, board
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
    by_statement: dict[tuple[str, int, str], list[StatementRow]] = {}
    for row in rows:
        parts: dict[tuple[str, int, str], dict[str, list[StatementSummary]]] = {}
        for digest in row.trials:
            for each in digest.summary.statements:
                machines = parts.setdefault((each.script, each.line, each.text), {})
                machines.setdefault(board(digest), []).append(each)
        for key, machines in parts.items():
            by_statement.setdefault(key, []).append(_combined(row, list(machines.values())))
    return tuple(each for part in by_statement.values() for each in part)


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
