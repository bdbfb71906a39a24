"""Runs of one kind over time: where their level changed, and whether new ones fit a baseline.

Pure: each run is an estimate, in the order in which they ran. Knows no store and no words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import compare, level_shift
from pgpaces.analysis.arrays import np
from pgpaces.analysis.compare import ComparisonGoal, Side, Verdict
from pgpaces.analysis.effect import ALPHA, Effect, moments, ratio_of, share_error
from pgpaces.analysis.stats import Z95
from pgpaces.core.metrics import is_share
from pgpaces.spec.result import Estimate

# With fewer runs the spread within a level is unknown.
RUNS_MIN = 8
BASELINE_MIN = 4
_SEGMENT_MIN = 2
# The least standard error: identical runs do not prove that the next one is identical.
_ERROR_MIN = 1e-4


class Run(Struct, frozen=True):
    name: str
    estimate: Estimate


class Change(Struct, frozen=True):
    """A new level. before, first: the runs around it. ratio: the new level over the one before."""

    before: str
    first: str
    ratio: Estimate
    p: float


class Level(Struct, frozen=True):
    """Runs between two changes: first and last, how many, and their geometric mean."""

    first: str
    last: str
    runs: int
    value: Estimate


class Trend(Struct, frozen=True):
    """The levels of a series of runs. needed: the fewest runs, where there are too few.

    spread: the standard deviation of runs of one level, as a ratio less 1. left_out: runs whose
    value has no logarithm.
    """

    runs: int
    changes: tuple[Change, ...] = ()
    levels: tuple[Level, ...] = ()
    spread: float | None = None
    needed: int = 0
    left_out: tuple[str, ...] = ()


def trend(runs: Sequence[Run]) -> Trend:
    """Levels and changes; of series without a change at most 5 in 100 show one.

    Candidates by `level_shift.levels` on logarithms. A candidate stays if Student's test of the two
    levels around it, with the spread within all levels, has a p below 5% over the number of places
    (Bonferroni); the least certain one is removed first, and the rest is tested again. The runs'
    own intervals are the least spread of a series.
    """
    usable = [run for run in runs if 0 < run.estimate.value < math.inf]
    left_out = tuple(run.name for run in runs if run not in usable)
    if len(usable) < RUNS_MIN:
        return Trend(len(usable), needed=RUNS_MIN, left_out=left_out)
    logs = [math.log(run.estimate.value) for run in usable]
    # The standard error by the runs' own intervals.
    squares = [
        (math.log(e.high / e.low) / (2 * Z95)) ** 2
        for e in (run.estimate for run in usable)
        if 0 < e.low <= e.high < math.inf
    ]
    own = math.sqrt(math.fsum(squares) / len(squares)) if squares else 0.0
    x = np.asarray(logs)
    # From neighbors, so that changes of level hardly count.
    steps = np.abs(np.diff(x))
    noise = max(float(np.median(steps)) / (0.6745 * math.sqrt(2)), own, _ERROR_MIN)
    starts = level_shift.levels(x, noise * noise, shortest=_SEGMENT_MIN)
    while starts:
        tests = _tests(logs, starts, own)
        worst = max(range(len(starts)), key=lambda place: tests[place].p())
        if tests[worst].p() * (len(logs) - 1) < ALPHA:
            break
        del starts[worst]
    parts = _parts(logs, starts)
    error, freedom = _spread(parts, own)
    changes = tuple(
        Change(
            usable[at - 1].name, usable[at].name, _ratio(test), min(1.0, test.p() * (len(logs) - 1))
        )
        for at, test in zip(starts, _tests(logs, starts, own), strict=True)
    )
    levels, low = [], 0
    for part in parts:
        n = len(part)
        mean = _ratio(Effect(moments(part)[0], error / math.sqrt(n), freedom, n))
        levels.append(Level(usable[low].name, usable[low + n - 1].name, n, mean))
        low += n
    return Trend(len(usable), changes, tuple(levels), math.expm1(error), left_out=left_out)


def _parts(logs: Sequence[float], starts: Sequence[int]) -> list[Sequence[float]]:
    edges = [0, *starts, len(logs)]
    return [logs[low:high] for low, high in pairwise(edges)]


def _spread(parts: Sequence[Sequence[float]], own: float) -> tuple[float, int]:
    """The standard deviation within levels, and its degrees of freedom."""
    freedom = sum(len(part) - 1 for part in parts)
    squares = math.fsum(moments(part)[1] * (len(part) - 1) for part in parts if len(part) > 1)
    return max(math.sqrt(squares / freedom), own, _ERROR_MIN), freedom


def _tests(logs: Sequence[float], starts: Sequence[int], own: float) -> list[Effect]:
    parts = _parts(logs, starts)
    error, freedom = _spread(parts, own)
    return [
        Effect(
            math.fsum(new) / len(new) - math.fsum(old) / len(old),
            error * math.sqrt(1 / len(new) + 1 / len(old)),
            freedom,
            len(old) + len(new),
        )
        for old, new in pairwise(parts)
    ]


def _ratio(effect: Effect) -> Estimate:
    half = effect.half()
    return ratio_of(effect.value, effect.value - half, effect.value + half, n=effect.n)


def check(now: Sequence[Side], baseline: Sequence[Side], goal: ComparisonGoal) -> Verdict:
    """Some runs against earlier ones of the same kind, each run one value.

    The runs of a baseline are of different days, so their spread includes the drift of the machine.
    The new ones are compared with a prediction: Student's t with spread s sqrt(1/m + 1/k) and
    k - 1 degrees of freedom. A baseline of fewer than 4 runs shows no drift: then unpaired.py
    compares trials.
    """
    metric = goal.metric
    base = Verdict("unknown", "few", metric, goal.margin, len(baseline), "runs")
    old, new = compare.numbers(baseline, metric), compare.numbers(now, metric)
    if not now:
        return replace(base, why="nothing new")
    missing = len(baseline) + len(now) - len(old) - len(new)
    if missing:
        return replace(base, why="unbounded", undefined=missing)
    if len(old) < BASELINE_MIN:
        return replace(base, needed=BASELINE_MIN)
    others = [(name, _prediction(now, baseline, name)) for name in goal.secondary]
    effects = [(other, effect) for other, effect in others if effect is not None]
    base = replace(base, secondary=compare.secondaries(effects))
    effect = _prediction(now, baseline, metric)
    assert effect is not None, "all have the metric"
    # More earlier runs do not decrease the spread of the new one.
    return replace(compare.conclude(base, effect), needed=None)


def _prediction(now: Sequence[Side], baseline: Sequence[Side], metric: str) -> Effect | None:
    """The new runs less the earlier ones; None where a run does not have the metric."""
    old, new = compare.numbers(baseline, metric), compare.numbers(now, metric)
    if len(old) < len(baseline) or len(new) < len(now):
        return None
    middle, variance = moments(old)
    error = max(math.sqrt(variance), _ERROR_MIN) * math.sqrt(1 / len(new) + 1 / len(old))
    if is_share(metric):
        error = max(error, share_error(compare.hits(baseline), compare.hits(now)))
    return Effect(math.fsum(new) / len(new) - middle, error, len(old) - 1, len(old))
