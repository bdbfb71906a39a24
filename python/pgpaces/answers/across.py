"""One number of several trials: intervals across trials and machines. Estimates in, one out.

Knows neither cells nor experiments. Transactions of different trials are never pooled into one
quantile: each trial says its own, and the interval is of what the trials say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median_high, stdev

from pgpaces.answers.stats import pearson, proportion
from pgpaces.result import Estimate

_TAIL = 0.025
# Student's t of two values has one degree of freedom: it reaches 12.7 standard errors far and says
# nothing.
_TRIALS_MIN = 3

Machines = Sequence[Sequence[Estimate]]
Hits = Sequence[Sequence[tuple[int, int]]]


def together(machines: Machines) -> Estimate | None:
    """What trials say together; machines: the trials of each. None of nothing.

    The mean with Student's t from three trials on. Trials of several machines are no independent
    ones: there the means of the machines are, so that the spread between machines is in the
    interval. With fewer than three it is the hull of the trials' own intervals. A value above every
    time (of what did not succeed) has no mean: then the upper median, and the hull.
    """
    found = [list(trials) for trials in machines if trials]
    every = [estimate for trials in found for estimate in trials]
    if len(every) < 2:
        return every[0] if every else None
    n = sum(estimate.n for estimate in every)
    values = [estimate.value for estimate in every]
    if any(math.isinf(value) for value in values):
        return Estimate(median_high(values), *_hull(every), n)
    if len(found) > 1:
        values = [fmean(estimate.value for estimate in trials) for trials in found]
    if len(values) < _TRIALS_MIN:
        return Estimate(fmean(values), *_hull(every), n)
    from scipy.special import stdtrit

    middle, k = fmean(values), len(values)
    half = float(stdtrit(k - 1, 1 - _TAIL)) * stdev(values) / math.sqrt(k)
    return Estimate(middle, max(0.0, middle - half), middle + half, n)


def _hull(estimates: Sequence[Estimate]) -> tuple[float, float]:
    return min(e.low for e in estimates), max(e.high for e in estimates)


def design_factor(machines: Hits, within: float) -> float:
    """By how much trials say less than as many independent transactions, at least 1.

    phi = max(1, phi_trial (1 + 2/k), phi_machine (1 + 2/m), phi_window): Pearson's dispersion of
    (hits, due) over k trials and over m machines, and within trials; the factors because k trials
    estimate a dispersion badly (METHOD: capacity takes the same).
    """
    trials = [pair for found in machines for pair in found]
    sums = [(sum(k for k, _ in found), sum(n for _, n in found)) for found in machines]
    phi = max(1.0, within)
    for parts in (trials, sums):
        hits, due = sum(k for k, _ in parts), sum(n for _, n in parts)
        if len(parts) > 1 and 0 < hits < due:
            phi = max(phi, pearson(parts) * (1 + 2 / len(parts)))
    return phi


def share(machines: Hits, within: float) -> Estimate | None:
    """A share of what was due, with Wilson's interval; pairs of hits and due. None of nothing."""
    hits = sum(k for found in machines for k, _ in found)
    due = sum(n for found in machines for _, n in found)
    return proportion(hits, due, design_factor(machines, within))
