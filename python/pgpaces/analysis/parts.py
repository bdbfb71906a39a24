"""Parts of trials, cell by cell: background workloads, statements of scripts, and their plans.

Rows of cells in; estimates over the trials of each cell out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from pgpaces.analysis import across
from pgpaces.analysis.cells import Row, board
from pgpaces.spec.result import Estimate, Explained

# The parts of one name, such as a statement, in the trials of each machine.
Machines = Sequence[Sequence[Any]]


class Part(Struct, frozen=True):
    """A statement of a script, or a background workload, in one cell.

    name: the same in all cells. estimates: by metric; shares from 0 to 1, times in ms.
    """

    kind: Literal["statement", "background"]
    name: str
    row: Row
    counts: Mapping[str, int]
    estimates: Mapping[str, Estimate | None]
    script: str = ""
    line: int = 0
    text: str = ""


def statement_names(places: Iterable[tuple[str, int]]) -> Iterator[str]:
    """SCRIPT:LINE of each; of several on one line the second is SCRIPT:LINE.2."""
    seen: Counter[str] = Counter()
    for script, line in places:
        name = f"{script}:{line}"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}.{seen[name]}"


def background_of(rows: Iterable[Row]) -> Iterator[Part]:
    for row, (name,), machines in _by_part(rows, "background", "name"):
        hits = [[(each.counts.missed, each.counts.due, each.phi) for each in t] for t in machines]
        rates = [[each.throughput for each in trials] for trials in machines]
        counts = {"due": sum(due for trials in hits for _, due, _ in trials)}
        shares = {"throughput": across.together(rates), "missed": across.share(hits)}
        times = _times(machines, "latency", "mean", "p95", "p99")
        yield Part("background", name, row, counts, shares | times)


def statements_of(rows: Iterable[Row]) -> Iterator[Part]:
    found = [*_by_part(rows, "statements", "script", "line", "text")]
    keys = dict.fromkeys(key for _, key, _ in found)
    names = dict(zip(keys, statement_names(key[:2] for key in keys), strict=True))
    for row, key, machines in found:
        every = [each for trials in machines for each in trials]
        counts = {"done": sum(each.times.count for each in every)}
        counts |= {n: sum(getattr(each, n) for each in every) for n in ("failed", "retries")}
        times = _times(machines, "times", "mean", "p95")
        yield Part("statement", names[key], row, counts, times, *key)


def _by_part(
    rows: Iterable[Row], kind: str, *names: str
) -> Iterator[tuple[Row, tuple[Any, ...], Machines]]:
    """For each part of summaries, known by these names, and each row: the values by machine."""
    groups: dict[tuple[Any, ...], dict[str, tuple[Row, dict[str, list[Any]]]]] = {}
    for row in rows:
        for digest in row.trials:
            for part in getattr(digest.summary, kind):
                key = tuple(getattr(part, name) for name in names)
                _, machines = groups.setdefault(key, {}).setdefault(row.cell.key, (row, {}))
                machines.setdefault(board(digest), []).append(part)
    for key, of_rows in groups.items():
        yield from ((row, key, [*machines.values()]) for row, machines in of_rows.values())


def _times(machines: Machines, times: str, *names: str) -> dict[str, Estimate | None]:
    every = [[getattr(each, times) for each in trials] for trials in machines]
    return {
        n: across.together([[e.estimate(n) for e in trials] for trials in every]) for n in names
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
