"""Parts of trials, cell by cell: background workloads, statements of scripts, and their plans.

Rows of cells in; estimates over the trials of each cell out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from string import ascii_uppercase
from typing import TypeVar

from msgspec import Struct

from pgpaces.analysis import across
from pgpaces.analysis.cells import Row, board
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.time_distribution import Distribution
from pgpaces.spec.result import Estimate, Explained

K = TypeVar("K", bound=Hashable)
P = TypeVar("P")


class Part(Struct, frozen=True):
    """A statement of a script, or a background workload (its name: script), in one cell.

    estimates: by metric; shares from 0 to 1, times in ms.
    """

    row: Row
    script: str
    line: int
    text: str
    counts: Mapping[str, int]
    estimates: Mapping[str, Estimate | None]


def background_of(rows: Iterable[Row]) -> Iterator[Part]:
    parts = _by_part(rows, lambda digest: digest.summary.background, lambda each: each.name)
    for row, name, machines in parts:
        every = [each for part in machines for each in part]
        due = sum(each.counts.due for each in every)
        within = sum(each.phi * each.counts.due for each in every) / due if due else 1.0
        hits = [[(each.counts.missed, each.counts.due) for each in part] for part in machines]
        rates = [[each.throughput for each in part] for part in machines]
        times = _times([[each.latency for each in part] for part in machines], "mean", "p95", "p99")
        shares = {"throughput": across.together(rates), "missed": across.share(hits, within)}
        yield Part(row, name, 0, "", {"due": due}, shares | times)


def statements_of(rows: Iterable[Row]) -> Iterator[Part]:
    parts = _by_part(
        rows, lambda digest: digest.summary.statements, lambda s: (s.script, s.line, s.text)
    )
    for row, key, machines in parts:
        every = [each for part in machines for each in part]
        counts = {"done": sum(each.times.count for each in every)}
        counts |= {n: sum(getattr(each, n) for each in every) for n in ("failed", "retries")}
        times = _times([[each.times for each in part] for part in machines], "mean", "p95")
        yield Part(row, *key, counts, times)


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


def _times(machines: Sequence[Sequence[Distribution]], *names: str) -> dict[str, Estimate | None]:
    return {
        name: across.together([[each.estimate(name) for each in part] for part in machines])
        for name in names
    }


class CellPlan(Struct, frozen=True):
    """A plan of a statement in a cell: one example, and the number of trials that had it."""

    row: Row
    plan: Explained
    trials: int


class StatementPlans(Struct, frozen=True):
    script: str
    line: int
    text: str
    plans: tuple[CellPlan, ...]

    @property
    def shapes(self) -> tuple[str, ...]:
        counts: Counter[str] = Counter()
        for each in self.plans:
            counts[each.plan.shape] += each.trials
        return tuple(shape for shape, _ in counts.most_common())

    def letter(self, shape: str) -> str:
        """The name of a shape on the page: A, B, ..., Z, 27."""
        at = self.shapes.index(shape)
        return ascii_uppercase[at] if at < len(ascii_uppercase) else str(at + 1)


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
