"""A load that several generators make: one schedule, one moment, one record of a second.

Transactions of an open load, and clients, are dealt by pure functions (crates/engine/src/pace.rs):
the load is the same for any number of generators. Each generator is asked once a second by a
coroutine of Dask's thread, and the thread of the load takes what it reported. Knows no server and
no store.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, dropwhile
from typing import Any

from msgspec.structs import replace

from pgpaces.core.errors import PgpacesError, RunError
from pgpaces.core.findings import Finding, finding
from pgpaces.core.record import Interval, Offset, Tally, merged
from pgpaces.core.times import Times, merge, value_at_rank
from pgpaces.core.units import SECOND_NS
from pgpaces.load import engine
from pgpaces.load.cluster.protocol import (
    EXCHANGES,
    ClockOffset,
    LoadOrder,
    Ready,
    Report,
    Word,
    drift_ns,
    offset_of,
    unpack,
)
from pgpaces.load.cluster.workers import Worker, Workers
from pgpaces.spec.setup import GeneratorFacts

# A worker that makes several agents answers only between them.
_EVERY_S, _WAIT_S, _READY_S = 1.0, 5.0, 60.0
# Without an answer for this time the same is asked again, by another connection: after a cut, TCP
# tries the old one again as late as the cut was long.
_AGAIN_S = 0.3
# Each question waits twice as long as the one before, up to this: if the CPUs are saturated, more
# questions would only delay the answers.
_AGAIN_MAX_S = 1.2
# A generator without an answer for this time is lost. Its lease has ended by then, also where a
# question arrived, a second after the last answer, whose own answer did not; unless its machine was
# too busy to look.
LOST_S = 9.9
# In addition to round trips: every generator knows by then when to begin.
_NOTICE_NS = 200_000_000
# A generator began late if it was by more.
_LATE_NS = 1_000_000
# It was busy if its busiest thread took more of a CPU.
_BUSY = 0.9
# How far apart clocks may be: a warning; a share of the latency limit: invalid.
_APART_NS, _APART_SHARE = 5_000_000, 0.1


class Remote:
    """A generator: connected first, begun once, queried until its end.

    name: in messages, with its part of the trial. end_ns: when nothing new falls due. lost: why: it
    went, was silent for LOST_S, or heard nothing for its lease. error: the one that ended it early.
    late_ns: how late it learned when to begin. due: transactions that fell due there.
    """

    def __init__(self, workers: Workers, worker: Worker, order: LoadOrder, *, of: str = "") -> None:
        """Orders it to connect; `connected` waits for that."""
        self.worker, self.order = worker, order
        self.name = f"{worker.name} ({of})" if of else worker.name
        self.lost: RunError | None = None
        self.error: PgpacesError | None = None
        self.end_ns, self.late_ns, self.due = 2**62, 0, 0
        self.findings: tuple[Finding, ...] = ()
        self._workers, self._promise = workers, workers.submit(worker, order)
        self._agent: Any = None
        self._news = threading.Condition()
        self._seconds: deque[bytes] = deque()
        self._received = 0
        self._ended = False
        self._turn = 0
        self._words: list[Word] = []
        self._wake: asyncio.Event | None = None
        self._owed: Counter[tuple[int, int]] = Counter()
        self._second = (-order.plan.warmup_ns) // SECOND_NS
        self._missed: Iterator[Interval] | None = None
        # Lags of transactions whose client was idle when they were due.
        self.dispatch: Times = merge([])
        self._cpu_ns: Counter[int] = Counter()
        self._cpu_s = 0

    def connected(self) -> Ready:
        try:
            self._agent = self._workers.agent(self.worker, self._promise)
            ready: Ready = self._agent.ready().result(_READY_S)
        except PgpacesError as error:
            raise error.at(f"generator {self.name}") from None
        except Exception as error:
            raise RunError("generator-not-started", generator=self.name, why=str(error)) from None
        self._workers.run(self._converse)
        return ready

    def clock(self) -> ClockOffset:
        """The offset of its clock. Raises RunError if it does not answer."""

        async def exchanges() -> list[tuple[int, int, int]]:
            readings = []
            for _ in range(EXCHANGES):
                sent_ns = time.monotonic_ns()
                reading = await self._agent.clock()
                readings.append((sent_ns, reading, time.monotonic_ns()))
            return readings

        try:
            return offset_of(self._workers.wait(exchanges, _WAIT_S))
        except Exception:
            raise RunError("generator-clock-unread", generator=self.name) from None

    def say(self, word: str, at_ns: int = 0) -> None:
        """Tells it a word, until it has answered. From any thread, and from a signal handler."""
        self._words.append((word, at_ns))
        if self._wake is not None:
            self._workers.run(self._wake.set)

    async def _converse(self) -> None:
        self._wake = asyncio.Event()
        while not (self._ended or self.lost):
            try:
                self._take(await self._answer())
            except TimeoutError:
                self._lose(RunError("generator-silent", silent_s=LOST_S))
            except RuntimeError:
                self._lose(RunError("generator-left"))
            if not self._words:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), _EVERY_S)

    async def _answer(self) -> Report:
        """The first answer to any of the same questions, which follow each other after _AGAIN_S.

        Raises TimeoutError LOST_S after the last one, RuntimeError if its worker has left the
        cluster. Time in which this process had no CPU to listen is no silence.
        """
        self._turn += 1

        async def ask(words: tuple[Word, ...]) -> Report:
            report: Report = await self._agent.report(self._turn, self._received, words)
            return report

        questions: dict[asyncio.Task[Report], tuple[Word, ...]] = {}
        silent_s, again_s = _EVERY_S, _AGAIN_S
        try:
            while silent_s < LOST_S:
                words = tuple(self._words)
                questions[asyncio.ensure_future(ask(words))] = words
                wait_s, again_s = min(LOST_S - silent_s, again_s), min(2 * again_s, _AGAIN_MAX_S)
                begun = time.monotonic()
                await asyncio.wait(questions, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                for task in [each for each in questions if each.done()]:
                    words = questions.pop(task)
                    try:
                        report = task.result()
                    except RuntimeError:
                        raise
                    except Exception:
                        await asyncio.sleep(wait_s)
                        continue
                    for word in words:
                        self._words.remove(word)
                    return report
                silent_s += min(time.monotonic() - begun, 2 * wait_s)
        finally:
            for task in questions:
                task.cancel()
        raise TimeoutError

    def _take(self, report: Report) -> None:
        with self._news:
            self._seconds.extend(report.seconds[self._received - report.first :])
            self._received = report.first + len(report.seconds)
            if report.deserted:
                # What was due there until the end of the schedule is unfinished.
                lease_s = self.order.lease_ns / SECOND_NS
                self._lose(RunError("generator-deserted", lease_s=lease_s))
                return
            self.end_ns, self._ended = report.end_ns, report.ended
            self.late_ns = report.late_ns
            if (error := report.error) is not None:
                own = RunError(error.name, **error.values)
                self.error = (own.at(error.about) if error.about else own).at(
                    f"generator {self.name}"
                )
            self.findings = tuple(replace(each, about=self.name) for each in report.findings)
            self._news.notify_all()

    def _lose(self, why: RunError) -> None:
        self._workers.lost.add(self.worker.address)
        with self._news:
            self.lost = why
            self._news.notify_all()

    @property
    def reached_ns(self) -> int:
        return self._second * SECOND_NS

    @property
    def over(self) -> bool:
        return self.missing or (self._ended and not self._seconds)

    @property
    def missing(self) -> bool:
        """Whether it is lost, and all that has arrived was read."""
        return bool(self.lost) and not self._seconds

    def next(self) -> Interval | None:
        """Its next second; waits for it. None if it has ended, or is lost."""
        with self._news:
            self._news.wait_for(lambda: self._seconds or self._ended or self.lost)
            if not self._seconds:
                return None
            interval = unpack(self._seconds.popleft())
        self._second = interval.second + 1
        self._count(interval)
        return interval

    def missed(self, end_ns: int, *, last: bool) -> Interval:
        """The second of a lost generator: what fell due there; last: all of it is unfinished."""
        self.end_ns = min(self.end_ns, end_ns)
        if self._missed is None:
            # The seconds that have not arrived, with what falls due in them.
            weights = [weight for _, weight, _ in self.order.scripts]
            seconds = engine.due_seconds(self.order.plan, weights, lambda: self.end_ns)
            self._missed = dropwhile(lambda interval: interval.second < self._second, seconds)
        interval = next(self._missed)
        self._count(interval)
        if last:
            unfinished = [
                Tally(due_second=second, script=script, unfinished=count)
                for (second, script), count in self._owed.items()
                if count > 0
            ]
            interval = replace(interval, tallies=(*interval.tallies, *unfinished))
        return interval

    def _count(self, interval: Interval) -> None:
        """Keeps what is due without an outcome, and sums for the share of this generator."""
        for tally in interval.tallies:
            ended = tally.on_time + tally.late + tally.skipped + tally.unfinished
            ended += sum(tally.failed.values())
            self.due += tally.due
            key = (tally.due_second, tally.script)
            self._owed[key] += tally.due - ended
            if not self._owed[key]:
                del self._owed[key]
        # In the measured part: a thread connects and plans before it.
        if interval.second >= 0 and interval.cpu_ns:
            self._cpu_ns.update(dict(enumerate(interval.cpu_ns)))
            self._cpu_s += 1
        self.dispatch = merge([self.dispatch, interval.dispatch])

    def cpu(self) -> float:
        """The share of a CPU that its busiest thread took."""
        return max(self._cpu_ns.values(), default=0) / 1e9 / max(1, self._cpu_s)

    def leave(self) -> None:
        """Ends the conversation, and its load if that goes on."""
        if self._agent is not None and not self._ended:
            with contextlib.suppress(Exception):  # it may be lost
                self._agent.abort()
        self._ended = True
        self._promise.release()


class DealtLoad:
    def __init__(
        self, workers: Workers, dealt: Sequence[tuple[Worker, LoadOrder]], of: str = ""
    ) -> None:
        """Connects all clients, and measures the clocks. Raises PgpacesError.

        of: the part of the trial that it is, if it is not the main load.
        """
        begun = time.monotonic_ns()
        self._remotes = [Remote(workers, worker, order, of=of) for worker, order in dealt]
        self._begun = False
        self._findings: list[Finding] = []
        try:
            # At once: a generator is asked from its connection on, or its lease ends.
            with ThreadPoolExecutor(len(self._remotes)) as threads:
                ready = list(threads.map(Remote.connected, self._remotes))
            self._clocks = [remote.clock() for remote in self._remotes]
        except BaseException:
            self._leave()
            raise
        self.connect_ns = time.monotonic_ns() - begun
        order = dealt[0][1]
        self.scripts = len(order.scripts)
        self.clients = sum(each.clients for each in ready)
        self.threads = sum(each.threads for each in ready)
        self.poll = ", ".join(dict.fromkeys(each.poll for each in ready))
        first_threads = accumulate((each.threads for each in ready), initial=0)
        self._offsets = [Offset(0, thread) for thread in first_threads]
        self.generated = tuple(
            GeneratorFacts(
                name=remote.name,
                clients=each.clients,
                threads=each.threads,
                cpus=remote.worker.host.cpus,
                offset_ns=clock.offset_ns,
                uncertainty_ns=clock.uncertainty_ns,
            )
            for remote, each, clock in zip(self._remotes, ready, self._clocks, strict=True)
        )
        limits = (order.plan.limit_ns, *(limit_ns for _, limit_ns in order.plan.limits))
        self._limit_ns = min((limit_ns for limit_ns in limits if limit_ns), default=None)
        self.notice_ns = _NOTICE_NS + 4 * max(clock.uncertainty_ns for clock in self._clocks)

    @property
    def end_ns(self) -> int:
        working = [remote.end_ns for remote in self._remotes if not remote.missing]
        # If all are lost, the load ended with the last second of one of them.
        return max(working or [remote.reached_ns for remote in self._remotes])

    @property
    def findings(self) -> tuple[Finding, ...]:
        own = (finding for remote in self._remotes for finding in remote.findings)
        return (*own, *self._findings)

    def begin(self, ahead_ns: int = 0) -> None:
        """Lets all begin at one moment, ahead_ns from now or `notice_ns`."""
        self._begun = True
        moment = time.monotonic_ns() + max(ahead_ns, self.notice_ns)
        for remote, clock in zip(self._remotes, self._clocks, strict=True):
            remote.say("begin", clock.there(moment))

    def stop(self) -> None:
        for remote in self._remotes:
            remote.say("stop")

    def abort(self) -> None:
        for remote in self._remotes:
            remote.say("abort")

    def __iter__(self) -> Iterator[Interval]:
        """One interval a second until all have ended; then raises the error that ended it.

        A generator that is lost ends nothing: what falls due there is unfinished at the end.
        """
        if not self._begun:
            self.begin()
        error: PgpacesError | None = None
        try:
            over = False
            while not over:
                news = [(remote, remote.next()) for remote in self._remotes]
                # What a lost one still owes follows its last second.
                over = all(r.over and not (r.lost and second) for r, second in news)
                end_ns = self.end_ns
                parts = [
                    (remote, second or remote.missed(end_ns, last=over))
                    for remote, second in news
                    if second is not None or remote.lost
                ]
                if error is None and (error := self._error()) is not None:
                    self.abort()
                if parts:
                    numbered = [(self._offsets[self._remotes.index(r)], i) for r, i in parts]
                    everyone = len(parts) == len(self._remotes)
                    yield merged(numbered, self.threads, everyone=everyone)
            self._findings = list(self._about())
        finally:
            self._leave()
        if error is not None:
            raise error

    def _error(self) -> PgpacesError | None:
        if all(remote.missing for remote in self._remotes):
            lost = [f"{remote.name}: {remote.lost}" for remote in self._remotes]
            return RunError("no-generator-left", lost=lost)
        return next((remote.error for remote in self._remotes if remote.error), None)

    def _leave(self) -> None:
        for remote in self._remotes:
            remote.leave()

    def _about(self) -> Iterator[Finding]:
        for remote, before in zip(self._remotes, self._clocks, strict=True):
            name = remote.name
            if remote.lost:
                yield finding("generator-lost", name, why=str(remote.lost))
                continue
            after: ClockOffset | None = None
            with contextlib.suppress(RunError):
                after = remote.clock()
            yield self._share(remote, before, after)
            if remote.late_ns > _LATE_NS:
                yield finding("generator-began-late", name, late_ms=remote.late_ns / 1e6)
            if after is None:
                yield finding("clock-unread", name)
            else:
                yield from self._clock(name, before, after)

    def _share(self, remote: Remote, before: ClockOffset, after: ClockOffset | None) -> Finding:
        """What a generator did, and whether it was the limit: all together are judged elsewhere."""
        lags, cpu = remote.dispatch, remote.cpu()
        lag_ns = value_at_rank(lags, max(1, round(0.99 * lags.count))) or 0
        # The bounds of analysis/generator.py.
        late = lag_ns > max(_LATE_NS, (self._limit_ns or 0) // 100)
        return finding(
            "generator-share",
            remote.name,
            due=remote.due,
            lag_ms=lag_ns / 1e6,
            cpu_percent=100 * cpu,
            busy=cpu > _BUSY,
            late=late and cpu <= _BUSY,
            clock_before=str(before),
            clock_after=None if after is None else str(after),
        )

    def _clock(self, name: str, before: ClockOffset, after: ClockOffset) -> Iterator[Finding]:
        apart_ns = drift_ns(before, after) + max(before.uncertainty_ns, after.uncertainty_ns)
        limit_ns = self._limit_ns
        if limit_ns is not None and apart_ns > _APART_SHARE * limit_ns:
            yield finding("clock-apart-decides", name, apart_ms=apart_ns / 1e6)
        elif apart_ns > _APART_NS:
            yield finding("clock-apart", name, apart_ms=apart_ns / 1e6)
