"""An experiment: its trials planned, run machine by machine, resumed where it stopped.

Every trial is stored as it runs, so the store alone shows which trials are missing.
Knows no terminal: a SweepListener receives the events.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.analysis.preview import Preview, Span, between, preview, trial_span
from pgpaces.analysis.sequential import Certainty, Pairing, Tell
from pgpaces.core.errors import PgpacesError, PlanError, StoreError
from pgpaces.core.hidden_fields import Redacted
from pgpaces.core.locality import is_local
from pgpaces.database.access import typed
from pgpaces.load import engine as generator
from pgpaces.load.engine import for_driver
from pgpaces.server import authentication, binaries, managed_server, packages
from pgpaces.spec import spec as specs
from pgpaces.spec import trust, workload
from pgpaces.spec.costs import Costs
from pgpaces.spec.design import HERE, ROLE, Ask, Experiment, by_machine, in_cell
from pgpaces.spec.load import family
from pgpaces.spec.migration import Rehearsal
from pgpaces.spec.result import Place
from pgpaces.spec.setup import ServerFacts
from pgpaces.spec.target import Target, TargetPlan
from pgpaces.store.listing import ExperimentRow
from pgpaces.store.rows import ExperimentState
from pgpaces.store.store import Store, new_id
from pgpaces.trial import document
from pgpaces.trial.listener import Progress, SweepListener
from pgpaces.trial.machine import LASTING, Machine
from pgpaces.trial.request import (
    OnStoreError,
    Request,
    check,
    request_of,
    workload_of,
)
from pgpaces.trial.strategies import Goal, Strategy, strategies
from pgpaces.trial.target_server import shown_source, source_database, without_pg_variables
from pgpaces.trial.trial import Stops, TrialContext, signals

_BEAT_S = 5.0
# Maximum wait for a store that refuses writes, before a trial and after it.
PATIENCE_S = 60.0


class PlannedSweep(Redacted, frozen=True):
    """An experiment to run, or to resume, and how its trials become requests.

    base: its workload. targets: its external servers, by name. source: the database whose copy is
    measured, its DSN with what PG* variables say: a managed server hides these while it runs.
    resumes: it has trials in the store. command: as typed, so that it can be repeated. costs: of
    this machine. goal: of an adaptive experiment; without one its trials are those of the design.
    strategies: of each machine, for the missing trials. requests: by block and cell; those of a
    design are all made before anything runs, else there is one of each kind.
    """

    REDACTED: ClassVar = ("targets", "source")
    experiment: Experiment
    base: workload.Workload
    targets: Mapping[str, TargetPlan]
    source: str | None
    store: str | Path | None = None
    id: str = ""
    resumes: bool = False
    on_store_error: OnStoreError = "continue"
    command: str = ""
    costs: Costs | None = None
    goal: Goal | None = None
    consent: trust.Consent = trust.refuse
    strategies: Mapping[str, Strategy] = field(default_factory=dict)
    requests: Mapping[tuple[int, str], Request] = field(default_factory=dict)
    workload_hash: str = ""

    @classmethod
    def of(
        cls, experiment: Experiment, consent: trust.Consent = trust.refuse, **more: Any
    ) -> PlannedSweep:
        """Reads the workload, resolves the targets. Raises PlanError, WorkloadError, TrustError."""
        targets = {each.name: _target(each) for each in experiment.targets}
        source = source_database(experiment.from_database)
        what: dict[str, Any] = {"files": experiment.files}
        what |= {} if experiment.workload is None else {"workload": experiment.workload}
        base = workload_of(what, consent, name=experiment.name)
        return cls(experiment, base, targets, source, consent=consent, **more)

    @property
    def machines(self) -> dict[str, str]:
        return {name: _machine(target) for name, target in self.targets.items()}

    @property
    def asks(self) -> tuple[Ask, ...]:
        """The missing trials of the design, else one of each kind."""
        return tuple(ask for each in self.strategies.values() for ask in each.samples())

    @property
    def total(self) -> int | None:
        """Including the trials that ran before; None if trials are chosen adaptively."""
        return len(self.requests) if self.goal is None else None

    def request(self, ask: Ask) -> Request:
        """The trial of an ask. Raises PlanError, naming the cell, for invalid levels."""
        at = (ask.block, ask.cell.key)
        if self.goal is None and at in self.requests:
            return self.requests[at]
        experiment, design = self.experiment, self.experiment.design
        named = {**design.fixed, **dict(ask.cell.levels), **ask.options}
        try:
            every = specs.read({n: v for n, v in named.items() if n != ROLE})
            variant, profile = every.pop("variant", None), every.pop("profile", "")
            base = trust.variant(self.base, variant, self.consent) if variant else self.base
            # pgpaces applies all settings with the least possible interruption.
            settings = {**experiment.profiles.get(profile, {})}
            for of in ("server_set", "set"):
                settings |= family(every, of)
            spec = {
                n: v for n, v in every.items() if n.partition(".")[0] not in ("server_set", "set")
            }
            spec |= {f"set.{name}": value for name, value in settings.items()}
            # All cells of a block meet the same arrivals.
            spec |= {"seed": design.seed + ask.block - 1, "missed": experiment.missed_max}
            spec |= {} if self.source is None else {"from_database": self.source}
            costs, target = self.costs, None
            if "target" in spec:
                target = self.targets[spec["target"]]
                own = {each.name: each.costs for each in experiment.targets}[spec["target"]]
                costs = own or (costs if _machine(target) == HERE else None)
            return request_of(
                spec,
                base,
                target=target,
                consent=self.consent,
                on_store_error=self.on_store_error,
                place=Place(self.id, ask.cell.key, dict(ask.cell.levels), ask.block, ask.attempt),
                costs=costs,
            )
        except PlanError as error:
            raise in_cell(error, ask.cell) from None

    def preview(self) -> Preview:
        ends = zip(*(each.expected() for each in self.strategies.values()), strict=True)
        estimates = [_preview(self, list(chain.from_iterable(asks))) for asks in ends]
        return between(*estimates) if self.goal else (estimates or [_preview(self, ())])[0]


def _target(target: Target) -> TargetPlan:
    keywords = for_driver(generator.resolve(target.dsn))
    return TargetPlan(
        dsn="",
        overrides=tuple(keywords.items()),
        alter_system=target.alter_system,
        restart=target.restart,
        observe_command=target.observe_command,
        nodes=tuple(target.nodes.items()),
        typed=tuple(typed(target.dsn).items()),
    )


def _machine(target: TargetPlan) -> str:
    """The name of a target's machine: HERE if it is local."""
    keywords = dict(target.overrides)
    host = keywords.get("hostaddr") or keywords.get("host", "")
    return HERE if is_local(keywords) else host


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


def plan(
    experiment: Experiment,
    store: str | Path | None = None,
    *,
    resume: str | None = None,
    on_store_error: OnStoreError = "continue",
    command: str = "",
    costs: Costs | None = None,
    goal: Goal | None = None,
    consent: trust.Consent = trust.refuse,
) -> PlannedSweep:
    """Checks everything that can be checked without a server, and estimates time and size.

    store: where results go; None for the default. resume: the id of the experiment to resume, which
    must not have changed. on_store_error, command, costs, goal: see PlannedSweep. consent: whether
    the folders of workloads may execute programs. Raises PlanError, WorkloadError, ScriptError.
    """
    design = experiment.design
    kinds = [target.kind for target in experiment.targets if target.kind]
    if design.trials == "auto" and len(kinds) > len(set(kinds)):
        raise PlanError("cannot-combine", options=["--trials auto", "targets of the same kind"])
    if goal is None and design.trials == "auto":
        goal = Certainty(experiment.missed_max, design.seed)
    made = PlannedSweep.of(
        experiment,
        consent,
        store=store,
        id=resume or new_id(),
        resumes=resume is not None,
        on_store_error=on_store_error,
        command=command,
        costs=costs,
        goal=goal,
    )
    if isinstance(goal, Pairing):
        sample = made.request(Ask(goal.cells[0], 1))
        metric = goal.goal.of(planned=sample.trial.load.model != "closed")
        made = replace(made, goal=replace(goal, goal=metric))
    machines = made.machines
    every = strategies(made.goal, design, machines)
    samples = [ask for each in every.values() for ask in each.samples()]
    requests = {(ask.block, ask.cell.key): made.request(ask) for ask in samples}
    for ask in {ask.cell.key: ask for ask in samples}.values():
        request = requests[ask.block, ask.cell.key]
        try:
            check(request)
            if isinstance(goal, Certainty) and request.trial.auto:
                raise PlanError("cannot-combine", options=["--trials auto", "--duration auto"])
            if isinstance(goal, Certainty) and request.trial.limit_max_ns is None:
                raise PlanError("no-latency-limit")
        except PlanError as error:
            raise in_cell(error, ask.cell) from None
    # Results depend on the workload and its background workloads.
    workload_hash = made.base.hash
    backgrounds = (pair for request in requests.values() for pair in request.background)
    if others := {f"{name}\0{other.workload.hash}" for name, other in backgrounds}:
        text = "\0".join([workload_hash, *sorted(others)])
        workload_hash = hashlib.sha256(text.encode()).hexdigest()
    made = replace(made, requests=requests, workload_hash=workload_hash)
    done = _done_before(made) if made.resumes else []
    made = replace(made, strategies=strategies(made.goal, design, machines, done=done))
    staying = {running.name for running in managed_server.running() if running.stays}
    plans = {requests[ask.block, ask.cell.key].target for ask in made.asks}
    for server in {target.server for target in plans if target.dsn is None} - staying:
        packages.check(server)
    return made


def _done_before(planned: PlannedSweep) -> list[tuple[int, str]]:
    """The trials that a resumed experiment has. Raises PlanError if it has changed."""
    store = Store.existing(planned.store)
    row = store.experiment(planned.id)
    before = document.read(row.document)
    if row.state == "running":
        raise PlanError("experiment-running", experiment=row.name)
    now = planned.experiment
    changed = [
        part
        for part, old, new in (
            ("cells", before.experiment.design, now.design),
            ("workload", before.workload_hash, planned.workload_hash),
            ("settings", before.experiment.profiles, now.profiles),
            ("goal", before.goal, planned.goal),
            ("from_database", before.experiment.from_database, shown_source(now.from_database)),
        )
        if old != new
    ]
    if changed:
        raise PlanError("experiment-changed", experiment=row.name, id=row.id, changed=changed)
    return [] if planned.goal else _done(store, row.id)


def _done(store: Store, experiment_id: str) -> list[tuple[int, str]]:
    """The block and cell of each finished trial; one in an outage is run again when resumed."""
    finished = [each for each in store.placed(experiment_id) if each.state == "finished"]
    invalid = [t.id for t in finished if (t.brief or {}).get("validity") == "invalid"]
    outages = {d.trial.id for d in store.digests(invalid) if d.summary.validity.outage}
    return [(each.block, each.cell) for each in finished if each.id not in outages]


def _preview(planned: PlannedSweep, asks: Sequence[Ask]) -> Preview:
    cells = {ask.cell.key: ask for ask in asks}
    requests = {key: planned.request(ask) for key, ask in cells.items()}
    spans: dict[str, list[Span | None]] = {}
    for machine, own in by_machine(asks, planned.machines).items():
        spans[machine] = [_span(requests[ask.cell.key]) for ask in own]
    return preview(spans)


def preview_of(request: Request) -> Preview:
    """The time of one run. Raises PlanError, ScriptError, TrustError if it cannot be."""
    check(request)
    return preview({HERE: [_span(request)]})


def _span(request: Request) -> Span | None:
    return trial_span(request.trial, writes=request.workload.writes and not request.as_is)


def run(
    planned: PlannedSweep,
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
    store = Store.open(planned.store)
    state: ExperimentState = "interrupted"
    with contextlib.ExitStack() as own:
        own.callback(store.close)
        (resources or own).enter_context(signals(stops, listener))
        _begin(store, planned)
        context = TrialContext(listener, stops, store, PATIENCE_S)
        try:
            machines, progress = _machines(planned, store)
            try:
                with without_pg_variables():
                    _together(machines, context, planned.id)
                reasons = {
                    why: each.results[-1].digest is None
                    for each in machines
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


def _machines(planned: PlannedSweep, store: Store) -> tuple[list[Machine], Progress]:
    """The machines with the trials that they run, and the facts of servers in their first trials.

    Since planning, another pgpaces may have run some of the trials and ended.
    """
    goal, design = planned.goal, planned.experiment.design
    placed = store.placed(planned.id) if planned.resumes else []
    expected: dict[TargetPlan, ServerFacts] = {}
    if goal is None:
        done, results = _done(store, planned.id), list[Tell]()
        first: dict[TargetPlan, str] = {}  # the first trial on each server
        for each in placed:
            request = planned.requests.get((each.block, each.cell))
            if request is not None and each.state == "finished":
                first.setdefault(request.target, each.id)
        digests = store.digests(list(first.values()))
        expected = {each: d.trial.server for each, d in zip(first, digests, strict=True)}
    else:
        tells = [Tell.of(digest) for digest in store.digests([each.id for each in placed])]
        done, results = [], goal.over(design.cells()).resumed(tells)
        for tell in results:
            if tell.digest is not None and tell.digest.trial.state == "finished":
                target = planned.request(Ask(tell.cell, tell.block)).target
                expected.setdefault(target, tell.digest.trial.server)
    left = strategies(goal, design, planned.machines, done=done)
    progress = Progress(planned.total, len(results))
    machines = [
        Machine(name, strategy, planned.request, progress, [*results], dict(expected))
        for name, strategy in left.items()
    ]
    if planned.total is not None:
        progress.done = planned.total - sum(progress.left.values())
    return machines, progress


def _get_servers(planned: PlannedSweep, listener: SweepListener) -> None:
    """Fetches missing PostgreSQL versions before the first trial rather than between two.

    Raises PlanError, ServerError for servers that are not available.
    """
    targets = {planned.requests[ask.block, ask.cell.key].target for ask in planned.asks}
    for target in sorted(targets, key=lambda target: target.server or ""):
        if target.dsn is not None or not binaries.is_version(target.server or "18"):
            continue
        installation = packages.locate(target.server, listener.say)
        if target.tls:
            authentication.check_tls(installation)


def _begin(store: Store, planned: PlannedSweep) -> None:
    from importlib.metadata import version

    if planned.resumes:
        if not store.claim_experiment(planned.id):
            raise PlanError("experiment-running", experiment=planned.experiment.name)
        return
    store.begin_experiment(
        ExperimentRow(
            id=planned.id,
            name=planned.experiment.name,
            started_at=datetime.now(UTC),
            ended_at=None,
            state="running",
            version=version("pgpaces"),
            document=document.write(
                planned.experiment, planned.command, planned.workload_hash, goal=planned.goal
            ),
        )
    )


def _together(machines: Sequence[Machine], context: TrialContext, experiment_id: str) -> None:
    """Runs every machine in a thread of its own; this thread waits, and receives signals.

    If the store refuses a heartbeat, the machines decide whether to wait or to give up.
    """
    assert context.store is not None
    with ThreadPoolExecutor(max(1, len(machines)), "machine") as threads:
        try:
            trials = [threads.submit(machine.run, context) for machine in machines]
            while wait(trials, _BEAT_S).not_done:
                with contextlib.suppress(StoreError):
                    context.store.beat_experiment(experiment_id)
        except BaseException:
            context.stops.ask()
            context.stops.ask()
            raise
    for each in trials:
        each.result()


def find(name: str, store: str | Path | None) -> tuple[str, Experiment, Goal | None]:
    """The experiment called `name`: its id, itself, its goal. Raises PlanError, StoreError."""
    with contextlib.closing(Store.existing(store)) as opened:
        row = opened.experiment(opened.find_experiment(name))
    stored = document.read(row.document)
    if isinstance(stored.goal, Rehearsal):
        raise PlanError("rehearsal-not-resumed", name=row.name)
    return row.id, stored.experiment, stored.goal


def label(dsn: str) -> str:
    """The label of a target without a name: where its server is, without a password."""
    keywords = generator.resolve(dsn).keywords
    host = keywords.get("host") or keywords.get("hostaddr") or "local"
    port = keywords.get("port", "5432")
    return host if port == "5432" else f"{host}:{port}"
