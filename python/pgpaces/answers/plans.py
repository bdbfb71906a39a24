"""How statements were executed in each cell, and where that differs. Rows in, values out."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from pgpaces.answers.cells import Row
from pgpaces.result import Explained


class SeenPlan(Struct, frozen=True):
    """A plan of a statement in a cell: in how many of its trials, and one of them in full."""

    row: Row
    plan: Explained
    trials: int


class PlanOf(Struct, frozen=True):
    """A statement and the plans it had. shapes: different ones, the most frequent first."""

    script: str
    line: int
    text: str
    seen: tuple[SeenPlan, ...]

    @property
    def shapes(self) -> tuple[str, ...]:
        """The shapes of its plans, each once."""
        counts: dict[str, int] = {}
        for each in self.seen:
            counts[each.plan.shape] = counts.get(each.plan.shape, 0) + each.trials
        return tuple(sorted(counts, key=lambda shape: -counts[shape]))

    def letter(self, shape: str) -> str:
        """A, B, ...: what the page calls a shape."""
        at, name = self.shapes.index(shape), ""
        while True:
            name = chr(ord("A") + at % 26) + name
            at = at // 26 - 1
            if at < 0:
                return name


def plans_of(rows: Iterable[Row]) -> tuple[PlanOf, ...]:
    """The plans of every statement, cell by cell.

    Plans are of one cell's trials the same where shape, workers and spilling are.
    """
    found: dict[tuple[str, int, str], dict[object, SeenPlan]] = {}
    for row in rows:
        for digest in row.trials:
            scripts = digest.trial.workload.scripts
            for plan in digest.trial.explained:
                about = scripts[plan.script]
                command = about.commands[plan.command]
                kind = (plan.shape, plan.workers_launched, plan.spilled_bytes > 0)
                seen = found.setdefault((about.name, command.line, command.text), {})
                key = (row.cell.key, kind)
                before = seen.get(key)
                seen[key] = SeenPlan(row, plan, before.trials + 1 if before else 1)
    return tuple(PlanOf(*key, tuple(seen.values())) for key, seen in found.items())
