"""One trial: prepare, generate, store, from its plan to its answer.

Knows no terminal: what happens is told to a Listener.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pgpaces import database, host
from pgpaces.answers.summary import Summary, summarize
from pgpaces.errors import ConnectionsError, PgpacesError, PlanError, StoreError
from pgpaces.experiment.keeper import Keeper
from pgpaces.experiment.listener import Listener
from pgpaces.experiment.site import Site, for_driver, site
from pgpaces.experiment.stops import Stops, signals
from pgpaces.generators import engine as generator
from pgpaces.observe import postgres
from pgpaces.plan import TargetPlan, TrialPlan
from pgpaces.result import Finding, Place, Trial
from pgpaces.store import Store, new_id
from pgpaces.workload import Workload, WorkloadScript

_MEASURED_MAX_NS = 2**61
_SCALE_MAX = 1_000_000


OnStoreError = Literal["continue", "stop"]


@dataclass(frozen=True, slots=True)
class Request:
    """A trial to be run: of what, how, where.

    scripts: names, with weights, to run of all. keep: it is stored. on_store_error: whether the
    load goes on in memory while the store takes nothing, or nothing new falls due any more.
    place: where in an experiment it stands, if it is part of one.
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
    place: Place | None = None


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


def run(request: Request, listener: Listener | None = None) -> Outcome:
    """Runs one trial and stores every second of it.

    Raises PgpacesError for what keeps the load from starting. What ends it early stands in the
    outcome, beside everything that was measured.
    """
    listener, stops = listener or Listener(), Stops()
    check(request)
    store = Store.open(request.store) if request.keep else None
    with site(request.target, listener.say) as where:
        return run_at(where, request, Keeping(listener, stops, store))


def check(request: Request) -> None:
    """Raises PlanError, ScriptError for what cannot be, before anything is started."""
    made = not request.target.as_is
    if made and request.scale is not None and not 1 <= request.scale <= _SCALE_MAX:
        raise PlanError(f"scale {request.scale} cannot be", f"from 1 to {_SCALE_MAX}")
    if request.trial.kill_switch is not None and request.target.dsn is None:
        raise PlanError(
            "a kill switch guards the other sessions of somebody's server; ours has none",
            "name the server with --target",
        )
    _commands(choose(request.workload, request.scripts))


def _commands(scripts: Sequence[WorkloadScript]) -> list[list[generator.Command]]:
    return [generator.commands(_source(script), script.text) for script in scripts]


@dataclass(frozen=True, slots=True)
class Keeping:
    """Who hears of a trial, who may end it, and what keeps it."""

    listener: Listener
    stops: Stops
    store: Store | None


def run_at(where: Site, request: Request, keeping: Keeping) -> Outcome:
    """Runs one trial on a server that runs. Raises as `run`."""
    scripts = choose(request.workload, request.scripts)
    commands = _commands(scripts)
    if request.target.as_is:
        prepared = database.as_is(where.access)
        cell = _Cell(request, scripts, commands, where, prepared, request.scale or 1)
        return _guarded(cell, keeping)
    wish = database.Wish(
        request.workload,
        request.scale or request.workload.scale,
        request.data_seed,
        own=request.target.own,
        fresh=request.target.fresh,
    )
    _check_connections(where, request.trial)
    with database.prepare(where.access, wish, keeping.listener.say) as prepared:
        cell = _Cell(request, scripts, commands, where, prepared, wish.scale)
        return _guarded(cell, keeping)


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
        present = self.site.access.keywords.get("options", "")
        overrides = {k: v for k, v in self.site.access.keywords.items() if k != "options"}
        overrides["dbname"] = self.prepared.dbname
        overrides["options"] = database.as_options(present, self.request.trial.settings)
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


def _trial(cell: _Cell, plan: generator.EnginePlan, connection: generator.Connection) -> Trial:
    """The record of a trial that is about to start, with all that a rerun needs."""
    from importlib.metadata import version

    request, workload = cell.request, cell.request.workload
    access = replace(cell.site.access, keywords=for_driver(connection))
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
        place=request.place,
    )


def _guarded(cell: _Cell, keeping: Keeping) -> Outcome:
    """Measures, with a kill switch where one was asked for."""
    factor = cell.request.trial.kill_switch
    if factor is None:
        return _measure(cell, keeping, _Guard(None))
    connection = cell.connection()
    name = connection.keywords["application_name"]
    keeping.listener.say("kill switch: looking at the server as it is without the load")
    with postgres.watch(for_driver(connection), name, factor) as watch:
        return _measure(cell, keeping, _Guard(watch))


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


def _measure(cell: _Cell, keeping: Keeping, guard: _Guard) -> Outcome:
    """Generates the load and stores what it does, until its end or somebody's."""
    listener, stops, store = keeping.listener, keeping.stops, keeping.store
    plan, connection = cell.engine_plan(), cell.connection()
    generator.probe(connection)
    before = store.size_bytes() if store else 0
    trial = _trial(cell, plan, connection)
    texts = [(_source(s), s.weight, generator.encoded(s.text)) for s in cell.scripts]
    load = generator.Engine(plan, texts, connection)
    trial = replace(trial, plan={**trial.plan, "poll": load.poll})
    keeper = Keeper(store, trial, listener.say)
    with signals(stops, listener), stops.over(load):
        try:
            keeper.begin()
            listener.started(trial, plan, load.connect_ns)
            guard.begin()
            error = _follow(load, keeper, listener, (cell.request.on_store_error, guard))
        except BaseException:
            load.abort()
            raise
    account = keeper.account
    notes = [*cell.prepared.notes, *keeper.notes, *guard.notes()]
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
        state="failed" if why else "interrupted" if stops.asked or guard.reason else "finished",
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
    keeper: Keeper,
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
