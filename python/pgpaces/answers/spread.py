"""A distribution of times in milliseconds, each of its numbers with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgpaces.answers import stats
from pgpaces.result import Estimate, Times, values_at_ranks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in milliseconds.

    Quantiles rank over all that was due; one that falls among what was skipped, failed or
    unfinished is infinite, and so may be the end of its interval. They are None if nothing was due,
    or if sums alone are known; the mean if nothing succeeded. max: the largest that was seen, None
    where some did not succeed, or where it is not known.
    """

    count: int
    mean: Estimate | None
    stddev: float | None
    p50: Estimate | None
    p95: Estimate | None
    p99: Estimate | None
    p999: Estimate | None
    max: float | None

    def estimate(self, name: str) -> Estimate | None:
        """The number called mean, p50, p95, p99 or p99.9."""
        found: Estimate | None = getattr(self, name.replace("p99.9", "p999"))
        return found


def spread(times: Times, due: int, mean: Estimate | None = None, deff: float = 1.0) -> Spread:
    """The distribution of what succeeded of all `due`; deff: see stats.design_effect."""
    ranked = {
        name.replace(".", ""): _quantile(times, q, due, deff) for name, q in QUANTILES.items()
    }
    known = times.shaped or times.max_ns > 0
    if mean is None and times.mean_ns is not None:
        mean = Estimate.alone(times.mean_ns / 1e6, times.count)
    return Spread(
        count=times.count,
        mean=mean,
        stddev=None if times.stddev_ns is None else times.stddev_ns / 1e6,
        max=times.max_ns / 1e6 if times.count and times.count >= due and known else None,
        **ranked,
    )


def spread_of(times: Times, due: int, counts: Numbers, sums_ns: Numbers) -> Spread:
    """The same, with counts and sums of what succeeded for each second in their order."""
    mean = stats.mean(sums_ns / 1e6, counts)
    stddev_ms = None if times.stddev_ns is None else times.stddev_ns / 1e6
    return spread(times, due, mean, stats.design_effect(mean, stddev_ms, len(counts)))


def _quantile(times: Times, q: float, due: int, deff: float) -> Estimate | None:
    if due == 0 or not times.shaped:
        return None
    ends = stats.quantile_ranks(q, due, deff)
    low, high = ends or (0, due)
    found = values_at_ranks(times, (stats.quantile_rank(q, due), low, high))
    value, first, last = (math.inf if ns is None else ns / 1e6 for ns in found)
    if ends is None or (low == 0 and math.isinf(last)):
        return Estimate.alone(value, due)
    return Estimate(value, first if low else 0.0, last, due)
