"""Parts of trials, cell by cell: background workloads, statements of scripts, and their plans.

Rows of cells in; estimates over the trials of each cell out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
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
        hits = [[(each.counts.missed, each.counts.due, each.phi) for each in p] for p in machines]
        rates = [[each.throughput for each in part] for part in machines]
        times = _times([[each.latency for each in part] for part in machines], "mean", "p95", "p99")
        shares = {"throughput": across.together(rates), "missed": across.share(hits)}
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


class StatementPlan(Struct, frozen=True):
    """A plan of a statement: the last example, the cells, and the number of trials that had it."""

    script: str
    line: int
    text: str
    plan: Explained
    cells: tuple[Row, ...]
    trials: int


def plans_of(rows: Iterable[Row]) -> tuple[StatementPlan, ...]:
    """The plans of every statement; they are equal if shapes, workers and spilling are."""
    found: dict[object, StatementPlan] = {}
    for row in rows:
        for digest in row.trials:
            for plan in digest.trial.explained:
                script = digest.trial.workload.scripts[plan.script]
                command = script.commands[plan.command]
                of = (script.name, command.line, command.text)
                key = (of, plan.shape, plan.workers_launched, plan.spilled_bytes > 0)
                cells, trials = (found[key].cells, found[key].trials) if key in found else ((), 0)
                cells = cells if row in cells[-1:] else (*cells, row)
                found[key] = StatementPlan(*of, plan, cells, trials + 1)
    return tuple(sorted(found.values(), key=lambda each: (each.script, each.line)))
