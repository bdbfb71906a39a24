"""One trial: prepare, generate, store, from its plan to its answer.

Knows no terminal: what happens is told to a Listener.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pgpaces import database
from pgpaces.answers import throttle
from pgpaces.answers.summary import Summary, summarize
from pgpaces.database import Applied
from pgpaces.errors import ConnectionsError, PgpacesError, StoreError
from pgpaces.experiment.beside import Beside, beside
from pgpaces.experiment.cell import Cell, record
from pgpaces.experiment.keeper import Keeper
from pgpaces.experiment.listener import Listener
from pgpaces.experiment.request import (
    OnStoreError,
    Request,
    check,
    choose,
    commands_of,
    source_of,
    wish_of,
)
from pgpaces.experiment.site import Site, original, restarting, site
from pgpaces.experiment.stops import Stops, kept, signals
from pgpaces.generators import engine as generator
from pgpaces.plan import TrialPlan
from pgpaces.result import Finding, State, Trial
from pgpaces.store import Store

_MEASURED_MAX_NS = 2**61


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
    request = replace(request, from_database=original(request.from_database))
    store = Store.open(request.store) if request.keep else None
    with site(request.target, listener.say) as where:
        return run_at(where, request, Keeping(listener, stops, store))


@dataclass(frozen=True, slots=True)
class Keeping:
    """Who hears of a trial, who may end it, and what keeps it.

    wait_s: so long is waited at its end for a store that takes nothing.
    """

    listener: Listener
    stops: Stops
    store: Store | None
    wait_s: float = 0.0


def run_at(where: Site, request: Request, keeping: Keeping) -> Outcome:
    """Runs one trial on a server that runs. Raises as `run`."""
    scripts = choose(request.workload, request.scripts)
    commands = commands_of(scripts)
    with _ready(where, request, keeping) as (prepared, applied):
        keeping.stops.check()
        scale = request.scale or (1 if request.target.as_is else request.workload.scale)
        cell = Cell(request, scripts, commands, where, prepared, scale, applied)
        return _measure(cell, keeping)


@contextlib.contextmanager
def _ready(
    where: Site, request: Request, keeping: Keeping
) -> Iterator[tuple[database.Prepared, Applied]]:
    """The data, and the settings in effect. Those of the whole server come first: some restart it,

    which would end the sessions that hold the data.
    """
    access, target = where.access, request.target
    restart = restarting(target.restart, access) if target.restart else None
    terms = database.Terms(where.ours, target.alter_system, restart, keeping.listener.say)
    wanted = {n: v for n, v in request.trial.settings if n not in where.given}
    if not wanted and target.as_is:
        yield database.as_is(access), Applied()
        return
    whole = {name: wanted[name] for name in database.of_server(access, wanted)}
    rest = {name: value for name, value in wanted.items() if name not in whole}
    with contextlib.ExitStack() as stack:
        around = Applied()
        if whole:
            around = stack.enter_context(database.applied(access, access.dbname, whole, terms))
        _check_connections(where, request.trial)
        prepared = stack.enter_context(_data(where, request, keeping))
        inner = stack.enter_context(database.applied(access, prepared.dbname, rest, terms))
        how = {**around.how, **inner.how}
        yield prepared, Applied(inner.options, how, {**around.verified, **inner.verified})


@contextlib.contextmanager
def _data(where: Site, request: Request, keeping: Keeping) -> Iterator[database.Prepared]:
    """The database that the load goes to. Raises StoppedError where nobody waits for it any more.

    That is asked whenever making it says something, which it does every few seconds.
    """
    target = request.target
    if target.as_is:
        yield database.as_is(where.access)
        return

    def say(text: str) -> None:
        keeping.stops.check()
        keeping.listener.say(text)

    with database.prepare(where.access, wish_of(request), say) as prepared:
        yield prepared


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


def _measure(cell: Cell, keeping: Keeping) -> Outcome:
    """Generates the load and stores what it does, until its end or somebody's."""
    listener, stops, store = keeping.listener, keeping.stops, keeping.store
    plan, connection = cell.engine_plan(), cell.connection()
    generator.probe(connection)
    before = store.size_bytes() if store else 0
    trial = record(cell, plan, connection)
    texts = [(source_of(s), s.weight, generator.encoded(s.text)) for s in cell.scripts]
    with beside(cell, connection, listener) as looks:
        load = generator.Engine(plan, texts, connection)
        start_s = time.monotonic() + plan.warmup_ns / 1e9
        trial = replace(trial, plan={**trial.plan, "poll": load.poll})
        keeper = Keeper(store, trial, listener.say)
        with signals(stops, listener), stops.over(load):
            try:
                keeper.begin()
                listener.started(trial, plan, load.connect_ns)
                looks.begin(start_s)
                error = _follow(load, keeper, listener, (cell.request.on_store_error, looks))
            except BaseException:
                load.abort()
                raise
    stopped = keeper.error if cell.request.on_store_error == "stop" else None
    state: State = "finished"
    if (why := error or stopped) is not None:
        state = "failed"
    elif stops.asked or looks.reason:
        state = "interrupted"
    elif cell.request.observe:
        looks.explain()
    account, measured_ns = keeper.account, load.end_ns
    ended = account.ended_ns
    measured_ns = max(0, min(measured_ns if measured_ns < _MEASURED_MAX_NS else ended, ended))
    pace = throttle.pace(account, trial, measured_ns // 1_000_000_000)
    trial = replace(
        trial,
        state=state,
        ended_at=datetime.now(UTC),
        measured_ns=measured_ns,
        error=str(why) if why else None,
        notes=(
            *trial.notes,
            *keeper.notes,
            *looks.notes(),
            *_given_up(keeper, plan.clients),
        ),
        findings=(*trial.findings, *looks.findings(pace), *_stored(keeper, store, before)),
        samples=looks.samples(),
        explained=looks.explained,
        observed=looks.observed(),
    )
    summary = summarize(trial, account)
    failed = _finish(lambda: keeper.finish(trial, summary), keeping) or stopped
    return Outcome(trial, summary, error, failed, account.aborted, looks.reason)


def _finish(finish: Callable[[], None], keeping: Keeping) -> StoreError | None:
    """Stores the end of a trial; why that failed, if it did."""
    try:
        kept(finish, keeping.stops, keeping.listener.say, keeping.wait_s)
    except StoreError as error:
        return error
    return None


def _given_up(keeper: Keeper, clients: int) -> list[str]:
    aborted = keeper.account.aborted
    return [f"{aborted} of {clients} clients gave up: {keeper.first_error}"] if aborted else []


def _stored(keeper: Keeper, store: Store | None, before: int) -> Iterator[Finding]:
    """What storing did to the trial."""
    if store and store.path and _same_disk(store.path, keeper.trial.server):
        written = max(0, store.size_bytes() - before) / 1024
        text = "the store lies on the disk that is measured; it grew by"
        yield Finding("store", "info", f"{text} {written:.0f} KiB in this run", written, "KiB")
    if keeper.delayed:
        said = f"for {keeper.delayed} s the store took nothing; it was kept in memory"
        yield Finding("store", "warning", said, keeper.delayed, "s")


def _follow(
    load: generator.Engine,
    keeper: Keeper,
    listener: Listener,
    watching: tuple[OnStoreError, Beside],
) -> PgpacesError | None:
    """Takes every second of a load; why it ended early, if it did."""
    on_store_error, looks = watching
    try:
        for interval in load:
            keeper.add(interval)
            if keeper.error and on_store_error == "stop":
                load.stop()
            listener.interval(interval)
            looks.look(load)
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
