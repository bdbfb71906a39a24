"""What lists, charts and comparisons need of a trial, in a few KB: so a thousand are read at once.

A digest follows from the trial and is stored when it ends; VERSION says which rules it follows, so
that one of older rules is made anew from the trial's seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.answers import waits
from pgpaces.answers.accumulator import Accumulator, own_scripts, together
from pgpaces.answers.stats import quantile_rank
from pgpaces.answers.summary import Summary
from pgpaces.answers.write_volume import by_server
from pgpaces.result import Counts, Sample, Trial
from pgpaces.times import Times, merge, values_at_ranks

VERSION = 5
# What charts show first, by source and the ends of its name. Of sources that would have dozens
# there is no more than these. Their other samples stay in the store.
_FIRST = (
    ("host", "cpu_busy"),
    ("host", "cpu_steal"),
    ("host", "cgroup_throttled_share"),
    ("host", "pi_throttled"),
    ("host", "temperature_"),
    ("host", "disk_", "_busy"),
    ("replication", "", " replay_lag"),
    ("replication", "behind"),
    ("replication", "replay_delay"),
    ("checkpoints", "checkpoints"),
    ("database", "cache_hit_ratio"),
    ("wal", "written"),
    ("host", "cpu_iowait"),
    ("host", "cpu_frequency"),
    ("host", "disk_", "_written"),
    ("host", "disk_", "_read"),
    ("host", "pressure_cpu_some"),
    ("host", "pressure_io_some"),
    ("host", "memory_available"),
)
_WIDE = frozenset(
    ("host", "io", "tuples", "transactions", "sessions", "replication", "slots", "conflicts",
     "background_writer", "wal")
)  # fmt: skip
# Wait events that are told apart; what the others sum up to is one more.
WAITS_MAX = 6
# Shares of the curve: to 99.99 % in eighths of a decade of what is left, as its axis shows it.
SHARES = (0.0, *(1 - 10 ** (-k / 8) for k in range(1, 33)), 1.0)


class Bucket(Struct, frozen=True):
    """Some seconds of a trial, by due time. start_s: from the start of the measured part.

    Times are of what succeeded, in ms; None where nothing did. lag_p99_ms: of sent - due.
    """

    start_s: int
    seconds: int
    counts: Counts
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    lag_p99_ms: float | None


class Track(Struct, frozen=True):
    """What a sensor read, as a mean for each bucket; None where it read nothing."""

    source: str
    name: str
    unit: str
    values: tuple[float | None, ...]


class Digest(Struct, frozen=True):
    """A trial without its seconds and samples, its answer, and what charts show of it.

    series: the measured part from its start, also what the summary leaves out as warm-up.
    latency, lag: pairs of a share of what was due (see SHARES) and the time within which it was
    answered, ms; None where that share was not answered at all.
    """

    trial: Trial
    summary: Summary
    series: tuple[Bucket, ...] = ()
    tracks: tuple[Track, ...] = ()
    latency: tuple[tuple[float, float | None], ...] = ()
    lag: tuple[tuple[float, float | None], ...] = ()


def digest(trial: Trial, summary: Summary, accumulator: Accumulator) -> Digest:
    """The digest of a trial. accumulator: its intervals."""
    series = tuple(_series(trial, accumulator))
    scripts = own_scripts(trial)
    since = summary.cut_s

    def curve(kind: str) -> tuple[tuple[float, float | None], ...]:
        times = merge(accumulator.times(kind, script, since) for script in scripts)
        return _curve(times, summary.counts.due)

    return Digest(
        trial=replace(trial, intervals=(), samples=(), observed=()),
        summary=summary,
        series=series,
        tracks=tuple(_tracks((*trial.samples, *by_server(trial.samples)), series)),
        latency=curve("latency"),
        lag=curve("lag"),
    )


def _series(trial: Trial, accumulator: Accumulator) -> Iterable[Bucket]:
    if not trial.plan.by_second:
        return
    scripts, ledgers = own_scripts(trial), accumulator.ledgers(trial)
    every = together(ledgers[script] for script in scripts if script in ledgers)
    length = accumulator.block_s
    for block in range(-(-max(0, every.end) // length)):
        counts = every.between(block * length, (block + 1) * length).counts
        times, lag = (accumulator.times_of(kind, block, scripts) for kind in ("latency", "lag"))
        mean = times.mean_ns
        p50, p95, p99 = _quantiles(times, (0.5, 0.95, 0.99))
        yield Bucket(
            start_s=block * length,
            seconds=length,
            counts=counts,
            mean_ms=None if mean is None else mean / 1e6,
            p50_ms=p50,
            p95_ms=p95,
            p99_ms=p99,
            max_ms=times.max_ns / 1e6 if times.count else None,
            lag_p99_ms=_quantiles(lag, (0.99,))[0],
        )


def _quantiles(times: Times, shares: Iterable[float]) -> list[float | None]:
    """Of what succeeded, ms."""
    ranks = [quantile_rank(share, times.count) for share in shares]
    found = values_at_ranks(times, ranks) if times.count else [None] * len(ranks)
    return [None if ns is None else ns / 1e6 for ns in found]


def _curve(times: Times, due: int) -> tuple[tuple[float, float | None], ...]:
    if due == 0 or not times.shaped:
        return ()
    ranks = [quantile_rank(share, due) for share in SHARES]
    found = values_at_ranks(times, ranks) if times.count else [None] * len(ranks)
    return tuple(
        (share, None if ns is None else ns / 1e6) for share, ns in zip(SHARES, found, strict=True)
    )


def _tracks(samples: Iterable[Sample], series: tuple[Bucket, ...]) -> Iterable[Track]:
    """Each sensor's values, as means over the buckets of the series."""
    if not series:
        return
    length = series[0].seconds
    samples = _few_waits(samples)
    found: dict[tuple[str, str, str], list[list[float]]] = {}
    for sample in samples:
        if 0 <= sample.second < length * len(series):
            key = (sample.source, sample.name, sample.unit)
            values = found.setdefault(key, [[] for _ in series])
            values[sample.second // length].append(sample.value)
    for source, name, unit in sorted(found, key=_rank):
        if _kind(source) in _WIDE and _rank((source, name, unit)) == len(_FIRST):
            continue
        values = found[source, name, unit]
        means = tuple(float(f"{sum(part) / len(part):.5g}") if part else None for part in values)
        yield Track(source, name, unit, means)


def _kind(source: str) -> str:
    """A source without the node that it was read on."""
    return source.rpartition("/")[2]


def _few_waits(samples: Iterable[Sample]) -> list[Sample]:
    """The samples with those wait events alone that most sessions were in, of each server."""
    every = list(samples)
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for sample in every:
        if _kind(sample.source) == waits.SOURCE and sample.second >= 0:
            sums[sample.source, sample.name] += sample.value
    kept: set[tuple[str, str]] = set()
    for source in {source for source, _ in sums}:
        own = [pair for pair in sums if pair[0] == source and pair[1] != waits.OTHER]
        own.sort(key=lambda pair: -sums[pair])
        kept |= {pair for pair in own[:WAITS_MAX] if sums[pair]}
    found: list[Sample] = []
    rest: dict[tuple[int, str], float] = defaultdict(float)
    for sample in every:
        if _kind(sample.source) != waits.SOURCE or (sample.source, sample.name) in kept:
            found.append(sample)
        else:
            rest[sample.second, sample.source] += sample.value
    used = {source for (_, source), value in rest.items() if value}
    found += [
        Sample(second, source, waits.OTHER, value, "sessions")
        for (second, source), value in rest.items()
        if source in used
    ]
    return found


def _rank(track: tuple[str, str, str]) -> int:
    """Its place among what is shown; those that nobody ranked are last, as they came."""
    source, name, _ = track
    for place, (of, start, *end) in enumerate(_FIRST):
        if _kind(source) == of and name.startswith(start) and name.endswith("".join(end)):
            return place
    return len(_FIRST)
