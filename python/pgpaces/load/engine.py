"""Load by the Rust engine: a trial in, intervals out. Python is entered once an interval.

Knows nothing of servers, stores and terminals.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict, replace

from pgpaces import _engine
from pgpaces.core.errors import RunError, ServerError
from pgpaces.core.findings import finding
from pgpaces.core.record import Interval, Missed, copied
from pgpaces.core.texts import decoded, encoded
from pgpaces.core.units import SECOND_NS
from pgpaces.server.folder import quoted
from pgpaces.spec.load import LoadOptions, Segment, TrialPlan
from pgpaces.spec.target import without_secrets
from pgpaces.spec.workload import shown

# A script as the engine takes it: name, weight, text as bytes.
ScriptText = tuple[str, int, bytes]
# Files that this program has open beside those of clients: the store, threads, sensors.
_FILES_OWN = 50
# System calls by architecture: sched_setattr(2) and sched_getattr(2).
_SLICE_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}


class EnginePlan(LoadOptions, frozen=True, kw_only=True):
    """A trial plan without open choices, as the binding reads it.

    part: the number of the first client, and the clients of all generators; None where these are
    all. shape: segments, empty for a constant rate. limits: of scripts with their own limit, by
    number.
    """

    clients: int
    threads: int
    protocol: str
    policy: str
    backlog: str
    poll: str
    load: str
    rate: float
    arrivals: str
    shape: list[Segment]
    think: str
    think_ns: int
    limits: list[tuple[int, int]]
    warmup_ns: int
    grace_ns: int
    variables: list[tuple[bytes, bytes]]
    on_connect: list[str]
    part: tuple[int, int] | None = None
    traced: bool = False

    @classmethod
    def of(
        cls, plan: TrialPlan, clients: int, threads: int, *, scripts: Sequence[str]
    ) -> EnginePlan:
        """The plan with its number of clients and threads, for scripts of these names.

        Raises PlanError if its latency limits do not fit them.
        """
        values = {**asdict(plan.load), **asdict(plan)}
        values |= {
            "clients": clients,
            "threads": threads,
            "load": plan.load.model,
            "rate": plan.load.rate or 1.0,
            "shape": list(plan.segments()),
            "limits": list(plan.limits_of(scripts)),
            "warmup_ns": plan.warmup,
            "grace_ns": plan.grace,
            "variables": [(encoded(name), encoded(text)) for name, text in plan.variables],
            "on_connect": list(plan.on_connect),
        }
        return cls(**{name: values[name] for name in cls.__struct_fields__ if name in values})


class Connection(Struct, frozen=True):
    """Where the load goes: resolved keywords for Python's driver, and the engine's own form.

    password: the one of all hosts; None where each finds its own in the password file.
    """

    keywords: Mapping[str, str]
    password: str | None
    warnings: tuple[str, ...]
    resolved: _engine.Conninfo

    def __repr__(self) -> str:
        return f"Connection({without_secrets(self.keywords)})"


def for_driver(connection: Connection) -> dict[str, str]:
    """The keywords for Python's driver, with the password.

    The names of a service are spent; the fallback of an application's name is its name.
    """
    spent = {"service", "servicefile", "fallback_application_name"}
    keywords = {k: v for k, v in connection.keywords.items() if k not in spent}
    if fallback := connection.keywords.get("fallback_application_name"):
        keywords.setdefault("application_name", fallback)
    return keywords | ({} if connection.password is None else {"password": connection.password})


def resolve(dsn: str, **overrides: str) -> Connection:
    """Resolves a connection string, URI or database name as libpq does. Raises ServerError.

    As in libpq, an override with an empty value is none. Without a string the keywords are it, and
    an empty value keeps its variable out.
    """
    if not dsn and overrides:
        dsn, overrides = " ".join(f"{k}={quoted(v)}" for k, v in overrides.items()), {}
    try:
        resolved = _engine.resolve(dsn, overrides)
    except UnicodeEncodeError:
        raise ServerError("connection-not-utf-8") from None
    keywords = resolved.keywords()
    warnings = tuple(error.message for error in resolved.warnings)
    return Connection(keywords, resolved.password(), warnings, resolved)


def probe(connection: Connection) -> tuple[str, ...]:
    """Logs in once; returns what was done without despite a wish for it. Raises ServerError."""
    why = _engine.find_route(connection.resolved).unencrypted
    return () if why is None else (ServerError("load-not-encrypted", why=why.message).message,)


def rehearse(
    name: str, text: str, variables: Sequence[tuple[str, str]] = (), *, seed: int = 1
) -> list[tuple[int, str]]:
    """The SQL of one execution of a script, without a server, as the simple protocol would send it.

    Each statement with the number of its command, except for those that depend on variables from a
    server or a shell (\\gset, \\aset, \\setshell). Raises ScriptError, also where a client would
    give up; PlanError for invalid names of variables.
    """
    values = [(encoded(variable), encoded(value)) for variable, value in variables]
    statements = _engine.rehearse(shown(name), encoded(text), values, seed)
    return [(place, decoded(sql)) for place, sql in statements]


def due_seconds(
    plan: EnginePlan, weights: Sequence[int], end_ns: Callable[[], int]
) -> Iterator[Interval]:
    """What falls due by a plan before end_ns, second by second, without outcomes; for ever."""
    ledger = _engine.Ledger(plan, weights)
    while True:
        interval = copied(Interval, ledger.interval([], end_ns()))
        ended_ns = min(end_ns(), (interval.second + 1) * SECOND_NS)
        yield replace(interval, pending_ns=0, waited_ns=0, ended_ns=ended_ns)


def _raise_open_files(clients: int) -> None:
    """Raises the limit of open files as far as it goes. Raises RunError if that is not enough."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < clients + _FILES_OWN:
        raise RunError("too-few-open-files", clients=clients, own=_FILES_OWN, limit=hard)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Engine:
    """A composite.RunningLoad of scripts."""

    findings = ()
    notice_ns = 10_000_000

    def __init__(
        self, plan: EnginePlan, scripts: Sequence[ScriptText], connection: Connection
    ) -> None:
        """Connects all clients. Raises PgpacesError."""
        _raise_open_files(plan.clients)
        route = _engine.find_route(connection.resolved)
        with short_slice(plan.load):
            shown_scripts = [(shown(name), weight, text) for name, weight, text in scripts]
            self._run = _engine.Run(plan, shown_scripts, route)
        self.scripts, self.threads, self.clients = len(scripts), plan.threads, plan.clients
        self.connect_ns = self._run.connect_ns
        self.poll = self._run.poll
        self._traced = plan.traced

    def begin(self, ahead_ns: int = 0) -> None:
        self._run.begin(ahead_ns)

    def __iter__(self) -> Iterator[Interval]:
        while (interval := self._run.next_interval()) is not None:
            copy = copied(Interval, interval)
            notes = (finding(name, **{key: text}) for name, key, text in interval.notes)
            missed = (Missed(*each) for each in (interval.missed if self._traced else ()))
            yield replace(copy, notes=tuple(notes), missed=tuple(missed))

    @property
    def end_ns(self) -> int:
        return self._run.end_ns

    def stop(self) -> None:
        self._run.stop()

    def abort(self) -> None:
        self._run.abort()


class _Attributes(ctypes.Structure):
    """struct sched_attr of the first version, 48 bytes."""

    policy: int
    runtime: int
    _fields_ = (
        *(("size", ctypes.c_uint32), ("policy", ctypes.c_uint32), ("flags", ctypes.c_uint64)),
        *(("nice", ctypes.c_int32), ("priority", ctypes.c_uint32)),
        *((name, ctypes.c_uint64) for name in ("runtime", "deadline", "period")),
    )


@contextlib.contextmanager
def short_slice(load: str) -> Iterator[None]:
    """Threads and processes that this thread begins meanwhile have a short time slice.

    Linux from 6.12 on lets a task that wakes run before those with longer slices; its share of the
    CPU stays as it was. An earlier kernel has no slice of a task, nor has another system. Not for a
    closed load: it has no moment to keep, and would only take turns from the server.
    """
    before = slice_attributes()
    fair = before is not None and before.policy == os.SCHED_OTHER and before.runtime > 0
    if load == "closed" or before is None or not fair:
        yield
        return
    short = _Attributes.from_buffer_copy(before)
    # Shorter than others' is enough: a much shorter one costs an overloaded server throughput.
    short.runtime = before.runtime // 2
    _set(short)
    try:
        yield
    finally:
        _set(before)


def slice_attributes(task: int = 0) -> _Attributes | None:
    """Those of a thread, 0 for this one; None where they are not known."""
    calls = _SLICE_CALLS.get(platform.machine()) if platform.system() == "Linux" else None
    own, size = _Attributes(), ctypes.sizeof(_Attributes)
    if calls is None or ctypes.CDLL(None).syscall(calls[1], task, ctypes.byref(own), size, 0):
        return None
    return own


def _set(attributes: _Attributes) -> None:
    """Sets them, where that is allowed: without them the load is the same, only later."""
    ctypes.CDLL(None).syscall(_SLICE_CALLS[platform.machine()][0], 0, ctypes.byref(attributes), 0)
