"""How much more often what was missed saw a sign than what was on time: the arithmetic. Pure.

A sign is a number from 0 to 1 for each second: the share of their life in which transactions that
were due then saw it. Seconds, not transactions, are what is independent: those of one second share
what happens to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pgpaces.answers.distributions import student_quantile
from pgpaces.answers.stats import inefficiency
from pgpaces.result import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

_TAIL = 0.025
# Of a logarithm: beyond it an interval says nothing more.
_HALF_MAX = 500.0


class DueSeconds(Struct, frozen=True):
    """Seconds in which something was due. missed, on_time: transactions of each.

    late, punctual: the sign for those that missed, and for those that were on time, 0 to 1; NaN
    where it is not known.
    """

    missed: Numbers
    on_time: Numbers
    late: Numbers
    punctual: Numbers


def joined(parts: Sequence[DueSeconds]) -> DueSeconds:
    """The seconds of several trials, one after the other."""
    import numpy as np

    names = ("missed", "on_time", "late", "punctual")
    return DueSeconds(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def share(seen: DueSeconds) -> Estimate:
    """P(sign | missed): the share of what was missed that it is associated with, 0 to 1.

    A ratio of sums over seconds as clusters (Cochran, Sampling Techniques, 1977, 6.3), the interval
    by Student's t. Where the sign is not known it counts as absent.
    """
    import numpy as np

    sign = np.where(np.isfinite(seen.late), seen.late, 0.0)
    total = float(seen.missed.sum())
    if total == 0:
        return Estimate.alone(0.0, 0)
    value = float((seen.missed * sign).sum()) / total
    half = _half(seen.missed * (sign - value) / total)
    return Estimate(value, max(0.0, value - half), min(1.0, value + half), int(total))


def lift(seen: DueSeconds) -> Estimate | None:
    """P(sign | missed) / P(sign | on time); None where one of them has no transactions.

    The interval is of its logarithm: each second moves it by its part in both shares (delta
    method), Student's t over seconds, widened for neighbours that resemble each other. A sign that
    nobody saw who was on time gets half a second's worth of them, so that the ratio ends.
    """
    import numpy as np

    late, punctual = np.isfinite(seen.late), np.isfinite(seen.punctual)
    missed, on_time = seen.missed * late, seen.on_time * punctual
    if missed.sum() == 0 or on_time.sum() == 0:
        return None
    of_late = np.where(late, seen.late, 0.0)
    of_punctual = np.where(punctual, seen.punctual, 0.0)
    p1 = float((missed * of_late).sum() / missed.sum())
    p0 = float((on_time * of_punctual).sum() / on_time.sum())
    if p1 <= 0:
        return None
    least = 0.5 / max(1, int((on_time > 0).sum()))
    p0 = max(p0, least)
    moves = missed * (of_late - p1) / (p1 * missed.sum())
    moves = moves - on_time * (of_punctual - p0) / (p0 * on_time.sum())
    # Where p0 is the least there is, the seconds say nothing of how far it may be off: as one of
    # few events it may be four times as large.
    log, half = math.log(p1 / p0), _half(moves)
    half = math.hypot(half, math.log(4.0)) if p0 == least else half
    half = min(half, _HALF_MAX)
    return Estimate(math.exp(log), math.exp(log - half), math.exp(log + half), int(missed.sum()))


def _half(moves: Numbers) -> float:
    """Half of the interval of a sum of what seconds contribute, which has mean 0."""
    import numpy as np

    n = len(moves)
    if n < 2:
        return math.inf
    # A sum of n independent values with mean 0.
    error = math.sqrt(float(np.square(moves).sum()) * n / (n - 1) * inefficiency(moves))
    return student_quantile(max(1.0, n / inefficiency(moves) - 1), 1 - _TAIL) * error


def chance(seen: DueSeconds) -> float:
    """How often a sign that has nothing to do with it would go as well with what was missed.

    The share of all shifts in time (what passes the end begins anew) that bring as much of the sign
    together with what was missed as there is: Monte Carlo's p with circular shifts. Of n seconds
    it is never below 1 / n.
    """
    import numpy as np

    sign = np.where(np.isfinite(seen.late), seen.late, 0.0)
    spectrum = np.fft.rfft(seen.missed).conj() * np.fft.rfft(sign)
    found = np.fft.irfft(spectrum, len(sign))
    return float((found >= found[0] - 1e-9 * max(1.0, abs(found[0]))).mean())
