"""Pairs and runs made of logarithms, what is decided of them, and a machine that drifts.

The logarithm of a metric follows an Ornstein-Uhlenbeck process: 8% standard deviation, a time
constant between 5 and 120 minutes (drawn evenly on a logarithmic scale), trials of 60 s one after
the other. In vectors: a row is a machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pgpaces.analysis import compare
from pgpaces.analysis.compare import ComparisonGoal, Pair, TrialValues, Verdict
from pgpaces.analysis.sequential import planned_pairs
from pgpaces.analysis.trend import Run
from pgpaces.spec.result import Estimate

Numbers = NDArray[Any]
SD, TAU_MIN = 0.08, (5.0, 120.0)


def drift(
    draw: np.random.Generator, machines: int, trials: int, tau_min: tuple[float, float] = TAU_MIN
) -> Numbers:
    """machines x trials logarithms."""
    tau = np.exp(draw.uniform(math.log(tau_min[0]), math.log(tau_min[1]), machines))
    kept = np.exp(-1 / tau)
    steps = draw.normal(0, SD, (machines, trials))
    steps[:, 1:] *= np.sqrt(1 - kept**2)[:, None]
    found = np.empty_like(steps)
    found[:, 0] = steps[:, 0]
    for n in range(1, trials):
        found[:, n] = kept * found[:, n - 1] + steps[:, n]
    return found


def differences(
    logs: Numbers, goal: ComparisonGoal, effect: float = 0.0
) -> tuple[Numbers, Numbers]:
    """B less A of each pair of A and B, and of each pair of A with itself, in the goal's order."""
    plan = planned_pairs(goal, goal.pairs)
    signs = np.array([-1 if each.b_first else 1 for each in plan])
    same = np.array([each.same for each in plan])
    found = signs * (logs[:, 1 : 2 * len(plan) : 2] - logs[:, 0 : 2 * len(plan) : 2])
    return found[:, ~same] + effect, found[:, same]


def pairs_of(real: Sequence[float], same: Sequence[float], goal: ComparisonGoal) -> list[Pair]:
    """As they come out of runs, with these differences of the rate's logarithm."""
    numbers = {False: iter(real), True: iter(same)}
    return [
        pair(each.number, float(log), same=each.same)
        for each in planned_pairs(goal, goal.pairs)
        if (log := next(numbers[each.same], None)) is not None
    ]


def pair(number: int, log: float, *, same: bool = False) -> Pair:
    base = 100.0
    return Pair(number, side(base), side(base * math.exp(log)), same)


def side(rate: float, missed: int = 0, due: int = 6000, **values: float) -> TrialValues:
    return TrialValues({"throughput": rate, **values}, missed, due)


ONCE = ComparisonGoal(pairs=8, same=0)


def verdict(logs: list[float], goal: ComparisonGoal = ONCE, **more: Any) -> Verdict:
    return compare.compare_pairs([pair(n, log) for n, log in enumerate(logs, 1)], goal, **more)


STEADY = [0.001, -0.002, 0.0, 0.001, -0.001, 0.002, 0.0, -0.001]


def with_noise(logs: list[float], same: list[float]) -> Verdict:
    pairs = [pair(n, log) for n, log in enumerate(logs, 1)]
    return compare.compare_pairs(
        [*pairs, *(pair(100 + n, log, same=True) for n, log in enumerate(same))], ONCE
    )


def check(new: list[TrialValues], old: list[TrialValues], goal: ComparisonGoal) -> Verdict:
    return compare.compare_trials(old, new, goal, basis="runs")


def shares(a: list[int], b: list[int], due: int = 1000) -> list[Pair]:
    return [
        Pair(n, side(1, x, due), side(1, y, due)) for n, (x, y) in enumerate(zip(a, b, strict=True))
    ]


MISSED = ComparisonGoal("missed", same=0)


def runs(logs: Sequence[float], own: float | None = None) -> list[Run]:
    found = []
    for n, log in enumerate(logs):
        value = 100 * math.exp(min(log, 700)) if log < math.inf else log
        ends = Estimate.alone(value, 1)
        if own is not None:
            ends = Estimate(value, value * math.exp(-own), value * math.exp(own), 10)
        found.append(Run(f"r{n}", ends))
    return found
