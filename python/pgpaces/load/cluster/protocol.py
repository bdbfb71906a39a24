"""The order to a generator, and its reports: values that travel."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from pgpaces.core.errors import PgpacesError
from pgpaces.core.findings import Finding
from pgpaces.core.record import Interval
from pgpaces.core.redaction import Redacted
from pgpaces.load.engine import EnginePlan, ScriptText

# A generator without a new question for this time ends its load; there is one every second. The
# load has ended ten seconds after a cut, also where the question after the last answer arrived; on
# a machine that is too busy to look, after three times this.
LEASE_NS = 8_600_000_000


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

    def digest(self) -> str:
        """A hash of what runs: names, weights and texts of scripts, the code of users."""
        return hashlib.sha256(repr((self.scripts, self.users)).encode()).hexdigest()


# Orders to a generator: to "begin" at a time of its clock, to "stop" or to "abort" (at 0).
Word = tuple[str, int]


class Ready(msgspec.Struct, frozen=True):
    threads: int
    clients: int
    poll: str
    digest: str


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
