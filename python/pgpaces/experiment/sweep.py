"""An experiment: its trials planned, run machine by machine, resumed where it stopped.

Every trial is stored as it runs, so what is missing can always be told from the store alone.
Knows no terminal: what happens is told to a SweepListener.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces import levels, workload
from pgpaces.answers.costs import an_hour
from pgpaces.answers.preview import Preview, Step, between, preview
from pgpaces.answers.sequential import Ask, Expected, Tell
from pgpaces.database import data
from pgpaces.design import HERE, Cell, Experiment, Slot, by_machine, missing
from pgpaces.errors import PlanError, StoreError
from pgpaces.experiment import document, targets
from pgpaces.experiment.listener import Progress, SweepListener
from pgpaces.experiment.machine import Machine
from pgpaces.experiment.order import Builder, Order
from pgpaces.experiment.queue import Chosen, Listed, Queue
from pgpaces.experiment.request import Request, check, choose, commands_of, spec_of
from pgpaces.experiment.site import without_pg_variables
from pgpaces.experiment.stops import Stops, kept, signals
from pgpaces.experiment.strategies import Goal, Strategy, strategies
from pgpaces.experiment.trial import Keeping
from pgpaces.facts import ServerFacts
from pgpaces.generators import engine as generator
from pgpaces.plan import TargetPlan
from pgpaces.servers import binaries, embedded, packages, tls
from pgpaces.store.experiments import ExperimentRow
from pgpaces.store.listing import sizes_at_once
from pgpaces.store.rows import ExperimentState
from pgpaces.store.store import Store, new_id

_BEAT_S = 5.0
# So long a store that takes nothing is waited for, before a trial and behind it.
PATIENCE_S = 60.0


class Planned(Struct, frozen=True):
    """An experiment of which every trial was checked, as far as that can be without a server.

    slots: what is missing of a design. total: with what was run before; None where trials are
    chosen as it goes. requests: for each cell and block of the design, else one of each kind.
    """

    order: Order
    builder: Builder
    slots: tuple[Slot, ...]
    total: int | None
    preview: Preview
    requests: Mapping[tuple[int, str], Request]
    id: str = ""
    workload_hash: str = ""


class Swept(Struct, frozen=True):
    """How an experiment went. failed: trials that were tried twice in vain.

    missing: trials of a design that were not run. given_up: why there is no answer, where trials
    were chosen as it went and no more of them would help.
    """

    id: str
    done: int
    failed: int
    missing: int
    interrupted: bool
    given_up: str = ""


def plan(order: Order) -> Planned:
    """Checks everything that can be checked without a server, and counts what it will take.

    Raises PlanError, WorkloadError, ScriptError; what is resumed must be that experiment.
    """
    builder, found = Builder.of(order), order.resume or new_id()
    goal, cells = order.goal, order.experiment.design.cells()
    chosen: list[Strategy] = []
    if goal is None:
        slots = order.experiment.design.slots()
        requests = {(slot.block, slot.cell.key): builder.request(slot, found) for slot in slots}
    else:
        chosen = list(strategies(goal, cells, builder.machines).values())
        samples = [each for one in chosen for each in one.samples()]
        slots = tuple(Slot(each.block, each.cell) for each in samples)
        requests = {(w.block, w.cell.key): _request(builder, w, found) for w in samples}
    _check(slots, requests)
    left, workload_hash = slots, _hash(builder.base, requests.values())
    if order.resume is not None:
        left = _left(order, slots, workload_hash)
    _check_servers(requests[slot.block, slot.cell.key] for slot in left)
    if chosen:
        takes = _expected(order, builder, [one.expected() for one in chosen], found)
    else:
        steps = [(slot, requests[slot.block, slot.cell.key]) for slot in left]
        takes = _preview(order, steps, builder.machines)
    return Planned(
        order=order,
        builder=builder,
        slots=left,
        total=len(slots) if goal is None else None,
        preview=takes,
        requests=requests,
        id=found,
        workload_hash=workload_hash,
    )


def _expected(
    order: Order, builder: Builder, chosen: Iterable[Expected], experiment_id: str
) -> Preview:
    """The preview of trials that are chosen as it goes: of the fewest, and of the most."""

    def of(ask: Iterable[Ask]) -> Preview:
        steps = [(Slot(w.block, w.cell), _request(builder, w, experiment_id)) for w in ask]
        return _preview(order, steps, builder.machines)

    least, most = zip(*chosen, strict=True)
    return between(of(chain.from_iterable(least)), of(chain.from_iterable(most)))


def _request(builder: Builder, ask: Ask, experiment_id: str) -> Request:
    found = builder.request(Slot(ask.block, ask.cell), experiment_id, ask.given)
    assert found.place is not None
    return replace(found, place=replace(found.place, attempt=ask.attempt))


def _check(slots: Iterable[Slot], requests: Mapping[tuple[int, str], Request]) -> None:
    for slot in {slot.cell.key: slot for slot in slots}.values():
        try:
            check(requests[slot.block, slot.cell.key])
        except PlanError as error:
            raise levels.in_cell(error, slot.cell) from None


def _hash(base: workload.Workload, requests: Iterable[Request]) -> str:
    """What results depend on: the workload, and those beside it."""
    others = {f"{name}\0{other.workload.hash}" for each in requests for name, other in each.beside}
    if not others:
        return base.hash
    return hashlib.sha256("\0".join([base.hash, *sorted(others)]).encode()).hexdigest()


def _check_servers(requests: Iterable[Request]) -> None:
    """Raises ServerError for versions that are not here and cannot be fetched."""
    named = {request.target.server for request in requests if request.target.dsn is None}
    for server in named - {running.name for running in embedded.running() if running.stays}:
        packages.check(server)


def _left(order: Order, slots: Sequence[Slot], workload_hash: str) -> tuple[Slot, ...]:
    """What is missing of an experiment that is resumed. Raises PlanError if it is not it."""
    store = Store.existing(order.store)
    row = store.experiment(order.resume or "")
    before = document.read(row.document)
    if row.state == "running":
        raise _taken(row.name)
    now = order.experiment
    changed = [
        what
        for what, old, new in (
            ("its cells", before.design, now.design),
            ("its workload", row.document.get("workload_hash"), workload_hash),
            ("its settings", before.profiles, now.profiles),
            ("its goal", document.goal(row.document), order.goal),
            (
                "the database that is copied",
                before.from_database,
                targets.source(now.from_database),
            ),
        )
        if old != new
    ]
    if changed:
        raise PlanError(
            f"experiment {row.name} ({row.id}) cannot be resumed: {' and '.join(changed)}"
            " changed since",
            "put them back as they were, or run it anew without --resume",
        )
    return tuple(slots) if order.goal else missing(slots, _done(store, row.id))


def _taken(name: str) -> PlanError:
    return PlanError(
        f"experiment {name} is being run by another pgpaces",
        "wait until it is done; one that was killed can be resumed after a quarter of a minute",
    )


def _done(store: Store, experiment_id: str) -> list[tuple[int, str]]:
    """The block and cell of each trial that was finished."""
    placed = store.placed(experiment_id)
    return [(each.block, each.cell) for each in placed if each.state == "finished"]


def _preview(
    order: Order, due: Sequence[tuple[Slot, Request]], machines: Mapping[str, str]
) -> Preview:
    sizes = sizes_at_once(order.store)
    requests = {(slot.block, slot.cell.key): request for slot, request in due}
    steps: dict[str, list[Step]] = {}
    prices: dict[str, tuple[float, str]] = {}
    slots = [slot for slot, _ in due]
    for machine, found in by_machine(slots, machines).items():
        made = {slot.cell.key: requests[slot.block, slot.cell.key] for slot in found}
        cells_steps = {key: _step(request, sizes) for key, request in made.items()}
        steps[machine] = [cells_steps[slot.cell.key] for slot in found]
        for costs in (request.costs for request in made.values()):
            if costs is not None and (hourly := an_hour(costs)) is not None:
                prices[machine] = (hourly, costs.currency)
    return preview(len({slot.cell.key for slot in slots}), steps, prices)


def preview_of(request: Request) -> Preview:
    """What one run will take. Raises PlanError, ScriptError, TrustError for what cannot be."""
    check(request)
    hourly = None if request.costs is None else an_hour(request.costs)
    prices = {HERE: (hourly, request.costs.currency)} if request.costs and hourly else {}
    return preview(1, {HERE: [_step(request, sizes_at_once(request.store))]}, prices)


def _step(request: Request, sizes: Mapping[str, int]) -> Step:
    """A trial of a cell for the preview. sizes: of data, by its fingerprint."""
    spec, as_is = spec_of(request), request.as_is
    fingerprints = data.fingerprints(spec)
    known = fingerprints & sizes.keys() if spec.from_database is None else ()
    lists = commands_of(request.workload, choose(request.workload, request.scripts))
    return Step(
        request.trial,
        tuple(sum(command.is_sql for command in commands) for commands in lists),
        request.workload.writes and not as_is,
        (request.target, fingerprints),
        0 if as_is else max((sizes[each] for each in known), default=None),
    )


def run(
    planned: Planned,
    listener: SweepListener | None = None,
    held: contextlib.ExitStack | None = None,
) -> Swept:
    """Runs what is missing, and stores every second of it.

    held: what lasts until the answer is told, as in `trial.run`.

    Raises StoreError where it cannot begin, or where the store takes no trial any more. A trial
    that fails is tried once more and then left out; a machine that is away does not keep the
    others from going on.
    """
    listener, stops = listener or SweepListener(), Stops()
    _get_servers(planned, listener)
    store = Store.open(planned.order.store)
    state: ExperimentState = "interrupted"
    with contextlib.ExitStack() as ours:
        (held or ours).enter_context(signals(stops, listener))
        _begin(store, planned)
        keeping = Keeping(listener, stops, store, PATIENCE_S)
        try:
            work = _work(planned, store)
            progress = Progress(planned.total, work.before)
            try:
                _run_all(work, planned, progress, keeping)
                gone = work.given_up()
                missing_ = 0 if planned.total is None else planned.total - progress.done
                if not (missing_ or gone or (planned.total is None and stops.asked)):
                    state = "finished"
            finally:
                _end(store, (planned.id, state), listener, stops)
        except StoreError as error:
            raise StoreError(error.message, _go_on(error.hint, planned.id)) from None
    interrupted = bool(stops.asked)
    return Swept(
        planned.id,
        progress.done,
        progress.failed,
        missing_,
        interrupted,
        "" if interrupted else gone,
    )


class _Work(Struct, frozen=True):
    """The trials of each machine. before: how many were run already. expected: servers' facts.

    chosen: who chooses them, where they are not those of a design.
    """

    queues: Mapping[str, Queue]
    before: int
    expected: Mapping[TargetPlan, ServerFacts]
    chosen: Mapping[str, tuple[Strategy, Chosen]] = field(default_factory=dict)

    def given_up(self) -> str:
        """Why there is no answer; empty where there is one, or where nothing was chosen."""
        said = (strategy.given_up(queue.told) for strategy, queue in self.chosen.values())
        return "; ".join(filter(None, said))


def _work(planned: Planned, store: Store) -> _Work:
    """What is to be run: since it was planned, another pgpaces may have run some and ended."""
    order, goal = planned.order, planned.order.goal
    if goal is not None:
        return _chosen(planned, store, goal)
    slots = missing(planned.slots, _done(store, planned.id))
    before = _servers(store, planned) if order.resume else {}
    queues = {
        name: Listed(own, planned.requests)
        for name, own in by_machine(slots, planned.builder.machines).items()
    }
    assert planned.total is not None
    return _Work(queues, planned.total - len(slots), before)


def _chosen(planned: Planned, store: Store, goal: Goal) -> _Work:
    builder, id_ = planned.builder, planned.id
    ids = [each.id for each in store.placed(id_)] if planned.order.resume else []
    told = [Tell.of(digest) for digest in store.digests(ids)]
    expected: dict[TargetPlan, ServerFacts] = {}
    for each in told:
        if each.digest is not None and each.digest.trial.state == "finished":
            target = builder.request(Slot(each.block, each.cell), id_).target
            expected.setdefault(target, each.digest.trial.server)
    cells = planned.order.experiment.design.cells()
    chosen = {
        name: (
            strategy,
            Chosen(
                strategy,
                list(told),
                lambda ask: _request(builder, ask, id_),
                lambda trial: store.digests([trial])[0],
            ),
        )
        for name, strategy in strategies(goal, cells, builder.machines).items()
    }
    queues = {name: queue for name, (_, queue) in chosen.items()}
    return _Work(queues, len(told), expected, chosen)


def _run_all(work: _Work, planned: Planned, progress: Progress, keeping: Keeping) -> None:
    """The trials of each machine in their order, machines at the same time."""
    machines = [
        Machine(name, queue, progress, dict(work.expected)) for name, queue in work.queues.items()
    ]
    with without_pg_variables():
        _together(machines, keeping, planned.id)


def _end(
    store: Store, ended: tuple[str, ExperimentState], listener: SweepListener, stops: Stops
) -> None:
    kept(lambda: store.finish_experiment(*ended), stops, listener.say, PATIENCE_S)


def _go_on(hint: str | None, experiment_id: str) -> str:
    """What to do where the store took no more: what it took before is not run again."""
    then = f"go on with --resume {experiment_id}"
    return f"{hint}; then {then}" if hint else f"then {then}"


def _get_servers(planned: Planned, listener: SweepListener) -> None:
    """Fetches what is missing of PostgreSQL, before the first trial rather than between two.

    Raises PlanError, ServerError for servers that cannot be.
    """
    targets = {planned.requests[slot.block, slot.cell.key].target for slot in planned.slots}
    for target in sorted(targets, key=lambda target: target.server or ""):
        if target.dsn is not None or not binaries.is_version(target.server or "18"):
            continue
        found = packages.locate(target.server, listener.say)
        if target.tls:
            tls.check(found)


def _servers(store: Store, planned: Planned) -> dict[TargetPlan, ServerFacts]:
    """Each server as it was for its first trial, of an experiment that is resumed."""
    first: dict[TargetPlan, str] = {}
    for placed in store.placed(planned.id):
        request = planned.requests.get((placed.block, placed.cell))
        if request is not None and placed.state == "finished":
            first.setdefault(request.target, placed.id)
    digests = store.digests(list(first.values()))
    return {target: digest.trial.server for target, digest in zip(first, digests, strict=True)}


def _begin(store: Store, planned: Planned) -> None:
    from importlib.metadata import version

    order = planned.order
    if order.resume is not None:
        if not store.claim_experiment(planned.id):
            raise _taken(order.experiment.name)
        return
    beside = document.DocumentExtras(order.command, planned.workload_hash, order.goal)
    found = document.write(order.experiment, beside)
    store.begin_experiment(
        ExperimentRow(
            id=planned.id,
            name=order.experiment.name,
            started_at=datetime.now(UTC),
            ended_at=None,
            state="running",
            version=version("pgpaces"),
            document=found,
        )
    )


def _together(machines: Sequence[Machine], keeping: Keeping, experiment_id: str) -> None:
    """Every machine in a thread of its own; this one waits, and hears signals.

    A store that does not take its signs of life is for the machines to wait for, or to give up.
    """
    store, stops = keeping.store, keeping.stops
    assert store is not None
    threads = [
        threading.Thread(
            target=machine.run, args=(keeping,), name=f"machine {machine.name or 'here'}"
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
        if machine.broken is not None:
            raise machine.broken


def find(name: str, store: str | Path | None) -> tuple[str, Experiment, Goal | None]:
    """What `name` means: its id, itself, and its goal. Raises PlanError, StoreError."""
    opened = Store.existing(store)
    row = opened.experiment(opened.find_experiment(name))
    return row.id, document.read(row.document), document.goal(row.document)


def label(dsn: str) -> str:
    """What a target is called that has no name: where its server is, without a password."""
    keywords = generator.resolve(dsn).keywords
    host = keywords.get("host") or keywords.get("hostaddr") or "local"
    port = keywords.get("port", "5432")
    return host if port == "5432" else f"{host}:{port}"


__all__ = ["Cell", "Order", "Planned", "Swept", "find", "label", "plan", "run"]
