"""A trial as it runs: its stored seconds, as rows of charts for any number of readers.

The metrics and the companion process read them here, too: `ProcessLoad` finds the trials of a
process, and `news` has their new seconds.

The store is read once for all readers of a trial. A reader has a place in the rows and no queue, so
a slow one costs nothing, and one that joins late, or comes back, has the whole trial.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import platform
from collections import Counter
from collections.abc import AsyncIterator, Container, Iterable, Iterator

from msgspec import Struct, field
from msgspec.structs import astuple

from pgpaces.analysis.accumulator import own_scripts
from pgpaces.core.errors import PgpacesError, StoreError
from pgpaces.core.record import Interval, total
from pgpaces.core.series import Series
from pgpaces.core.times import quantiles_ms
from pgpaces.monitor.host import GENERATOR, OF_GENERATOR, SOURCE
from pgpaces.spec.result import Blocked, Counts, Trial, counts
from pgpaces.store.rows import BEFORE_ALL
from pgpaces.store.store import Store, new_id

# The numbers of a row, in order. Times in ms; outcomes are those that became known in the second.
COLUMNS = (
    *("second", "due", "on_time", "late", "skipped", "failed", "unfinished", "throughput"),
    *("p50", "p95", "p99", "dispatch_lag", "lag_p99", "in_flight", "backlog", "generator_cpu"),
)
# Of the server's machine, the generator's, and the server: active sessions by their wait event.
MACHINE = ("second", "cpu_busy", "cpu_iowait", "cpu_steal", "disk_busy",
           "generator_busy", "generator_iowait", "generator_steal",
           "sessions_cpu", "sessions_io", "sessions_lwlock", "sessions_lock", "sessions_other",
)  # fmt: skip
_CLASSES = {"CPU": "cpu", "IO": "io", "LWLock": "lwlock", "Lock": "lock"}
# A sample may be stored some seconds after its second.
_DELAY_S = 5
Row = tuple[float | None, ...]

# Several machines may run trials at a time.
NEWEST = 50
# An id begins with its time.
_TIME = 10

# Of those who waited for whom, the most frequent are shown.
_BLOCKED_MAX = 8

# A message to a reader that takes nothing stays in memory; one has the rows of an hour.
_ROWS_MAX = 4000
_POLL_S = 1.0
# A proxy between closes a connection without traffic.
SILENCE_S = 15.0
# A trial that nothing reads is dropped.
_IDLE_S = 60.0


def row(interval: Interval, scripts: int | None = None) -> Row:
    """The numbers of a second. scripts: the number of those of the workload itself; None: all.

    Percentiles rank over all that ended; in flight and backlog are means. The start lag has the
    wait for a client, the dispatch lag is that of the generator alone; both are p99.
    """
    whole = total(t for t in interval.tallies if scripts is None or t.script < scripts)
    sums, dispatch = counts((whole,)), interval.dispatch
    quantiles = (
        *quantiles_ms(whole.latency, (0.5, 0.95, 0.99), sums.ended),
        *quantiles_ms(dispatch, (0.99,), dispatch.count),
        *quantiles_ms(whole.lag, (0.99,), sums.ended),
    )
    return (
        *(interval.second, sums.due, sums.on_time, sums.late, sums.skipped, sums.failed),
        *(sums.unfinished, whole.latency.count),
        *(None if ms is None else round(ms, 3) for ms in quantiles),
        round(interval.in_flight_ns / 1e9, 3),
        round(max(0, interval.pending_ns) / 1e9, 3),
        round(max(interval.cpu_ns, default=0) / 1e9, 4),
    )


def machine_rows(series: Iterable[Series]) -> dict[int, Row]:
    """The numbers of machines and the server by second, as MACHINE has them."""
    numbers: dict[int, dict[str, float]] = {}
    for each in series:
        name = each.name
        if each.source == SOURCE and name.startswith("disk_") and name.endswith("_busy"):
            for second, value in each.pairs:
                seconds = numbers.setdefault(second, {})
                seconds["disk_busy"] = max(value, seconds.get("disk_busy", 0.0))
        elif each.source in (SOURCE, GENERATOR) and name in OF_GENERATOR:
            column = name if each.source == SOURCE else name.replace("cpu", GENERATOR)
            for second, value in each.pairs:
                numbers.setdefault(second, {})[column] = value
        elif each.source == "waits":
            kind = f"sessions_{_CLASSES.get(name.partition(':')[0], 'other')}"
            for second, value in each.pairs:
                seconds = numbers.setdefault(second, {})
                seconds[kind] = seconds.get(kind, 0.0) + value
    return {second: (second, *(values.get(name) for name in MACHINE[1:]))
            for second, values in sorted(numbers.items())}  # fmt: skip


class Mark(Struct, frozen=True):
    second: int
    text: str


def checkpoints(series: Iterable[Series]) -> list[Mark]:
    """The checkpoints of the only server, or of the primary, when it counted them."""
    return [
        Mark(second, "checkpoint")
        for each in series
        if (each.source, each.name) == ("checkpoints", "checkpoints")
        for second, value in each.pairs
        if value > 0
    ]


class ProcessLoad(Struct, frozen=True, eq=False):
    """What one process of pgpaces runs.

    since: the beginning of the first id that it can have. others: ids of others' trials, once read.
    """

    pid: int
    hostname: str | None = field(default_factory=lambda: platform.node() or None)
    since: str = field(default_factory=lambda: new_id()[:_TIME])
    others: set[str] = field(default_factory=set)

    def trials(self, store: Store, known: Container[str] = ()) -> Iterator[Trial]:
        """Its readable trials without their seconds, the newest first. Raises StoreError.

        known: ids of trials that are left out.
        """
        for id_ in store.newest(NEWEST):
            if id_[:_TIME] >= self.since and id_ not in known and id_ not in self.others:
                with contextlib.suppress(StoreError):
                    head = store.head(id_)
                    if (head.host.hostname, head.host.pid) == (self.hostname, self.pid):
                        yield head
                    else:
                        self.others.add(id_)


class Message(Struct, frozen=True):
    """A part of a trial for a reader. at: the number of rows with it, from which to go on.

    limits_ms: the latency limits. machine: rows by MACHINE; a later one of a second replaces it.
    measured: what was due in the measured part so far. failed: all, by SQLSTATE, since the start.
    first_errors: the first text of each. blocked: who waited for whom, by server, the most frequent
    first. marks: all of the trial so far, by second.
    """

    at: int
    state: str
    limits_ms: list[float]
    rows: list[Row]
    machine: list[Row]
    measured: Counts
    failed: dict[str, int]
    first_errors: dict[str, str]
    blocked: list[Blocked]
    marks: list[Mark]


def news(
    store: Store, trial_id: str, latest: Interval | None
) -> tuple[Trial, tuple[Interval, ...]]:
    """A trial, and its seconds after the latest one. Raises StoreError.

    The state is read first: an ended trial has all its seconds.
    """
    head = store.head(trial_id)
    return head, store.seconds(trial_id, BEFORE_ALL if latest is None else latest.second)


class Followed(Struct):
    """A trial that readers follow. scripts: of its own workload."""

    head: Trial
    scripts: int
    rows: list[Row] = field(default_factory=list)
    machine: dict[int, Row] = field(default_factory=dict)
    measured: Counts = Counts()
    failed: Counter[str] = field(default_factory=Counter)
    first_errors: dict[str, str] = field(default_factory=dict)
    blocked: list[Blocked] = field(default_factory=list)
    checkpoints: dict[int, Mark] = field(default_factory=dict)
    latest: Interval | None = None
    error: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def state(self) -> str:
        """The state of the trial, or `lost` if the store cannot be read any more."""
        return "lost" if self.error else self.head.state

    def read(self, store: Store) -> None:
        head, intervals = news(store, self.head.id, self.latest)
        for interval in intervals:
            self._add(interval)
        newest = max(self.machine, default=BEFORE_ALL + _DELAY_S)
        series = store.series(self.head.id, newest - _DELAY_S).series()
        self.machine |= machine_rows(series)
        self.checkpoints |= {mark.second: mark for mark in checkpoints(series)}
        if intervals or head.state != "running":
            blocked = [one for each in store.observed(head.id) for one in each.blocked]
            self.blocked = sorted(blocked, key=lambda one: -one.samples)[:_BLOCKED_MAX]
        self.head = head

    def _add(self, interval: Interval) -> None:
        self.rows.append(row(interval, self.scripts))
        own = [tally for tally in interval.tallies if tally.script < self.scripts]
        new = counts(tally for tally in own if tally.due_second >= 0)
        self.measured = Counts(*map(sum, zip(astuple(self.measured), astuple(new), strict=True)))
        for tally in interval.tallies:
            self.failed.update(tally.failed)
        for state, text in interval.messages:
            self.first_errors.setdefault(state, text)
        self.latest = interval

    def since(self, at: int) -> Message:
        """What a reader does not have. at: the number of rows that it has."""
        # Copies: another thread reads the store.
        rows, failed = self.rows[at : at + _ROWS_MAX], dict(self.failed)
        complete = at + len(rows) == len(self.rows)
        since = -math.inf if at == 0 else (self.rows[at - 1][0] or 0) - 2 * _DELAY_S
        until = math.inf if complete else rows[-1][0] or 0
        machine = [row for second, row in list(self.machine.items()) if since <= second <= until]
        marks = sorted(self.checkpoints.copy().values(), key=lambda mark: mark.second)
        plan = self.head.plan
        limits = {ns for ns in (plan.limit_ns, *dict(plan.limits).values()) if ns}
        limits_ms = [ns / 1e6 for ns in sorted(limits)]
        return Message(
            at + len(rows),
            self.state if complete else "running",
            *(limits_ms, rows, machine, self.measured, failed),
            *(dict(self.first_errors), self.blocked, marks),
        )


class Follower:
    """Follows trials of a store for all readers. For one event loop."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._trials: dict[str, Followed] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._readers: dict[str, int] = {}

    async def trial(self, trial_id: str) -> Followed:
        """The trial with its rows so far. Raises StoreError if there is none."""
        if trial_id not in self._trials:
            head = await asyncio.to_thread(self.store.head, trial_id)
            trial = Followed(head, len(own_scripts(head)))
            await asyncio.to_thread(trial.read, self.store)
            self._trials.setdefault(trial_id, trial)
        if trial_id not in self._tasks and self._trials[trial_id].state == "running":
            task = asyncio.create_task(self._follow(trial_id))
            self._tasks[trial_id] = task
        return self._trials[trial_id]

    async def _follow(self, trial_id: str) -> None:
        trial, idle_s = self._trials[trial_id], 0.0
        while trial.state == "running" and idle_s < _IDLE_S:
            await asyncio.sleep(_POLL_S)
            before = len(trial.rows)
            try:
                await asyncio.to_thread(trial.read, self.store)
            except PgpacesError as error:
                trial.error = error.message
            idle_s = 0.0 if self._readers.get(trial_id) else idle_s + _POLL_S
            if len(trial.rows) > before or trial.state != "running":
                trial.changed.set()
                trial.changed = asyncio.Event()
        del self._tasks[trial_id]
        if not self._readers.get(trial_id):
            self._trials.pop(trial_id, None)

    async def messages(self, trial_id: str, at: int) -> AsyncIterator[Message | None]:
        """What is new, until the trial has ended; None after a silence. at: rows that are sums."""
        trial = await self.trial(trial_id)
        self._readers[trial_id] = self._readers.get(trial_id, 0) + 1
        try:
            at = min(max(at, 0), len(trial.rows))
            while True:
                changed, message = trial.changed, trial.since(at)
                at = message.at
                yield message
                if message.state != "running":
                    return
                while len(trial.rows) == at and trial.state == "running":
                    try:
                        await asyncio.wait_for(changed.wait(), SILENCE_S)
                        changed = trial.changed
                    except TimeoutError:
                        yield None
        finally:
            self._readers[trial_id] -= 1
            if trial_id not in self._tasks and not self._readers[trial_id]:
                self._trials.pop(trial_id, None)


def title(trial: Trial) -> str:
    return f"{trial.workload.name}, {trial.load_text}"
