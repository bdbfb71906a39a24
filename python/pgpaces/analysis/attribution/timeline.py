"""A trial second by second, from which signals.py says why transactions were late. Pure.

It has the outcomes of due transactions, the sessions, and the samples of monitors.

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

from pgpaces.analysis.accumulator import Accumulator, own_scripts, together
from pgpaces.analysis.arrays import Numbers, np, quotient
from pgpaces.analysis.generator import times_above
from pgpaces.analysis.goal import limits_ns
from pgpaces.analysis.summary import Summary
from pgpaces.analysis.waits import CPU, PER_SECOND, tenths_of
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
# Utilization of clients by transactions of usual length: between these, clients go from enough
# to entirely too few.
_UTILIZATION_FROM, _UTILIZATION_TO = 0.8, 0.95
# Commands of a script for which its client waits, not for the server.
_PAUSE = re.compile(r"\s*\\(sleep|shell|setshell)\b", re.IGNORECASE)


# What sessions of the load wait for, as far as causes differ by it; and sessions of others.
Kind = Literal["cpu", "lock", "disk", "standby", "latch", "client", "other", "others"]
_OF_LOAD: tuple[Kind, ...] = ("cpu", "lock", "disk", "standby", "latch", "client", "other")
# Frozen: a sample was late by this many tenths, and by three times the two intervals before.
FROZEN_MIN = 5
_FROZEN_TIMES = 3
_KINDS: Mapping[str, Kind] = {
    CPU: "cpu", "IO": "disk", "Lock": "lock", "LWLock": "latch", "BufferPin": "latch",
    "Client": "client",
}  # fmt: skip
# Waits of other types that are for the disk: a page that another session reads, and WAL.
_DISK = ("BufferIO", "BufferIo", "buffer_io", "WALWrite", "WALWriteLock")


def wait_kind(event: WaitEvent) -> Kind:
    if event.who == "others":
        return "others"
    if (event.kind, event.event) == ("IPC", "SyncRep"):
        return "standby"
    return "disk" if event.event in _DISK else _KINDS.get(event.kind, "other")


def session_tracks(observed: Iterable[Observed], seconds: int) -> dict[str, Numbers]:
    """Mean sessions of all servers in each second of the clock, by kind; NaN without samples.

    samples: their number. frozen: the share of a second in which a server did not answer one.
    Nothing without samples. Raises ValueError for samples that cannot be read.
    """

    def by_second(tenths: Numbers, counts: Numbers) -> Numbers:
        at = tenths // PER_SECOND
        inside = (at >= 0) & (at < seconds)
        return np.bincount(at[inside], counts[inside], minlength=seconds)

    found: dict[str, Numbers] = defaultdict(lambda: np.zeros(seconds))
    for server in (each.waits for each in observed if each.waits.looks):
        tenths, rows = tenths_of(server)
        samples = by_second(tenths, np.ones(len(tenths)))
        kinds = np.array([wait_kind(event) for event in server.events], dtype=str)
        for kind in dict.fromkeys(("others", *kinds.tolist())):
            own = rows[kinds[rows[:, 1]] == kind]
            found[kind] = found[kind] + quotient(by_second(own[:, 0], own[:, 2]), samples)
        hung = np.zeros(seconds * PER_SECOND)
        for start, end in gaps(tenths.tolist()):
            hung[max(0, start) : max(0, end)] = 1.0
        frozen = hung.reshape(seconds, PER_SECOND).mean(axis=1)
        found["frozen"] = np.maximum(found["frozen"], frozen)
        found["samples"] = np.maximum(found["samples"], samples)
    return found


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


def explained_scripts(trial: Trial) -> range:
    """The trial's own scripts, or the background scripts if the trial is a bulk load."""
    own, scripts = own_scripts(trial), trial.workload.scripts
    if own.stop < len(scripts) and all(scripts[at].is_command for at in own):
        return range(own.stop, len(scripts))
    return own


class Timeline:
    """A whole trial: arrays by second of due time, and by second of the clock (`by_clock`)."""

    def __init__(self, trial: Trial, summary: Summary) -> None:
        """Raises ValueError for unreadable samples, StoreError for damage."""
        self.trial, self.summary = trial, summary
        accumulator = Accumulator.of(trial.intervals, counts_only=True)
        ledgers = accumulator.ledgers(trial)
        every = together(ledgers)
        due = every.first + np.flatnonzero(every.column("due"))
        seconds = max(0, int(due[-1]) + 1) if len(due) else 0
        # The seconds of the clock, until everything was served.
        self.clock = max([seconds, *(each.second + 1 for each in trial.intervals)])
        if trial.plan.auto and trial.measured_ns is not None:
            # The load went on for a moment after the look that decided.
            seconds = min(seconds, math.ceil(trial.measured_ns / 1e9))
        self.seconds = seconds
        # The first second that counts.
        self.since = summary.cut_s
        scripts = explained_scripts(trial)
        own = together(ledgers, scripts).between(0, seconds)
        unfinished, self.failed, self.succeeded = (
            own.column(name).astype(float) for name in ("unfinished", "failed", "count")
        )
        self.missed = own.column("late") + own.column("skipped") + unfinished + self.failed
        self.on_time = own.column("on_time").astype(float)
        # The failed transactions by SQLSTATE.
        self.failures = accumulator.failures(summary.cut_s, scripts)
        limits = {n: ns for n, ns in enumerate(limits_ns(trial)) if ns and n in scripts}
        # The shortest of its scripts, 0 without one.
        self.limit_s = min(limits.values(), default=0) / 1e9
        # Missed transactions that would have been on time if sent when due.
        self.waited = np.zeros(seconds)
        for tally in (tally for interval in trial.intervals for tally in interval.tallies):
            if 0 <= tally.due_second < seconds and tally.script in scripts:
                # With a service time above the limit it would have been late whenever it was sent.
                long = times_above(tally.service, limits.get(tally.script, math.inf))
                self.waited[tally.due_second] += max(0, tally.late - long) + tally.skipped
        loads: list[tuple[str | None, int]] = [(trial.plan.load.model, trial.setup.own_clients)]
        if scripts != own_scripts(trial):
            loads = [(each.load.model, each.clients) for each in trial.setup.components if each.of]
        self.open_clients = sum(count for model, count in loads if model == "open")
        # Unfinished ones that no client sent: all but the first, one a client.
        clients = sum(count for _, count in loads)
        self.unsent = np.diff(np.fmax(np.cumsum(unfinished) - clients, 0.0), prepend=0.0)
        # The mean of those that succeeded, or the time to the end where none did: a transaction
        # that never ended took at least to the end.
        latency_s = quotient(own.column("latency") / 1e9, self.succeeded)
        to_end = np.where(unfinished > 0, self.clock - np.arange(seconds), 0.0)
        self.latency_s = np.where(np.isfinite(latency_s), latency_s, to_end)
        # The part of latency before they were sent.
        lag = quotient(own.column("lag"), own.column("latency"), 0.0)
        self.lag = np.clip(np.where(self.succeeded > 0, lag, self.unsent > 0), 0.0, 1.0)
        self.service_s = (1 - self.lag) * self.latency_s
        self.overload = self._overload()
        # The part of latency in which transactions waited for earlier ones, which saw a cause.
        # Where clients are always busy, they wait not only for these.
        self.behind = self.lag * (1 - self.overload)
        # The second of the clock in which the life of those due in each second ends. A transaction
        # due in second s is due in its middle on average, so it lives from s + 1/2 for the mean
        # latency of that second, and always through a part of s itself.
        reach = np.floor(np.minimum(self.latency_s + 0.5, float(self.clock))).astype(int)
        self.last = np.minimum(np.arange(seconds) + reach, self.clock - 1)
        # By second of the clock: transactions that ended, and the mean number in flight.
        self.ended = self.by_clock(lambda each: sum(t.latency.count for t in each.tallies))
        self.in_flight = self.by_clock(lambda each: each.in_flight_ns / 1e9)
        sent_ns = self.by_clock(lambda each: each.dispatch.sum_ns)
        sent = self.by_clock(lambda each: each.dispatch.count)
        # The mean lag of those with a free client, by second of the clock; and, by second of due
        # time, the part of latency that transactions waited although their client was free.
        self.dispatch_s = np.nan_to_num(quotient(sent_ns, sent) / 1e9)
        free_lag = quotient(self.life_mean(self.dispatch_s), self.latency_s, 0.0)
        self.free_lag = np.clip(free_lag, 0.0, 1.0)
        sessions = session_tracks(trial.observed, self.clock)
        self.tracks = {("sessions", name): values for name, values in sessions.items()}
        self.sampled = bool(sessions)
        for series in trial.samples:
            key = series.source.rpartition("/")[2], series.name
            at, values = np.asarray(series.seconds), np.asarray(series.values)
            read = (at >= 0) & (at < self.clock) & np.isfinite(values)
            if read.any():
                self.tracks[key] = track = self.track(*key)
                np.fmax.at(track, at[read], values[read])
        self._find_queues()

    def _overload(self) -> float:
        """The confidence that usual transactions alone keep all clients busy, 0 to 1.

        By the utilization law: arrivals a second times the usual service time, over clients. Usual:
        the median of the seconds in which most were on time; where there are none, the mean of
        those that succeeded.
        """
        if not self.open_clients or not self.seconds:
            return 0.0
        due = self.missed + self.on_time
        good = (self.on_time > self.missed) & (self.service_s > 0)
        mean_s = weighted_mean(self.service_s, due * (self.succeeded > 0))
        usual_s = float(np.median(self.service_s[good])) if good.any() else mean_s
        busy = float(due.mean()) * usual_s / self.open_clients
        confidence = (busy - _UTILIZATION_FROM) / (_UTILIZATION_TO - _UTILIZATION_FROM)
        return min(1.0, max(0.0, confidence))

    def _find_queues(self) -> None:
        """Which sessions of the load wait for locks of each other, by second of the clock."""
        # Seconds in which another session held a lock that the load waited for. A session queued
        # after one that this session blocks counts as blocked by the load.
        self.locked_by_others = np.zeros(self.clock)
        for one in (one for each in self.trial.observed for one in each.blocked):
            if one.waiting == "load" and one.blocking != "load":
                self.locked_by_others[max(0, one.first_s - 1) : max(0, one.last_s + 2)] = 1.0
        self.queued = np.nan_to_num(self.sessions("lock") * (1 - self.locked_by_others))
        self._unqueued = np.fmax(self.in_flight, self.sessions(*_OF_LOAD)) - self.queued
        # The share of the transactions in flight that queue, 0 to 1.
        self.queueing = quotient(self.queued, self._unqueued + self.queued, 0.0)

    def by_clock(self, value: Callable[[Interval], float]) -> Numbers:
        values = np.zeros(self.clock)
        for each in self.trial.intervals:
            if 0 <= each.second < self.clock:
                values[each.second] = value(each)
        return values

    def track(self, source: str, name: str) -> Numbers:
        """Samples by second of the clock, NaN where there is none.

        Of several servers or machines the largest value.
        """
        return self.tracks.get((source, name), np.full(self.clock, np.nan))

    def sessions(self, *kinds: Kind) -> Numbers:
        """Sessions of these kinds together, by second of the clock; 0 where there was none."""
        own = (self.tracks[key] for kind in kinds if (key := ("sessions", kind)) in self.tracks)
        return sum(own, np.zeros(self.clock))

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

    def flight_share(self, sessions: Numbers) -> Numbers:
        """Sessions as a share of the transactions in flight, 0 to 1, by second of the clock.

        Includes those that queue for locks of each other, as far as the holders do nothing else. 0
        with fewer than 10 samples of these sessions while missed transactions were under way: too
        few to tell where time went.
        """
        alive = np.zeros(self.clock)
        for at in np.flatnonzero(self.missed):
            alive[at : self.last[at] + 1] = 1.0
        if np.nansum(alive * sessions * self.track("sessions", "samples")) < _SAMPLES_MIN:
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

    def outside(self) -> Numbers:
        """The share of transactions in flight that no session executed, by second of the clock.

        Of those that do not queue for locks of each other. NaN where too few were in flight, and
        everywhere without samples of sessions, or if scripts pause.
        """
        commands = (c for script in self.trial.workload.scripts for c in script.commands)
        if not self.sampled or any(_PAUSE.match(c.text) for c in commands if not c.is_sql):
            return np.full(self.clock, np.nan)
        # Sessions that wait for the client to take a result do not execute; other sessions may be
        # the load's, behind a pool that gives them another name.
        waiting = self.sessions("client") + self.queued
        executing = self.sessions(*_OF_LOAD, "others") - waiting
        # Ten samples a second are few: three seconds together.
        in_flight, inside = (smooth(v) for v in (self.in_flight - self.queued, executing))
        share = 1 - quotient(inside, np.where(in_flight >= _IN_FLIGHT_MIN, in_flight, 0.0))
        return np.asarray(np.clip(share, 0.0, 1.0))
