"""A load that several generators make: one schedule, one moment, one record of a second.

Transactions of an open load, and clients, are dealt by pure functions (crates/engine/src/pace.rs):
the load is the same for any number of generators. Knows no server and no store.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from pgpaces.core.errors import PgpacesError, RunError
from pgpaces.core.findings import Finding, finding
from pgpaces.core.record import Interval, Offset, merged
from pgpaces.core.times import value_at_rank
from pgpaces.load.cluster.clocks import ClockOffset, drift_ns, step_ns
from pgpaces.load.cluster.protocol import LoadOrder
from pgpaces.load.cluster.remote import Remote
from pgpaces.load.cluster.workers import Worker, Workers
from pgpaces.spec.setup import GeneratorFacts

# In addition to round trips: every generator knows by then when to begin.
_NOTICE_NS = 200_000_000
# A generator began late if it was by more.
_LATE_NS = 1_000_000
# It was busy if its busiest thread took more of a CPU.
_BUSY = 0.9
# How far apart clocks may be: a warning; a share of the latency limit: invalid.
_APART_NS, _APART_SHARE = 5_000_000, 0.1


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
            self._clocks: list[ClockOffset] = []
            for remote in self._remotes:
                if (clock := remote.clock()) is None:
                    raise RunError("generator-clock-unread", generator=remote.name)
                self._clocks.append(clock)
        except BaseException:
            self._leave()
            raise
        self.connect_ns = time.monotonic_ns() - begun
        order = dealt[0][1]
        self.scripts = len(order.scripts)
        self.clients = sum(each.clients for each in ready)
        self.threads = sum(each.threads for each in ready)
        self.poll = ", ".join(dict.fromkeys(each.poll for each in ready))
        self._offsets, thread = list[Offset](), 0
        for each in ready:
            self._offsets.append(Offset(0, thread))
            thread += each.threads
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
        lags, cpu = remote.dispatch(), remote.cpu()
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
        if step := step_ns(before, after):
            yield finding("clock-set", name, step_ms=step / 1e6)
