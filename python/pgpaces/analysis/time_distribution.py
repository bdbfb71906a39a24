"""A distribution of times in milliseconds, each of its numbers with an interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from pgpaces.analysis import stats
from pgpaces.analysis.arrays import Numbers, np
from pgpaces.analysis.stats import Clusters
from pgpaces.core.times import Times, counts_at_most, quantile_rank, quantiles_ms, values_at_ranks
from pgpaces.spec.result import Estimate

# Longer than any time that a histogram tells from another.
_LONGEST_NS = 1 << 62
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
# From this quantile on each is the prior of the next; a share below these has that quantile's.
_CHAINED = 0.95
_RARER = (0.0, 0.02, 0.005, 0.0)
_FASTEST = 0.01


class Distribution(Struct, frozen=True):
    """A distribution in milliseconds.

    Quantiles rank over everything that was due. A quantile, or the end of its interval, is infinite
    if it falls among what was skipped, failed or unfinished; an upper end also if the trial is too
    short for one. Quantiles are None if nothing was due, or if only sums are known; the mean is
    None if nothing succeeded. max: the largest time, None if some did not succeed or if it is
    unknown.
    """

    count: int
    mean: Estimate | None
    sd: float | None
    p50: Estimate | None
    p95: Estimate | None
    p99: Estimate | None
    p999: Estimate | None = field(name="p99.9")
    max: float | None

    def estimate(self, name: str) -> Estimate | None:
        """The number called mean, p50, p95, p99 or p99.9."""
        estimate: Estimate | None = getattr(self, name.replace("p99.9", "p999"))
        return estimate


class Blocks(Struct, frozen=True):
    """How many were due in equal stretches of time, and the times of those that succeeded.

    planned: the planned rate of each stretch, None if it is constant.
    """

    due: Sequence[int]
    parts: Sequence[Sequence[Times]]
    planned: Numbers | None = None


class Tails(Struct, frozen=True):
    """How transactions cluster: all of them, and those above each of `QUANTILES`.

    fastest_ms: 1% of what was due took at most this; infinite if some of it did not succeed.
    """

    body: Clusters = stats.INDEPENDENT
    above: tuple[Clusters, ...] = ()
    fastest_ms: float = 0.0

    def prior(self, share: float) -> Clusters:
        """What a share is weighed with: the rarest quantile clearly more frequent; else all."""
        prior = self.body
        for each, rarer in zip(self.above, _RARER, strict=False):
            prior = Clusters(each.effect, self.body.freedom) if share < rarer else prior
        return prior


def distribution_of(
    times: Times,
    due: int,
    counts: Numbers,
    *,
    sums_ns: Numbers,
    planned: Numbers | None = None,
    blocks: Blocks | None = None,
) -> tuple[Distribution, Tails]:
    """The distribution of what succeeded of all `due`, and the clusters in its intervals.

    counts, sums_ns: how many succeeded in each second, in order, and the sum of their times.
    Without seconds as if transactions were independent. planned: the planned rate of each second,
    None if it is constant. With blocks, the interval of a quantile uses the clusters of the
    transactions above it, not only those of the mean.
    """
    stddev_ms = None if times.stddev_ns is None else times.stddev_ns / 1e6
    sums_ms = sums_ns / 1e6
    body = stats.clusters(sums_ms, counts, stddev_ms, planned=planned)
    mean = stats.mean(sums_ms, counts, body.effect, planned=planned)
    if mean is None and times.mean_ns is not None:
        mean = Estimate.alone(times.mean_ns / 1e6, times.count)
    above = tuple(_above(times, due, body, blocks=blocks)) if due and blocks else ()
    [fastest_ms] = quantiles_ms(times, [_FASTEST], due) if due else [0.0]
    tails = Tails(body, above, math.inf if fastest_ms is None else fastest_ms)
    quantiles: dict[str, Estimate | None] = dict.fromkeys(q.replace(".", "") for q in QUANTILES)
    if due:
        clusters = tails.above or [tails.body] * len(quantiles)
        shares = zip(QUANTILES.values(), clusters, strict=True)
        ends = [stats.quantile_ranks(q, due, each) for q, each in shares]
        ranks = [rank or 0 for pair in ends for rank in (pair or (0, None))]
        bounds = iter(values_at_ranks(times, ranks))
        for name, value, pair in zip(quantiles, _values(times, due), ends, strict=True):
            low, high = _ms(next(bounds)), _ms(next(bounds))
            if pair is None or (pair[0] == 0 and math.isinf(high)):
                quantiles[name] = Estimate.alone(_ms(value), due)
            else:
                quantiles[name] = Estimate(_ms(value), low if pair[0] else 0.0, high, due)
    distribution = Distribution(
        count=times.count,
        mean=mean,
        sd=stddev_ms,
        max=times.max_ns / 1e6 if times.count and times.count >= due else None,
        **quantiles,
    )
    return distribution, tails


def _ms(ns: int | None) -> float:
    return math.inf if ns is None else ns / 1e6


def _values(times: Times, due: int) -> Sequence[int | None]:
    return values_at_ranks(times, [quantile_rank(q, due) for q in QUANTILES.values()])


def _above(times: Times, due: int, body: Clusters, *, blocks: Blocks) -> Iterator[Clusters]:
    """The clusters of the transactions that are above each quantile or did not succeed.

    The prior of a quantile is the mean, that of a quantile after the 95th percentile the one before
    it.
    """
    due_of = np.array(blocks.due)
    quantiles = [_LONGEST_NS if value is None else value for value in _values(times, due)]
    below = np.array([counts_at_most(parts, quantiles) for parts in blocks.parts])
    prior = body
    for q, column in zip(QUANTILES.values(), below.T, strict=True):
        clusters = stats.clusters_of(
            due_of - column, due_of, prior, planned=blocks.planned, is_rarer=q > _CHAINED
        )
        yield clusters
        if q >= _CHAINED:
            prior = Clusters(clusters.effect, body.freedom)
