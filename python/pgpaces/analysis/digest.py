"""What lists, charts and comparisons need of a trial, in a few KB, to read a thousand at once.

A digest is computed from the trial and stored when the trial ends. VERSION is the version of the
rules; a digest of older rules is computed again from the trial's seconds.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import waits
from pgpaces.analysis.accumulator import Accumulator, own_scripts, together
from pgpaces.analysis.summary import Summary, summarize
from pgpaces.core.series import Series
from pgpaces.core.times import Times, merge, quantiles_ms
from pgpaces.spec.result import Counts, Trial

VERSION = 16
# Tracks that charts show first, as patterns of source and name. Sources with dozens of tracks
# (_WIDE) show only these; their other samples stay in the store.
_FIRST = (
    "host/cpu_busy*",
    "host/cpu_steal*",
    "host/cgroup_throttled_share*",
    "host/pi_throttled*",
    "host/temperature_*",
    "host/disk_*_busy",
    "replication/* replay_lag",
    "replication/behind*",
    "replication/replay_delay*",
    "checkpoints/checkpoints*",
    "database/cache_hit_ratio*",
    "wal/written*",
    "host/cpu_iowait*",
    "host/cpu_frequency*",
    "host/disk_*_written",
    "host/disk_*_read",
    "host/pressure_cpu_some*",
    "host/pressure_io_some*",
    "host/memory_available*",
)
_WIDE = frozenset(
    ("host", "io", "tuples", "transactions", "sessions", "replication", "slots", "conflicts",
     "background_writer", "wal")
)  # fmt: skip
# Wait events with tracks of their own; one more track has the sum of the others.
WAITS_MAX = 6
# The least seconds of a window.
_WINDOW_S = 10


class Bucket(Struct, frozen=True):
    """Some seconds of a trial, by due time. start_s: from the start of the measured part.

    mean_ms, max_ms: of successes; None without any. Quantiles rank over everything that was due, as
    those of a Distribution, and are infinite likewise; None if nothing was due, or without a shape.
    lag_p99_ms: of sent - due.
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


def windows(buckets: Sequence[Bucket], name: str) -> tuple[tuple[int, int], ...]:
    """Transactions with an outcome and due ones, in windows of at least _WINDOW_S."""
    counts = [bucket.counts for bucket in buckets]
    size = max(1, -(-_WINDOW_S // buckets[0].seconds)) if buckets else 1
    parts = (counts[at : at + size] for at in range(0, len(counts), size))
    return tuple((sum(getattr(c, name) for c in p), sum(c.due for c in p)) for p in parts)


class Track(Struct, frozen=True):
    """The samples of a sensor, as a mean for each bucket; None without samples."""

    source: str
    name: str
    unit: str
    values: tuple[float | None, ...]


class Digest(Struct, frozen=True):
    """A trial without its seconds and samples, its answer, and the data of its charts.

    series: the measured part from its start, with the warm-up that the summary leaves out.
    """

    trial: Trial
    summary: Summary
    series: tuple[Bucket, ...] = ()
    tracks: tuple[Track, ...] = ()


def digest(trial: Trial, accumulator: Accumulator | None = None) -> Digest:
    """The digest of a trial, by the current rules. Raises StoreError as `summarize`.

    accumulator: the trial's intervals, if the trial does not contain them.
    """
    accumulator = Accumulator.of(trial.intervals) if accumulator is None else accumulator
    summary = summarize(trial, accumulator)
    series = tuple(_series(trial, accumulator))
    without = replace(trial, intervals=(), samples=(), observed=())
    return Digest(without, summary, series, tuple(_tracks(trial.samples, series)))


def _series(trial: Trial, accumulator: Accumulator) -> Iterable[Bucket]:
    scripts, ledgers = own_scripts(trial), accumulator.ledgers(trial)
    every = together(ledgers, scripts)
    length = accumulator.block_s
    for block in range(-(-max(0, every.end) // length)):
        counts = every.between(block * length, (block + 1) * length).counts
        times, lag = (merge(accumulator.parts(kind, block, scripts)) for kind in ("latency", "lag"))
        mean = times.mean_ns
        p50, p95, p99 = _of_due(times, (0.5, 0.95, 0.99), counts.due)
        yield Bucket(
            start_s=block * length,
            seconds=length,
            counts=counts,
            mean_ms=None if mean is None else mean / 1e6,
            p50_ms=p50,
            p95_ms=p95,
            p99_ms=p99,
            max_ms=times.max_ns / 1e6 if times.count else None,
            lag_p99_ms=_of_due(lag, (0.99,), counts.due)[0],
        )


def _of_due(times: Times, shares: Sequence[float], due: int) -> list[float | None]:
    if not due:
        return [None] * len(shares)
    return [math.inf if ms is None else ms for ms in quantiles_ms(times, shares, due)]


def _tracks(every: Iterable[Series], series: tuple[Bucket, ...]) -> Iterable[Track]:
    """Each sensor's values, as means over the buckets of the series."""
    length = series[0].seconds if series else 1
    for one in sorted(_few_waits(every), key=_place):
        if _kind(one) in _WIDE and _place(one) == len(_FIRST):
            continue
        parts: list[list[float]] = [[] for _ in series]
        for second, value in one.pairs:
            if 0 <= second < length * len(series):
                parts[second // length].append(value)
        if any(parts):
            means = (float(f"{sum(part) / len(part):.5g}") if part else None for part in parts)
            yield Track(one.source, one.name, one.unit, tuple(means))


def _kind(series: Series) -> str:
    return series.source.rpartition("/")[2]


def _few_waits(every: Iterable[Series]) -> Iterator[Series]:
    """The series, with the WAITS_MAX most frequent wait events of each server and their rest."""
    events: dict[str, list[tuple[float, Series]]] = defaultdict(list)
    for one in every:
        if _kind(one) == waits.SOURCE:
            events[one.source].append((sum(one.track().values()), one))
        else:
            yield one
    for source, own in events.items():
        able = [pair for pair in own if pair[0] and pair[1].name != waits.OTHER]
        frequent = sorted(able, key=lambda pair: -pair[0])[:WAITS_MAX]
        yield from (one for _, one in frequent)
        rest: dict[int, float] = defaultdict(float)
        shown = {one.name for _, one in frequent}
        for _, one in own:
            for second, value in one.pairs if one.name not in shown else ():
                rest[second] += value
        if any(rest.values()):
            seconds, values = array("i", rest), array("d", rest.values())
            yield Series(source, waits.OTHER, "sessions", seconds, values)


def _place(series: Series) -> int:
    """The place of a track among those shown; tracks that are not in _FIRST follow."""
    name = f"{_kind(series)}/{series.name}"
    places = (place for place, pattern in enumerate(_FIRST) if fnmatchcase(name, pattern))
    return next(places, len(_FIRST))
