"""Distributions of times: exact sums and a histogram. It alone imports the binding's histograms."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from pgpaces._engine import Histogram, histogram_count, histogram_counts


class Times(Struct, frozen=True):
    """A distribution of times: exact count, sum and maximum in ns, and an HDR histogram (V2)."""

    count: Annotated[int, Meta(ge=0)] = 0
    sum_ns: Annotated[int, Meta(ge=0)] = 0
    square_sum: Annotated[float, Meta(ge=0, le=sys.float_info.max)] = 0.0
    max_ns: Annotated[int, Meta(ge=0)] = 0
    histogram: bytes = b""

    @property
    def mean_ns(self) -> float | None:
        return self.sum_ns / self.count if self.count else None

    @property
    def stddev_ns(self) -> float | None:
        mean = self.mean_ns
        if mean is None:
            return None
        return math.sqrt(max(0.0, self.square_sum / self.count - mean * mean))


def merge(parts: Iterable[Times]) -> Times:
    histogram = Histogram()
    count = sum_ns = max_ns = 0
    square_sum = 0.0
    for part in parts:
        if part.count:
            histogram.add(part.histogram)
            count += part.count
            sum_ns += part.sum_ns
            square_sum += part.square_sum
            max_ns = max(max_ns, part.max_ns)
    return Times(count, sum_ns, square_sum, max_ns, histogram.encode() if count else b"")


def times_of(values_ns: Iterable[int]) -> Times:
    histogram = Histogram()
    count = sum_ns = max_ns = square_sum = 0
    for ns in values_ns:
        histogram.record(ns)
        count, sum_ns, square_sum = count + 1, sum_ns + ns, square_sum + ns * ns
        max_ns = max(max_ns, ns)
    encoded = histogram.encode() if count else b""
    return Times(count, sum_ns, float(square_sum), max_ns, encoded)


def counted(times: Times) -> int:
    """The number of times in its histogram. Raises ValueError if that is not readable."""
    return histogram_count(times.histogram)


def counts_at_most(parts: Iterable[Times], values_ns: Sequence[int]) -> list[int]:
    """The number of times of all parts up to each of these values, to 3 significant digits."""
    sums = [0] * len(values_ns)
    for part in parts:
        for place, count in enumerate(histogram_counts(part.histogram, values_ns)):
            sums[place] += count
    return sums


def value_at_rank(times: Times, rank: int) -> int | None:
    """The time with `rank` in ascending order, ns, from 1; None beyond the count.

    To 3 significant digits; the last one is the exact maximum.
    """
    return values_at_ranks(times, (rank,))[0]


# The upper end of the histogram: longer times are not distinguished.
_LONGEST_NS = 3_600_000_000_000


def values_at_ranks(times: Times, ranks: Sequence[int]) -> list[int | None]:
    """The times at several ranks, as value_at_rank.

    None for a time over one hour that is not the longest: its length is not known.
    """
    histogram = Histogram()
    histogram.add(times.histogram)

    def at(rank: int) -> int | None:
        if rank == times.count > 0:
            return times.max_ns
        value = histogram.value_at_rank(rank) if 0 < rank < times.count else None
        if value is not None and value >= _LONGEST_NS < times.max_ns:
            return None
        return value and min(value, times.max_ns)

    return [at(rank) for rank in ranks]


def quantile_rank(q: float, due: int) -> int:
    """The rank of quantile q among `due` values in ascending order, from 1.

    The lower order statistic ceil(q n).
    """
    return max(1, math.ceil(q * due - 1e-9))


def quantiles_ms(times: Times, shares: Iterable[float], due: int) -> list[float | None]:
    """Quantiles of `due` transactions of which those with times are the fastest, ms.

    None for those that fall among the others.
    """
    values_ns = values_at_ranks(times, [quantile_rank(share, due) for share in shares])
    return [None if ns is None else ns / 1e6 for ns in values_ns]
