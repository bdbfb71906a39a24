"""Runs of one kind over time: where their level changed.

Pure: each run is an estimate, in the order in which they ran. Knows no store and no words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from pgpaces.analysis import level_shift
from pgpaces.analysis.across import ALPHA, ERROR_MIN, Effect, moments
from pgpaces.analysis.arrays import np
from pgpaces.analysis.stats import Z95
from pgpaces.spec.result import Estimate

# With fewer runs the spread within a level is unknown.
RUNS_MIN = 8
_SEGMENT_MIN = 2


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
    noise = max(float(np.median(steps)) / (0.6745 * math.sqrt(2)), own, ERROR_MIN)
    starts = level_shift.levels(x, noise * noise, shortest=_SEGMENT_MIN)
    while True:
        parts = [logs[low:high] for low, high in pairwise((0, *starts, len(logs)))]
        freedom = len(logs) - len(parts)
        squares = [moments(part)[1] * (len(part) - 1) for part in parts if len(part) > 1]
        error = max(math.sqrt(math.fsum(squares) / freedom), own, ERROR_MIN)
        tests = []
        for old, new in pairwise(parts):
            step = math.fsum(new) / len(new) - math.fsum(old) / len(old)
            of_step = error * math.sqrt(1 / len(new) + 1 / len(old))
            tests.append(Effect(step, of_step, freedom, len(old) + len(new)))
        ps = [test.p() * (len(logs) - 1) for test in tests]
        if not ps or max(ps) < ALPHA:
            break
        del starts[ps.index(max(ps))]
    changes = tuple(
        Change(usable[at - 1].name, usable[at].name, test.ratio(), min(1.0, p))
        for at, test, p in zip(starts, tests, ps, strict=True)
    )
    levels = []
    for low, part in zip((0, *starts), parts, strict=True):
        n = len(part)
        mean = Effect(moments(part)[0], error / math.sqrt(n), freedom, n).ratio()
        levels.append(Level(usable[low].name, usable[low + n - 1].name, n, mean))
    return Trend(len(usable), changes, tuple(levels), math.expm1(error), left_out=left_out)
