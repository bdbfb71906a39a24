"""The pipeline: plan, prepare, generate, store. The only place where the stages meet.

Knows no terminal: what happens is told to a Listener.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from pgpaces import database, host, psql
from pgpaces.answers.account import Account
from pgpaces.answers.summary import Summary, summarize
from pgpaces.errors import ConnectionsError, PgpacesError, PlanError, StoreError
from pgpaces.generators import engine as generator
from pgpaces.observe import postgres
from pgpaces.plan import TargetPlan, TrialPlan
from pgpaces.result import Estimate, Finding, Interval, Trial
from pgpaces.servers import binaries, embedded
from pgpaces.store import Store, new_id
from pgpaces.workload import Workload, WorkloadScript

_MEASURED_MAX_NS = 2**61
_SCALE_MAX = 1_000_000


OnStoreError = Literal["continue", "stop"]


class Listener:
    """Hears what happens. Override what is wanted."""

    def say(self, text: str) -> None:
        """A stage has begun or goes on."""

    def started(self, trial: Trial, plan: generator.EnginePlan, connect_ns: int) -> None:
        """The load runs; connecting took so long."""

    def interval(self, interval: Interval) -> None:
        """A second has passed and is stored."""

    def stopping(self, count: int) -> None:
        """The user asked to stop, for the first or a further time."""


@dataclass(frozen=True, slots=True)
class Request:
    """A trial to be run: of what, how, where.

    scripts: names, with weights, to run of all. keep: it is stored. on_store_error: whether the
    load goes on in memory while the store takes nothing, or nothing new falls due any more.
    """

    workload: Workload
    trial: TrialPlan
    target: TargetPlan = field(default_factory=TargetPlan)
    scale: int | None = None
    data_seed: int = 1
    scripts: tuple[tuple[str, int | None], ...] = ()
    store: Path | None = None
    keep: bool = True
    on_store_error: OnStoreError = "continue"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trial that was run, its answer, and why it could not all be stored, if so.

    The trial's intervals are in the store. aborted: how many clients gave up. killed: why the kill
    switch stopped it, if it did.
    """

    trial: Trial
    summary: Summary
    error: PgpacesError | None = None
    store_error: StoreError | None = None
    aborted: int = 0
    killed: str | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """Where the load goes: the way to administer it, and whether the server is ours."""

    access: database.Access
    ours: bool
    server: dict[str, Any] = field(default_factory=dict)


def run(request: Request, listener: Listener | None = None) -> Outcome:
    """Runs one trial and stores every second of it.

    Raises PgpacesError for what keeps the load from starting. What ends it early stands in the
    outcome, beside everything that was measured.
    """
    listener = listener or Listener()
    made = not request.target.as_is
    if made and request.scale is not None and not 1 <= request.scale <= _SCALE_MAX:
        raise PlanError(f"scale {request.scale} cannot be", f"from 1 to {_SCALE_MAX}")
    if request.trial.kill_switch is not None and request.target.dsn is None:
        raise PlanError(
            "a kill switch guards the other sessions of somebody's server; ours has none",
            "name the server with --target",
        )
    scripts = choose(request.workload, request.scripts)
    commands = [generator.commands(_source(script), script.text) for script in scripts]
    store = Store.open(request.store) if request.keep else None
    with site(request.target, listener) as where:
        if request.target.as_is:
            prepared = database.as_is(where.access)
            cell = _Cell(request, scripts, commands, where, prepared, request.scale or 1)
            return _guarded(cell, store, listener)
        wish = database.Wish(
            request.workload,
            request.scale or request.workload.scale,
            request.data_seed,
            own=request.target.own,
            fresh=request.target.fresh,
        )
        _check_connections(where, request.trial)
        with database.prepare(where.access, wish, listener.say) as prepared:
            cell = _Cell(request, scripts, commands, where, prepared, wish.scale)
            return _guarded(cell, store, listener)


def _source(script: WorkloadScript) -> str:
    """What messages about a script call it."""
    return script.source or f"{script.name}.sql"


def choose(
    workload: Workload, wanted: Sequence[tuple[str, int | None]]
) -> tuple[WorkloadScript, ...]:
    """The scripts of a workload that run, all by default. Raises PlanError for unknown ones."""
    if not wanted:
        return workload.scripts
    known = {script.name: script for script in workload.scripts}
    for name, _ in wanted:
        if name not in known:
            raise PlanError(
                f"workload {workload.name} has no script '{name}'", f"it has {', '.join(known)}"
            )
    return tuple(
        known[name] if weight is None else replace(known[name], weight=weight)
        for name, weight in wanted
    )


@contextlib.contextmanager
def site(target: TargetPlan, listener: Listener) -> Iterator[Site]:
    """A server that runs: somebody's, or ours for as long as this lasts. Raises ServerError."""
    candidates = [i.program("psql") for i in binaries.installations()]
    if target.dsn is not None:
        connection = generator.resolve(target.dsn, **dict(target.overrides))
        for warning in connection.warnings:
            listener.say(f"warning: {warning}")
        generator.probe(connection)
        program = psql.find(None, candidates)
        yield Site(database.Access(_for_driver(connection), program), ours=False)
        return
    with _without_pg_variables(), _our_server(target, listener) as server:
        keywords = _for_driver(generator.resolve(server.dsn()))
        program = psql.find(_existing(server.bin / "psql"), candidates)
        about = {"name": server.name, "stays": server.stays}
        yield Site(database.Access(keywords, program), ours=True, server=about)


@contextlib.contextmanager
def _our_server(target: TargetPlan, listener: Listener) -> Iterator[embedded.Server]:
    """A server of ours: one that runs under the name given, else one that is started."""
    for running in embedded.running():
        if running.stays and running.name == target.server:
            yield running
            return
    installation = binaries.find(target.server)
    spec = embedded.ServerSpec(
        installation,
        data_dir=Path(target.data_dir) if target.data_dir else None,
        settings=_server_settings(target, f"pg{installation.major}"),
    )
    listener.say(f"starting PostgreSQL {installation.version}")
    with embedded.start(spec, on_progress=listener.say) as server:
        yield server


@contextlib.contextmanager
def _without_pg_variables() -> Iterator[None]:
    """Hides PG* from libpq and us: they are meant for somebody's server, not for ours."""
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("PG")}
    kept = {name: value for name, value in hidden.items() if name.startswith("PGPACES_")}
    os.environ.update(kept)
    try:
        yield
    finally:
        os.environ.update(hidden)


def _for_driver(connection: generator.Connection) -> dict[str, str]:
    """The keywords for Python's driver, with the password; what they came from left out."""
    spent = {"service", "servicefile", "fallback_application_name"}
    keywords = {k: v for k, v in connection.keywords.items() if k not in spent}
    return keywords | ({} if connection.password is None else {"password": connection.password})


def _server_settings(target: TargetPlan, name: str) -> dict[str, str]:
    """The settings asked for; those of a staying server of this name where none are."""
    if not target.server_settings:
        for server in embedded.running():
            if server.name == name and server.stays:
                return dict(server.settings)
    return dict(target.server_settings)


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None


def _check_connections(where: Site, plan: TrialPlan) -> None:
    if plan.clients is None:
        return
    free = database.free_connections(where.access)
    if free is not None and free < plan.clients:
        raise ConnectionsError(
            f"the server has {max(0, free)} free connections, {plan.clients} clients need as many",
            "use fewer --clients, or raise max_connections (on a server of ours:"
            f" --server-set max_connections={plan.clients + 20})",
        )


@dataclass(frozen=True, slots=True)
class _Cell:
    """A trial whose data and server stand ready."""

    request: Request
    scripts: tuple[WorkloadScript, ...]
    commands: list[list[generator.Command]]
    site: Site
    prepared: database.Prepared
    scale: int

    def connection(self) -> generator.Connection:
        """The way of the load to its database, with the session settings asked for."""
        options = " ".join(_option(*setting) for setting in self.request.trial.settings)
        present = self.site.access.keywords.get("options", "")
        overrides = {k: v for k, v in self.site.access.keywords.items() if k != "options"}
        overrides["dbname"] = self.prepared.dbname
        overrides["options"] = f"{present} {options}".lstrip()
        overrides.setdefault("application_name", "pgpaces")
        return generator.resolve("", **overrides)

    def engine_plan(self) -> generator.EnginePlan:
        """The trial with the number of clients and threads decided."""
        trial = self.request.trial
        free = None if trial.clients else database.free_connections(self.site.access)
        clients = trial.clients_for(free)
        threads = trial.threads or max(1, min((os.cpu_count() or 2) // 2, clients // 64))
        given = dict(trial.variables)
        variables = {"scale": str(self.scale), **self.request.workload.variables, **given}
        decided = replace(trial, variables=tuple(variables.items()))
        return generator.EnginePlan.of(decided, clients, threads)


def _option(name: str, value: str) -> str:
    """A setting as a word of the server's command line, where backslashes keep white space."""
    return "-c " + re.sub(r"([\\\s])", r"\\\1", f"{name}={value}", flags=re.ASCII)


def _trial(cell: _Cell, plan: generator.EnginePlan, connection: generator.Connection) -> Trial:
    """The record of a trial that is about to start, with all that a rerun needs."""
    from importlib.metadata import version

    request, workload = cell.request, cell.request.workload
    access = replace(cell.site.access, keywords=_for_driver(connection))
    server = database.facts(access, cell.prepared.dbname)
    shown = ("host", "hostaddr", "port", "user", "sslmode")
    server["target"] = {k: v for k, v in connection.keywords.items() if k in shown}
    server |= {"ours": cell.site.ours, **cell.site.server}
    scripts = [
        {**asdict(script), "commands": [[c.line, c.text, c.is_sql] for c in commands]}
        for script, commands in zip(cell.scripts, cell.commands, strict=True)
    ]
    return Trial(
        id=new_id(),
        state="running",
        started_at=datetime.now(UTC),
        version=version("pgpaces"),
        plan={
            **asdict(plan),
            "variables": [[name, generator.decoded(text)] for name, text in plan.variables],
            "load_text": str(request.trial.load),
            "model": request.trial.load.model,
            "settings": dict(request.trial.settings),
            "kill_switch": request.trial.kill_switch,
        },
        workload={
            "name": workload.name,
            "description": workload.description,
            "hash": workload.hash,
            "scale": cell.scale,
            "data_seed": request.data_seed,
            "init": {step.name: step.text for step in workload.init},
            "scripts": scripts,
            "prepared": asdict(cell.prepared),
        },
        server=server,
        host=host.facts(),
    )


def _guarded(cell: _Cell, store: Store | None, listener: Listener) -> Outcome:
    """Measures, with a kill switch where one was asked for."""
    factor = cell.request.trial.kill_switch
    if factor is None:
        return _measure(cell, store, listener, _Guard(None))
    connection = cell.connection()
    name = connection.keywords["application_name"]
    listener.say("kill switch: looking at the server as it is without the load")
    with postgres.watch(_for_driver(connection), name, factor) as watch:
        return _measure(cell, store, listener, _Guard(watch))


class _Guard:
    """Stops the load when the watch says so. reason: why it did."""

    def __init__(self, watch: postgres.Watch | None) -> None:
        self._watch = watch
        self.reason: str | None = None

    def begin(self) -> None:
        """The load runs."""
        if self._watch:
            self._watch.begin()

    def look(self, load: generator.Engine) -> None:
        """To be called once a second."""
        if self._watch and self.reason is None and (reason := self._watch.reason()):
            self.reason = f"kill switch: {reason}"
            load.stop()

    def notes(self) -> list[str]:
        """What the answer says of it."""
        if self._watch is None:
            return []
        found = [f"kill switch: before the load, {self._watch.before}"]
        if self._watch.blind:
            found.append(
                "kill switch: statements of other roles are hidden from this one; grant it"
                " pg_read_all_stats"
            )
        return found if self.reason is None else [*found, self.reason]


def _measure(cell: _Cell, store: Store | None, listener: Listener, guard: _Guard) -> Outcome:
    """Generates the load and stores what it does, until its end or somebody's."""
    plan, connection = cell.engine_plan(), cell.connection()
    generator.probe(connection)
    before = store.size_bytes() if store else 0
    trial = _trial(cell, plan, connection)
    texts = [(_source(s), s.weight, generator.encoded(s.text)) for s in cell.scripts]
    load = generator.Engine(plan, texts, connection)
    trial = replace(trial, plan={**trial.plan, "poll": load.poll})
    keeper = _Keeper(store, trial, listener)
    with _signals(load, listener) as stops:
        try:
            keeper.begin()
            listener.started(trial, plan, load.connect_ns)
            guard.begin()
            error = _follow(load, keeper, listener, (cell.request.on_store_error, guard))
        except BaseException:
            load.abort()
            raise
    account, notes = keeper.account, [*keeper.notes, *guard.notes()]
    ended = account.ended_ns
    if account.aborted:
        notes.append(f"{account.aborted} of {plan.clients} clients gave up: {keeper.first_error}")
    findings: list[Finding] = []
    if store and _same_disk(store.path, trial.server):
        written = max(0, store.size_bytes() - before) / 1024
        text = "the store lies on the disk that is measured; it grew by"
        said = f"{text} {written:.0f} KiB in this run"
        findings.append(Finding("store", "info", said, written, "KiB"))
    if keeper.delayed:
        said = f"for {keeper.delayed} s the store took nothing; it was kept in memory"
        findings.append(Finding("store", "warning", said, keeper.delayed, "s"))
    stopped = keeper.error if cell.request.on_store_error == "stop" else None
    why = error or stopped
    trial = replace(
        trial,
        state="failed" if why else "interrupted" if stops or guard.reason else "finished",
        ended_at=datetime.now(UTC),
        measured_ns=max(0, min(load.end_ns if load.end_ns < _MEASURED_MAX_NS else ended, ended)),
        error=str(why) if why else None,
        notes=tuple(notes),
        findings=(*trial.findings, *findings),
    )
    summary = summarize(trial, account)
    failed = keeper.finish(trial, summary) or stopped
    return Outcome(trial, summary, error, failed, account.aborted, guard.reason)


def _follow(
    load: generator.Engine,
    keeper: _Keeper,
    listener: Listener,
    stops: tuple[OnStoreError, _Guard],
) -> PgpacesError | None:
    """Takes every second of a load; why it ended early, if it did."""
    on_store_error, guard = stops
    try:
        for interval in load:
            keeper.add(interval)
            if keeper.error and on_store_error == "stop":
                load.stop()
            listener.interval(interval)
            guard.look(load)
    except PgpacesError as error:
        return error
    return None


def _same_disk(store: Path, server: Mapping[str, Any]) -> bool:
    """Whether the store shares a file system with the server's data, as far as we can see it."""
    data, host_name = server.get("data_directory"), server["target"].get("host", "")
    local = host_name.startswith(("/", "@")) or host_name in {"localhost", "127.0.0.1", "::1"}
    try:
        return bool(local and data and Path(data).stat().st_dev == store.stat().st_dev)
    except OSError:
        return False


class _Keeper:
    """Stores intervals as they come, and takes them into account; then they are let go.

    What the store does not take is kept in memory and tried again. error: why it did not take a
    second, the first time. delayed: how many seconds it did not take at once. notes: what was
    noted, each once. first_error: the first that a client said.
    """

    def __init__(self, store: Store | None, trial: Trial, listener: Listener) -> None:
        self._store, self._trial, self._listener = store, trial, listener
        self.account = Account()
        self.notes: dict[str, None] = {}
        self.first_error = ""
        self.error: StoreError | None = None
        self.delayed = 0
        self._waiting: deque[Interval] = deque()
        self._failing = False

    def begin(self) -> None:
        """Stores that the trial starts. Raises StoreError: nothing is lost yet."""
        if self._store:
            self._store.begin(self._trial)

    def add(self, interval: Interval) -> None:
        """Takes a second; what was to be told at once is not kept."""
        errors = (text for level, text in interval.lines if level == "error")
        self.first_error = self.first_error or next(errors, "")
        self.notes.update(dict.fromkeys(interval.notes))
        self.account.add(interval)
        if self._store:
            self._waiting.append(replace(interval, lines=()))
        try:
            self._flush()
        except StoreError as error:
            self.delayed += 1
            self.error = self.error or error
            if not self._failing:
                self._listener.say(f"warning: {error.message}; results are kept in memory")
            self._failing = True
        else:
            if self._failing:
                self._listener.say("the store takes results again")
            self._failing = False

    def _flush(self) -> None:
        while self._store and self._waiting:
            self._store.add(self._trial.id, self._waiting[0])
            self._waiting.popleft()

    def finish(self, trial: Trial, summary: Summary) -> StoreError | None:
        """Stores the end; why that failed, if it did."""
        try:
            self._flush()
            if self._store:
                self._store.finish(trial, brief(summary))
        except StoreError as error:
            return error
        return None


def brief(summary: Summary) -> dict[str, Any]:
    """What a list of runs shows of a trial."""
    missed = summary.missed
    return {
        "due": summary.counts.due,
        "missed": summary.counts.missed,
        "missed_share": None if missed is None else [missed.value, missed.low, missed.high],
        "validity": summary.validity.state,
        "rate": summary.rate.value,
        "p50_ms": _finite(summary.latency.p50, "value"),
        "p99_ms": _finite(summary.latency.p99, "value"),
        "p99_low_ms": _finite(summary.latency.p99, "low"),
        "p99_high_ms": _finite(summary.latency.p99, "high"),
    }


def _finite(estimate: Estimate | None, name: str) -> float | None:
    """A number of an estimate; None where it is above every value, or unknown."""
    value = math.nan if estimate is None else getattr(estimate, name)
    return value if math.isfinite(value) else None


@contextlib.contextmanager
def _signals(load: generator.Engine, listener: Listener) -> Iterator[list[int]]:
    """First Ctrl-C: nothing new falls due. Second: ends at once. Yields the signals that came."""
    stops: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield stops
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        stops.append(number)
        if len(stops) == 1:
            load.stop()
        else:
            load.abort()
        listener.stopping(len(stops))

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stops
    finally:
        for number, old in before.items():
            signal.signal(number, old)
