"""Pairs and runs made of logarithms, and what is decided of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pgpaces.analysis.compare import (
    ComparisonGoal,
    Pair,
    Side,
    Verdict,
    compare_pairs,
    compare_sides,
)
from pgpaces.analysis.trend import Run
from pgpaces.spec.result import Estimate
from tests.unit.drifting import pair, side

ONCE = ComparisonGoal(pairs=8, same=0)


def verdict(logs: list[float], goal: ComparisonGoal = ONCE, **more: Any) -> Verdict:
    return compare_pairs([pair(n, log) for n, log in enumerate(logs, 1)], goal, **more)


STEADY = [0.001, -0.002, 0.0, 0.001, -0.001, 0.002, 0.0, -0.001]


def with_noise(logs: list[float], same: list[float]) -> Verdict:
    pairs = [pair(n, log) for n, log in enumerate(logs, 1)]
    return compare_pairs(
        [*pairs, *(pair(100 + n, log, same=True) for n, log in enumerate(same))], ONCE
    )


def check(new: list[Side], old: list[Side], goal: ComparisonGoal) -> Verdict:
    """New runs against earlier ones."""
    return compare_sides(old, new, goal, basis="runs")


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
