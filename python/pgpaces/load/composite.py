"""Several loads as one: they begin at the same moment, and their seconds are added up.

So a trial can send scripts to several servers, run several workloads at once, or time a command
together with them, while its consumers see one load. Knows nothing of servers and stores.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Protocol

from msgspec import Struct

from pgpaces.core.errors import PgpacesError
from pgpaces.core.findings import Finding
from pgpaces.core.record import Interval, Offset, merged


class RunningLoad(Protocol):
    """One load: connected, begun once, iterated over to its end; ended by signal handlers too.

    scripts, threads, clients: counts; numbers in its intervals are below them. connect_ns: the time
    to connect. poll: how it waits. end_ns: when nothing new falls due, from the start of the
    measured part. notice_ns: the least time from `begin` to its beginning. findings: about the load
    itself. Its seconds count as the trial's, from the first one of the warm-up.
    """

    scripts: int
    threads: int
    clients: int
    connect_ns: int
    poll: str
    notice_ns: int

    @property
    def end_ns(self) -> int:
        """The time when nothing new falls due any more; 2^62 in a run that ends by count."""

    @property
    def findings(self) -> Sequence[Finding]:
        """Findings about the load itself."""

    def begin(self, ahead_ns: int) -> None:
        """Lets it begin ahead_ns from now."""

    def __iter__(self) -> Iterator[Interval]:
        """Its seconds; then raises the error that ended it early, if any."""

    def stop(self) -> None:
        """Lets nothing new fall due; the backlog is still served within the grace period."""

    def abort(self) -> None:
        """Ends at once; transactions in flight stay unfinished."""


class _Member(Struct, frozen=True):
    load: RunningLoad
    seconds: Iterator[Interval]
    offset: Offset


class Together:
    """Loads as one RunningLoad: those of the trial itself, and others that end with these.

    The intervals of a single load pass unchanged.
    """

    def __init__(self, own: Sequence[RunningLoad], others: Sequence[RunningLoad] = ()) -> None:
        """own: at least one."""
        loads = [*own, *others]
        self.scripts = sum(load.scripts for load in loads)
        self.threads = sum(load.threads for load in loads)
        self.clients = sum(load.clients for load in loads)
        self.connect_ns = sum(load.connect_ns for load in loads)
        self.poll = ", ".join(dict.fromkeys(load.poll for load in loads))
        self.notice_ns = max(load.notice_ns for load in loads) * (2 if len(loads) > 1 else 1)
        self._own, self._loads = list(own), loads
        self._failure: PgpacesError | None = None
        scripts = accumulate((load.scripts for load in loads), initial=0)
        threads = accumulate((load.threads for load in loads), initial=0)
        self._members = [
            _Member(load, iter(load), Offset(script, thread))
            for load, script, thread in zip(loads, scripts, threads, strict=False)
        ]

    @property
    def end_ns(self) -> int:
        """The time when nothing new of the trial itself falls due any more."""
        return max(load.end_ns for load in self._own)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for load in self._loads for finding in load.findings)

    def begin(self, ahead_ns: int = 0) -> int:
        """Lets them begin at one moment, ahead_ns from now or slightly later; returns it."""
        moment_ns = time.monotonic_ns() + max(ahead_ns, self.notice_ns)
        for load in self._loads:
            load.begin(max(0, moment_ns - time.monotonic_ns()))
        return moment_ns

    def __iter__(self) -> Iterator[Interval]:
        """Seconds of all. Raises the first error of a load, when all have ended."""
        own = [member for member in self._members if member.load in self._own]
        others = [member for member in self._members if member.load not in self._own]
        over = False
        while own or others:
            own, parts = self._second(own)
            # The trial's own come first, so that the others end with them.
            if not over and (not own or self.end_ns <= max(part.ended_ns for _, part in parts)):
                over = True
                for member in others:
                    member.load.stop()
            others, more = self._second(others)
            if every := [*parts, *more]:
                numbered = [(member.offset, part) for member, part in every]
                everyone = len(every) == len(self._members)
                alone = len(self._members) == 1
                yield every[0][1] if alone else merged(numbered, self.threads, everyone=everyone)
        if self._failure is not None:
            raise self._failure

    def _second(
        self, running: Sequence[_Member]
    ) -> tuple[list[_Member], list[tuple[_Member, Interval]]]:
        """The running loads, and the next second of each. One that fails ends all."""
        left, parts = [], []
        for member in running:
            try:
                parts.append((member, next(member.seconds)))
                left.append(member)
            except StopIteration:
                pass
            except PgpacesError as error:
                self._failure = self._failure or error
                self.abort()
        return left, parts

    def stop(self) -> None:
        for load in self._loads:
            load.stop()

    def abort(self) -> None:
        for load in self._loads:
            load.abort()
