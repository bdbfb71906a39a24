"""Values that travel between a load and its generators: orders, reports, readings of clocks.

The estimate of another machine's clock and its bound are Cristian's (Probabilistic clock
synchronization, 1989): the reading of the exchange with the least round trip, half of which is the
most that it can be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from pgpaces.core.errors import PgpacesError
from pgpaces.core.findings import Finding
from pgpaces.core.hidden_fields import Redacted
from pgpaces.core.record import Interval
from pgpaces.load.engine import EnginePlan, ScriptText

# A generator without a new question for this time ends its load; there is one every second. The
# load has ended ten seconds after a cut, also where the question after the last answer arrived; on
# a machine that is too busy to look, after three times this.
LEASE_NS = 8_600_000_000
# Exchanges for one estimate of a clock, at least.
EXCHANGES = 20


class LoadOrder(Redacted, frozen=True):
    """The part of a load that a generator makes: scripts, or Python users.

    keywords: of the connection; it adds what its own environment and password file have.
    users: pickled; b"": scripts. variables: of users. elsewhere: on another machine, of which it
    has to report.
    """

    REDACTED: ClassVar = ("keywords",)
    plan: EnginePlan
    scripts: tuple[ScriptText, ...]
    keywords: Mapping[str, str]
    users: bytes = b""
    variables: Mapping[str, str] = {}
    elsewhere: bool = False
    lease_ns: int = LEASE_NS


# Orders to a generator: to "begin" at a time of its clock, to "stop" or to "abort" (at 0).
Word = tuple[str, int]


class Ready(msgspec.Struct, frozen=True):
    threads: int
    clients: int
    poll: str


class Report(msgspec.Struct, frozen=True):
    """What became known since the last report. seconds: encoded, from number `first` on.

    ended: there will be no more. error: the one that ended it early. findings: about the load
    itself, once it has ended. late_ns: how late it learned when to begin. deserted: nothing was
    asked for the time of the lease, so the load was ended, and the seconds are those before that.
    """

    first: int
    seconds: tuple[bytes, ...]
    end_ns: int
    ended: bool = False
    error: PgpacesError | None = None
    findings: tuple[Finding, ...] = ()
    late_ns: int = 0
    deserted: bool = False


# Seconds travel as bytes.
pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder(Interval).decode


class ClockOffset(msgspec.Struct, frozen=True):
    """The monotonic clock of another machine minus ours, ns, and the most it can be wrong."""

    offset_ns: int
    uncertainty_ns: int

    def __str__(self) -> str:
        """As in `+0.102 ms ± 0.031 ms`."""
        return f"{self.offset_ns / 1e6:+.3f} ms ± {self.uncertainty_ns / 1e6:.3f} ms"

    def there(self, moment_ns: int) -> int:
        return moment_ns + self.offset_ns


def offset_of(exchanges: Iterable[tuple[int, int, int]]) -> ClockOffset:
    """The offset by exchanges: when each was sent, the answer by its clock, when it arrived."""
    sent_ns, reading_ns, answered_ns = min(exchanges, key=lambda each: each[2] - each[0])
    return ClockOffset(
        offset_ns=reading_ns - (sent_ns + answered_ns) // 2,
        uncertainty_ns=(answered_ns - sent_ns + 1) // 2,
    )


def drift_ns(before: ClockOffset, after: ClockOffset) -> int:
    """By how much two clocks certainly moved apart between two estimates, ns; 0 if they may not."""
    moved = abs(after.offset_ns - before.offset_ns)
    return max(0, moved - before.uncertainty_ns - after.uncertainty_ns)
