"""An experiment: its trials planned, run machine by machine, gone on with where it stopped.

Every trial is stored as it runs, so what is missing can always be told from the store alone.
Knows no terminal: what happens is told to a SweepListener.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pgpaces import database, levels, workload
from pgpaces.answers.costs import an_hour
from pgpaces.answers.preview import Preview, Step, preview
from pgpaces.costs import Costs
from pgpaces.design import HERE, Cell, Experiment, Slot, Target, by_machine, missing
from pgpaces.errors import PlanError, StoreError
from pgpaces.experiment import document
from pgpaces.experiment.machine import Machine, Progress, SweepListener
from pgpaces.experiment.request import (
    OnStoreError,
    Request,
    besides,
    check,
    choose,
    commands_of,
    wish_of,
)
from pgpaces.experiment.site import for_driver, original, without_pg_variables
from pgpaces.experiment.stops import Stops, kept, signals
from pgpaces.experiment.trial import Keeping
from pgpaces.generators import engine as generator
from pgpaces.plan import TargetPlan
from pgpaces.reach import is_here
from pgpaces.result import Place
from pgpaces.servers import binaries, embedded, packages, tls
from pgpaces.store import ExperimentRow, ExperimentState, Store, new_id
from pgpaces.store.listing import sizes_at_once

_BEAT_S = 5.0
# So long a store that takes nothing is waited for, before a trial and behind it.
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Order:
    """An experiment that is to be run, or gone on with.

    store: where results go; None for the default. resume: the id of the one to go on with.
    command: what was typed, for whoever wants to run it again. costs: of this machine.
    """

    experiment: Experiment
    store: str | Path | None = None
    resume: str | None = None
    on_store_error: OnStoreError = "continue"
    command: str = ""
    costs: Costs | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """An experiment of which every trial was checked, as far as that can be without a server.

    slots: what is missing. total: with what was run before. machines: of the levels of target.
    requests: for each cell and block.
    """

    order: Order
    slots: tuple[Slot, ...]
    total: int
    preview: Preview
    machines: Mapping[str, str]
    requests: Mapping[tuple[int, str], Request] = field(repr=False)
    id: str = ""
    workload_hash: str = ""


@dataclass(frozen=True, slots=True)
class Swept:
    """How an experiment went. failed: trials that were tried twice in vain."""

    id: str
    done: int
    failed: int
    missing: int
    interrupted: bool


def plan(order: Order) -> Planned:
    """Checks everything that can be checked without a server, and counts what it will take.

    Raises PlanError, WorkloadError, ScriptError; what an experiment is gone on with must be it.
    """
    experiment = order.experiment
    base = _workload(experiment)
    targets = {target.name: _resolved(target) for target in experiment.targets}
    builder = _Builder(order, base, targets)
    slots = experiment.design.slots()
    found = order.resume or new_id()
    requests = {(slot.block, slot.cell.key): builder.request(slot, found) for slot in slots}
    for slot in {slot.cell.key: slot for slot in slots}.values():
        try:
            check(requests[slot.block, slot.cell.key])
        except PlanError as error:
            raise levels.in_cell(error, slot.cell) from None
    left, workload_hash = slots, _hash(base, requests.values())
    if order.resume is not None:
        left = _left(order, slots, workload_hash)
    _check_servers(requests[slot.block, slot.cell.key] for slot in left)
    machines = {name: target.machine for name, target in targets.items()}
    return Planned(
        order=order,
        slots=left,
        total=len(slots),
        preview=_preview(order, left, requests, machines),
        machines=machines,
        requests=requests,
        id=found,
        workload_hash=workload_hash,
    )


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


def _workload(experiment: Experiment) -> workload.Workload:
    scripts = tuple(workload.read_script(*_weighted(file)) for file in experiment.files)
    if experiment.workload is None:
        return workload.of_scripts(experiment.name, scripts)
    base = workload.find(experiment.workload)
    return replace(base, scripts=scripts) if scripts else base


def _weighted(file: str) -> tuple[str, int]:
    path, at, weight = file.rpartition("@")
    return (path, int(weight)) if at and weight.isdigit() else (file, 1)


@dataclass(frozen=True, slots=True)
class _Resolved:
    """A target with everything that the environment says of it; machine: HERE if it is this one."""

    target: Target
    keywords: Mapping[str, str] = field(repr=False)
    machine: str


def _resolved(target: Target) -> _Resolved:
    keywords = for_driver(generator.resolve(target.dsn))
    host = keywords.get("hostaddr") or keywords.get("host", "")
    return _Resolved(target, keywords, HERE if is_here(keywords) else host)


@dataclass(frozen=True, slots=True)
class _Builder:
    """Makes the requests of an experiment's trials."""

    order: Order
    base: workload.Workload
    targets: Mapping[str, _Resolved]

    def request(self, slot: Slot, experiment_id: str) -> Request:
        """The trial of a slot. Raises PlanError, naming the cell, for levels that cannot be."""
        experiment = self.order.experiment
        design = experiment.design
        every = {**design.fixed, **dict(slot.cell.levels)}
        try:
            variant = every.get("variant")
            base = workload.variant(self.base, variant) if variant else self.base
            asked = levels.asked(every, base.load, design.load_seed(slot.block))
            target = self._target(asked)
            pool = asked.pool_plan
        except PlanError as error:
            raise levels.in_cell(error, slot.cell) from None
        found = Request(
            workload=base,
            trial=replace(asked.trial, settings=self._settings(asked)),
            target=target,
            scale=asked.scale,
            data_seed=asked.data_seed,
            scripts=asked.scripts,
            on_store_error=self.order.on_store_error,
            place=Place(experiment_id, slot.cell.key, dict(slot.cell.levels), slot.block),
            from_database=original(experiment.from_database),
            occasion=experiment_id,
            costs=self._costs(asked.target),
            node=asked.node,
            nodes=asked.nodes,
            pool=pool,
        )
        try:
            return replace(found, beside=besides(found, asked.beside))
        except PlanError as error:
            raise levels.in_cell(error, slot.cell) from None

    def _costs(self, target: str | None) -> Costs | None:
        """Of the machine of a target: what is said of it, else what this one costs."""
        if target is None:
            return self.order.costs
        found = self.targets[target]
        return found.target.costs or (self.order.costs if found.machine == HERE else None)

    def _settings(self, asked: levels.Asked) -> tuple[tuple[str, str], ...]:
        profiles = self.order.experiment.profiles
        profile = profiles.get(asked.profile or "", {})
        return tuple({**profile, **dict(asked.settings)}.items())

    def _target(self, asked: levels.Asked) -> TargetPlan:
        if asked.target is None:
            return TargetPlan(
                server=asked.server,
                data_dir=asked.data_dir,
                tls=asked.tls,
                standbys=asked.standbys,
            )
        if asked.server is not None:
            raise PlanError("server is for servers of ours, target for somebody's", "choose one")
        if asked.data_dir is not None:
            raise PlanError("data_dir is for servers of ours, target for somebody's", "choose one")
        if asked.tls is not None:
            raise PlanError(
                "tls is for servers of ours, target for somebody's", "say sslmode in the target"
            )
        if asked.standbys:
            raise PlanError(
                "standbys are made of servers of ours, target is for somebody's",
                "name theirs as nodes of the target",
            )
        found = self.targets[asked.target]
        return TargetPlan(
            dsn="",
            overrides=tuple(found.keywords.items()),
            alter_system=found.target.alter_system,
            restart=found.target.restart,
            observe_command=found.target.observe_command,
            nodes=tuple(found.target.nodes.items()),
        )


def _left(order: Order, slots: Sequence[Slot], workload_hash: str) -> tuple[Slot, ...]:
    """What is missing of an experiment that is gone on with. Raises PlanError if it is not it."""
    store = Store.open(order.store)
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
            (
                "the database that is copied",
                before.from_database,
                document.shown_original(now.from_database),
            ),
        )
        if old != new
    ]
    if changed:
        raise PlanError(
            f"experiment {row.name} ({row.id}) cannot be gone on with: {' and '.join(changed)}"
            " changed since",
            "put them back as they were, or run it anew without --resume",
        )
    return missing(slots, _done(store, row.id))


def _taken(name: str) -> PlanError:
    return PlanError(
        f"experiment {name} is being run by another pgpaces",
        "wait until it is done; one that was killed can be gone on with after a quarter of a"
        " minute",
    )


def _done(store: Store, experiment_id: str) -> list[tuple[int, str]]:
    """The block and cell of each trial that was finished."""
    placed = store.placed(experiment_id)
    return [(each.block, each.cell) for each in placed if each.state == "finished"]


def _preview(
    order: Order,
    slots: Sequence[Slot],
    requests: Mapping[tuple[int, str], Request],
    machines: Mapping[str, str],
) -> Preview:
    sizes = sizes_at_once(order.store)
    steps: dict[str, list[Step]] = {}
    prices: dict[str, tuple[float, str]] = {}
    for machine, found in by_machine(slots, machines).items():
        made = {slot.cell.key: requests[slot.block, slot.cell.key] for slot in found}
        cells_steps = {key: _step(request, sizes) for key, request in made.items()}
        steps[machine] = [cells_steps[slot.cell.key] for slot in found]
        for costs in (request.costs for request in made.values()):
            if costs is not None and (hourly := an_hour(costs)) is not None:
                prices[machine] = (hourly, costs.currency)
    cells = len({slot.cell.key for slot in slots})
    return preview(cells, steps, prices)


def _step(request: Request, sizes: Mapping[str, int]) -> Step:
    """A trial of a cell for the preview. sizes: of data, by its fingerprint."""
    wish = wish_of(request)
    fingerprints = database.fingerprints(wish)
    known = fingerprints & sizes.keys() if wish.from_database is None else ()
    lists = commands_of(request.workload, choose(request.workload, request.scripts))
    return Step(
        request.trial,
        tuple(sum(command.is_sql for command in commands) for commands in lists),
        request.workload.writes,
        (request.target, fingerprints),
        max((sizes[each] for each in known), default=None),
    )


def run(planned: Planned, listener: SweepListener | None = None) -> Swept:
    """Runs what is missing, and stores every second of it.

    Raises StoreError where it cannot begin, or where the store takes no trial any more. A trial
    that fails is tried once more and then left out; a machine that is away does not keep the
    others from going on.
    """
    listener, stops = listener or SweepListener(), Stops()
    _get_servers(planned, listener)
    store = Store.open(planned.order.store)
    state: ExperimentState = "interrupted"
    with signals(stops, listener):
        _begin(store, planned)
        keeping = Keeping(listener, stops, store, PATIENCE_S)
        try:
            # Since it was planned, another pgpaces may have run some and ended.
            slots = missing(planned.slots, _done(store, planned.id))
            progress = Progress(planned.total, planned.total - len(slots))
            try:
                _run_all(slots, planned, progress, keeping)
                if progress.done == planned.total:
                    state = "finished"
            finally:
                _end(store, (planned.id, state), listener, stops)
        except StoreError as error:
            raise StoreError(error.message, _go_on(error.hint, planned.id)) from None
    return Swept(
        planned.id,
        progress.done,
        progress.failed,
        planned.total - progress.done,
        bool(stops.asked),
    )


def _run_all(slots: Sequence[Slot], planned: Planned, progress: Progress, keeping: Keeping) -> None:
    """These trials, each machine's in their order, machines at the same time."""
    assert keeping.store is not None
    before = _servers(keeping.store, planned) if planned.order.resume else {}
    machines = [
        Machine(name, own, planned.requests, progress, dict(before))
        for name, own in by_machine(slots, planned.machines).items()
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


def _servers(store: Store, planned: Planned) -> dict[TargetPlan, dict[str, Any]]:
    """Each server as it was for its first trial, of an experiment that is gone on with."""
    first: dict[TargetPlan, str] = {}
    for placed in store.placed(planned.id):
        request = planned.requests.get((placed.block, placed.cell))
        if request is not None and placed.state == "finished":
            first.setdefault(request.target, placed.id)
    digests = store.digests(list(first.values()))
    return {
        target: dict(digest.trial.server) for target, digest in zip(first, digests, strict=True)
    }


def _begin(store: Store, planned: Planned) -> None:
    from importlib.metadata import version

    order = planned.order
    if order.resume is not None:
        if not store.claim_experiment(planned.id):
            raise _taken(order.experiment.name)
        return
    beside = document.Beside(order.command, planned.workload_hash)
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


def find(name: str, store: str | Path | None) -> tuple[str, Experiment]:
    """What `name` means: its id, and itself. Raises PlanError, StoreError."""
    opened = Store.open(store)
    row = opened.experiment(opened.find_experiment(name))
    return row.id, document.read(row.document)


def label(dsn: str) -> str:
    """What a target is called that has no name: where its server is, without a password."""
    keywords = generator.resolve(dsn).keywords
    host = keywords.get("host") or keywords.get("hostaddr") or "local"
    port = keywords.get("port", "5432")
    return host if port == "5432" else f"{host}:{port}"


__all__ = ["Cell", "Order", "Planned", "Swept", "find", "label", "plan", "run"]
