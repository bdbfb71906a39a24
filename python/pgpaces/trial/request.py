"""The request of a trial, from its options, and its check. Starts nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from msgspec import field, to_builtins
from msgspec.structs import replace

from pgpaces.core.errors import PlanError, similar
from pgpaces.core.locality import is_local
from pgpaces.core.redaction import Redacted
from pgpaces.core.units import SEED_MAX, duration_text, exact, whole
from pgpaces.database import data
from pgpaces.database.specification import DatasetSpec
from pgpaces.load import engine as generator
from pgpaces.load.engine import for_driver
from pgpaces.server import pooler, profiles
from pgpaces.spec import levels, options, trust, workload
from pgpaces.spec.costs import Costs
from pgpaces.spec.design import Levels
from pgpaces.spec.facts import ServerFacts
from pgpaces.spec.levels import CellOptions
from pgpaces.spec.plan import ON_ERROR, ONLY_OF_SCRIPTS, TrialPlan, pairs
from pgpaces.spec.result import Place
from pgpaces.spec.scripts import ScriptCommand, commands_in
from pgpaces.spec.target_plan import PoolPlan, TargetPlan
from pgpaces.spec.users import call
from pgpaces.spec.workload import Workload, WorkloadScript
from pgpaces.trial import bulk, dealt, targets

_SCALE_MAX = 1_000_000
# What a background workload has from its trial.
_OF_A_TRIAL = (
    *("target", "server", "data_dir", "tls", "standbys", "on_store_error", "seed", "duration"),
    *("pool", "pool_mode", "pool_size", "warmup"),
)
# The duration of a background workload of a trial that ends by count: it ends with the trial.
_UNTIL_ENDED_NS = 30 * 86_400 * 1_000_000_000
PRIMARY, STANDBYS, ANY, POOL = "primary", "standbys", "any", "pool"

OnStoreError = Literal["continue", "stop"]


class Request(Redacted, frozen=True):
    """A trial to run: its workload, load and server.

    scripts: names of those to run, with weights; empty: all. keep: store the trial.
    on_store_error: while the store refuses writes, continue in memory, or let nothing new fall due.
    place: of the trial in its experiment, if any. from_database: the database whose copy is
    measured instead of the workload's data; one copy for each `occasion`.
    expected: facts of the server in the earlier trials with which this one is compared.
    observe: sample the server during the load, and read plans after it.
    node: where the load goes; by default the pool if there is one, else the primary; nodes: of
    individual scripts. pool: a pooler in front of a managed server. background: other workloads
    that run during this one, by name. costs: of the server's machine. missed_max: the share of
    due transactions that may be missed, if requested.
    """

    REDACTED: ClassVar = ("from_database", "expected")  # not in the repr: may hold a password
    workload: Workload
    trial: TrialPlan
    target: TargetPlan = field(default_factory=TargetPlan)
    scale: int | None = None
    data_seed: int = 1
    scripts: tuple[tuple[str, int | None], ...] = ()
    store: Path | str | None = None
    keep: bool = True
    on_store_error: OnStoreError = "continue"
    place: Place | None = None
    from_database: str | None = None
    occasion: str = ""
    observe: bool = True
    node: str | None = None
    nodes: tuple[tuple[str, str], ...] = ()
    pool: PoolPlan | None = None
    background: tuple[tuple[str, Request], ...] = ()
    expected: ServerFacts | None = None
    costs: Costs | None = None
    missed_max: float | None = None

    @property
    def as_is(self) -> bool:
        """Whether the load goes to the database that the target names, as it stands.

        True for scripts, commands and functions without a workload, unless a copy was requested;
        on a managed server they get an empty database. Nothing is created, marked or copied then.
        """
        return self.workload.alone and self.from_database is None and self.target.dsn is not None

    @property
    def node_names(self) -> tuple[str, ...]:
        return (*self.target.node_names, *(("pool",) if self.pool else ()))


def spec_of(request: Request) -> dict[str, Any]:
    """The options that make this request, by name, as they are typed; see spec/spec.py.

    The load, the target, and the seed of a background workload are those of the whole trial.
    """
    trial, target, load = request.trial, request.target, request.trial.load
    workload, command = request.workload, request.workload.command
    alone = command if command is not None and workload.reference is None else None
    paced, generators = load.model == "paced", trial.generators
    how = (trial.continue_on_error, trial.exit_on_abort, trial.recover)
    rate = None if load.rate is None else f"{exact(load.rate)}/s"
    on_server = target.dsn is not None

    def time(ns: int | None) -> str | None:
        return None if ns is None else duration_text(ns)

    values = {
        "workload": None if workload.users and not workload.users_file else workload.reference,
        "files": [_file(each) for each in workload.scripts if _is_file(each)] or None,
        "command": alone and str(alone),
        "input": (alone and list(alone.input)) or None,
        "rows": alone and alone.rows,
        **{f"scripts.{each.name}": each.weight for each in choose(workload, request.scripts)},
        "clients": None if paced else trial.clients,
        "users": trial.clients if paced else None,
        "rate": None if paced else rate,
        "pace": rate if paced else None,
        "arrivals": load.arrivals if rate else None,
        "think_time": time(load.think_ns) if load.model == "closed" else None,
        "think": None if load.think == "none" else load.think,
        "shape": load.shape.text,
        "start_every": time(trial.start_every_ns)
        if trial.start_every_ns or "start_every" in workload.load else None,
        "latency_limit": time(trial.limit_ns),
        **{f"latency_limit.{name}": time(ns) for name, ns in trial.limits},
        "missed": request.missed_max,
        "duration": time(trial.duration_ns),
        **{name: getattr(trial, name) for name in (
            "policy", "transactions", "protocol", "threads", "poll", "seed", "max_tries")},
        **{name: getattr(trial, name) or None for name in (
            "describe", "connect_each", "keep_going")},
        "warmup": time(trial.warmup_ns),
        "grace": time(trial.grace_ns),
        "generators": None if generators is None
        else f"ssh:{','.join(generators.hosts)}" if generators.hosts else generators.count,
        "cluster": generators and generators.cluster,
        "insecure_cluster": (generators and generators.insecure) or None,
        **{f"define.{name}": value for name, value in trial.variables},
        **{f"set.{name}": value for name, value in trial.settings},
        **{f"on_connect.{at}": sql for at, sql in enumerate(trial.on_connect)},
        "on_error": next((name for name, each in ON_ERROR.items() if each == how), None),
        "verbose_errors": trial.verbose or None,
        "scale": request.scale,
        "data_seed": request.data_seed,
        "from_database": targets.source(request.from_database),
        "guard": trial.guard if on_server else None,
        "target": targets.target(target.dsn or "", **dict(target.overrides)) if on_server else None,
        **{name: getattr(target, name) or None for name in (
            "server", "data_dir", "own", "fresh", "observe_command", "standbys")},
        "tls": target.tls,
        **{f"server_set.{name}": value for name, value in target.server_settings},
        **{f"target_node.{name}": targets.target(dsn) for name, dsn in target.nodes},
        "node": request.node,
        **{f"node.{name}": node for name, node in request.nodes},
        "pool": request.pool and request.pool.pooler,
        "pool_mode": request.pool and request.pool.mode,
        "pool_size": request.pool and request.pool.size,
        "on_store_error": request.on_store_error,
        "costs": None if request.costs is None else to_builtins(request.costs),
    }  # fmt: skip
    for name, other in request.background:
        own = {"workload": other.workload.name, **spec_of(other)}
        values |= {f"background.{name}.{key}": own[key] for key in own if key not in _OF_A_TRIAL}
    return {name: value for name, value in values.items() if value is not None}


def _is_file(script: WorkloadScript) -> bool:
    """Not the standard input, which cannot be read again, nor a built-in script of pgbench."""
    return script.source == script.name and script.source[:1] not in ("-", "<")


def _file(script: WorkloadScript) -> str:
    plain = script.weight == 1 and "@" not in script.name
    return script.name if plain else f"{script.name}@{script.weight}"


def request_of(
    base: Workload,
    options: CellOptions,
    target: TargetPlan,
    *,
    consent: trust.Consent = trust.refuse,
    **more: Any,
) -> Request:
    """The trial of a workload by these options; more: other fields of it. Raises PlanError."""
    request = Request(
        workload=base,
        trial=options.trial,
        target=target,
        scale=options.scale,
        data_seed=options.data_seed,
        scripts=options.scripts,
        node=options.node,
        nodes=options.nodes,
        **{"pool": options.pool_plan, **more},
    )
    return replace(request, background=backgrounds(request, options.background, consent))


def run_of(
    workload: Workload,
    values: Mapping[str, Any],
    background: Mapping[str, Levels],
    *,
    consent: trust.Consent,
    host_file: str | Path | None = None,
    **more: Any,
) -> Request:
    """The run of a workload.

    values: of options by name, as `options.defaults` has them. background: the levels of each
    background workload. host_file: with the costs of the machine. more: other fields of the
    request. Raises PlanError, TrustError.
    """
    where = target_of(values, alone=workload.alone)
    cell_options = levels.cell_options(values, workload.load, background=background)
    priced = costs_of_target(where, host_file)
    return request_of(
        workload, cell_options, where, consent=consent, occasion="run", costs=priced, **more
    )


def costs_of_target(target: TargetPlan, named: str | Path | None = None) -> Costs | None:
    """The costs of a run's machine: from the named file, else from this machine's.

    None if the server is elsewhere and no file is named. Raises PlanError, TlsError.
    """
    from pgpaces.spec import host_file

    if named is None and target.dsn is not None:
        connection = generator.resolve(target.dsn, **dict(target.overrides))
        if not is_local(for_driver(connection)):
            return None
    return host_file.find(named)


def target_of(values: Mapping[str, Any], *, alone: bool = False) -> TargetPlan:
    """The target of a run; alone: of scripts without a workload. Raises PlanError."""
    if alone and values["own"] is not None:
        raise PlanError("own-without-workload")
    if values["target"] is not None:
        for name in ("server", "data_dir", "profile", "tls", "standbys", "pool", "server_set"):
            if values[name] or values[name] is False:
                raise PlanError("managed-only", option=options.BY_NAME[name].word)
    elif values["observe_command"] is not None:
        raise PlanError("option-needs", option="--observe-command", needed="--target")
    elif values["target_node"]:
        raise PlanError("node-without-target")
    elif values["own"] is not None:
        raise PlanError("own-without-target")
    settings = pairs(values["server_set"], "--server-set")
    if values["profile"] is not None:
        own = {**profiles.find(values["profile"]).settings, **dict(settings)}
        settings = tuple(own.items())
    return TargetPlan(
        dsn=values["target"],
        observe_command=values["observe_command"],
        server=values["server"],
        data_dir=values["data_dir"],
        own=values["own"],
        fresh=values["fresh"],
        server_settings=settings,
        tls=values["tls"],
        standbys=values["standbys"] or 0,
        nodes=node_addresses(values["target_node"]),
    )


def node_addresses(values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """NAME=DSN texts of servers that belong to a target. Raises PlanError."""
    addresses = pairs(values, "--target-node")
    for name, _ in addresses:
        if not re.fullmatch(r"standby[1-9][0-9]?|pool", name):
            choices = ("standby1", "standby2", "...", "pool")
            raise PlanError("not-a-choice", what="--target-node", value=name, choices=choices)
    return addresses


def background_levels(several: Mapping[str, tuple[str, ...]]) -> dict[str, dict[str, str]]:
    """The levels of background workloads, by name: a run has one of each. Raises PlanError."""
    for name, texts in several.items():
        levels.check_name(name)
        if len(texts) != 1:
            raise PlanError("several-levels", factor=name, levels=texts)
    return levels.background_of({name: texts[0] for name, texts in several.items()})


def backgrounds(
    main: Request, workloads: Mapping[str, Levels], consent: trust.Consent = trust.refuse
) -> tuple[tuple[str, Request], ...]:
    """The background workloads of a trial, from their levels, by name.

    They begin and end with it. One without init steps, or with the same data, works on its
    database. consent: whether their folders may execute programs. Raises PlanError, TrustError.
    """
    requests = []
    for name, each in workloads.items():
        try:
            requests.append((name, _background(main, name, dict(each), consent=consent)))
        except PlanError as error:
            raise error.at(f"background {name}") from None
    return tuple(requests)


def _background(
    main: Request, name: str, own: dict[str, str], *, consent: trust.Consent
) -> Request:
    text = own.pop("workload", name)
    if text.endswith(".sql"):  # it works on the data of the main workload
        base = workload.of_scripts(text, [trust.script(text, 1, consent)])
    else:
        base = trust.find(text, consent)
    if (variant := own.get("variant")) is not None:
        base = trust.variant(base, variant, consent)
    options = levels.options_of(own, base.load, main.trial.seed)
    trial = replace(
        options.trial,
        duration_ns=main.trial.duration_ns or _UNTIL_ENDED_NS,
        transactions=None,
        warmup_ns=0 if main.trial.transactions is not None else main.trial.warmup,
        settings=main.trial.settings,
    )
    target = replace(main.target, own=None, fresh=False)
    return request_of(base, replace(options, trial=trial), target, pool=main.pool)


def shares_data(main: Request, other: Request) -> bool:
    if not other.workload.init:
        return True
    if main.from_database is not None or main.as_is or main.target.own is not None:
        return False
    return data.fingerprints(dataset_of(main)) == data.fingerprints(dataset_of(other))


def dataset_of(request: Request) -> DatasetSpec:
    return DatasetSpec(
        request.workload,
        request.scale or request.workload.scale,
        request.data_seed,
        own=request.target.own,
        fresh=request.target.fresh,
        from_database=request.from_database,
        occasion=request.occasion,
        variables={**request.workload.variables, **dict(request.trial.variables)},
    )


def check(request: Request) -> None:
    """Raises PlanError, ScriptError, TrustError for an invalid request. Starts nothing."""
    trust.check(request.workload)
    if not request.as_is and request.scale is not None:
        whole(request.scale, "scale", 1, high=_SCALE_MAX)
    whole(request.data_seed, "data_seed", 0, high=SEED_MAX)
    scripts = choose(request.workload, request.scripts)
    if not any(script.weight for script in scripts):
        raise PlanError("no-script-runs", script=scripts[0].name)
    request.trial.limits_of([script.name for script in scripts])
    bulk.check(request.workload, request.trial)
    check_users(request.workload, request.trial)
    dealt.check(request.trial, request.target)
    commands_of(request.workload, scripts)
    if request.pool is not None:
        _check_pool(request)
    for name, node in request.nodes:
        if name not in {script.name for script in scripts}:
            listed = [script.name for script in scripts]
            raise PlanError("node-of-other-script", script=name, node=node, scripts=listed)
    names = request.node_names
    where = [nodes_of(node_of(request, script.name, names), names) for script in scripts]
    if request.trial.clients is not None:
        busy = zip(scripts, where, strict=True)
        servers = {node for script, own in busy for node in own if script.weight}
        check_clients(request.trial.clients, len(servers))
    for name, other in request.background:
        try:
            check(other)
        except PlanError as error:
            raise error.at(f"background {name}") from None


def check_users(workload: Workload, trial: TrialPlan) -> None:
    """Raises PlanError, WorkloadError for options that Python users do not support."""
    if (users := workload.users) is None:
        return
    tasks = {task.name: task for task in users.tasks}
    if any(script.name not in tasks for script in workload.scripts):
        raise PlanError("runs-no-scripts", workload=workload.name, kind="Python")
    for name, usual in ONLY_OF_SCRIPTS.items():
        if name != "threads" and getattr(trial, name) != usual:
            raise PlanError("scripts-only", option=f"--{name.replace('_', '-')}")
    if not trial.continue_on_error or trial.backlog != "serve":
        raise PlanError("scripts-only", option="--on-error")
    variables = {"scale": "1", **workload.variables, **dict(trial.variables)}
    for each in (*(task.function for task in users.tasks), *filter(None, [users.setup])):
        call(each, variables, task=each is not users.setup)


def check_clients(clients: int, servers: int) -> None:
    """Raises PlanError if a server would get no client."""
    if clients < servers:
        raise PlanError("too-few-clients", clients=clients, servers=servers)


def _check_pool(request: Request) -> None:
    """Raises PlanError, ServerError for an invalid pool, or one that cannot carry the load."""
    assert request.pool is not None
    if request.target.dsn is not None:
        raise PlanError("managed-only", option="pool")
    if request.target.tls is not None:
        raise PlanError("pool-without-tls")
    program = pooler.find(request.pool.pooler)
    pooler.check(request.pool, program, request.trial.protocol)
    scripts = [script.name for script in choose(request.workload, request.scripts)]
    pooled = {node_of(request, name, request.node_names) for name in scripts} == {POOL}
    if pooled and request.trial.clients is not None and not request.trial.connect_each:
        pooler.check_slots(request.pool, request.trial.clients)


def node_of(request: Request, script: str, nodes: Sequence[str]) -> str:
    """The node of a script: as requested, else the pool if there is one, else the primary."""
    default = POOL if POOL in nodes else PRIMARY
    return dict(request.nodes).get(script, request.node or default)


def nodes_of(name: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """The nodes that a name stands for. Raises PlanError if there are none."""
    standbys = tuple(node for node in nodes if node.startswith("standby"))
    several = {STANDBYS: standbys, ANY: (PRIMARY, *standbys)}
    if match := several.get(name, (name,) if name in nodes else ()):
        return match
    valid = [*nodes, ANY, *([STANDBYS] if standbys else [])]
    raise PlanError("unknown-node", node=name, nodes=valid)


def commands_of(
    workload: Workload, scripts: Sequence[WorkloadScript]
) -> list[Sequence[ScriptCommand]]:
    """The commands of each script; programs and functions have none. Raises ScriptError."""
    if not workload.is_scripts:
        return [[] for _ in scripts]
    return [commands_in(source_of(script), script.text) for script in scripts]


def source_of(script: WorkloadScript) -> str:
    return script.source or f"{script.name}.sql"


def choose(
    workload: Workload, selection: Sequence[tuple[str, int | None]]
) -> tuple[WorkloadScript, ...]:
    """The scripts of a workload that run, all by default. Raises PlanError for unknown ones."""
    if not selection:
        return workload.scripts
    scripts = {script.name: script for script in workload.scripts}
    for name, _ in selection:
        if name not in scripts:
            raise PlanError(
                "unknown-task" if workload.users else "unknown-script",
                workload=workload.name,
                script=name,
                near=similar(name, scripts),
                known=list(scripts),
            )
    return tuple(
        scripts[name] if weight is None else replace(scripts[name], weight=weight)
        for name, weight in selection
    )
