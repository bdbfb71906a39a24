"""One number of several trials: intervals across trials and machines. Estimates in, one out.

Knows neither cells nor experiments. Transactions of different trials are never pooled into one
quantile: each trial says its own, and the interval is of what the trials say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median_high, stdev

from pgpaces.answers.distributions import student_quantile
from pgpaces.answers.stats import Z95, pearson, proportion
from pgpaces.result import Estimate

_TAIL = 0.025
# Student's t of two values has one degree of freedom: it reaches 12.7 standard errors far and says
# nothing. Two are taken as if they were three: that is too narrow where trials differ much more
# than chance alone makes them (0.86 instead of 0.95), and the report says that two are few.
_FREEDOM_MIN = 2

Machines = Sequence[Sequence[Estimate]]
Hits = Sequence[Sequence[tuple[int, int]]]


def students(values: int) -> float:
    """How many standard errors the interval of so many values reaches: Student's t."""

    return student_quantile(max(_FREEDOM_MIN, values - 1), 1 - _TAIL)


def together(machines: Machines, *, bounded: bool = True) -> Estimate | None:
    """What trials say together; machines: the trials of each. None of nothing.

    The mean with Student's t. Trials of several machines are no independent ones: there the means
    of the machines are, so that the spread between machines is in the interval. With two values it
    is no less than the hull of the trials' own intervals. A value above every time (of what did not
    succeed) has no mean: then the upper median, and the hull.

    bounded: a trial whose own interval is not estimable makes that of all so. A quantile beyond
    what a trial can tell comes out too low in each of them, however many there are.
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
    middle = fmean(values)
    if bounded and not all(estimate.estimable for estimate in every):
        return Estimate.alone(middle, n)
    half = students(len(values)) * stdev(values) / math.sqrt(len(values))
    low, high = max(0.0, middle - half), middle + half
    if not bounded:
        return Estimate(middle, low, high, n)
    least, most = _hull(every)
    if len(values) <= _FREEDOM_MIN:
        return Estimate(middle, min(low, least), max(high, most), n)
    # Where the upper end of one falls among what did not succeed, no mean can bound it.
    return Estimate(middle, low, most if math.isinf(most) else high, n)


def _hull(estimates: Sequence[Estimate]) -> tuple[float, float]:
    return min(e.low for e in estimates), max(e.high for e in estimates)


def design_factor(machines: Hits, within: float) -> float:
    """By how much trials say less than as many independent transactions, at least 1.

    phi = max(1, phi_trial (t_k / z)^2, phi_machine (t_m / z)^2, phi_window): Pearson's dispersion
    of (hits, due) over k trials and over m machines, and within trials. With z in Wilson's interval
    the factors make Student's t of it, with k - 1 degrees of freedom, because k trials estimate a
    dispersion badly (McCullagh and Nelder, Generalized Linear Models, 1989, 4.5).
    """
    trials = [pair for found in machines for pair in found]
    sums = [(sum(k for k, _ in found), sum(n for _, n in found)) for found in machines]
    phi = max(1.0, within)
    for parts in (trials, sums):
        hits, due = sum(k for k, _ in parts), sum(n for _, n in parts)
        if len(parts) > 1 and 0 < hits < due:
            phi = max(phi, pearson(parts) * (students(len(parts)) / Z95) ** 2)
    return phi


def share(machines: Hits, within: float) -> Estimate | None:
    """A share of what was due, with Wilson's interval; pairs of hits and due. None of nothing."""
    hits = sum(k for found in machines for k, _ in found)
    due = sum(n for found in machines for _, n in found)
    return proportion(hits, due, design_factor(machines, within))
