"""A trial second by second: outcomes of due transactions, and samples of sensors. Pure.

Outcomes belong to the second in which a transaction was due, samples to the second of the clock.
`life_mean` maps one to the other: what a sensor read while those due in a second were under way.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from msgspec import Struct

from pgpaces.analysis.accumulator import own_scripts
from pgpaces.analysis.arrays import Numbers, np, quotient
from pgpaces.analysis.attribution.sessions import Sessions, sessions
from pgpaces.analysis.goal import limits_ns
from pgpaces.analysis.summary import Summary
from pgpaces.core.times import Times, value_at_rank
from pgpaces.spec.result import Trial

# Fewer in flight than this, on average, are too few to tell where their time went.
_IN_FLIGHT_MIN = 0.1
_MET_MIN = 10
# The share of lock holders in one activity from which on their waiters count to it, and from which
# on they do so entirely.
_INHERIT_FROM, _INHERIT_TO = 0.5, 0.8
# An activity is slow that takes this part of the limit, or this many times as long as usual.
_SLOW_OF_LIMIT, _SLOW_TIMES = 0.25, 4.0
# Commands of a script for which its client waits, not for the server.
_PAUSE = re.compile(r"\s*\\(sleep|shell|setshell)\b", re.IGNORECASE)
_MISSED = ("late", "skipped", "unfinished")


class Material(Struct, frozen=True):
    """A trial, by second.

    By second of due time: missed, on_time, failed: transactions; latency_s: mean of those that
    succeeded, or the time to the end where none did; lag: the part of latency before they were
    sent; waited: missed transactions that would have been on time if sent when due; unsent:
    unfinished ones that no client sent; succeeded: transactions. By second of the clock, of which
    there may be more: ended: transactions; in_flight: mean transactions; dispatch_s: mean lag of
    those with a free client; dispatched: how many of these were sent later than half of the limit.
    limit_s: the shortest of its scripts, 0 without one. since: the first second that counts.
    open_clients: the clients of open loads. failures: the failed transactions by SQLSTATE.
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
    dispatched: Numbers
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

    def life_mean(self, values: Numbers) -> Numbers:
        """The mean of a clock's values over the life of those due in each second; NaN: unknown.

        A transaction due in second s is due in its middle on average, so it lives from s + 1/2 for
        the mean latency of that second, and always through a part of s itself.
        """
        counts = self.life_sum(np.isfinite(values).astype(float))
        return quotient(self.life_sum(values), counts)

    def life_sum(self, values: Numbers) -> Numbers:
        """The sum of a clock's values over the same life; unknown ones count as 0."""
        sums = np.concatenate(([0.0], np.cumsum(np.where(np.isfinite(values), values, 0.0))))
        first = np.arange(self.seconds)
        reach = np.floor(np.minimum(self.latency_s + 0.5, float(len(values)))).astype(int)
        return np.asarray(sums[np.minimum(first + reach, len(values) - 1) + 1] - sums[first])

    def life_max(self, values: Numbers) -> Numbers:
        """The largest of a clock's values over the same life; for values that are events."""
        finite = np.where(np.isfinite(values), values, 0.0)
        reach = np.floor(np.minimum(self.latency_s + 0.5, float(len(values)))).astype(int)
        largest = (finite[at : at + 1 + far].max() for at, far in enumerate(reach))
        return np.fromiter(largest, dtype=float, count=self.seconds)

    def mean_of_missed(self, values: Numbers) -> float:
        """The mean of a clock's values over lives of missed transactions; 0 where unknown."""
        lived = self.life_mean(values)
        weights = np.where(np.isfinite(lived), self.missed, 0.0)
        return float(np.nansum(lived * weights) / weights.sum()) if weights.sum() else 0.0

    def share_of_missed(self, counts: Numbers) -> Numbers:
        """Counts as a share of the missed transactions of each second of due time, 0 to 1.

        Counts by the clock are those of a second and of the next, in which transactions ended.
        """
        if len(counts) > self.seconds:
            counts = counts[: self.seconds] + counts[1 : self.seconds + 1]
        elif counts is self.dispatched:
            counts = counts + np.append(counts[1:], 0.0)
        return np.clip(quotient(counts, self.missed, 0.0), 0.0, 1.0)

    def samples_met(self, sessions: Numbers) -> float:
        """How many of these sessions were sampled while missed transactions were under way."""
        if self.sessions is None:
            return 0.0
        begun, ended = np.zeros(self.clock + 1), np.zeros(self.clock + 1)
        last = np.floor(np.minimum(np.arange(self.seconds) + self.latency_s + 0.5, self.clock - 1))
        np.add.at(begun, np.flatnonzero(self.missed), 1)
        np.add.at(ended, last[self.missed > 0].astype(int) + 1, 1)
        alive = np.cumsum(begun - ended)[: self.clock] > 0
        return float(np.nansum(np.where(alive, sessions * self.sessions.samples, 0.0)))

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

    def flight_share(self, sessions: Numbers) -> Numbers:
        """Sessions as a share of the transactions in flight, 0 to 1, by second of the clock.

        Includes those that queue for locks of each other, as far as the holders do nothing else. 0
        with fewer than 10 samples of these sessions while missed transactions were under way: too
        few to tell where time went.
        """
        if self.samples_met(sessions) < _MET_MIN:
            return np.zeros(self.clock)
        return self.inherited(np.clip(quotient(sessions, self._unqueued, 0.0), 0.0, 1.0))

    def inherited(self, share: Numbers) -> Numbers:
        """A share of the transactions that do not queue, as a share of all, by second of the clock.

        A session that queues for a row counts to the activity of its holder where most holders are
        in it, and it takes long: seven that wait for one that waits for the disk wait for the disk.
        Where holders differ, or are as quick as usual, the row itself is contended.
        """
        if not self._slow(share * self._unqueued):
            return np.asarray(share * (1 - self.queueing))
        certain = np.clip((share - _INHERIT_FROM) / (_INHERIT_TO - _INHERIT_FROM), 0.0, 1.0)
        return np.asarray(share * (1 - self.queueing * (1 - certain)))

    def _slow(self, sessions: Numbers) -> bool:
        """Whether each transaction spends long in an activity of this many sessions.

        Its time is by Little's law, second by second: a part of the limit on average over missed
        transactions, or much more than over those on time.
        """
        spent_s = self.life_mean(np.nan_to_num(sessions) / np.fmax(_smooth(self.ended), 1.0))
        late, usual = (
            float((spent_s * weights).sum() / max(1.0, weights.sum()))
            for weights in (self.missed, self.on_time)
        )
        return late >= _SLOW_OF_LIMIT * self.limit_s or (usual > 0 and late >= _SLOW_TIMES * usual)

    @property
    def queueing(self) -> Numbers:
        """The share of the transactions in flight that queue for locks of each other, 0 to 1."""
        return quotient(self.queued, self._unqueued + self.queued, 0.0)

    @property
    def _unqueued(self) -> Numbers:
        """Transactions in flight that do not queue for locks of each other."""
        active = self.sessions.active if self.sessions else np.zeros(self.clock)
        return np.asarray(np.fmax(self.in_flight, active) - self.queued)

    def outside(self) -> Numbers | None:
        """The share of transactions in flight that no session executed, by second of the clock.

        Of those that do not queue for locks of each other, and not in the pauses of their scripts.
        NaN where too few were in flight. None without samples of sessions, or of transactions in
        flight.
        """
        if self.sessions is None or not self.in_flight.any():
            return None
        # Sessions that wait for the client to take a result do not execute; other sessions may be
        # the load's, behind a pool that gives them another name.
        waiting = self.sessions.of("client") + self.queued
        executing = self.sessions.active + self.sessions.others - waiting
        # Ten samples a second are few: three seconds together.
        in_flight, inside = (_smooth(v) for v in (self.in_flight - self.queued, executing))
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(in_flight >= _IN_FLIGHT_MIN, 1 - inside / in_flight, np.nan)
        return np.asarray(np.clip(share - self._paused, 0.0, 1.0))

    @property
    def _paused(self) -> Numbers:
        """The share of transactions' time between the statements of scripts that pause."""
        commands = [c for script in self.trial.workload.scripts for c in script.commands]
        spent, whole = np.zeros(self.clock), np.zeros(self.clock)
        if not any(_PAUSE.match(c.text) for c in commands if not c.is_sql):
            return spent
        for each in self.trial.intervals:
            if 0 <= each.second < self.clock:
                spent[each.second] = sum(one.times.sum_ns for one in each.statements)
                whole[each.second] = sum(tally.service.sum_ns for tally in each.tallies)
        # A pause ends in another second than it begins.
        between = 1 - quotient(_smooth(spent), _smooth(whole), 1.0)
        return np.asarray(np.clip(between, 0.0, 1.0))

    def per_transaction(self, source: str, name: str) -> Numbers | None:
        """A counter's rate for each transaction that the server ended, by second of the clock."""
        counted, commits = self.track(source, name), self.track("transactions", "commits")
        if counted is None or commits is None:
            return None
        # Sessions report their counters about once a second, so neighbors are taken together.
        return quotient(_smooth(counted), _smooth(commits))


def _smooth(values: Numbers) -> Numbers:
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


def _failures(trial: Trial, scripts: range, since_s: int) -> Counter[str]:
    failures: Counter[str] = Counter()
    for interval in trial.intervals:
        for tally in interval.tallies:
            if tally.script in scripts and tally.due_second >= since_s:
                failures.update(tally.failed)
    return failures


def _seconds(trial: Trial) -> int:
    """The seconds in which something was due that counts."""
    due = [t.due_second for each in trial.intervals for t in each.tallies if t.due]
    seconds = max([-1, *due]) + 1
    if not trial.plan.auto or trial.measured_ns is None:
        return seconds
    # The load went on for a moment after the look that decided.
    return min(seconds, math.ceil(trial.measured_ns / 1e9))


def material(trial: Trial, summary: Summary) -> Material:
    """A whole trial, aligned. Raises ValueError for samples that cannot be read."""
    seconds = _seconds(trial)
    clock = max(seconds, max((each.second for each in trial.intervals), default=-1) + 1)
    counts = {name: np.zeros(seconds) for name in ("due", "on_time", "failed", *_MISSED)}
    sums = {name: np.zeros(seconds) for name in ("count", "latency", "lag")}
    scripts = explained_scripts(trial)
    limits = {n: ns for n, ns in enumerate(limits_ns(trial)) if ns and n in scripts}
    limit_ns = min(limits.values(), default=0)
    waited = np.zeros(seconds)
    for interval in trial.intervals:
        for tally in interval.tallies:
            at = tally.due_second
            if not 0 <= at < seconds or tally.script not in scripts:
                continue
            for name in ("due", "on_time", *_MISSED):
                counts[name][at] += getattr(tally, name)
            counts["failed"][at] += sum(tally.failed.values())
            sums["count"][at] += tally.latency.count
            sums["latency"][at] += tally.latency.sum_ns / 1e9
            sums["lag"][at] += tally.lag.sum_ns / 1e9
            # With a service time above the limit it would have been late whenever it was sent.
            long = _above(tally.service, limits.get(tally.script, 0))
            waited[at] += max(0, tally.late - long) + tally.skipped
    if trial.state != "running":
        # As in a summary: what an interrupted trial left pending is unfinished.
        ended_ones = sum(counts[name] for name in ("on_time", "failed", *_MISSED))
        counts["unfinished"] += counts["due"] - ended_ones
    missed = sum(counts[name] for name in _MISSED) + counts["failed"]
    latency_s = quotient(sums["latency"], sums["count"])
    loads: list[tuple[str | None, int]] = [(trial.plan.model, trial.plan.own_clients)]
    if scripts != own_scripts(trial):
        loads = [(each.model, each.clients) for each in trial.plan.components if each.of]
    clients = sum(count for _, count in loads)
    # No client has sent unfinished ones but the first, one a client.
    excess = np.fmax(np.cumsum(counts["unfinished"]) - clients, 0.0)
    unsent = np.diff(excess, prepend=0.0)
    lag = quotient(sums["lag"], sums["latency"], 0.0)
    # A transaction that never ended took at least to the end.
    to_end = np.where(counts["unfinished"] > 0, clock - np.arange(seconds), 0.0)
    ended, in_flight = np.zeros(clock), np.zeros(clock)
    dispatch_s, dispatched = np.full(clock, np.nan), np.zeros(clock)
    for interval in trial.intervals:
        if 0 <= (at := interval.second) < clock:
            ended[at] = sum(t.latency.count for t in interval.tallies)
            in_flight[at] = interval.in_flight_ns / 1e9
            if interval.dispatch.count:
                dispatch_s[at] = interval.dispatch.sum_ns / interval.dispatch.count / 1e9
                dispatched[at] = _above(interval.dispatch, limit_ns / 2)
    return Material(
        trial=trial,
        summary=summary,
        since=summary.cut_s,
        limit_s=limit_ns / 1e9,
        missed=missed,
        on_time=counts["on_time"],
        failed=counts["failed"],
        latency_s=np.where(np.isfinite(latency_s), latency_s, to_end),
        lag=np.clip(np.where(sums["count"] > 0, lag, unsent > 0), 0.0, 1.0),
        waited=waited,
        unsent=unsent,
        succeeded=sums["count"],
        ended=ended,
        in_flight=in_flight,
        dispatch_s=dispatch_s,
        dispatched=dispatched,
        open_clients=sum(count for model, count in loads if model == "open"),
        failures=_failures(trial, scripts, summary.cut_s),
        sessions=sessions(trial.observed, clock),
        tracks=_tracks(trial, clock),
    )


def _above(times: Times, ns: float) -> int:
    """How many of the times are longer; 0 without a limit."""
    if not ns or times.max_ns <= ns:
        return 0
    low, high = 0, times.count
    while low < high:
        rank = (low + high + 1) // 2
        value = value_at_rank(times, rank)
        low, high = (rank, high) if value is not None and value <= ns else (low, rank - 1)
    return times.count - low


def _tracks(trial: Trial, clock: int) -> dict[tuple[str, str], Numbers]:
    tracks: dict[tuple[str, str], Numbers] = defaultdict(lambda: np.full(clock, np.nan))
    for each in trial.samples:
        for second, value in each.pairs:
            if 0 <= second < clock and math.isfinite(value):
                values = tracks[each.source.rpartition("/")[2], each.name]
                values[second] = np.fmax(values[second], value)
    return dict(tracks)
