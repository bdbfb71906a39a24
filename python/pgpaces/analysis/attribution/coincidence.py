"""How much more often missed transactions saw a sign than those on time: the arithmetic. Pure.

A sign is a number from 0 to 1 for each second: the share of their life in which transactions due
then saw it. The independent units are seconds, not transactions: those due in one second share
what happens to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import astuple

from pgpaces.analysis.arrays import Numbers, np
from pgpaces.analysis.stats import inefficiency, student_quantile
from pgpaces.spec.result import Estimate

_TAIL = 0.025
# Largest half width of the interval of a logarithm: a wider one says nothing.
_HALF_MAX = math.log(1e6)


class DueSeconds(Struct, frozen=True):
    """Seconds in which transactions were due. missed, on_time: transactions of each second.

    late, punctual: the sign for those that missed and for those that were on time, 0 to 1; NaN
    where it is unknown.
    """

    missed: Numbers
    on_time: Numbers
    late: Numbers
    punctual: Numbers


def concatenate(parts: Sequence[DueSeconds]) -> DueSeconds:
    return DueSeconds(*map(np.concatenate, zip(*map(astuple, parts), strict=True)))


def coinciding_share(seconds: DueSeconds) -> Estimate:
    """P(sign | missed): the share of missed transactions that the sign is associated with, 0 to 1.

    A ratio of sums over seconds as clusters (Cochran, Sampling Techniques, 1977, 6.3), the interval
    by Student's t. An unknown sign counts as absent.
    """
    sign = np.where(np.isfinite(seconds.late), seconds.late, 0.0)
    total = float(seconds.missed.sum())
    if total == 0:
        return Estimate.alone(0.0, 0)
    value = float((seconds.missed * sign).sum()) / total
    half = _half(seconds.missed * (sign - value) / total)
    return Estimate(value, max(0.0, value - half), min(1.0, value + half), int(total))


def lift(seconds: DueSeconds) -> Estimate | None:
    """P(sign | missed) / P(sign | on time); None where one of them has no transactions.

    The interval is that of the logarithm: each second moves it by its part in both shares (delta
    method), Student's t over seconds, widened for autocorrelation. Where no transaction on time saw
    the sign, half a second of them counts as if they had, so that the ratio is finite.
    """
    late, punctual = np.isfinite(seconds.late), np.isfinite(seconds.punctual)
    missed, on_time = seconds.missed * late, seconds.on_time * punctual
    if missed.sum() == 0 or on_time.sum() == 0:
        return None
    of_late = np.where(late, seconds.late, 0.0)
    of_punctual = np.where(punctual, seconds.punctual, 0.0)
    p1 = float((missed * of_late).sum() / missed.sum())
    p0 = float((on_time * of_punctual).sum() / on_time.sum())
    if p1 <= 0:
        return None
    least = 0.5 / max(1, int((on_time > 0).sum()))
    p0 = max(p0, least)
    moves = missed * (of_late - p1) / (p1 * missed.sum())
    moves = moves - on_time * (of_punctual - p0) / (p0 * on_time.sum())
    # The seconds give no error for a p0 at its floor: as a count of few events it may be four
    # times as large.
    log, half = math.log(p1 / p0), _half(moves)
    half = math.hypot(half, math.log(4.0)) if p0 == least else half
    if half > _HALF_MAX:
        return Estimate.alone(math.exp(log), int(missed.sum()))
    return Estimate(math.exp(log), math.exp(log - half), math.exp(log + half), int(missed.sum()))


def _half(moves: Numbers) -> float:
    """Half the width of the interval of a sum of the seconds' contributions, whose mean is 0."""
    n = len(moves)
    if n < 2:
        return math.inf
    # A sum of n independent values with mean 0.
    error = math.sqrt(float(np.square(moves).sum()) * n / (n - 1) * inefficiency(moves))
    return student_quantile(max(1.0, n / inefficiency(moves) - 1), 1 - _TAIL) * error


def chance(seconds: DueSeconds) -> float:
    """How often an unrelated sign would coincide as much with missed transactions: a p-value.

    The share of all circular shifts in time with which at least as much of the sign coincides with
    missed transactions as without a shift (a Monte Carlo test). Never below 1 / n for n seconds.
    """
    sign = np.where(np.isfinite(seconds.late), seconds.late, 0.0)
    spectrum = np.fft.rfft(seconds.missed).conj() * np.fft.rfft(sign)
    overlaps = np.fft.irfft(spectrum, len(sign))
    return float((overlaps >= overlaps[0] - 1e-9 * max(1.0, abs(overlaps[0]))).mean())
