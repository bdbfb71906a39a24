"""An experiment: its trials planned, run machine by machine, resumed where it stopped.

Every trial is stored as it runs, so the store alone shows which trials are missing.
Knows no terminal: a SweepListener receives the events.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.pairing import Pairing
from pgpaces.analysis.preview import Preview, Step, between, preview
from pgpaces.analysis.sequential import Ask, Tell
from pgpaces.core.errors import PgpacesError, PlanError, StoreError
from pgpaces.database import data
from pgpaces.load import engine as generator
from pgpaces.server import binaries, embedded, packages, tls
from pgpaces.spec import levels
from pgpaces.spec.design import HERE, Experiment, Slot, by_machine
from pgpaces.spec.facts import ServerFacts
from pgpaces.spec.target_plan import TargetPlan
from pgpaces.store.experiments import ExperimentRow
from pgpaces.store.listing import sizes_at_once
from pgpaces.store.rows import ExperimentState
from pgpaces.store.store import Store, new_id
from pgpaces.trial import document, targets
from pgpaces.trial.listener import Progress, SweepListener
from pgpaces.trial.machine import LASTING, Machine, Queue
from pgpaces.trial.order import Builder, Order
from pgpaces.trial.request import Request, check, choose, commands_of, dataset_of
from pgpaces.trial.site import without_pg_variables
from pgpaces.trial.stops import Stops, signals
from pgpaces.trial.strategies import Goal, Strategy, resumed, strategies
from pgpaces.trial.trial import TrialContext

_BEAT_S = 5.0
# Maximum wait for a store that refuses writes, before a trial and after it.
PATIENCE_S = 60.0


class SweepPlan(Struct, frozen=True):
    """An experiment whose trials were all checked, as far as that is possible without a server.

    strategies: of each machine, for the missing trials. requests: by block and cell; those of a
    design are all made before anything runs, else there is one of each kind.
    """

    order: Order
    builder: Builder
    strategies: Mapping[str, Strategy]
    requests: Mapping[tuple[int, str], Request]
    id: str
    workload_hash: str

    @property
    def asks(self) -> tuple[Ask, ...]:
        """The missing trials of the design, else one of each kind."""
        return tuple(ask for each in self.strategies.values() for ask in each.samples())

    @property
    def total(self) -> int | None:
        """Including the trials that ran before; None if trials are chosen adaptively."""
        return len(self.requests) if self.order.goal is None else None

    def request(self, ask: Ask) -> Request:
        if self.order.goal is None:
            return self.requests[ask.block, ask.cell.key]
        return self.builder.request(ask, self.id)

    def preview(self) -> Preview:
        """The time and size of the missing trials."""
        ends = zip(*(each.expected() for each in self.strategies.values()), strict=True)
        estimates = [_preview(self, list(chain.from_iterable(asks))) for asks in ends]
        return between(*estimates) if self.order.goal else (estimates or [_preview(self, ())])[0]


class SweepResult(Struct, frozen=True):
    """The result of running an experiment. failed: trials that failed twice.

    missing: trials of a design that were not run. given_up: why an adaptive experiment ended
    without an answer. errors: of trials that could not be run. lasting: they would be the same if
    it was resumed. by_error: an error is why there is no answer.
    """

    id: str
    done: int
    failed: int
    missing: int
    interrupted: bool
    given_up: str = ""
    errors: tuple[PgpacesError, ...] = ()
    lasting: bool = False
    by_error: bool = False


def plan(order: Order) -> SweepPlan:
    """Checks everything that can be checked without a server, and estimates time and size.

    Raises PlanError, WorkloadError, ScriptError; an experiment to resume must not have changed.
    """
    builder, id_ = Builder.of(order), order.resume or new_id()
    if isinstance(order.goal, Pairing):
        sample = builder.request(Ask(order.goal.cells[0], 1), id_)
        metric = order.goal.goal.of(planned=sample.trial.load.model != "closed")
        order = replace(order, goal=replace(order.goal, goal=metric))
    design, goal = order.experiment.design, order.goal
    every = strategies(goal, design, builder.machines)
    samples = [ask for each in every.values() for ask in each.samples()]
    requests = {(ask.block, ask.cell.key): builder.request(ask, id_) for ask in samples}
    for ask in {ask.cell.key: ask for ask in samples}.values():
        try:
            check(requests[ask.block, ask.cell.key])
        except PlanError as error:
            raise levels.in_cell(error, ask.cell) from None
    # Results depend on the workload and its background workloads.
    workload_hash = builder.base.hash
    backgrounds = (pair for request in requests.values() for pair in request.background)
    if others := {f"{name}\0{other.workload.hash}" for name, other in backgrounds}:
        text = "\0".join([workload_hash, *sorted(others)])
        workload_hash = hashlib.sha256(text.encode()).hexdigest()
    done = [] if order.resume is None else _done_before(order, workload_hash)
    left = strategies(goal, design, builder.machines, done=done)
    planned = SweepPlan(order, builder, left, requests, id_, workload_hash)
    staying = {running.name for running in embedded.running() if running.stays}
    plans = {requests[ask.block, ask.cell.key].target for ask in planned.asks}
    for server in {target.server for target in plans if target.dsn is None} - staying:
        packages.check(server)
    return planned


def _done_before(order: Order, workload_hash: str) -> list[tuple[int, str]]:
    """The trials that a resumed experiment has. Raises PlanError if it has changed."""
    store = Store.existing(order.store)
    row = store.experiment(order.resume or "")
    before = document.read(row.document)
    if row.state == "running":
        raise PlanError("experiment-running", experiment=row.name)
    now = order.experiment
    changed = [
        part
        for part, old, new in (
            ("cells", before.design, now.design),
            ("workload", row.document.get("workload_hash"), workload_hash),
            ("settings", before.profiles, now.profiles),
            ("goal", document.goal(row.document), order.goal),
            ("from_database", before.from_database, targets.source(now.from_database)),
        )
        if old != new
    ]
    if changed:
        raise PlanError("experiment-changed", experiment=row.name, id=row.id, changed=changed)
    return [] if order.goal else _done(store, row.id)


def _done(store: Store, experiment_id: str) -> list[tuple[int, str]]:
    """The block and cell of each finished trial; one in an outage is run again when resumed."""
    finished = [each for each in store.placed(experiment_id) if each.state == "finished"]
    invalid = [t.id for t in finished if (t.brief or {}).get("validity") == "invalid"]
    outages = {d.trial.id for d in store.digests(invalid) if d.summary.validity.outage}
    return [(each.block, each.cell) for each in finished if each.id not in outages]


def _preview(planned: SweepPlan, asks: Sequence[Ask]) -> Preview:
    sizes, machines = sizes_at_once(planned.order.store), planned.builder.machines
    cells = {ask.cell.key: ask for ask in asks}
    requests = {key: planned.request(ask) for key, ask in cells.items()}
    each = {key: _step(request, sizes) for key, request in requests.items()}
    steps: dict[str, list[Step]] = {}
    prices: dict[str, tuple[float, str]] = {}
    for machine, own in by_machine((Slot(a.block, a.cell) for a in asks), machines).items():
        steps[machine] = [each[slot.cell.key] for slot in own]
        for costs in (requests[slot.cell.key].costs for slot in own):
            if costs is not None and (hourly := costs.an_hour) is not None:
                prices[machine] = (hourly, costs.currency)
    return preview(len(cells), steps, prices)


def preview_of(request: Request) -> Preview:
    """The time and size of one run. Raises PlanError, ScriptError, TrustError if it cannot be."""
    check(request)
    hourly = None if request.costs is None else request.costs.an_hour
    prices = {HERE: (hourly, request.costs.currency)} if request.costs and hourly else {}
    return preview(1, {HERE: [_step(request, sizes_at_once(request.store))]}, prices)


def _step(request: Request, sizes: Mapping[str, int]) -> Step:
    """A trial of a cell for the preview. sizes: of data, by its fingerprint."""
    spec, as_is = dataset_of(request), request.as_is
    fingerprints = data.fingerprints(spec)
    measured = fingerprints & sizes.keys() if spec.from_database is None else ()
    lists = commands_of(request.workload, choose(request.workload, request.scripts))
    return Step(
        request.trial,
        tuple(sum(command.is_sql for command in commands) for commands in lists),
        request.workload.writes and not as_is,
        (request.target, fingerprints),
        0 if as_is else max((sizes[each] for each in measured), default=None),
    )


def run(
    planned: SweepPlan,
    listener: SweepListener | None = None,
    resources: contextlib.ExitStack | None = None,
) -> SweepResult:
    """Runs the missing trials, and stores every second of them.

    resources: closed by the caller once it has reported the answer, as in `trial.run`.

    Raises StoreError if it cannot begin, or if the store refuses trials for good. A trial that
    fails is tried once more and then left out; an unreachable machine does not delay the others.
    """
    listener, stops = listener or SweepListener(), Stops()
    _get_servers(planned, listener)
    store = Store.open(planned.order.store)
    state: ExperimentState = "interrupted"
    with contextlib.ExitStack() as own:
        own.callback(store.close)
        (resources or own).enter_context(signals(stops, listener))
        _begin(store, planned)
        context = TrialContext(listener, stops, store, PATIENCE_S)
        try:
            queues, expected, before = _queues(planned, store)
            progress = Progress(planned.total, before)
            try:
                machines = [
                    Machine(name, queue, progress, dict(expected)) for name, queue in queues.items()
                ]
                with without_pg_variables():
                    _together(machines, context, planned.id)
                reasons = {
                    why: each.results[-1].digest is None
                    for each in queues.values()
                    if (why := each.strategy.given_up(each.results))
                }
                reason = "; ".join(reasons)
                absent = 0 if planned.total is None else planned.total - progress.done
                errors = tuple(error for machine in machines for error in machine.errors)
                lasting = all(isinstance(error, LASTING) for error in errors)
                whole = not absent or (lasting and absent == len(errors))
                if whole and not (reason or (planned.total is None and stops.requests)):
                    state = "finished"
            finally:
                context.write(lambda: store.finish_experiment(planned.id, state))
        except StoreError as error:
            raise StoreError(
                "experiment-not-stored", id=planned.id, why=error.message, hint=error.hint
            ) from None
    interrupted = bool(stops.requests)
    return SweepResult(
        planned.id,
        progress.done,
        progress.failed,
        absent,
        interrupted,
        "" if interrupted else reason,
        errors,
        lasting,
        bool(errors) and (not reason or any(reasons.values())),
    )


def _queues(
    planned: SweepPlan, store: Store
) -> tuple[dict[str, Queue], dict[TargetPlan, ServerFacts], int]:
    """The trials of each machine, the facts of each server in its first trial, the trials so far.

    Since planning, another pgpaces may have run some of the trials and ended.
    """
    order, goal, id_ = planned.order, planned.order.goal, planned.id
    placed = store.placed(id_) if order.resume else []
    expected: dict[TargetPlan, ServerFacts] = {}
    if goal is None:
        done, results = _done(store, id_), list[Tell]()
        first: dict[TargetPlan, str] = {}  # the first trial on each server
        for each in placed:
            request = planned.requests.get((each.block, each.cell))
            if request is not None and each.state == "finished":
                first.setdefault(request.target, each.id)
        digests = store.digests(list(first.values()))
        expected = {each: d.trial.server for each, d in zip(first, digests, strict=True)}
    else:
        cells = order.experiment.design.cells()
        tells = [Tell.of(digest) for digest in store.digests([each.id for each in placed])]
        done, results = [], resumed(goal, cells, tells)
        for tell in results:
            if tell.digest is not None and tell.digest.trial.state == "finished":
                target = planned.request(Ask(tell.cell, tell.block)).target
                expected.setdefault(target, tell.digest.trial.server)
    design, machines = order.experiment.design, planned.builder.machines
    left = strategies(goal, design, machines, done=done)
    queues = {
        name: Queue(
            strategy,
            list(results),
            planned.request,
            lambda trial: store.digests([trial])[0],
        )
        for name, strategy in left.items()
    }
    missing = sum(queue.left for queue in queues.values())
    return queues, expected, len(results) if planned.total is None else planned.total - missing


def _get_servers(planned: SweepPlan, listener: SweepListener) -> None:
    """Fetches missing PostgreSQL versions before the first trial rather than between two.

    Raises PlanError, ServerError for servers that are not available.
    """
    targets = {planned.requests[ask.block, ask.cell.key].target for ask in planned.asks}
    for target in sorted(targets, key=lambda target: target.server or ""):
        if target.dsn is not None or not binaries.is_version(target.server or "18"):
            continue
        installation = packages.locate(target.server, listener.say)
        if target.tls:
            tls.check(installation)


def _begin(store: Store, planned: SweepPlan) -> None:
    from importlib.metadata import version

    order = planned.order
    if order.resume is not None:
        if not store.claim_experiment(planned.id):
            raise PlanError("experiment-running", experiment=order.experiment.name)
        return
    store.begin_experiment(
        ExperimentRow(
            id=planned.id,
            name=order.experiment.name,
            started_at=datetime.now(UTC),
            ended_at=None,
            state="running",
            version=version("pgpaces"),
            document=document.write(
                order.experiment, order.command, planned.workload_hash, goal=order.goal
            ),
        )
    )


def _together(machines: Sequence[Machine], context: TrialContext, experiment_id: str) -> None:
    """Runs every machine in a thread of its own; this thread waits, and receives signals.

    If the store refuses a heartbeat, the machines decide whether to wait or to give up.
    """
    store, stops = context.store, context.stops
    assert store is not None
    threads = [
        threading.Thread(
            target=machine.run, args=(context,), name=f"machine {machine.name or 'here'}"
        )
        for machine in machines
    ]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(_BEAT_S / len(threads))
            with contextlib.suppress(StoreError):
                store.beat_experiment(experiment_id)
    except BaseException:
        stops.ask()
        stops.ask()
        for thread in threads:
            thread.join()
        raise
    for machine in machines:
        if machine.failure is not None:
            raise machine.failure


def find(name: str, store: str | Path | None) -> tuple[str, Experiment, Goal | None]:
    """The experiment called `name`: its id, itself, its goal. Raises PlanError, StoreError."""
    with contextlib.closing(Store.existing(store)) as opened:
        row = opened.experiment(opened.find_experiment(name))
    return row.id, document.read(row.document), document.goal(row.document)


def label(dsn: str) -> str:
    """The label of a target without a name: where its server is, without a password."""
    keywords = generator.resolve(dsn).keywords
    host = keywords.get("host") or keywords.get("hostaddr") or "local"
    port = keywords.get("port", "5432")
    return host if port == "5432" else f"{host}:{port}"


__all__ = ["Order", "SweepPlan", "SweepResult", "find", "label", "plan", "run"]
