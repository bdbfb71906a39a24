"""A trial second by second: outcomes of due transactions, sessions, samples of monitors. Pure.

Outcomes belong to the second in which a transaction was due, samples to the second of the clock.
`life_mean` maps one to the other: what a monitor read while those due in a second were under way.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from pgpaces.analysis import waits
from pgpaces.analysis.accumulator import Accumulator, own_scripts, together
from pgpaces.analysis.arrays import Numbers, np, quotient
from pgpaces.analysis.generator import times_above
from pgpaces.analysis.goal import limits_ns
from pgpaces.analysis.summary import Summary
from pgpaces.core.record import Interval
from pgpaces.spec.result import Observed, Trial, WaitEvent

# Fewer in flight than this, on average, are too few to tell where their time went.
_IN_FLIGHT_MIN = 0.1
_SAMPLES_MIN = 10
# The share of lock holders in one activity from which on their waiters count to it, and from which
# on they do so entirely.
_INHERIT_FROM, _INHERIT_TO = 0.5, 0.8
# An activity is slow that takes this part of the limit.
_SLOW_OF_LIMIT = 0.25
# Commands of a script for which its client waits, not for the server.
_PAUSE = re.compile(r"\s*\\(sleep|shell|setshell)\b", re.IGNORECASE)


Kind = Literal["cpu", "lock", "disk", "standby", "latch", "client", "other"]
# Frozen: a sample was late by this many tenths, and by three times the two intervals before.
FROZEN_MIN = 5
_FROZEN_TIMES = 3
_KINDS: Mapping[str, Kind] = {
    waits.CPU: "cpu", "IO": "disk", "Lock": "lock", "LWLock": "latch", "BufferPin": "latch",
    "Client": "client",
}  # fmt: skip
# Waits of other types that are for the disk: a page that another session reads, and WAL.
_DISK = ("BufferIO", "BufferIo", "buffer_io", "WALWrite", "WALWriteLock")


def wait_kind(event: WaitEvent) -> Kind:
    """The kind of a wait event, as far as causes differ by it."""
    if (event.kind, event.event) == ("IPC", "SyncRep"):
        return "standby"
    return "disk" if event.event in _DISK else _KINDS.get(event.kind, "other")


class Sessions(Struct, frozen=True):
    """Mean sessions in each second of the clock from 0; NaN where there are no samples.

    by: of the load, by kind. others: not of the load. frozen: the share of a second in which the
    server did not answer a sample. samples: in each second. events: of the load, by kind, names of
    events, those with most sessions first.
    """

    by: Mapping[Kind, Numbers]
    others: Numbers
    frozen: Numbers
    samples: Numbers
    events: Mapping[Kind, tuple[str, ...]]

    def of(self, *kinds: Kind) -> Numbers:
        """Sessions of the load in these kinds together; 0 where there was none."""
        return sum((self.by[kind] for kind in kinds if kind in self.by), np.zeros(len(self.others)))

    @property
    def active(self) -> Numbers:
        return self.of(*self.by)


class Timeline(Struct, frozen=True):
    """A trial, by second.

    By second of due time: missed, on_time, failed: transactions; latency_s: mean of those that
    succeeded, or the time to the end where none did; lag: the part of latency before they were
    sent; waited: missed transactions that would have been on time if sent when due; unsent:
    unfinished ones that no client sent; succeeded: transactions. By second of the clock, of which
    there may be more: ended: transactions; in_flight: mean transactions; dispatch_s: mean lag of
    those with a free client. limit_s: the shortest of its scripts, 0 without one. since: the first
    second that counts. open_clients: the clients of open loads. failures: the failed transactions
    by SQLSTATE.
    """

    trial: Trial
    summary: Summary
    since: int
    limit_s: float
    missed: Numbers
    on_time: Numbers
    failed: Numbers
    latency_s: Numbers
    lag: Numbers
    waited: Numbers
    unsent: Numbers
    succeeded: Numbers
    ended: Numbers
    in_flight: Numbers
    dispatch_s: Numbers
    open_clients: int
    failures: Mapping[str, int]
    sessions: Sessions | None
    tracks: Mapping[tuple[str, str], Numbers]

    @property
    def seconds(self) -> int:
        return len(self.missed)

    @property
    def clock(self) -> int:
        """Seconds of the clock: until everything was served."""
        return len(self.in_flight)

    def track(self, source: str, name: str) -> Numbers | None:
        """Samples by second of the clock, NaN where there is none; None without any sample.

        Of several servers or machines the largest value.
        """
        return self.tracks.get((source, name))

    @property
    def last(self) -> Numbers:
        """The second of the clock in which the life of those due in each second ends.

        A transaction due in second s is due in its middle on average, so it lives from s + 1/2 for
        the mean latency of that second, and always through a part of s itself.
        """
        reach = np.floor(np.minimum(self.latency_s + 0.5, float(self.clock))).astype(int)
        return np.asarray(np.minimum(np.arange(self.seconds) + reach, self.clock - 1))

    def life_mean(self, values: Numbers) -> Numbers:
        """The mean of a clock's values over the life of those due in each second; NaN: unknown."""
        counts = self.life_sum(np.isfinite(values).astype(float))
        return quotient(self.life_sum(values), counts)

    def life_sum(self, values: Numbers) -> Numbers:
        """The sum of a clock's values over the same life; unknown ones count as 0."""
        sums = np.concatenate(([0.0], np.cumsum(np.where(np.isfinite(values), values, 0.0))))
        return np.asarray(sums[self.last + 1] - sums[: self.seconds])

    def mean_of_missed(self, values: Numbers) -> float:
        """The mean of a clock's values over lives of missed transactions; 0 where unknown."""
        return weighted_mean(self.life_mean(values), self.missed)

    def share_of_missed(self, counts: Numbers) -> Numbers:
        """Counts as a share of the missed transactions of each second of due time, 0 to 1."""
        return np.clip(quotient(counts, self.missed, 0.0), 0.0, 1.0)

    @property
    def locked_by_others(self) -> Numbers:
        """1 in seconds of the clock in which another session held a lock that the load waited for.

        A session queued after one that this session blocks counts as blocked by the load.
        """
        locked = np.zeros(self.clock)
        for one in (one for each in self.trial.observed for one in each.blocked):
            if one.waiting == "load" and one.blocking != "load":
                locked[max(0, one.first_s - 1) : max(0, one.last_s + 2)] = 1.0
        return locked

    @property
    def queued(self) -> Numbers:
        """Sessions of the load that wait for locks of each other, by second of the clock."""
        if self.sessions is None:
            return np.zeros(self.clock)
        return np.asarray(np.nan_to_num(self.sessions.of("lock") * (1 - self.locked_by_others)))

    @property
    def queueing(self) -> Numbers:
        """The share of the transactions in flight that queue for locks of each other, 0 to 1."""
        return quotient(self.queued, self._unqueued + self.queued, 0.0)

    @property
    def _unqueued(self) -> Numbers:
        active = self.sessions.active if self.sessions else np.zeros(self.clock)
        return np.asarray(np.fmax(self.in_flight, active) - self.queued)

    def flight_share(self, sessions: Numbers) -> Numbers:
        """Sessions as a share of the transactions in flight, 0 to 1, by second of the clock.

        Includes those that queue for locks of each other, as far as the holders do nothing else. 0
        with fewer than 10 samples of these sessions while missed transactions were under way: too
        few to tell where time went.
        """
        alive = np.zeros(self.clock)
        for at in np.flatnonzero(self.missed):
            alive[at : self.last[at] + 1] = 1.0
        samples = self.sessions.samples if self.sessions else np.zeros(self.clock)
        if np.nansum(alive * sessions * samples) < _SAMPLES_MIN:
            return np.zeros(self.clock)
        return self.with_queue(np.clip(quotient(sessions, self._unqueued, 0.0), 0.0, 1.0))

    def with_queue(self, share: Numbers) -> Numbers:
        """A share of the transactions that do not queue, as a share of all, by second of the clock.

        A session that queues for a row counts to the activity of its holder where most holders are
        in it, and it takes long: seven that wait for one that waits for the disk wait for the disk.
        Where holders differ, or are as quick as usual, the row itself is contended.

        By Little's law, second by second, an activity takes long if it takes a part of the limit on
        average over missed transactions.
        """
        sessions = np.nan_to_num(share * self._unqueued)
        spent_s = self.life_mean(sessions / np.fmax(smooth(self.ended), 1.0))
        late_s = float((spent_s * self.missed).sum() / max(1.0, self.missed.sum()))
        queueing = self.queueing
        if late_s >= _SLOW_OF_LIMIT * self.limit_s:
            certain = (share - _INHERIT_FROM) / (_INHERIT_TO - _INHERIT_FROM)
            queueing = queueing * (1 - np.clip(certain, 0.0, 1.0))
        return np.asarray(share * (1 - queueing))

    def outside(self) -> Numbers | None:
        """The share of transactions in flight that no session executed, by second of the clock.

        Of those that do not queue for locks of each other. NaN where too few were in flight. None
        without samples of sessions or of transactions in flight, and if scripts pause.
        """
        commands = (c for script in self.trial.workload.scripts for c in script.commands)
        pauses = any(_PAUSE.match(c.text) for c in commands if not c.is_sql)
        if self.sessions is None or not self.in_flight.any() or pauses:
            return None
        # Sessions that wait for the client to take a result do not execute; other sessions may be
        # the load's, behind a pool that gives them another name.
        waiting = self.sessions.of("client") + self.queued
        executing = self.sessions.active + self.sessions.others - waiting
        # Ten samples a second are few: three seconds together.
        in_flight, inside = (smooth(v) for v in (self.in_flight - self.queued, executing))
        share = 1 - quotient(inside, np.where(in_flight >= _IN_FLIGHT_MIN, in_flight, 0.0))
        return np.asarray(np.clip(share, 0.0, 1.0))

    @property
    def statements_ns(self) -> Numbers:
        return self.by_clock(lambda each: sum(one.times.sum_ns for one in each.statements))

    def by_clock(self, value: Callable[[Interval], float]) -> Numbers:
        return _by_clock(self.trial, self.clock, value)


def sessions_of(observed: Iterable[Observed], seconds: int) -> Sessions | None:
    """The sessions of all servers of a trial together; None where there are no samples.

    Raises ValueError for samples that cannot be read.
    """
    frozen, samples = np.zeros(seconds), np.zeros(seconds)
    by: defaultdict[Kind | None, Numbers] = defaultdict(lambda: np.zeros(seconds))
    names: dict[Kind, tuple[str, ...]] = {}
    servers = [each.waits for each in observed if each.waits.looks]
    for server in servers:
        kinds = [wait_kind(event) if event.who == "load" else None for event in server.events]
        tenths, rows = waits.tenths_of(server)
        at = tenths // waits.PER_SECOND
        looks = np.bincount(at[(at >= 0) & (at < seconds)], minlength=seconds)
        counts = np.zeros((len(kinds), seconds))
        at = rows[:, 0] // waits.PER_SECOND
        inside = (at >= 0) & (at < seconds)
        np.add.at(counts, (rows[inside, 1], at[inside]), rows[inside, 2])
        for kind in dict.fromkeys((None, *kinds)):
            of_kind = counts[[each == kind for each in kinds]].sum(axis=0)
            by[kind] = by[kind] + quotient(of_kind, looks)
        # A second has ten tenths.
        hung = np.zeros(seconds * waits.PER_SECOND)
        for start, end in gaps(tenths.tolist()):
            hung[max(0, start) : max(0, end)] = 1.0
        frozen = np.maximum(frozen, hung.reshape(seconds, waits.PER_SECOND).mean(axis=1))
        samples = np.maximum(samples, looks)
        for event in sorted(server.events, key=lambda event: -event.sessions):
            if event.who == "load" and event.sessions:
                name = waits.event_name("load", event.kind, event.event)
                names[wait_kind(event)] = (*names.get(wait_kind(event), ()), name)
    others = by.pop(None, np.zeros(seconds))
    own = {kind: values for kind, values in by.items() if kind is not None}
    return Sessions(own, others, frozen, samples, names) if servers else None


def gaps(tenths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The ranges [start, end) of tenths in which a sample hung. tenths: of samples, in order.

    Samples that a slow server makes rare come at even distances: these are no gaps.
    """
    steps = [after - before for before, after in pairwise(tenths)]
    for at, step in enumerate(steps):
        # The first step has none before it.
        usual = max(steps[max(0, at - 2) : at] or steps[1:2], default=1)
        if step >= max(FROZEN_MIN, _FROZEN_TIMES * usual):
            yield tenths[at] + 1, tenths[at + 1]


def weighted_mean(values: Numbers, weights: Numbers) -> float:
    """The mean of those values that are known; 0 if none is."""
    known = np.where(np.isfinite(values), weights, 0.0)
    return float((np.nan_to_num(values) * known).sum() / known.sum()) if known.sum() else 0.0


def smooth(values: Numbers) -> Numbers:
    """The mean of each second and its neighbors, of those that are finite."""
    padded = np.concatenate(([np.nan], values, [np.nan]))
    three = np.stack((padded[:-2], padded[1:-1], padded[2:]))
    finite = np.isfinite(three)
    return quotient(np.where(finite, three, 0.0).sum(axis=0), finite.sum(axis=0))


def _by_clock(trial: Trial, clock: int, value: Callable[[Interval], float]) -> Numbers:
    values = np.zeros(clock)
    for each in trial.intervals:
        if 0 <= each.second < clock:
            values[each.second] = value(each)
    return values


def explained_scripts(trial: Trial) -> range:
    """The trial's own scripts, or the background scripts if the trial is a bulk load."""
    own, scripts = own_scripts(trial), trial.workload.scripts
    if own.stop < len(scripts) and all(scripts[at].is_command for at in own):
        return range(own.stop, len(scripts))
    return own


def timeline(trial: Trial, summary: Summary) -> Timeline:
    """A whole trial, aligned. Raises ValueError for unreadable samples, StoreError for damage."""
    accumulator = Accumulator.of(trial.intervals, counts_only=True)
    ledgers = accumulator.ledgers(trial)
    every = together(ledgers.values())
    due = every.first + np.flatnonzero(every.column("due"))
    seconds = max(0, int(due[-1]) + 1) if len(due) else 0
    clock = max(seconds, max((each.second for each in trial.intervals), default=-1) + 1)
    if trial.plan.auto and trial.measured_ns is not None:
        # The load went on for a moment after the look that decided.
        seconds = min(seconds, math.ceil(trial.measured_ns / 1e9))
    scripts = explained_scripts(trial)
    own = together(ledgers[n] for n in scripts if n in ledgers).between(0, seconds)
    unfinished, failed, succeeded = (
        own.column(name).astype(float) for name in ("unfinished", "failed", "count")
    )
    limits = {n: ns for n, ns in enumerate(limits_ns(trial)) if ns and n in scripts}
    limit_ns = min(limits.values(), default=0)
    waited = np.zeros(seconds)
    for tally in (tally for interval in trial.intervals for tally in interval.tallies):
        if 0 <= tally.due_second < seconds and tally.script in scripts:
            # With a service time above the limit it would have been late whenever it was sent.
            long = times_above(tally.service, limits.get(tally.script, math.inf))
            waited[tally.due_second] += max(0, tally.late - long) + tally.skipped
    loads: list[tuple[str | None, int]] = [(trial.plan.load.model, trial.setup.own_clients)]
    if scripts != own_scripts(trial):
        loads = [(e.load.model, e.clients) for e in trial.setup.components if e.of]
    clients = sum(count for _, count in loads)
    # No client has sent unfinished ones but the first, one a client.
    unsent = np.diff(np.fmax(np.cumsum(unfinished) - clients, 0.0), prepend=0.0)
    latency_s = quotient(own.column("latency") / 1e9, succeeded)
    lag = quotient(own.column("lag"), own.column("latency"), 0.0)
    # A transaction that never ended took at least to the end.
    to_end = np.where(unfinished > 0, clock - np.arange(seconds), 0.0)
    dispatch_ns = _by_clock(trial, clock, lambda each: each.dispatch.sum_ns)
    dispatches = _by_clock(trial, clock, lambda each: each.dispatch.count)
    tracks: dict[tuple[str, str], Numbers] = defaultdict(lambda: np.full(clock, np.nan))
    for series in trial.samples:
        for second, value in series.pairs:
            if 0 <= second < clock and math.isfinite(value):
                values = tracks[series.source.rpartition("/")[2], series.name]
                values[second] = np.fmax(values[second], value)
    return Timeline(
        trial=trial,
        summary=summary,
        since=summary.cut_s,
        limit_s=limit_ns / 1e9,
        missed=own.column("late") + own.column("skipped") + unfinished + failed,
        on_time=own.column("on_time").astype(float),
        failed=failed,
        latency_s=np.where(np.isfinite(latency_s), latency_s, to_end),
        lag=np.clip(np.where(succeeded > 0, lag, unsent > 0), 0.0, 1.0),
        waited=waited,
        unsent=unsent,
        succeeded=succeeded,
        ended=_by_clock(trial, clock, lambda each: sum(t.latency.count for t in each.tallies)),
        in_flight=_by_clock(trial, clock, lambda each: each.in_flight_ns / 1e9),
        dispatch_s=quotient(dispatch_ns, dispatches) / 1e9,
        open_clients=sum(count for model, count in loads if model == "open"),
        failures=accumulator.failures(summary.cut_s, scripts),
        sessions=sessions_of(trial.observed, clock),
        tracks=dict(tracks),
    )
