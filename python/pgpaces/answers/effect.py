"""How far B lies from A, with its standard error: intervals, tests and power. Numbers alone.

An effect is a difference of logarithms or of shares; what it is of is known in compare.py. scipy is
imported where it is used: it takes longer to load than a command takes to start.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

from pgpaces.answers.distributions import student_cdf, student_quantile
from pgpaces.result import Estimate

ALPHA = 0.05
_POWER = 0.8
# BCa's coverage is 0.89 with 10 values (docs/explanation/method.md, section 4).
BOOTSTRAP_MIN = 25
_RESAMPLES = 9999
# More pairs than these nobody runs.
_NEEDED_MAX = 2000


class Effect(Struct, frozen=True):
    """A difference between B and A. error: its standard error. freedom: of Student's t. n: pairs.

    Differences that are all the same have an error of 0: then any other value is refuted.
    """

    value: float
    error: float
    freedom: float
    n: int

    def half(self, alpha: float = ALPHA) -> float:
        """Half of its interval."""
        return _t(self.freedom, 1 - alpha / 2) * self.error

    def p(self) -> float:
        """Two-sided, of no effect."""
        return 2 * self._beyond(abs(self.value))

    def p_within(self, margin: float) -> float:
        """The larger p of two one-sided tests of an effect beyond -margin or margin.

        Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987.
        """
        return self._beyond(margin - abs(self.value))

    def _beyond(self, distance: float) -> float:

        if self.error == 0:
            return 0.0 if distance > 0 else 0.5
        return student_cdf(self.freedom, -distance / self.error)

    def detectable(self) -> float:
        """The smallest effect that is found in 8 of 10 cases: (t.975 + t.80) standard errors."""
        return (_t(self.freedom, 1 - ALPHA / 2) + _t(self.freedom, _POWER)) * self.error

    def needed(self, margin: float) -> int | None:
        """With how many pairs in all 8 of 10 would decide, if value and spread are as they seem.

        Nothing is decided where the mean lies further from 0 than two one-sided tests allow, and
        nearer than a difference needs. None: more pairs than anybody runs.
        """
        spread = self.error * math.sqrt(self.n)

        def decides(n: int) -> bool:
            error = spread / math.sqrt(n)
            near = max(0.0, margin - _t(n - 1, 1 - ALPHA) * error)
            far = _t(n - 1, 1 - ALPHA / 2) * error
            return near >= far or self._between(near, far, error, n - 1) <= 1 - _POWER

        if spread == 0:
            return self.n
        at = bisect_left(range(self.n, _NEEDED_MAX), True, key=decides)
        return None if self.n + at >= _NEEDED_MAX else self.n + at

    def _between(self, near: float, far: float, error: float, freedom: int) -> float:
        """How often a mean lies so far from 0, on either side."""

        ends = ((near, far), (-far, -near))
        return sum(
            student_cdf(freedom, (high - self.value) / error)
            - student_cdf(freedom, (low - self.value) / error)
            for low, high in ends
        )


def _t(freedom: float, q: float) -> float:

    return student_quantile(freedom, q)


def over_pairs(differences: Sequence[float], error_min: float = 0.0) -> Effect | None:
    """The mean difference with Student's t of k - 1 degrees; None of fewer than two.

    error_min: a standard error below which nobody believes that of the mean.
    """
    k = len(differences)
    if k < 2:
        return None
    middle, variance = moments(differences)
    return Effect(middle, max(error_min, math.sqrt(variance / k)), k - 1, k)


def over_trials(a: Sequence[float], b: Sequence[float], error_min: float = 0.0) -> Effect | None:
    """B's mean less A's, trials that are no pairs; None of fewer than two of either.

    Welch, Biometrika 34, 1947.
    """
    if min(len(a), len(b)) < 2:
        return None
    (mean_a, var_a), (mean_b, var_b) = moments(a), moments(b)
    parts = (var_a / len(a), var_b / len(b))
    squares = parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1)
    freedom = sum(parts) ** 2 / squares if squares > 0 else len(a) + len(b) - 2
    error = max(error_min, math.sqrt(sum(parts)))
    return Effect(mean_b - mean_a, error, freedom, min(len(a), len(b)))


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and variance; statistics.stdev is exact and ten times slower."""
    n = len(values)
    middle = math.fsum(values) / n
    return middle, math.fsum((value - middle) ** 2 for value in values) / (n - 1)


def share_error(a: tuple[int, int], b: tuple[int, int]) -> float:
    """The standard error of a difference of two shares, (hits, due) each, that counts alone have.

    With one hit and one miss added to each, so that it is not 0 where nothing or all was hit
    (Agresti and Caffo, The American Statistician 54, 2000).
    """

    def part(hits: int, due: int) -> float:
        p = (hits + 1) / (due + 2)
        return p * (1 - p) / (due + 2)

    return math.sqrt(part(*a) + part(*b))


def bca(values: Sequence[float], seed: int) -> tuple[float, float] | None:
    """The BCa interval of the mean; None of fewer than 25 values, or of values all the same.

    Efron, J. Am. Stat. Assoc. 82, 1987, by scipy.
    """
    if len(values) < BOOTSTRAP_MIN or min(values) == max(values):
        return None
    import numpy as np
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.asarray(values),),
        np.mean,
        n_resamples=_RESAMPLES,
        method="BCa",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


def holm(ps: Sequence[float]) -> list[float]:
    """p values as they are to be read when so many were looked at (Holm 1979), in their order."""
    found, least = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = max(least, min(1.0, (len(ps) - rank) * ps[place]))
        found[place] = least
    return found


def ratio_of(middle: float, low: float, high: float, n: int) -> Estimate:
    """exp of a difference of logarithms; what is beyond every number becomes infinite."""
    return Estimate(_exp(middle), _exp(low), _exp(high), n)


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
