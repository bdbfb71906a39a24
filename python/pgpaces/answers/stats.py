"""Shares, dispersions and ranks, each with its source. Numbers in, estimates out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pgpaces.result import Estimate

Z95 = 1.959963984540054


def dispersion(windows: Sequence[tuple[int, int]]) -> float:
    """Pearson's dispersion of (hits, trials) per window, at least 1.

    phi = sum((k_i - n_i p)^2 / (n_i p (1 - p))) / (windows - 1), p over all windows. 1 where it
    cannot be estimated: fewer than two windows, or no hits or only hits.
    """
    used = [(k, n) for k, n in windows if n > 0]
    hits, trials = sum(k for k, _ in used), sum(n for _, n in used)
    if len(used) < 2 or hits in (0, trials):
        return 1.0
    p = hits / trials
    chi2 = sum((k - n * p) ** 2 / (n * p * (1 - p)) for k, n in used)
    return max(1.0, chi2 / (len(used) - 1))


def proportion(hits: int, trials: int, phi: float = 1.0) -> Estimate | None:
    """A share with Wilson's 95 % interval, n replaced by n / phi; None of nothing.

    Wilson (1927); phi is the dispersion of clustered hits. 8 of 600 at phi 1: 0.68 to 2.61 %.
    """
    if trials == 0:
        return None
    n, p, z = trials / phi, hits / trials, Z95
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = middle - half if hits else 0.0
    high = middle + half if hits < trials else 1.0
    return Estimate(p, max(0.0, low), min(1.0, high), trials)


def quantile_rank(q: float, due: int) -> int:
    """The rank of quantile q among `due` values in ascending order, from 1.

    The lower order statistic ceil(q n).
    """
    return max(1, math.ceil(q * due - 1e-9))
