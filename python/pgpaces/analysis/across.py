"""One number of several trials: intervals across trials and machines. Estimates in, one out.

Knows neither cells nor experiments. Transactions of different trials are never pooled into one
quantile: each trial has its own estimate, and the interval is over these estimates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median_high, stdev

from pgpaces.analysis.distributions import student_quantile
from pgpaces.analysis.stats import Z95, pearson, proportion
from pgpaces.spec.result import Estimate

_TAIL = 0.025
# Student's t of two values has one degree of freedom: an interval of 12.7 standard errors is
# useless. Two values use the t of three: coverage is too low where trials differ much more than by
# chance (0.86 instead of 0.95), and the report warns that two are few.
_FREEDOM_MIN = 2

Machines = Sequence[Sequence[Estimate | None]]
Hits = Sequence[Sequence[tuple[int, int]]]


def students(values: int) -> float:
    """Student's t of a number of values: half the width of their interval in standard errors."""
    return student_quantile(max(_FREEDOM_MIN, values - 1), 1 - _TAIL)


def together(machines: Machines, *, bounded: bool = True) -> Estimate | None:
    """The mean of trials with Student's t; machines: the trials of each. None without a number.

    Trials of one machine are not independent, so of several machines the values are their means,
    which puts the spread between machines into the interval. With two values the interval contains
    the hull of the trials' own intervals. An infinite value (of transactions that did not succeed)
    has no mean: then the result is the upper median, with the hull.

    bounded: if the interval of one trial cannot be estimated, the common one cannot be either. A
    quantile beyond the range of a trial is too low in each trial, however many there are.
    """
    every_machine = ([each for each in trials if each is not None] for trials in machines)
    nonempty = [trials for trials in every_machine if trials]
    every = [estimate for trials in nonempty for estimate in trials]
    if len(every) < 2:
        return every[0] if every else None
    n = sum(estimate.n for estimate in every)
    values = [estimate.value for estimate in every]
    if any(math.isinf(value) for value in values):
        return Estimate(median_high(values), *_hull(every), n)
    if len(nonempty) > 1:
        values = [fmean(estimate.value for estimate in trials) for trials in nonempty]
    middle = fmean(values)
    if bounded and not all(estimate.estimable for estimate in every):
        return Estimate.alone(middle, n)
    half = students(len(values)) * stdev(values) / math.sqrt(len(values))
    low, high = max(0.0, middle - half), middle + half
    if not bounded:
        return Estimate(middle, low, high, n)
    least, most = _hull(every)
    # Values of three digits may be equal by chance: then, too, each trial's own interval counts.
    if len(values) <= _FREEDOM_MIN or not half:
        return Estimate(middle, min(low, least), max(high, most), n)
    # Where the upper end of one trial is infinite, no mean can bound it.
    return Estimate(middle, low, most if math.isinf(most) else high, n)


def _hull(estimates: Sequence[Estimate]) -> tuple[float, float]:
    return min(e.low for e in estimates), max(e.high for e in estimates)


def design_factor(machines: Hits, within: float) -> float:
    """The variance of a share over that of independent transactions, at least 1.

    phi = max(1, phi_trial (t_k / z)^2, phi_machine (t_m / z)^2, phi_window): Pearson's dispersion
    of (hits, due) over k trials and over m machines, and within trials. The factors turn the z of
    Wilson's interval into Student's t with k - 1 degrees of freedom, because k trials estimate a
    dispersion badly (McCullagh and Nelder, Generalized Linear Models, 1989, 4.5).
    """
    trials = [pair for pairs in machines for pair in pairs]
    sums = [_sums(pairs) for pairs in machines]
    phi = max(1.0, within)
    for parts in (trials, sums):
        hits, due = _sums(parts)
        if len(parts) > 1 and 0 < hits < due:
            phi = max(phi, pearson(parts) * (students(len(parts)) / Z95) ** 2)
    return phi


def share(machines: Hits, within: float) -> Estimate | None:
    """A share of due, with Wilson's interval; machines: (hits, due) of trials. None without due."""
    hits, due = _sums([pair for pairs in machines for pair in pairs])
    return proportion(hits, due, design_factor(machines, within))


def _sums(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(hits for hits, _ in pairs), sum(due for _, due in pairs)
