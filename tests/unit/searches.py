"""Searches for a capacity made of numbers: digests of trials against servers without chance."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from pgpaces.analysis.capacity.curve import CapacityGoal
from pgpaces.analysis.capacity.search import CapacitySearch, CellSearch
from pgpaces.analysis.digest import Digest, digest
from pgpaces.analysis.sequential import Tell, role
from pgpaces.core.findings import finding
from pgpaces.spec.design import Ask, Cell
from pgpaces.spec.result import Place, Trial
from tests.unit.trials import SECOND_NS, changed, second
from tests.unit.trials import trial as build

START = datetime(2026, 11, 1, 8, 0, tzinfo=UTC)
GOAL = CapacityGoal(0.05, 5, 0.1, 10_000, soak_s=0)
ONE = Cell(())
# Within the limit of 50 ms, and beyond it.
FAST_MS, SLOW_MS = 5.0, 80.0
TRIALS_MOST = 60

Share = Callable[[float], float]


def slope(at: float, steepness: float = 10.0, share: float = 0.05) -> Share:
    """A share whose odds grow like a power of the load; `share` at `at`."""
    return lambda load: 1 / (1 + (1 - share) / share * (load / at) ** -steepness)


def trial(
    asked: Ask,
    share: Share,
    number: int = 1,
    *,
    load: str = "rate",
    each: float = 1.0,
    invalid: str = "",
    kept: Callable[[Trial], None] = lambda _: None,
    **changes: Any,
) -> Digest:
    """A trial as it was asked for; `each`: transactions a second that a load of 1 brings.

    kept: is told of it with all its seconds.
    """
    levels = dict(asked.cell.levels)
    at = float(levels.get(load, "20").removesuffix("/s"))
    seconds = int(float((asked.options["duration"] or "").removesuffix("s")))
    missed = 0.0 if role(asked.cell) == "preflight" else share(at)
    key = (at, seconds, missed, each, invalid, repr(changes))
    if key not in _MEASURED:
        _MEASURED[key] = _measured(at, seconds, missed, each, invalid, **changes)
    made, found = _MEASURED[key]
    own = {
        "id": f"01J{number:05}{asked.cell.key.upper()}",
        "started_at": START + timedelta(minutes=2 * number),
        "plan": {"seed": number},
        "place": Place("E", asked.cell.key, levels, asked.block),
    }
    kept(changed(made, **own))
    return replace(found, trial=changed(found.trial, **own))


# Search after search offers the same loads.
_MEASURED: dict[tuple[object, ...], tuple[Trial, Digest]] = {}


def _measured(
    at: float, seconds: int, missed: float, each: float, invalid: str, **changes: Any
) -> tuple[Trial, Digest]:
    """A trial with all its seconds, of no place yet, and its digest."""
    plan = {"limit_ns": 50_000_000, "rate": at, "clients": 8, "duration_ns": seconds * SECOND_NS}
    plan |= changes.pop("plan", {})
    values = _latencies(at * each, seconds, missed)
    late = [[ms > FAST_MS for ms in own] for own in values]
    made = build(
        [],
        intervals=tuple(
            second(n, own, late=sum(was), on_time=len(own) - sum(was))
            for n, (own, was) in enumerate(zip(values, late, strict=True))
        ),
        measured_ns=seconds * SECOND_NS,
        plan=plan,
        workload={
            "name": "w",
            "scale": 1,
            "hash": "h",
            "scripts": [{"name": "a", "weight": 1, "commands": [], "queries": 7}],
        },
        findings=(finding("background-failed", why=invalid),) if invalid else (),
        **changes,
    )
    return made, digest(made)


def _latencies(rate: float, seconds: int, share: float) -> list[list[float]]:
    """Spread evenly: as many a second as fall due, and of them as many late as the share says."""
    found = []
    for at in range(seconds):
        due = math.floor(rate * (at + 1)) - math.floor(rate * at)
        before = math.floor(rate * at)
        late = round((before + due) * share) - round(before * share)
        found.append([SLOW_MS] * min(late, due) + [FAST_MS] * max(0, due - late))
    return found


def searched(
    share: Share,
    goal: CapacityGoal = GOAL,
    cell: Cell = ONE,
    *,
    most: int = TRIALS_MOST,
    invalid: Callable[[float], str] = lambda _: "",
    **changes: Any,
) -> CellSearch:
    """A search as far as so many trials take it."""
    search = CellSearch(CapacitySearch(goal), cell)
    while len(search.tells) < most and (asked := search.ask()) is not None:
        at = float(dict(asked.cell.levels)[goal.load].removesuffix("/s"))
        number = len(search.tells) + 1
        of = trial(asked, share, number, load=goal.load, invalid=invalid(at), **changes)
        search = replace(search, tells=(*search.tells, Tell(asked.cell, asked.block, of)))
    return search
