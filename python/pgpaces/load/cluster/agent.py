"""What runs on a generator: Dask holds it there, and calls its methods one at a time.

It ends its load if it hears nothing for the time of its lease, so that no load is left running.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.throttle import STEAL_WARNING
from pgpaces.core.errors import PgpacesError, RunError
from pgpaces.core.findings import Finding, finding
from pgpaces.load import engine
from pgpaces.load.cluster.protocol import LoadOrder, Ready, Report, Word, pack
from pgpaces.load.composite import RunningLoad
from pgpaces.load.python_users.load import UsersLoad, from_value, user_connection
from pgpaces.monitor.linux import Item, Probe, changes

_LOOK_S, _LOOK_MAX_NS = 0.2, 400_000_000
# A quota that runs out in fewer of its periods, in percent, is no reason to be late.
_QUOTA_WARNING = 1.0
_PACKAGE = Path(__file__).resolve().parents[2]


class AgentHost(Struct, frozen=True):
    """The machine and program of a generator.

    build: a hash of the program's Python files. python: its version, without the last number.
    """

    hostname: str
    pid: int
    cpus: int
    version: str
    build: str
    python: str


def about() -> AgentHost:
    from importlib.metadata import version

    return AgentHost(
        hostname=platform.node(),
        pid=os.getpid(),
        cpus=os.cpu_count() or 1,
        version=version("pgpaces"),
        build=_build(),
        python=".".join(platform.python_version_tuple()[:2]),
    )


def _build() -> str:
    """A hash of the program: equal versions from different commits are different programs."""
    digest = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*.py")):
        digest.update(file.relative_to(_PACKAGE).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class Agent:
    """A generator: its clients are connected once it is made. Raises PgpacesError."""

    def __init__(self, order: LoadOrder) -> None:
        self._order = order
        # Removed with this object, or at the end of its process.
        self._folder = tempfile.TemporaryDirectory(prefix="pgpaces-users-") if order.users else None
        self._load: RunningLoad = _load(order, Path(self._folder.name if self._folder else ""))
        self._lock = threading.Lock()
        self._seconds: list[bytes] = []
        self._first = 0
        self._ended = threading.Event()
        self._error: PgpacesError | None = None
        self._machine: MachineReading | None = None
        self._findings: tuple[Finding, ...] = ()
        self._heard = time.monotonic_ns()
        self._begun = False
        self._late_ns = 0
        self._deserted = False
        self._turn = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def ready(self) -> Ready:
        return Ready(self._load.threads, self._load.clients, self._load.poll)

    def clock(self) -> int:
        self._heard = time.monotonic_ns()
        return self._heard

    def report(self, turn: int, first: int, words: Sequence[Word] = ()) -> Report:
        """What became known from second number `first` on; earlier seconds have arrived.

        turn: of the question; it is asked again until an answer has arrived, and only a new one
        renews the lease. words: to be done first; the same may come twice.
        """
        if turn > self._turn:
            self._turn, self._heard = turn, time.monotonic_ns()
        for word, at_ns in words:
            getattr(self, word)(at_ns)
        ended = self._ended.is_set()
        with self._lock:
            first = max(first, self._first)  # the question may be an old one
            self._seconds = self._seconds[first - self._first :]
            self._first = first
            seconds, deserted = tuple(self._seconds), self._deserted
        report = Report(first, seconds, self._load.end_ns, late_ns=self._late_ns)
        if deserted or not ended:
            return replace(report, deserted=deserted)
        findings = (*self._load.findings, *self._findings)
        return replace(report, ended=True, error=self._error, findings=findings)

    def begin(self, moment_ns: int) -> None:
        if self._begun:
            return
        now = time.monotonic_ns()
        self._begun = True
        self._load.begin(max(0, moment_ns - now))
        self._late_ns = max(0, now + self._load.notice_ns - moment_ns)
        # It takes milliseconds, and the load begins at its moment.
        self._machine = machine_reading() if self._order.elsewhere else None
        threading.Thread(target=self._follow, daemon=True).start()

    def stop(self, _at_ns: int = 0) -> None:
        self._load.stop()

    def abort(self, _at_ns: int = 0) -> None:
        self._load.abort()
        if not self._begun:
            self._ended.set()

    def _follow(self) -> None:
        try:
            for interval in self._load:
                with self._lock:
                    if not self._deserted:
                        self._seconds.append(pack(interval))
        except PgpacesError as error:
            self._error = error
        except Exception as error:
            self._error = RunError("generator-failed", why=repr(error))
        finally:
            if self._machine is not None:
                self._findings = tuple(machine_findings(self._machine, machine_reading()))
            self._ended.set()

    def _watch(self) -> None:
        """Ends a load whose lease has run out, in time in which this thread could look.

        A machine may be too busy for that. A coordinator on this machine may have had no CPU for
        its questions, but a load ends at once if that process is gone. No load goes on for more
        than three leases.
        """
        heard, silent_ns, looked = self._heard, 0, time.monotonic_ns()
        elsewhere, parent = self._order.elsewhere, os.getppid()
        while not self._ended.wait(_LOOK_S):
            now = time.monotonic_ns()
            silent_ns += min(now - looked, _LOOK_MAX_NS)
            looked = now
            if heard != self._heard:
                heard, silent_ns = self._heard, min(now - self._heard, _LOOK_MAX_NS)
            lease_ns = self._order.lease_ns
            alone = silent_ns > lease_ns if elsewhere else os.getppid() != parent
            if alone or now - self._heard > 3 * lease_ns:
                with self._lock:
                    self._deserted = True
                self.abort()
                return


def _load(order: LoadOrder, folder: Path) -> RunningLoad:
    connection = engine.resolve("", **order.keywords)
    if order.users:
        names = [(name, weight) for name, weight, _ in order.scripts]
        way = user_connection(connection, order.variables)
        return UsersLoad(order.plan, from_value(order.users, folder), names, way=way)
    return engine.Engine(order.plan, order.scripts, connection)


class MachineReading(Struct, frozen=True):
    at_s: float
    items: Sequence[Item]


def machine_reading() -> MachineReading:
    return MachineReading(time.monotonic(), Probe(["self"]).items())


def machine_findings(before: MachineReading, after: MachineReading) -> Iterator[Finding]:
    gauges = changes(before.items, after.items, after.at_s - before.at_s)
    values = {item.name: item.value for item in gauges}
    steal, quota = values.get("cpu_steal", 0.0), values.get("cgroup_throttled_share", 0.0)
    if steal >= STEAL_WARNING:
        yield finding("generator-cpu-steal", percent=steal)
    if quota >= _QUOTA_WARNING:
        yield finding("generator-cpu-quota", percent=quota)
