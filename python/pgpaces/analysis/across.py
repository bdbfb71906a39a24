"""Several trials: one number across them, and the difference between two groups of them.

Estimates and numbers in, an estimate or an effect out. Transactions of different trials are never
pooled into one quantile: each trial has its own estimate, and the interval is over these estimates.
An effect is a difference of logarithms or of shares; compare.py knows of which metric.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import fmean, median_high, stdev

from msgspec import Struct

from pgpaces.analysis.stats import (
    ERROR,
    Z95,
    Clusters,
    pearson,
    proportion,
    student_cdf,
    student_quantile,
    wilson,
)
from pgpaces.spec.result import Estimate

_TAIL = 0.025
# Student's t of two values has one degree of freedom: an interval of 12.7 standard errors is
# useless. Two values use the t of three: coverage is too low where trials differ much more than by
# chance (0.86 instead of 0.95), and the report warns that two are few.
_FREEDOM_MIN = 2

ALPHA = 0.05
_POWER = 0.8
# More pairs than these are not worth their time.
_NEEDED_MAX = 2000
# The least standard deviation of runs: identical ones do not prove that the next one is identical.
ERROR_MIN = 1e-4

Machines = Sequence[Sequence[Estimate | None]]
# Transactions of a trial that ended in one way, those that were due, and the dispersion of this
# share within the trial.
Hits = tuple[int, int, float]


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


def share(machines: Sequence[Sequence[Hits]]) -> Estimate | None:
    """A share of due, with Wilson's interval; machines: of the trials of each. None without due.

    Its dispersion is phi = max(1, phi_trial (t_k / z)^2, phi_machine (t_m / z)^2, phi_within):
    Pearson's of (hits, due) over k trials and over m machines, and within trials. The factors turn
    the z of Wilson's interval into Student's t with k - 1 degrees of freedom, because k trials
    estimate a dispersion badly (McCullagh and Nelder, Generalized Linear Models, 1989, 4.5).
    """
    by_machine = [[(hits, due) for hits, due, _ in trials] for trials in machines]
    every = [pair for pairs in by_machine for pair in pairs]
    hits, due = _sums(every)
    if not due:
        return None
    phi = max(1.0, sum(within * n for trials in machines for _, n, within in trials) / due)
    for parts in (every, [_sums(pairs) for pairs in by_machine]):
        if len(parts) > 1 and 0 < hits < due:
            phi = max(phi, pearson(parts) * (students(len(parts)) / Z95) ** 2)
    return proportion(hits, due, phi)


def share_at_look(
    trials: Sequence[tuple[int, int]], clusters: Sequence[Clusters], errors: tuple[float, float]
) -> Estimate | None:
    """The missed share of some trials at a look of a sequential design.

    trials: (missed, due) of each; clusters: within each. errors: each end is that of an interval
    with this error, the lower one first. The trials' design effects are averaged, their degrees of
    freedom add up, and the spread between trials counts with Student's t as in `share`.
    """
    missed, due = _sums(trials)
    if not due:
        return None
    effect = sum(own.effect * n for own, (_, n) in zip(clusters, trials, strict=True)) / due
    within = Clusters(effect, sum(own.freedom for own in clusters))
    between = pearson(trials) if len(trials) > 1 and 0 < missed < due else 0.0

    def end(tail: float) -> tuple[float, float]:
        freedom = max(_FREEDOM_MIN, len(trials) - 1)
        t, z = student_quantile(freedom, 1 - tail), student_quantile(math.inf, 1 - tail)
        return tail, max(within.divisor(tail), between * (t / z) ** 2)

    below, above = (tail * error / ERROR for tail, error in zip(within.tails, errors, strict=True))
    return wilson(missed, due, (end(below), end(above)))


def _sums(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(hits for hits, _ in pairs), sum(due for _, due in pairs)


class Effect(Struct, frozen=True):
    """A difference between B and A. error: its standard error. freedom: of Student's t. n: pairs.

    Differences that are all the same have an error of 0, which refutes any other value.
    """

    value: float
    error: float
    freedom: float
    n: int

    def half(self, alpha: float = ALPHA) -> float:
        return student_quantile(self.freedom, 1 - alpha / 2) * self.error

    def interval(self) -> Estimate:
        half = self.half()
        return Estimate(self.value, self.value - half, self.value + half, self.n)

    def ratio(self) -> Estimate:
        """exp of a difference of logarithms; infinite where that overflows."""
        estimate = self.interval()
        logs = (estimate.value, estimate.low, estimate.high)
        value, low, high = (math.exp(log) if log < 700 else math.inf for log in logs)
        return Estimate(value, low, high, self.n)

    def p(self) -> float:
        """The p-value of a two-sided test of no effect."""
        return 2 * self._beyond(abs(self.value))

    def p_within(self, margin: float) -> float:
        """The larger p-value of two one-sided tests of an effect beyond -margin or margin.

        Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987.
        """
        return self._beyond(margin - abs(self.value))

    def _beyond(self, distance: float) -> float:
        if self.error == 0:
            return 0.0 if distance > 0 else 0.5
        return student_cdf(self.freedom, -distance / self.error)

    def detectable(self) -> float:
        """The smallest effect detected in 8 of 10 cases: (t.975 + t.80) standard errors."""
        return sum(student_quantile(self.freedom, q) for q in (1 - ALPHA / 2, _POWER)) * self.error

    def needed(self, margin: float) -> int | None:
        """The pairs in all with which 8 of 10 comparisons of this value and spread would decide.

        Undecided is a mean farther from 0 than two one-sided tests allow, and nearer than a
        difference needs. None: more pairs than are worth their time.
        """
        spread = self.error * math.sqrt(self.n)

        def decides(n: int) -> bool:
            freedom, error = n - 1, spread / math.sqrt(n)
            near = max(0.0, margin - student_quantile(freedom, 1 - ALPHA) * error)
            far = student_quantile(freedom, 1 - ALPHA / 2) * error
            # The probability of a mean between these distances from 0, on either side.
            between = sum(
                student_cdf(freedom, (high - self.value) / error)
                - student_cdf(freedom, (low - self.value) / error)
                for low, high in ((near, far), (-far, -near))
            )
            return near >= far or between <= 1 - _POWER

        if spread == 0:
            return self.n
        at = bisect_left(range(self.n, _NEEDED_MAX), True, key=decides)
        return None if self.n + at >= _NEEDED_MAX else self.n + at


def effect_of_pairs(differences: Sequence[float], error_min: float = 0.0) -> Effect | None:
    """The mean difference with Student's t of k - 1 degrees; None for fewer than two.

    error_min: the least standard error of the mean that is plausible.
    """
    k = len(differences)
    if k < 2:
        return None
    middle, variance = moments(differences)
    return Effect(middle, max(error_min, math.sqrt(variance / k)), k - 1, k)


def effect_of_groups(
    a: Sequence[float], b: Sequence[float], error_min: float = 0.0, *, drift: float = 0.0
) -> Effect | None:
    """The mean of B minus the mean of A, without pairs; None if a side has fewer than two trials.

    Welch, Biometrika 34, 1947. drift: the standard deviation of each group's level.
    """
    if min(len(a), len(b)) < 2:
        return None
    (mean_a, var_a), (mean_b, var_b) = moments(a), moments(b)
    parts = (var_a / len(a), var_b / len(b))
    squares = parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1)
    freedom = sum(parts) ** 2 / squares if squares > 0 else len(a) + len(b) - 2
    error = max(error_min, math.sqrt(sum(parts)))
    if drift:
        # The drift is a constant, not an estimate: it costs no degrees of freedom.
        whole = math.hypot(error, drift * math.sqrt(2))
        freedom = min(freedom * (whole / error) ** 4 if error else math.inf, 1e9)
        error = whole
    return Effect(mean_b - mean_a, error, freedom, min(len(a), len(b)))


def effect_of_next(old: Sequence[float], new: Sequence[float], error_min: float) -> Effect:
    """The mean of new values minus the mean of the old ones (two at least), as a prediction error.

    Student's t with the spread s sqrt(1/m + 1/k) and k - 1 degrees of freedom.
    """
    middle, variance = moments(old)
    spread = max(math.sqrt(variance), ERROR_MIN)
    error = max(error_min, spread * math.sqrt(1 / len(new) + 1 / len(old)))
    return Effect(math.fsum(new) / len(new) - middle, error, len(old) - 1, len(old))


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and variance; statistics.stdev is exact and ten times slower."""
    n = len(values)
    middle = math.fsum(values) / n
    return middle, math.fsum((value - middle) ** 2 for value in values) / (n - 1)


def share_error(*sides: Sequence[tuple[int, int]]) -> float:
    """The standard error of a difference of two shares by the counts alone.

    sides: (hits, due) of the trials of each. With one hit and one miss added to each side, so that
    it is not 0 where none or all are hits (Agresti and Caffo, The American Statistician 54, 2000).
    """

    def part(hits: int, due: int) -> float:
        p = (hits + 1) / (due + 2)
        return p * (1 - p) / (due + 2)

    return math.sqrt(sum(part(*_sums(side)) for side in sides))


def holm(ps: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm 1979), in their order."""
    adjusted, least = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = max(least, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = least
    return adjusted
