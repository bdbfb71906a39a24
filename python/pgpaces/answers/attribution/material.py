"""A trial second by second: what became of what was due, and what was seen meanwhile. Pure.

Outcomes belong to the second in which a transaction was due, sensors to the second of the clock.
`lived` brings the two together: what a sensor read while those due in a second were under way.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pgpaces.answers.accumulator import own_scripts
from pgpaces.answers.attribution.sessions import Sessions, sessions
from pgpaces.answers.summary import Summary
from pgpaces.result import Trial
from pgpaces.times import Times, value_at_rank

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

# Fewer in flight than this, on average, are too few to tell where their time went.
_IN_FLIGHT_MIN = 0.1
_MET_MIN = 10
# Sessions that queue for rows wait for what those with the rows do, where from so much on, and
# entirely where so much of their time is the same.
_INHERIT_FROM, _INHERIT_TO = 0.5, 0.8
# What takes such a part of the limit, or so many times as long as at other times, is slow.
_SLOW_OF_LIMIT, _SLOW_TIMES = 0.25, 4.0
_MISSED = ("late", "skipped", "unfinished")


class Material(Struct, frozen=True):
    """A trial, by second.

    By second of due time: missed, on_time and failed: transactions; latency_s: mean of those that
    succeeded, or as long as it took to the end where none did; lag: the part of their latency
    before they were sent; waited: how many missed that would have been on time if they had been
    sent when they were due. By second of the clock, some more: ended: transactions that did;
    in_flight: those on average; dispatch_s: mean lag of those whose client was free; dispatched:
    how many of these were sent later than half of the limit. limit_s: 0 without one. since: the
    first second that counts.
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
    ended: Numbers
    in_flight: Numbers
    dispatch_s: Numbers
    dispatched: Numbers
    sessions: Sessions | None
    tracks: Mapping[tuple[str, str], Numbers]

    @property
    def seconds(self) -> int:
        """Seconds of due time."""
        return len(self.missed)

    @property
    def clock(self) -> int:
        """Seconds of the clock: until everything was served."""
        return len(self.in_flight)

    def track(self, source: str, name: str) -> Numbers | None:
        """What a sensor read in each second of the clock, NaN where nothing; None if it never did.

        Of several servers or machines the largest.
        """
        return self.tracks.get((source, name))

    def lived(self, values: Numbers) -> Numbers:
        """The mean of a clock's values over the life of those due in each second; NaN: not known.

        One due in second s is due in its middle on average, so it lives from s + 1/2 for the mean
        latency of that second, and always through a part of s itself.
        """
        import numpy as np

        known = np.isfinite(values)
        sums = np.concatenate(([0.0], np.cumsum(np.where(known, values, 0.0))))
        counts = np.concatenate(([0], np.cumsum(known)))
        first = np.arange(self.seconds)
        reach = np.minimum(self.latency_s + 0.5, float(len(values)))
        last = np.minimum(first + np.floor(reach).astype(int), len(values) - 1) + 1
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Numbers = (sums[last] - sums[first]) / (counts[last] - counts[first])
        return found

    def summed(self, values: Numbers) -> Numbers:
        """The sum of a clock's values over the same life; what is not known counts as 0."""
        import numpy as np

        sums = np.concatenate(([0.0], np.cumsum(np.nan_to_num(values))))
        first = np.arange(self.seconds)
        reach = np.floor(np.minimum(self.latency_s + 0.5, float(len(values)))).astype(int)
        found: Numbers = sums[np.minimum(first + reach, len(values) - 1) + 1] - sums[first]
        return found

    def touched(self, values: Numbers) -> Numbers:
        """The largest of a clock's values over the same life; for what comes in events."""
        import numpy as np

        known = np.where(np.isfinite(values), values, 0.0)
        reach = np.floor(np.minimum(self.latency_s + 0.5, float(len(values)))).astype(int)
        ends = (known[at : at + 1 + far].max() for at, far in enumerate(reach))
        return np.fromiter(ends, dtype=float, count=self.seconds)

    def of_missed(self, values: Numbers) -> float:
        """The mean of a clock's values that those saw who missed; 0 where it is not known."""
        import numpy as np

        lived = self.lived(values)
        weights = np.where(np.isfinite(lived), self.missed, 0.0)
        return float(np.nansum(lived * weights) / weights.sum()) if weights.sum() else 0.0

    def of_late(self, counts: Numbers) -> Numbers:
        """Counts as a share of what missed in each second of due time, 0 to 1.

        Of a clock longer than due time: those of a second and of the next, in which they ended.
        """
        import numpy as np

        if len(counts) > self.seconds:
            counts = counts[: self.seconds] + counts[1 : self.seconds + 1]
        elif counts is self.dispatched:
            counts = counts + np.append(counts[1:], 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.where(self.missed > 0, counts / self.missed, 0.0)
        return np.clip(found, 0.0, 1.0)

    def met(self, sessions: Numbers) -> float:
        """How many of such sessions looks have met while transactions lived that missed."""
        import numpy as np

        if self.sessions is None:
            return 0.0
        begun, ended = np.zeros(self.clock + 1), np.zeros(self.clock + 1)
        last = np.floor(np.minimum(np.arange(self.seconds) + self.latency_s + 0.5, self.clock - 1))
        np.add.at(begun, np.flatnonzero(self.missed), 1)
        np.add.at(ended, last[self.missed > 0].astype(int) + 1, 1)
        alive = np.cumsum(begun - ended)[: self.clock] > 0
        return float(np.nansum(np.where(alive, sessions * self.sessions.looks, 0.0)))

    @property
    def held(self) -> Numbers:
        """1 in seconds of the clock in which a session of others had a lock that the load wanted.

        Who queues behind one that it blocks is blocked by the load, by name only.
        """
        import numpy as np

        found = np.zeros(self.clock)
        for each in self.trial.observed:
            for one in each.blocked:
                if one.waiting == "load" and one.blocking != "load":
                    found[max(0, one.first_s - 1) : max(0, one.last_s + 2)] = 1.0
        return found

    @property
    def queued(self) -> Numbers:
        """Sessions of the load that wait for locks of each other, by second of the clock."""
        import numpy as np

        if self.sessions is None:
            return np.zeros(self.clock)
        found: Numbers = np.nan_to_num(self.sessions.of("lock") * (1 - self.held))
        return found

    def of_flight(self, sessions: Numbers) -> Numbers:
        """Sessions as a share of the transactions in flight, 0 to 1, by second of the clock.

        With those that queue for locks of each other, as far as those that have these locks do
        nothing else. Nothing where samples met fewer than 10 of these sessions while transactions
        lived that missed: that few say nothing of where time went.
        """
        import numpy as np

        if self.met(sessions) < _MET_MIN:
            return np.zeros(self.clock)
        with np.errstate(invalid="ignore", divide="ignore"):
            own = np.where(self._own > 0, sessions / self._own, 0.0)
        return self.inherited(np.clip(own, 0.0, 1.0))

    def inherited(self, own: Numbers) -> Numbers:
        """A share of the transactions that do not queue, as a share of all, by second of the clock.

        Who queues for a row is counted to what its holder does where that is hardly in doubt, and
        takes long: seven that wait for one that waits for the disk wait for the disk. Where holders
        do this and that, or are as quick as ever, there are too many for one row.
        """
        import numpy as np

        if not self._slow(own * self._own):
            return np.asarray(own * (1 - self.queueing))
        surely = np.clip((own - _INHERIT_FROM) / (_INHERIT_TO - _INHERIT_FROM), 0.0, 1.0)
        return np.asarray(own * (1 - self.queueing * (1 - surely)))

    def _slow(self, sessions: Numbers) -> bool:
        """Whether each transaction spends long in what so many sessions do.

        By Little's law, a second: a part of the limit on average over what missed, or much more
        than what was on time did.
        """
        import numpy as np

        spent_s = self.lived(np.nan_to_num(sessions) / np.fmax(_smooth(self.ended), 1.0))
        late, usual = (
            float((spent_s * weights).sum() / max(1.0, weights.sum()))
            for weights in (self.missed, self.on_time)
        )
        return late >= _SLOW_OF_LIMIT * self.limit_s or (usual > 0 and late >= _SLOW_TIMES * usual)

    @property
    def queueing(self) -> Numbers:
        """The share of the transactions in flight that queue for locks of each other, 0 to 1."""
        import numpy as np

        every = self._own + self.queued
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Numbers = np.where(every > 0, self.queued / every, 0.0)
        return found

    @property
    def _own(self) -> Numbers:
        """Transactions in flight that do not queue for locks of each other."""
        import numpy as np

        active = self.sessions.active if self.sessions else np.zeros(self.clock)
        found: Numbers = np.fmax(self.in_flight, active) - self.queued
        return found

    def outside(self) -> Numbers | None:
        """The share of transactions in flight that no session executed, by second of the clock.

        Of those that do not queue for locks of each other. NaN where too few were in flight. None
        without samples of sessions, or where nothing is known of flights.
        """
        import numpy as np

        if self.sessions is None or not self.in_flight.any():
            return None
        # Sessions that wait for the client to take its answer are inside by name only; those of
        # others may be the load's, behind a pool that gives them another name.
        waiting = self.sessions.of("client") + self.queued
        inside = self.sessions.active + self.sessions.others - waiting
        # Ten looks a second are few: three seconds together.
        flying, seen = (_smooth(v) for v in (self.in_flight - self.queued, inside))
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(flying >= _IN_FLIGHT_MIN, 1 - seen / flying, np.nan)
        return np.clip(share, 0.0, 1.0)

    def per_transaction(self, source: str, name: str) -> Numbers | None:
        """A counter's rate for each transaction that the server ended, by second of the clock."""
        import numpy as np

        counted, commits = self.track(source, name), self.track("transactions", "commits")
        if counted is None or commits is None:
            return None
        # Sessions report what they did about once a second, so seconds are taken together.
        of, to = _smooth(counted), _smooth(commits)
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Numbers = np.where(to > 0, of / to, np.nan)
        return found


def _smooth(values: Numbers) -> Numbers:
    """The mean of each second and its neighbours, as far as they are known."""
    import numpy as np

    padded = np.concatenate(([np.nan], values, [np.nan]))
    three = np.stack((padded[:-2], padded[1:-1], padded[2:]))
    known = np.isfinite(three)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Numbers = np.where(known, three, 0.0).sum(axis=0) / known.sum(axis=0)
    return found


def material(trial: Trial, summary: Summary) -> Material:
    """A whole trial, lined up. Raises ValueError for looks that cannot be read."""
    import numpy as np

    seconds, clock = _lengths(trial)
    counts = {name: np.zeros(seconds) for name in ("on_time", "failed", *_MISSED)}
    sums = {name: np.zeros(seconds) for name in ("count", "latency", "lag")}
    own, limits, half_ns = own_scripts(trial), _limits(trial), _limit_s(trial) * 1e9 / 2
    waited = np.zeros(seconds)
    for interval in trial.intervals:
        for tally in interval.tallies:
            at = tally.due_second
            if not 0 <= at < seconds or tally.script not in own:
                continue
            for name in ("on_time", *_MISSED):
                counts[name][at] += getattr(tally, name)
            counts["failed"][at] += sum(tally.failed.values())
            sums["count"][at] += tally.latency.count
            sums["latency"][at] += tally.latency.sum_ns / 1e9
            sums["lag"][at] += tally.lag.sum_ns / 1e9
            # Whose service alone was too long would have been late whenever it had been sent.
            long = _above(tally.service, limits.get(tally.script, 0))
            waited[at] += max(0, tally.late - long) + tally.skipped
    missed = sum(counts[name] for name in _MISSED) + counts["failed"]
    with np.errstate(invalid="ignore", divide="ignore"):
        latency_s = np.where(sums["count"] > 0, sums["latency"] / sums["count"], np.nan)
        lag = np.where(sums["latency"] > 0, sums["lag"] / sums["latency"], 0.0)
    # Of what never came back it is known only that it took to the end.
    to_end = np.where(counts["unfinished"] > 0, clock - np.arange(seconds), 0.0)
    in_flight, dispatch_s, dispatched = _flight(trial, clock, half_ns)
    ended = np.zeros(clock)
    for interval in trial.intervals:
        if 0 <= interval.second < clock:
            ended[interval.second] = sum(t.latency.count for t in interval.tallies)
    return Material(
        trial=trial,
        summary=summary,
        since=summary.cut_s,
        limit_s=_limit_s(trial),
        missed=missed,
        on_time=counts["on_time"],
        failed=counts["failed"],
        latency_s=np.where(np.isfinite(latency_s), latency_s, to_end),
        lag=np.clip(lag, 0.0, 1.0),
        waited=waited,
        ended=ended,
        in_flight=in_flight,
        dispatch_s=dispatch_s,
        dispatched=dispatched,
        sessions=sessions(trial.observed, clock),
        tracks=_tracks(trial, clock),
    )


def _lengths(trial: Trial) -> tuple[int, int]:
    """Seconds of due time, and of the clock."""
    due = [t.due_second for each in trial.intervals for t in each.tallies if t.due]
    seconds = max(due, default=-1) + 1
    return seconds, max(seconds, max((each.second for each in trial.intervals), default=-1) + 1)


def _limits(trial: Trial) -> dict[int, int]:
    """The limit of each script that has one, ns, by its number."""
    own = dict(trial.plan.limits)
    names = [script.name for script in trial.workload.scripts]
    every = trial.plan.limit_ns
    found = {at: own.get(name) or every for at, name in enumerate(names)}
    return {at: int(ns) for at, ns in found.items() if ns}


def _limit_s(trial: Trial) -> float:
    """The limit of all scripts; where each has its own, the shortest."""
    limits = [trial.plan.limit_ns, *(ns for _, ns in trial.plan.limits)]
    return min((ns for ns in limits if ns), default=0) / 1e9


def _flight(trial: Trial, clock: int, half_ns: float) -> tuple[Numbers, Numbers, Numbers]:
    import numpy as np

    flying, dispatch, late = np.zeros(clock), np.full(clock, np.nan), np.zeros(clock)
    for each in trial.intervals:
        if 0 <= each.second < clock:
            flying[each.second] = each.in_flight_ns / 1e9
            if each.dispatch.count:
                dispatch[each.second] = each.dispatch.sum_ns / each.dispatch.count / 1e9
                late[each.second] = _above(each.dispatch, half_ns)
    return flying, dispatch, late


def _above(times: Times, ns: float) -> int:
    """How many times are longer; 0 where that is not known, or without a limit."""
    if not ns or times.max_ns <= ns or not times.histogram:
        return 0
    low, high = 0, times.count
    while low < high:
        rank = (low + high + 1) // 2
        value = value_at_rank(times, rank)
        low, high = (rank, high) if value is not None and value <= ns else (low, rank - 1)
    return times.count - low


def _tracks(trial: Trial, clock: int) -> dict[tuple[str, str], Numbers]:
    import numpy as np

    found: dict[tuple[str, str], Numbers] = defaultdict(lambda: np.full(clock, np.nan))
    for sample in trial.samples:
        if 0 <= sample.second < clock and math.isfinite(sample.value):
            values = found[sample.source.rpartition("/")[2], sample.name]
            values[sample.second] = np.fmax(values[sample.second], sample.value)
    return dict(found)
