"""One generator as its load sees it: a conversation once a second, and what it has reported.

It is asked by a coroutine of Dask's thread; what it reports is taken by the thread of the load.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from itertools import dropwhile, zip_longest
from typing import Any

from msgspec.structs import replace

from pgpaces.core.errors import PgpacesError, RunError
from pgpaces.core.findings import Finding
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import Times, merge
from pgpaces.core.units import SECOND_NS
from pgpaces.load import engine
from pgpaces.load.cluster.clocks import EXCHANGES, ClockOffset, ClockReading, offset_of
from pgpaces.load.cluster.protocol import LoadOrder, Ready, Report, Word, unpack
from pgpaces.load.cluster.workers import Worker, Workers

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
# Distributions of lags are added up this many at a time.
_BATCH = 32


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
        self._lags: list[Times] = []
        self._cpu_ns: list[int] = []
        self._cpu_s = 0

    def connected(self) -> Ready:
        """Waits until its clients are connected. Raises PgpacesError."""
        try:
            self._agent = self._workers.agent(self.worker, self._promise)
            ready: Ready = self._agent.ready().result(_READY_S)
        except PgpacesError as error:
            raise error.at(f"generator {self.name}") from None
        except Exception as error:
            raise RunError("generator-not-started", generator=self.name, why=str(error)) from None
        if ready.digest != self.order.digest():
            raise RunError("generator-of-other-workload", generator=self.name)
        self._workers.run(self._converse)
        return ready

    def clock(self) -> ClockOffset | None:
        """The offset of its clock; None if it does not answer."""

        async def exchanges() -> list[tuple[int, ClockReading, int]]:
            readings = []
            for _ in range(EXCHANGES):
                sent_ns = time.monotonic_ns()
                reading = await self._agent.clock()
                readings.append((sent_ns, reading, time.monotonic_ns()))
            return readings

        try:
            return offset_of(self._workers.wait(exchanges, _WAIT_S))
        except Exception:
            return None

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
        """The end of its last second, from the start of the measured part."""
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
            self._cpu_ns = [
                sum(pair) for pair in zip_longest(self._cpu_ns, interval.cpu_ns, fillvalue=0)
            ]
            self._cpu_s += 1
        self._lags.append(interval.dispatch)
        if len(self._lags) >= _BATCH:
            self._lags = [merge(self._lags)]

    def dispatch(self) -> Times:
        """Its lags of transactions whose client was idle when they were due."""
        return merge(self._lags)

    def cpu(self) -> float:
        return max(self._cpu_ns, default=0) / 1e9 / self._cpu_s if self._cpu_s else 0.0

    def leave(self) -> None:
        """Ends the conversation, and its load if that goes on."""
        if self._agent is not None and not self._ended:
            with contextlib.suppress(Exception):  # it may be lost
                self._agent.abort()
        self._ended = True
        self._promise.release()
