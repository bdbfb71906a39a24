"""What was measured, as frozen values: distributions, tallies, intervals, trials, estimates.

Knows where none of it came from. The only module that imports the binding's histogram type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pgpaces._engine import Histogram, histogram_count, histogram_counts

State = Literal["running", "finished", "interrupted", "failed"]
Severity = Literal["info", "warning", "invalid"]
CLASSES = ("on_time", "late", "skipped", "failed", "unfinished")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval: value, low, high in the same unit; n observations.

    Infinity is above every value: what did not succeed ranks there. An interval from minus to plus
    infinity says nothing: there are too few observations for one, it is not estimable.
    """

    value: float
    low: float
    high: float
    n: int

    @classmethod
    def alone(cls, value: float, n: int) -> Estimate:
        """A value whose interval cannot be estimated."""
        return cls(value, -math.inf, math.inf, n)

    @property
    def estimable(self) -> bool:
        """Whether the interval says anything."""
        return self.low != -math.inf


@dataclass(frozen=True, slots=True)
class Finding:
    """What somebody who watches a trial has to say of it, and how much it weighs.

    source: who found it (generator, warm-up, flatness, a sensor). invalid: the numbers do not say
    what they seem to say. value, unit: the number behind the text, if there is one.
    """

    source: str
    severity: Severity
    text: str
    value: float | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Times:
    """A distribution of times: exact count, sum and maximum in ns, and an HDR histogram (V2).

    Without a histogram, although something was counted, its shape is not known: what was imported
    as sums. A maximum of 0 is then not known either.
    """

    count: int = 0
    sum_ns: int = 0
    square_sum: float = 0.0
    max_ns: int = 0
    histogram: bytes = b""

    @property
    def shaped(self) -> bool:
        """Whether its quantiles are known."""
        return bool(self.histogram) or self.count == 0

    @property
    def mean_ns(self) -> float | None:
        """The mean, or None of nothing."""
        return self.sum_ns / self.count if self.count else None

    @property
    def stddev_ns(self) -> float | None:
        """The standard deviation of all that was counted; None where it is not known."""
        mean = self.mean_ns
        if mean is None or not (self.shaped or self.square_sum):
            return None
        return math.sqrt(max(0.0, self.square_sum / self.count - mean * mean))


def merge(parts: Iterable[Times]) -> Times:
    """One distribution of several, of one trial; of no known shape, if one of them is."""
    histogram, shaped = Histogram(), True
    count = sum_ns = max_ns = 0
    square_sum = 0.0
    for part in parts:
        if part.count:
            histogram.add(part.histogram)
            shaped = shaped and part.shaped
            count += part.count
            sum_ns += part.sum_ns
            square_sum += part.square_sum
            max_ns = max(max_ns, part.max_ns)
    return Times(count, sum_ns, square_sum, max_ns, histogram.encode() if count and shaped else b"")


def times_of(values_ns: Iterable[int]) -> Times:
    """The distribution of these times."""
    histogram = Histogram()
    count = sum_ns = max_ns = square_sum = 0
    for ns in values_ns:
        histogram.record(ns)
        count, sum_ns, square_sum = count + 1, sum_ns + ns, square_sum + ns * ns
        max_ns = max(max_ns, ns)
    encoded = histogram.encode() if count else b""
    return Times(count, sum_ns, float(square_sum), max_ns, encoded)


def counted(times: Times) -> int:
    """How many times its histogram counts. ValueError where that cannot be read."""
    return histogram_count(times.histogram)


def counts_at_most(parts: Iterable[Times], values_ns: Sequence[int]) -> list[int]:
    """How many times of all parts are at most as long as each of these, to 3 significant digits."""
    sums = [0] * len(values_ns)
    for part in parts:
        for place, count in enumerate(histogram_counts(part.histogram, values_ns)):
            sums[place] += count
    return sums


def value_at_rank(times: Times, rank: int) -> int | None:
    """The time with `rank` in ascending order, ns, from 1; None beyond the count.

    Good to 3 significant digits; the last one is the exact maximum.
    """
    return values_at_ranks(times, (rank,))[0]


# Above this a histogram tells no time from another.
_LONGEST_NS = 3_600_000_000_000


def values_at_ranks(times: Times, ranks: Sequence[int]) -> list[int | None]:
    """The times at several ranks; as value_at_rank. None where the shape is not known.

    None too for a time of more than an hour that is not the longest: how long it was is not known.
    """
    if not times.shaped:
        return [None] * len(ranks)
    histogram = Histogram()
    histogram.add(times.histogram)

    def at(rank: int) -> int | None:
        found = histogram.value_at_rank(rank) if 0 < rank < times.count else None
        if rank == times.count > 0:
            return times.max_ns
        if found is not None and found >= _LONGEST_NS < times.max_ns:
            return None
        return found and min(found, times.max_ns)

    return [at(rank) for rank in ranks]


@dataclass(frozen=True, slots=True)
class Tally:
    """What became known in one second about one script's transactions of one due second.

    due = on_time + late + skipped + sum(failed) + unfinished, summed over all tallies of a due
    second and script, when the trial is over. failed: by SQLSTATE. retried: how many, of those that
    succeeded or failed, were tried more than once. retries: tries behind the first, of all.
    """

    due_second: int
    script: int
    due: int = 0
    on_time: int = 0
    late: int = 0
    skipped: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    unfinished: int = 0
    latency: Times = Times()
    lag: Times = Times()
    service: Times = Times()
    retried: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True)
class StatementTally:
    """Times of one command of a script that ended in one second.

    failed: failures that ended their transaction. retries: failures after which it was tried again.
    """

    script: int
    command: int
    failed: int = 0
    times: Times = Times()
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Interval:
    """What became known in one second; second 0 begins the measured part.

    cpu_ns: CPU time of each worker thread. dispatch: lag of transactions whose client was idle
    when they were due. in_flight_ns: integral of transactions in flight. ended_ns: its end.
    pending_ns: integral of what is due and not done; waited_ns: for how long what ended had been
    due; both 0 in a closed load.
    connect_ns: what connecting and disconnecting took, where every transaction has a connection of
    its own. aborted: the thread of each client that gave up. lines: level (error, warning, info, or
    plain for what wants no prefix) and text of what is to be told at once, in pgbench's words.
    outages: clients that got a lost connection back. outage_ns_max: the longest of these outages,
    and of those that last when the run ends. down: clients without a connection at its end.
    some_down_ns, all_down_ns: for how long of it one client at least was without, and all were.
    """

    second: int
    tallies: tuple[Tally, ...] = ()
    statements: tuple[StatementTally, ...] = ()
    messages: tuple[tuple[str, str], ...] = ()
    cpu_ns: tuple[int, ...] = ()
    dispatch: Times = Times()
    in_flight_ns: int = 0
    pending_ns: int = 0
    waited_ns: int = 0
    ended_ns: int = 0
    connects: int = 0
    disconnects: int = 0
    notes: tuple[str, ...] = ()
    connect_ns: int = 0
    aborted: tuple[int, ...] = ()
    lines: tuple[tuple[str, str], ...] = ()
    outages: int = 0
    outage_ns_max: int = 0
    down: int = 0
    some_down_ns: int = 0
    all_down_ns: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """The identity: due = on time + late + skipped + failed + unfinished + pending."""

    due: int = 0
    on_time: int = 0
    late: int = 0
    skipped: int = 0
    failed: int = 0
    unfinished: int = 0

    @property
    def ended(self) -> int:
        """Transactions that have an outcome."""
        return self.on_time + self.late + self.skipped + self.failed + self.unfinished

    @property
    def pending(self) -> int:
        """Due and still without an outcome; 0 when a trial is over."""
        return self.due - self.ended

    @property
    def missed(self) -> int:
        """late + skipped + failed + unfinished."""
        return self.late + self.skipped + self.failed + self.unfinished


def counts(tallies: Iterable[Tally]) -> Counts:
    """The sums of tallies."""
    sums = dict.fromkeys(("due", *CLASSES), 0)
    for tally in tallies:
        sums["due"] += tally.due
        sums["on_time"] += tally.on_time
        sums["late"] += tally.late
        sums["skipped"] += tally.skipped
        sums["failed"] += sum(tally.failed.values())
        sums["unfinished"] += tally.unfinished
    return Counts(**sums)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in an experiment a trial stands.

    experiment: its id. cell: the cell's key. levels: of each factor, as written. block: from 1.
    attempt: 1, or 2 where a failed one was run again.
    """

    experiment: str
    cell: str
    levels: Mapping[str, str]
    block: int
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """What a sensor read in one second of a trial; differences belong to the second they end in.

    source: database, checkpoints, wal, host, ...; name: within the source. second 0 begins the
    measured part.
    """

    second: int
    source: str
    name: str
    value: float
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Explained:
    """How one statement was executed: one EXPLAIN (ANALYZE), with parameters of its script.

    script, command: which, as in the workload. shape: a hash of nodes, relations and indexes,
    without costs and times, so that plans compare. workers planned and launched, spilled bytes
    to disk, all over the plan. plan: JSON text as the server gave it. analyzed: it was executed.
    """

    script: int
    command: int
    shape: str
    summary: str
    workers_planned: int
    workers_launched: int
    spilled_bytes: int
    plan: str
    analyzed: bool = True


@dataclass(frozen=True, slots=True)
class Moved:
    """How far a counter of a server went, from the start of the measured part to the load's end."""

    source: str
    name: str
    value: float
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Executed:
    """What one statement did on a server beside a trial, its warm-up too, by pg_stat_statements.

    text: normalized by the server. load: the role of the load executed it. Blocks: found in the
    server's cache, and read.
    """

    text: str
    load: bool
    calls: int
    total_ms: float
    rows: int
    blocks_hit: int
    blocks_read: int
    wal_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Grown:
    """A table with its TOAST, or an index: its size before and behind a trial, warm-up too.

    dead: tuples that are dead, of a table, as far as the server has counted them.
    """

    name: str
    kind: Literal["table", "index"]
    before_bytes: int
    after_bytes: int
    dead_before: int | None = None
    dead_after: int | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """Sessions that waited for a lock which another had or wanted before them.

    waiting, blocking: "load", or the application's name. mode: of the lock that was waited for.
    state: of the blocker's session. statement: its first characters; empty where it is hidden.
    seen: in so many looks, at most one a second, from first_s to last_s.
    """

    waiting: str
    event: str
    mode: str
    blocking: str
    state: str
    statement: str
    seen: int
    first_s: int
    last_s: int


@dataclass(frozen=True, slots=True)
class WaitEvent:
    """What sessions waited for that executed something: "CPU" without an event is no wait event.

    who: the load, or others. sessions: so many were seen in it, summed over all looks from second 0
    on.
    """

    who: Literal["load", "others"]
    kind: str
    event: str
    sessions: int


@dataclass(frozen=True, slots=True)
class Waits:
    """Wait events in each tenth of a second. looks: in so many of them, from second 0 on.

    tenths: how many sessions were in which event in which tenth; answers/waits.py reads it.
    """

    looks: int = 0
    events: tuple[WaitEvent, ...] = ()
    tenths: bytes = b""


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of one server beside a trial that is no sample. node: "" of the only one."""

    node: str = ""
    moved: tuple[Moved, ...] = ()
    executed: tuple[Executed, ...] = ()
    grown: tuple[Grown, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    waits: Waits = Waits()


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of one cell: what was asked, where, when, and every interval.

    plan, workload, server, host: plain values as they are stored. scripts: for each script its
    name, weight and the text of its commands. measured_ns: how long the measured part lasted.
    findings: what sensors and the pipeline found; what the numbers themselves tell is not in it.
    place: in an experiment, if it is part of one. samples: of the sensors. explained: how its
    statements were executed. observed: what else was seen of each server.
    """

    id: str
    state: State
    started_at: datetime
    plan: Mapping[str, Any]
    workload: Mapping[str, Any]
    server: Mapping[str, Any]
    host: Mapping[str, Any]
    version: str
    intervals: tuple[Interval, ...] = ()
    ended_at: datetime | None = None
    measured_ns: int | None = None
    error: str | None = None
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    place: Place | None = None
    samples: tuple[Sample, ...] = ()
    explained: tuple[Explained, ...] = ()
    observed: tuple[Observed, ...] = ()
