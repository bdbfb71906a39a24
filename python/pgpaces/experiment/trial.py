"""One trial: prepare, generate, store, from its plan to its answer.

Knows no terminal: what happens is told to a Listener.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.answers import throttle
from pgpaces.answers.digest import Bucket, digest
from pgpaces.answers.summary import Summary, summarize
from pgpaces.errors import PgpacesError, StoreError
from pgpaces.experiment import bulk
from pgpaces.experiment.cell import ReadyTrial, record
from pgpaces.experiment.listener import Listener
from pgpaces.experiment.monitors import Monitors, beside
from pgpaces.experiment.preparation import ready
from pgpaces.experiment.recorder import Recorder
from pgpaces.experiment.request import OnStoreError, Request, check
from pgpaces.experiment.site import Site, site, source_database
from pgpaces.experiment.stops import Stops, kept, signals
from pgpaces.facts import ServerFacts
from pgpaces.generators import engine as generator
from pgpaces.generators.composite import Together
from pgpaces.locality import is_local
from pgpaces.result import Finding, State, Trial
from pgpaces.store.store import Store

_MEASURED_MAX_NS = 2**61


class Outcome(Struct, frozen=True):
    """A trial that was run, its answer, and why it could not all be stored, if so.

    The trial's intervals are in the store. aborted: how many clients gave up. killed: why the kill
    switch stopped it, if it did. whole: the answer with the warm-up that was cut, if one was.
    series: what charts show of it over time.
    """

    trial: Trial
    summary: Summary
    error: PgpacesError | None = None
    store_error: StoreError | None = None
    aborted: int = 0
    killed: str | None = None
    whole: Summary | None = None
    series: tuple[Bucket, ...] = ()


def run(
    request: Request, listener: Listener | None = None, held: ExitStack | None = None
) -> Outcome:
    """Runs one trial and stores every second of it.

    held: see Keeping; whoever gives it ends what it holds once the answer is told. Raises
    PgpacesError for what keeps the load from starting. What ends it early stands in the outcome,
    beside everything that was measured.
    """
    listener, stops = listener or Listener(), Stops()
    check(request)
    request = replace(request, from_database=source_database(request.from_database))
    store = Store.open(request.store) if request.keep else None
    with ExitStack() as ours:
        keeping = Keeping(listener, stops, store, held=held or ours)
        with site(request.target, listener.say) as where:
            return run_at(where, request, keeping)


class Keeping(Struct, frozen=True):
    """Who hears of a trial, who may end it, and what keeps it.

    wait_s: so long is waited at its end for a store that takes nothing. held: what lasts from the
    beginning of the load to the answer, so that a signal after the load does not cost the answer.
    """

    listener: Listener
    stops: Stops
    store: Store | None
    wait_s: float = 0.0
    held: ExitStack = field(default_factory=ExitStack)


def run_at(where: Site, request: Request, keeping: Keeping) -> Outcome:
    """Runs one trial on a server that runs. Raises as `run`."""
    stops = keeping.stops
    with ready(where, request, keeping.listener.say, stops.check) as cell:
        stops.check()
        return _measure(cell, keeping)


def _measure(cell: ReadyTrial, keeping: Keeping) -> Outcome:
    """Generates the load and stores what it does, until its end or somebody's."""
    listener, stops, store = keeping.listener, keeping.stops, keeping.store
    connections = [cell.connection(component) for component in cell.components]
    for connection in connections:
        generator.probe(connection)
    plan = cell.components[0].engine_plan()
    before = store.size_bytes() if store else 0
    trial = record(cell)
    with (
        bulk.jobs(cell, connections, listener.say) as jobs,
        beside(cell, listener, jobs) as looks,
    ):
        loads = [
            (component.work.name, (job or component).load(connection))
            for component, job, connection in zip(cell.components, jobs, connections, strict=True)
        ]
        bulk.end_together(loads)
        load = Together(
            [load for name, load in loads if not name], [load for name, load in loads if name]
        )
        trial = replace(trial, plan=trial.plan.but(poll=load.poll))
        recorder = Recorder(store, trial, listener.say)
        keeping.held.enter_context(signals(stops, listener))
        with stops.over(load):
            try:
                recorder.begin()
                looks.ready()
                load.begin()
                listener.started(trial, load.connect_ns)
                looks.begin(time.monotonic() + plan.warmup_ns / 1e9)
                error = _follow(load, recorder, listener, (cell.request.on_store_error, looks))
            except BaseException:
                load.abort()
                raise
        answers = looks.answers()
    stopped = recorder.error if cell.request.on_store_error == "stop" else None
    why = error or stopped
    state = _state(why, ended_early=bool(stops.asked or looks.reason))
    accumulator = recorder.accumulator
    if state == "finished" and cell.request.observe and answers:
        looks.explain()
    measured_ns = _measured_ns(load.end_ns, accumulator.ended_ns)
    stored = _stored(recorder, store, before)
    trial = replace(
        trial,
        state=state,
        ended_at=datetime.now(UTC),
        measured_ns=measured_ns,
        error=str(why) if why else None,
        notes=(*trial.notes, *recorder.notes, *looks.notes(), *_given_up(recorder, load.clients)),
        findings=(
            *trial.findings,
            *load.findings,
            *looks.findings(throttle.pace(accumulator, trial, measured_ns // 10**9)),
            *stored,
        ),
        samples=looks.samples(),
        explained=looks.explained,
        observed=looks.observed(),
    )
    summary = summarize(trial, accumulator)
    shown = digest(trial, summary, accumulator)
    failed = _finish(lambda: recorder.finish(trial, shown), keeping) or stopped
    ends = (error, failed, accumulator.aborted, looks.reason)
    whole = summarize(trial, accumulator, cut_off=False) if summary.cut_s else None
    return Outcome(trial, summary, *ends, whole, shown.series)


def _measured_ns(asked_ns: int, ended_ns: int) -> int:
    """How long it was measured: as asked for, or to its end where that was earlier."""
    return max(0, min(asked_ns if asked_ns < _MEASURED_MAX_NS else ended_ns, ended_ns))


def _state(why: PgpacesError | None, *, ended_early: bool) -> State:
    if why is not None:
        return "failed"
    return "interrupted" if ended_early else "finished"


def _finish(finish: Callable[[], None], keeping: Keeping) -> StoreError | None:
    """Stores the end of a trial; why that failed, if it did."""
    try:
        kept(finish, keeping.stops, keeping.listener.say, keeping.wait_s)
    except StoreError as error:
        return error
    return None


def _given_up(recorder: Recorder, clients: int) -> list[str]:
    aborted = recorder.accumulator.aborted
    return [f"{aborted} of {clients} clients gave up: {recorder.first_error}"] if aborted else []


def _stored(recorder: Recorder, store: Store | None, before: int) -> Iterator[Finding]:
    """What storing did to the trial."""
    if store and store.path and _same_disk(store.path, recorder.trial.server):
        written = max(0, store.size_bytes() - before) / 1024
        text = "the store lies on the disk that is measured; it grew by"
        yield Finding("store", "info", f"{text} {written:.0f} KiB in this run", written, "KiB")
    if recorder.delayed:
        said = f"for {recorder.delayed} s the store took nothing; it was kept in memory"
        yield Finding("store", "warning", said, recorder.delayed, "s")


def _follow(
    load: Together,
    recorder: Recorder,
    listener: Listener,
    watching: tuple[OnStoreError, Monitors],
) -> PgpacesError | None:
    """Takes every second of a load; why it ended early, if it did."""
    on_store_error, looks = watching
    try:
        for interval in load:
            recorder.add(interval)
            if recorder.error and on_store_error == "stop":
                load.stop()
            listener.interval(interval)
            looks.look(load)
    except PgpacesError as error:
        return error
    return None


def _same_disk(store: Path, server: ServerFacts) -> bool:
    """Whether the store shares a file system with the server's data, as far as we can see it."""
    data = server.data_directory
    try:
        return bool(
            is_local(server.target) and data and Path(data).stat().st_dev == store.stat().st_dev
        )
    except OSError:
        return False
