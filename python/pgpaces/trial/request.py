"""The request of a trial, from its options, and its check. Starts nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from msgspec import field
from msgspec.structs import replace

from pgpaces.core.errors import PlanError, similar
from pgpaces.core.hidden_fields import Redacted
from pgpaces.core.home import is_there
from pgpaces.core.locality import is_local, is_loopback
from pgpaces.core.units import digits, duration_text
from pgpaces.database.access import typed
from pgpaces.database.data import DatasetSpec
from pgpaces.load import engine as generator
from pgpaces.load.engine import for_driver
from pgpaces.server import pooler, profiles
from pgpaces.spec import costs, options, trust, workload
from pgpaces.spec import spec as specs
from pgpaces.spec.costs import Costs
from pgpaces.spec.load import GeneratorsPlan, TrialPlan, family, trial_plan
from pgpaces.spec.result import Place
from pgpaces.spec.setup import ScriptCommand, ServerFacts
from pgpaces.spec.spec import Spec
from pgpaces.spec.target import PoolPlan, TargetPlan
from pgpaces.spec.users import call
from pgpaces.spec.workload import Workload, WorkloadScript, commands_in
from pgpaces.trial.target_server import shown_source, shown_target

# The duration of a background workload of a trial that ends by count: it ends with the trial.
_UNTIL_ENDED_NS = 30 * 86_400 * 1_000_000_000
# Names of a spec that are stored as the workload and the target have them, without passwords.
_RESOLVED = (
    *("workload", "files", "variant", "command", "input", "rows", "from_database"),
    *("profile", "target", "observe_command"),
)
_POOLERS = "--pool pgbouncer or --pool pgpool"
# Options that a background workload has of its own.
_OF_BACKGROUND = {name for name, option in options.FACTORS.items() if not option.whole} | {"define"}
PRIMARY, STANDBYS, ANY, POOL = "primary", "standbys", "any", "pool"

OnStoreError = Literal["continue", "stop"]


class Request(Redacted, frozen=True):
    """A trial to run: its workload, options and server.

    spec: its options as the trial stores them, without a password, see spec/spec.py. trial: what
    they mean for the load. target: where the load goes. keep: store the trial. place: of the trial
    in its experiment, if any. from_database: the database whose copy is measured instead of the
    workload's data; one copy for a run or an experiment. observe: sample the server during the
    load, and read plans after it. pool: a pooler in front of a managed server. background: other
    workloads that run during this one, by name. expected: facts of the server in the earlier trials
    with which this one is compared. costs: of the server's machine. temporary: no other command
    uses the copy of from_database.
    """

    REDACTED: ClassVar = ("from_database", "expected")  # not in the repr: may hold a password
    workload: Workload
    trial: TrialPlan
    target: TargetPlan = field(default_factory=TargetPlan)
    spec: Spec = field(default_factory=dict)
    store: Path | str | None = None
    keep: bool = True
    place: Place | None = None
    from_database: str | None = None
    observe: bool = True
    pool: PoolPlan | None = None
    background: tuple[tuple[str, Request], ...] = ()
    expected: ServerFacts | None = None
    costs: Costs | None = None
    temporary: bool = False

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

    @property
    def scale(self) -> int:
        usual = 1 if self.as_is else self.workload.scale
        found: int = self.spec.get("scale", usual)
        return found

    @property
    def scripts(self) -> tuple[WorkloadScript, ...]:
        """The scripts that run, with their weights. Raises PlanError for unknown ones."""
        words = self.spec.get("scripts", "").split()
        return choose(self.workload, [options.weighted(word) for word in words])


def request_of(
    asked: Spec,
    base: Workload,
    *,
    target: TargetPlan | None = None,
    consent: trust.Consent = trust.refuse,
    auto: bool = False,
    on_store_error: OnStoreError = "continue",
    **more: Any,
) -> Request:
    """The trial of a spec. Raises PlanError, TrustError.

    on_store_error: while the store refuses writes, continue in memory, or let nothing new fall due.
    auto: see `complete`. target: an external server, if it is resolved. consent: whether folders
    of background workloads may execute programs. more: other fields of the request.
    """
    values = specs.complete(specs.read(asked), base.load, auto=auto)
    where = target_of(values, alone=base.alone)
    own = {"pool": pool_of(values), "from_database": values.get("from_database"), **more}
    request = Request(base, trial_plan(values), target or where, **own)
    request = replace(request, background=backgrounds(request, values, consent))
    return replace(request, spec=_stored(request, {**values, "on_store_error": on_store_error}))


def with_fields(request: Request, **fields: Any) -> Request:
    """The request with fields of its trial that are no options; its spec tells them too."""
    told = {name: value for name, value in fields.items() if isinstance(value, str | int | bool)}
    spec = dict(request.spec)
    if "limits" in fields:
        told |= {f"latency_limit.{name}": duration_text(ns) for name, ns in fields["limits"]}
        fields["limits"] = trial_plan({"clients": 1, **told}).limits  # raises for impossible ones
        spec = {n: value for n, value in spec.items() if not n.startswith("latency_limit.")}
    trial = replace(request.trial, **fields)
    return replace(request, trial=trial, spec={**spec, **told})


def _stored(request: Request, values: Spec) -> dict[str, Any]:
    """The spec of a request as it is stored: complete, and without a password."""
    target, base = request.target, request.workload
    alone = base.command if base.reference is None else None
    on_server = target.dsn is not None
    found = {
        "workload": None if base.users and not base.users_file else base.reference,
        "files": _files(base.scripts) or None,
        "command": alone and str(alone),
        "input": (alone and list(alone.input)) or None,
        "rows": alone and alone.rows,
        **{n: value for n, value in values.items()
           if n not in _RESOLVED and n.partition(".")[0] not in ("background", "target_node")},
        "from_database": shown_source(request.from_database),
        "target": shown_target(target.dsn or "", **dict(target.overrides)) if on_server else None,
        "observe_command": target.observe_command,
        **{f"server_set.{name}": value for name, value in target.server_settings},
        **{f"target_node.{name}": shown_target(dsn) for name, dsn in target.nodes},
    }  # fmt: skip
    for name, other in request.background:
        found[f"background.{name}.workload"] = other.workload.reference or other.workload.name
        own = (n for n in other.spec if n.partition(".")[0] in _OF_BACKGROUND)
        found |= {f"background.{name}.{n}": other.spec[n] for n in own}
    dropped = {n for n in found if n in options.BY_NAME and options.BY_NAME[n].default is False}
    return {n: v for n, v in found.items() if v is not None and (v or n not in dropped)}


def _files(scripts: Sequence[WorkloadScript]) -> list[str]:
    """Without the standard input, which cannot be read again, and pgbench's built-in scripts."""
    return [
        each.name if each.weight == 1 and "@" not in each.name else f"{each.name}@{each.weight}"
        for each in scripts
        if each.source == each.name and each.source[:1] not in ("-", "<")
    ]


def workload_of(
    asked: Spec, consent: trust.Consent, *, name: str = "scripts", typed: bool = False
) -> Workload:
    """The workload of a spec. Raises PlanError, WorkloadError, TrustError.

    name: of scripts without a workload. typed: the user named the scripts in this call, which
    therefore need no consent.
    """
    scripts = []
    for file in asked.get("files", ()):
        # What follows an @ is a weight, unless a file has such a name.
        plain = digits(file.rpartition("@")[2]) is None and is_there(file, Path.is_file)
        path, weight = (file, None) if plain else options.weighted(file)
        weight = 1 if weight is None else weight
        read = workload.read_script(path, weight) if typed else trust.script(path, weight, consent)
        scripts.append(read)
    variant = asked.get("variant")
    if "workload" not in asked:
        if variant is not None:
            raise PlanError("option-needs", option="--variant", needed="a workload")
        if not scripts:
            raise PlanError("nothing-to-run")
        return workload.of_scripts(name, scripts)
    base = trust.find(asked["workload"], consent)
    base = base if variant is None else trust.variant(base, variant, consent)
    return replace(base, scripts=tuple(scripts)) if scripts else base


def run_of(
    asked: Spec,
    base: Workload,
    *,
    consent: trust.Consent,
    host_file: str | Path | None = None,
    **more: Any,
) -> Request:
    """The run of a spec. host_file: with the costs of the machine. Raises as `request_of`.

    A run copies the database as it is now; an experiment uses one copy for all its trials.
    """
    copied = {"fresh": True} if "from_database" in asked else {}
    auto = base.command is None
    request = request_of({**asked, **copied}, base, consent=consent, auto=auto, **more)
    return replace(request, costs=costs_of_target(request.target, host_file))


def costs_of_target(target: TargetPlan, named: str | Path | None = None) -> Costs | None:
    """The costs of a run's machine: from the named file, else from this machine's.

    None if the server is elsewhere and no file is named. Raises PlanError, TlsError.
    """
    if named is None and target.dsn is not None:
        connection = generator.resolve(target.dsn, **dict(target.overrides))
        if not is_local(for_driver(connection)):
            return None
    return costs.find(named)


def target_of(values: Spec, *, alone: bool = False) -> TargetPlan:
    """The target of a complete spec; alone: of scripts without a workload. Raises PlanError."""
    if alone and "own" in values:
        raise PlanError("own-without-workload")
    settings = family(values, "server_set")
    if "target" in values:
        given = {**values, "server_set": settings, "pool": pool_of(values)}
        for name in ("server", "data_dir", "profile", "tls", "standbys", "pool", "server_set"):
            if given.get(name) or given.get(name) is False:
                raise PlanError("managed-only", option=options.BY_NAME[name].word)
    elif "observe_command" in values:
        raise PlanError("option-needs", option="--observe-command", needed="--target")
    elif family(values, "target_node"):
        raise PlanError("node-without-target")
    elif "own" in values:
        raise PlanError("own-without-target")
    if "profile" in values:
        settings = {**profiles.find(values["profile"]).settings, **settings}
    names = ("server", "data_dir", "own", "fresh", "tls", "standbys", "observe_command")
    return TargetPlan(
        dsn=values.get("target"),
        server_settings=tuple(settings.items()),
        nodes=node_addresses(family(values, "target_node")),
        **{name: values[name] for name in names if name in values},
    )


def node_addresses(addresses: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The servers that belong to a target, by name. Raises PlanError for names of other kinds."""
    for name in addresses:
        if not re.fullmatch(r"standby[1-9][0-9]?|pool", name):
            choices = ("standby1", "standby2", "...", "pool")
            raise PlanError("not-a-choice", what="--target-node", value=name, choices=choices)
    return tuple(addresses.items())


def pool_of(values: Spec) -> PoolPlan | None:
    """The pooler of a complete spec. Raises PlanError if it is invalid."""
    if values.get("pool", "none") == "none":
        for name in ("pool_mode", "pool_size"):
            if name in values:
                word = options.BY_NAME[name].word
                raise PlanError("option-needs", option=word, needed=_POOLERS)
        return None
    return PoolPlan(values["pool"], values["pool_mode"], values.get("pool_size"))


def backgrounds(
    main: Request, values: Spec, consent: trust.Consent = trust.refuse
) -> tuple[tuple[str, Request], ...]:
    """The background workloads of a trial, by name; one whose workload is `none` is left out.

    They begin and end with it. One without init steps, or with the same data, works on its
    database. consent: whether their folders may execute programs. Raises PlanError, TrustError.
    """
    by_name: dict[str, dict[str, Any]] = {}
    for rest, value in family(values, "background").items():
        name, _, option = rest.partition(".")
        by_name.setdefault(name, {})[option] = value
    requests = []
    for name, own in by_name.items():
        text = own.pop("workload", name)
        try:
            if text != "none":
                requests.append((name, _background(main, text, own, consent=consent)))
        except PlanError as error:
            raise error.at(f"background {name}") from None
    return tuple(requests)


def _background(
    main: Request, text: str, own: dict[str, Any], *, consent: trust.Consent
) -> Request:
    # A script works on the data of the main workload.
    what = {"files": (text,)} if text.endswith(".sql") else {**own, "workload": text}
    base = workload_of(what, consent, name=text)
    target = replace(main.target, own=None, fresh=False)
    asked = {**own, "seed": main.trial.seed}
    request = request_of(asked, base, target=target, consent=consent, pool=main.pool)
    trial = replace(
        request.trial,
        duration_ns=main.trial.duration_ns or _UNTIL_ENDED_NS,
        transactions=None,
        warmup_ns=main.trial.warmup,
        settings=main.trial.settings,
    )
    return replace(request, trial=trial)


def shares_data(main: Request, other: Request) -> bool:
    if not other.workload.init:
        return True
    if main.from_database is not None or main.as_is or main.target.own is not None:
        return False
    return dataset_of(main).identity() == dataset_of(other).identity()


def dataset_of(request: Request) -> DatasetSpec:
    return DatasetSpec(
        request.workload,
        request.scale,
        request.spec.get("data_seed", 1),
        own=request.target.own,
        fresh=request.target.fresh,
        from_database=request.from_database,
        occasion=request.place.experiment if request.place else "run",
        temporary=request.temporary,
        variables={**request.workload.variables, **dict(request.trial.variables)},
    )


def check(request: Request) -> None:
    """Raises PlanError, ScriptError, TrustError for an invalid request. Starts nothing."""
    trust.check(request.workload)
    scripts = request.scripts
    if not any(script.weight for script in scripts):
        raise PlanError("no-script-runs", script=scripts[0].name)
    request.trial.limits_of([script.name for script in scripts])
    check_command(request.workload, request.trial)
    check_users(request.workload, request.trial)
    check_generators(request.trial.generators, request.target)
    commands_of(request.workload, scripts)
    if request.pool is not None:
        _check_pool(request)
    for name, node in family(request.spec, "node").items():
        if name not in {script.name for script in scripts}:
            listed = [script.name for script in scripts]
            raise PlanError("node-of-other-script", script=name, node=node, scripts=listed)
    clients_at(request, request.node_names)
    for name, other in request.background:
        try:
            check(other)
        except PlanError as error:
            raise error.at(f"background {name}") from None


def check_command(workload: Workload, trial: TrialPlan) -> None:
    """Raises PlanError for options that a command does not support."""
    command = workload.command
    if command is None:
        return
    if workload.scripts != (command.script,):
        raise PlanError("runs-no-scripts", workload=workload.name, kind="command")
    if trial.load.model != "closed" or trial.load.think != "none":
        raise PlanError("command-with-rate", workload=workload.name)
    several = {
        "--generators": trial.generators is not None,
        f"--clients {trial.clients}": (trial.clients or 1) > 1,
        "--start-every": bool(trial.start_every_ns),
    }
    for option, used in several.items():
        if used:
            raise PlanError("command-runs-alone", option=option)
    trial.check_without_scripts()


def check_users(workload: Workload, trial: TrialPlan) -> None:
    """Raises PlanError, WorkloadError for options that Python users do not support."""
    if (users := workload.users) is None:
        return
    tasks = {task.name: task for task in users.tasks}
    if any(script.name not in tasks for script in workload.scripts):
        raise PlanError("runs-no-scripts", workload=workload.name, kind="Python")
    trial.check_without_scripts("threads")
    if not trial.continue_on_error or trial.backlog != "serve":
        raise PlanError("scripts-only", option="--on-error")
    variables = {"scale": "1", **workload.variables, **dict(trial.variables)}
    for each in (*(task.function for task in users.tasks), *filter(None, [users.setup])):
        call(each, variables, task=each is not users.setup)


def check_generators(
    plan: GeneratorsPlan | None, target: TargetPlan, *, local: bool | None = None
) -> None:
    """Raises PlanError if generators would not reach the server, or would receive a secret.

    local: whether they are all on this machine. Where the workers of a scheduler at a loopback
    address are is known only when there is a connection to it: None counts it as local.
    """
    if local is None:
        host = urlsplit((plan and plan.cluster) or "").hostname or ""
        local = plan is None or plan.here or is_loopback(host)
    if plan is None or local:
        return
    if target.dsn is None:
        raise PlanError("managed-server-out-of-reach")
    if plan.hosts or plan.cluster is None or plan.cluster.startswith("tls://"):
        return
    if not plan.insecure:
        raise PlanError("cluster-without-tls", cluster=plan.cluster)
    if any(set(typed_at(target, node)) - {"service"} for node in target.node_names):
        raise PlanError("password-without-tls", cluster=plan.cluster)


def typed_at(target: TargetPlan, node: str) -> dict[str, str]:
    """The keywords that a user typed for a node of a target."""
    nodes = dict(target.nodes)
    return typed(nodes[node]) if node in nodes else dict(target.typed) or typed(target.dsn or "")


def _check_pool(request: Request) -> None:
    """Raises PlanError, ServerError for an invalid pool, or one that cannot carry the load."""
    assert request.pool is not None
    if request.target.dsn is not None:
        raise PlanError("managed-only", option="pool")
    if request.target.tls is not None:
        raise PlanError("pool-without-tls")
    program = pooler.find(request.pool.pooler)
    pooler.check(request.pool, program, request.trial.protocol)
    scripts = [script.name for script in request.scripts]
    pooled = {node_of(request, name, request.node_names) for name in scripts} == {POOL}
    if pooled and request.trial.clients is not None and not request.trial.connect_each:
        pooler.check_slots(request.pool, request.trial.clients)


def node_of(request: Request, script: str, nodes: Sequence[str]) -> str:
    """The node of a script: as requested, else the pool if there is one, else the primary."""
    default = POOL if POOL in nodes else PRIMARY
    found: str = request.spec.get(f"node.{script}", request.spec.get("node", default))
    return found


def nodes_of(name: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """The nodes that a name stands for. Raises PlanError if there are none."""
    standbys = tuple(node for node in nodes if node.startswith("standby"))
    several = {STANDBYS: standbys, ANY: (PRIMARY, *standbys)}
    if match := several.get(name, (name,) if name in nodes else ()):
        return match
    valid = [*nodes, ANY, *([STANDBYS] if standbys else [])]
    raise PlanError("unknown-node", node=name, nodes=valid)


def clients_at(request: Request, nodes: Sequence[str]) -> dict[str, int]:
    """The clients of a workload at each node; empty if their number was not requested.

    Raises PlanError for unknown nodes, and if a node would get no client.
    """
    weights = weights_at(request, nodes)
    if request.trial.clients is None:
        return {}
    shares = [sum(own.values(), Fraction()) for own in weights.values()]
    return dict(zip(weights, shares_of(request.trial.clients, shares), strict=True))


def weights_at(request: Request, nodes: Sequence[str]) -> dict[str, dict[int, Fraction]]:
    """The weights of scripts, by their places, at each node that has something to do."""
    weights: dict[str, dict[int, Fraction]] = {}
    for place, script in enumerate(request.scripts):
        where = nodes_of(node_of(request, script.name, nodes), nodes)
        for node in where:
            weights.setdefault(node, {})[place] = Fraction(script.weight, len(where))
    # Idle nodes are left out. If all are idle, one stays, so that the engine reports the error.
    busy = {node: own for node, own in weights.items() if any(own.values())}
    return busy or dict(list(weights.items())[:1])


def shares_of(clients: int, weights: Sequence[Fraction]) -> list[int]:
    """The clients of each share: at least one, the others by weight. Raises PlanError."""
    if clients < len(weights):
        raise PlanError("too-few-clients", clients=clients, servers=len(weights))
    total = sum(weights) or 1
    exact = [clients * weight / total for weight in weights]
    counts = [max(1, int(share)) for share in exact]
    while sum(counts) != clients:
        step = 1 if sum(counts) < clients else -1
        able = [n for n, count in enumerate(counts) if count + step >= 1]
        furthest = max(able, key=lambda n: step * (exact[n] - counts[n]))
        counts[furthest] += step
    return counts


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
