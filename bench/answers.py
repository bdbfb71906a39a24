"""What the pure answers take over 1,000 trials that are made of numbers: seconds, by each."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

from figures import Figure, Finding, Goal
from msgspec.structs import replace
from session import Session

from pgpaces.analysis import cells, differences, trend
from pgpaces.analysis import compare as pairs
from pgpaces.analysis.capacity import curve as capacity
from pgpaces.analysis.capacity.answer import judge
from pgpaces.analysis.digest import Digest
from pgpaces.spec.design import Design
from pgpaces.spec.result import Estimate

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.unit import experiments

SECTION = "Answers"
TRIALS = 1_000
SECONDS = 60
AGAIN = 3
TWO = Design({"set.work_mem": ("4MB", "64MB")}, trials=TRIALS // 2)
LOADS = Design({"clients": tuple(map(str, range(1, 51)))}, trials=TRIALS // 50)
LIMIT = capacity.CapacityGoal(0.05, start=100.0, lowest=1.0, highest=1000.0)
# The larger setting is faster by so much, and each trial by a little.
EFFECT, SPREAD = 0.03, 0.01


def section(_session: Session) -> Iterator[Finding]:
    """Each pure answer over 1,000 trials; the quickest of three, so without imports."""
    two, loads = _trials(TWO), _trials(LOADS)
    goal = pairs.ComparisonGoal("throughput", ("mean", "p95", "p99", "missed"))
    a, b = ([d for d in two if _level(d) == level] for level in TWO.factors[0].levels)
    runs = [trend.Run(digest.trial.id, digest.summary.throughput) for digest in two]
    sides = [pairs.trial_values(digest.summary) for digest in two]
    points = _points()
    asked: dict[str, Callable[[], object]] = {
        "compare, 500 pairs, 5 metrics": lambda: pairs.compare_stored(a, b, goal),
        "compare, groups of 500": lambda: pairs.compare_trials(
            sides[::2], sides[1::2], goal, basis="trials"
        ),
        "what differs between groups of 500": lambda: differences.differ([a, b]),
        "what differs among 1,000": lambda: differences.differ([each] for each in two),
        "check, 1 run against 999": lambda: pairs.compare_trials(
            sides[1:], sides[:1], goal, basis="runs"
        ),
        "trend, 1,000 runs": lambda: trend.trend(runs),
        "capacity": lambda: judge(capacity.Points(points, LIMIT)),
        "50 cells": lambda: cells.rows(LOADS.cells(), loads),
    }
    took = {name: min(_took(made) for _ in range(AGAIN)) for name, made in asked.items()}
    for name, seconds in took.items():
        yield Figure(SECTION, name, "s", (seconds,), goal=Goal("ours", "at most", 1.0))


def _level(digest: Digest) -> str:
    assert digest.trial.place is not None
    return digest.trial.place.levels["set.work_mem"]


def _points() -> list[capacity.TrialPoint]:
    """Trials at loads about the one that holds."""
    found = []
    for number in range(TRIALS):
        load = 80 + number % 41
        missed = round(60 * load * 0.05 * (load / 100) ** 8 * (1 + number % 7 / 20))
        windows = tuple((missed // 6, 10 * load) for _ in range(6))
        found.append(capacity.TrialPoint(load, "long", 60 * load, missed, 60.0, windows))
    return found


def _took(answer: Callable[[], object]) -> float:
    began = time.perf_counter()
    answer()
    return time.perf_counter() - began


def _trials(design: Design) -> list[Digest]:
    """A thousand trials like one that was summed up, each a little different."""
    slots = list(design.asks())
    models = {
        slot.cell.key: experiments.made(slot, SECONDS) for slot in slots[: len(design.cells())]
    }
    found = []
    for number, slot in enumerate(slots):
        model = models[slot.cell.key]
        assert model.trial.place is not None
        levels = dict(slot.cell.levels)
        load = float(levels.get("clients", 4))
        value = 40.0 * load / (1 + 0.03 * (load - 1))
        value *= (
            1
            + SPREAD * (number * 37 % 11 - 5) / 5
            + EFFECT * (levels.get("set.work_mem") == "64MB")
        )
        rate = Estimate(value, 0.98 * value, 1.02 * value, model.summary.throughput.n)
        place = replace(model.trial.place, block=slot.block)
        at = model.trial.started_at + timedelta(hours=number)
        trial = replace(model.trial, id=f"B{number:025}", place=place, started_at=at)
        found.append(replace(model, trial=trial, summary=replace(model.summary, throughput=rate)))
    return found
