"""The component loads of a trial: scripts of one workload on one server, with their own clients.

A trial has one component unless its scripts go to several servers, or it has background workloads.
Each component of an open load has its share of the rate: independent Poisson streams add up to
one stream with the sum of the rates. Each has its share of clients or users, at least one.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.core.findings import Finding, finding
from pgpaces.core.texts import encoded
from pgpaces.database import identity, settings
from pgpaces.database.access import Access
from pgpaces.database.settings import Applied
from pgpaces.load import engine as generator
from pgpaces.load.command import CommandLoad
from pgpaces.load.composite import RunningLoad
from pgpaces.load.python_users.load import UsersLoad, user_connection
from pgpaces.spec.load import TrialPlan
from pgpaces.spec.setup import ComponentFacts, PoolFacts, Prepared
from pgpaces.spec.target import without_secrets
from pgpaces.spec.workload import WorkloadScript
from pgpaces.trial.request import PRIMARY, Request, shares_of, source_of, typed_at, weights_at
from pgpaces.trial.site import Site

if TYPE_CHECKING:
    from pgpaces.load.cluster.load import DealtLoad
    from pgpaces.load.cluster.workers import Workers

# Connections reserved for a command: programs that load data open several.
_OF_COMMAND = 16
# Clients of a thread and Python users of a process, at least, if no number is requested.
_OF_A_THREAD, _OF_A_PROCESS = 16, 8
# Keywords that mean something on this machine alone.
_ONLY_HERE = frozenset(("passfile", "service", "servicefile", "fallback_application_name"))
_SEEDS = 0x9E37_79B9_7F4A_7C15  # the golden ratio of 2^64: far from each other


class Work(Struct, frozen=True):
    """A workload whose data stands ready. name: of a background workload; "" for the trial's."""

    name: str
    request: Request
    prepared: Prepared

    def variables(self) -> dict[str, str]:
        request = self.request
        own = request.workload.variables
        return {"scale": str(request.scale), **own, **dict(request.trial.variables)}


class ComponentLoad(Struct, frozen=True):
    """Scripts of a workload that go to a node, with their weights there.

    plan: with its share of the load. labels: the names of its scripts in the trial. local: the
    server runs on this machine. command: of a workload that times one, ready to run.
    """

    work: Work
    node: str
    scripts: tuple[WorkloadScript, ...]
    plan: TrialPlan
    labels: tuple[str, ...]
    local: bool
    command: CommandLoad | None = None

    @property
    def clients(self) -> int:
        return self.plan.clients or 1

    @property
    def clients_each(self) -> int:
        return _OF_A_THREAD if self.work.request.workload.users is None else _OF_A_PROCESS

    def engine_plan(self) -> generator.EnginePlan:
        cpus = os.cpu_count() or 1
        if hasattr(os, "sched_getaffinity"):
            cpus = len(os.sched_getaffinity(0))
        threads = self.plan.threads or threads_for(
            self.clients, cpus, each=self.clients_each, local=self.local
        )
        decided = replace(self.plan, variables=tuple(self.work.variables().items()))
        names = [script.name for script in self.scripts]
        return generator.EnginePlan.of(decided, self.clients, threads, scripts=names)

    def load(self, connection: generator.Connection, workers: Workers | None = None) -> RunningLoad:
        """The connected load. workers: those of several generators. Raises PgpacesError."""
        if self.command is not None:
            return self.command
        if workers is not None:
            return _dealt(self, connection, workers)
        if (users := self.work.request.workload.users) is not None:
            names = [(script.name, script.weight) for script in self.scripts]
            way = user_connection(connection, self.work.variables())
            return UsersLoad(self.engine_plan(), users, names, way=way)
        return generator.Engine(self.engine_plan(), self.texts(), connection)

    def texts(self) -> tuple[generator.ScriptText, ...]:
        return tuple((source_of(s), s.weight, encoded(s.text)) for s in self.scripts)

    def facts(self) -> ComponentFacts:
        plan, own = self.plan, dict(self.plan.limits)
        limits = (
            (label, own.get(s.name)) for label, s in zip(self.labels, self.scripts, strict=True)
        )
        return ComponentFacts(
            of=self.work.name,
            node=self.node,
            scripts=self.labels,
            load=plan.load,
            clients=self.clients,
            seed=plan.seed,
            limit_ns=plan.limit_ns,
            limits=tuple((label, ns) for label, ns in limits if ns not in (None, plan.limit_ns)),
        )


class ReadyTrial(Struct, frozen=True):
    """A trial whose data and servers stand ready.

    works: its own workload, and background workloads. nodes: access to its servers, and to a pool,
    whose facts are in `pool`.
    """

    request: Request
    works: tuple[Work, ...]
    site: Site
    applied: Applied
    components: tuple[ComponentLoad, ...]
    nodes: Mapping[str, Access]
    pool: PoolFacts

    @property
    def prepared(self) -> Prepared:
        return self.works[0].prepared

    def way(self, node: str, dbname: str) -> generator.Connection:
        """The connection to a database on a node, with the requested session settings."""
        access = self.nodes[node]
        present = access.keywords.get("options", "")
        overrides = {k: v for k, v in access.keywords.items() if k != "options"}
        overrides["dbname"] = dbname
        overrides["options"] = settings.as_options(present, self.applied.options)
        overrides["application_name"] = overrides.get("application_name") or "pgpaces"
        return generator.resolve("", **overrides)

    def connection(self, component: ComponentLoad) -> generator.Connection:
        return self.way(component.node, component.work.prepared.dbname)

    def primary(self) -> generator.Connection:
        """The connection to the primary, whose counters and facts are the trial's."""
        return self.way(PRIMARY, self.prepared.dbname)


def as_superuser(where: Site, request: Request) -> Finding | None:
    """A finding if unconfirmed workloads run as a superuser on an external server, else None."""
    every = (request, *(other for _, other in request.background))
    names = [each.workload.name for each in every if not each.workload.trusted]
    if not names or where.managed or not identity.is_superuser(where.access):
        return None
    return finding("unconfirmed-superuser", workloads=names)


def _dealt(
    component: ComponentLoad, connection: generator.Connection, places: Workers
) -> DealtLoad:
    """The load of several generators, each with its share of the clients. Raises PgpacesError."""
    from pgpaces.load.cluster.load import DealtLoad
    from pgpaces.load.cluster.protocol import LoadOrder
    from pgpaces.load.python_users.load import by_value

    users = component.work.request.workload.users
    if users is not None:
        places.check_users()
    order = LoadOrder(
        plan=component.engine_plan(),
        scripts=component.texts()
        if users is None
        else tuple((task.name, task.weight, b"") for task in component.scripts),
        keywords=keywords_for_generator(component, connection, here=places.here),
        users=b"" if users is None else by_value(users),
        variables=component.work.variables(),
        elsewhere=not places.here,
    )
    first, dealt = 0, []
    # A load with fewer clients has as many generators.
    used = places.workers[: component.clients]
    for place, worker in enumerate(used):
        clients = (component.clients - first) // (len(used) - place)
        threads = component.plan.threads or worker.threads(clients, component.clients_each)
        own = replace(order.plan, clients=clients, part=(first, component.clients), threads=threads)
        dealt.append((worker, replace(order, plan=own)))
        first += clients
    node = "" if component.node == PRIMARY else component.node
    return DealtLoad(places, dealt, " ".join(filter(None, (component.work.name, node))))


def keywords_for_generator(
    component: ComponentLoad, connection: generator.Connection, *, here: bool
) -> dict[str, str]:
    """The connection of a generator; elsewhere it finds a password itself that was not typed."""
    if here:
        return generator.for_driver(connection)
    shown = without_secrets(connection.keywords)
    keywords = {name: value for name, value in shown.items() if name not in _ONLY_HERE}
    # It looks a service that was typed up in its own files, which may have the password.
    return keywords | typed_at(component.work.request.target, component.node)


def threads_for(clients: int, cpus: int, *, each: int, local: bool) -> int:
    """The threads of a load for which no number was requested, each with enough clients.

    They leave half of the CPUs to a server on the same machine, and one to everything else on a
    machine without the server.
    """
    most = cpus // 2 if local else cpus - 1
    return max(1, min(most, clients // each))


def component_loads(
    works: Sequence[Work], nodes: Sequence[str], most: int, *, local: bool = True
) -> tuple[ComponentLoad, ...]:
    """The component loads of these workloads, the trial's own first. nodes: names of all.

    most: clients of all loads for which no number was requested. local: the server runs on this
    machine. Raises PlanError.
    """
    if any(work.request.workload.command is not None for work in works):
        most = max(1, most - _OF_COMMAND)
    chosen = [w for w in works if w.request.trial.clients is None]
    each = max(1, most // max(1, len(chosen)))
    components = (part for work in works for part in _of_work(work, nodes, each, local=local))
    return tuple(
        replace(part, plan=replace(part.plan, seed=(part.plan.seed + number * _SEEDS) % 2**64))
        for number, part in enumerate(components)
    )


def _of_work(
    work: Work, nodes: Sequence[str], most: int, *, local: bool
) -> Iterator[ComponentLoad]:
    plan, scripts = work.request.trial, work.request.scripts
    weights = weights_at(work.request, nodes)
    shares = {node: sum(own.values(), Fraction()) for node, own in weights.items()}
    clients = shares_of(plan.clients_for(most), list(shares.values()))
    total = sum(shares.values(), Fraction())
    # Weights are integers, also those of a script that goes to several nodes.
    parts = math.lcm(*(w.denominator for own in weights.values() for w in own.values()))
    nodes_of = Counter(place for own in weights.values() for place in own)
    for (node, own), count in zip(weights.items(), clients, strict=True):
        load = plan.load
        if load.model == "open" and load.rate is not None and len(weights) > 1:
            load = replace(load, rate=load.rate * float(shares[node] / total))
        here = tuple(replace(scripts[place], weight=int(own[place] * parts)) for place in own)
        names = [f"{work.name}/{s.name}" if work.name else s.name for s in here]
        labels = tuple(
            f"{name} on {node}" if nodes_of[place] > 1 else name
            for place, name in zip(own, names, strict=True)
        )
        limits = tuple((name, ns) for name, ns in plan.limits if name in {s.name for s in here})
        share = replace(plan, load=load, clients=count, limits=limits)
        yield ComponentLoad(work, node, here, share, labels, local)
