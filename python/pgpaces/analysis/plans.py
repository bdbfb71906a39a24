"""How statements were executed in each cell, and where that differs. Rows in, values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from pgpaces.analysis.cells import Row
from pgpaces.spec.result import Explained


class CellPlan(Struct, frozen=True):
    """A plan of a statement in a cell: one example, and the number of trials that had it."""

    row: Row
    plan: Explained
    trials: int


class StatementPlans(Struct, frozen=True):
    """A statement and its plans, cell by cell."""

    script: str
    line: int
    text: str
    plans: tuple[CellPlan, ...]

    @property
    def shapes(self) -> tuple[str, ...]:
        """The shapes of its plans, the most frequent first."""
        counts: Counter[str] = Counter()
        for each in self.plans:
            counts[each.plan.shape] += each.trials
        return tuple(shape for shape, _ in counts.most_common())

    def letter(self, shape: str) -> str:
        """The name of a shape on the page: A, B, ..., Z, AA."""
        at, name = self.shapes.index(shape), ""
        while True:
            name = chr(ord("A") + at % 26) + name
            at = at // 26 - 1
            if at < 0:
                return name


def plans_of(rows: Iterable[Row]) -> tuple[StatementPlans, ...]:
    """The plans of every statement, cell by cell.

    Plans of a cell's trials are equal if their shapes, workers and spilling are; the last one is
    the example.
    """
    statements: dict[tuple[str, int, str], dict[object, CellPlan]] = {}
    for row in rows:
        for digest in row.trials:
            for plan in digest.trial.explained:
                script = digest.trial.workload.scripts[plan.script]
                command = script.commands[plan.command]
                plans = statements.setdefault((script.name, command.line, command.text), {})
                key = (row.cell.key, plan.shape, plan.workers_launched, plan.spilled_bytes > 0)
                before = plans.get(key)
                plans[key] = CellPlan(row, plan, before.trials + 1 if before else 1)
    return tuple(StatementPlans(*key, tuple(each.values())) for key, each in statements.items())
