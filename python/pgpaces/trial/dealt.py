"""Loads of several generators, as trials run them: their limitations, and the part of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec.structs import replace

from pgpaces.core.errors import PlanError
from pgpaces.core.locality import is_loopback
from pgpaces.core.texts import Say
from pgpaces.database.specification import typed
from pgpaces.load import engine as generator
from pgpaces.load.cluster.workers import Clusters, Workers
from pgpaces.load.composite import RunningLoad
from pgpaces.spec.load import GeneratorsPlan, TrialPlan
from pgpaces.spec.setup import GeneratorFacts
from pgpaces.spec.target import TargetPlan, without_secrets
from pgpaces.trial.site import without_pg_variables

if TYPE_CHECKING:
    from pgpaces.load.cluster.load import DealtLoad
    from pgpaces.trial.components import ComponentLoad

__all__ = ["Clusters", "check", "generated", "load", "workers"]
# Keywords that mean something on this machine alone.
_ONLY_HERE = frozenset(("passfile", "service", "servicefile", "fallback_application_name"))


def check(trial: TrialPlan, target: TargetPlan) -> None:
    """Raises PlanError if generators would not reach the server, or would receive a secret.

    Where the workers of a scheduler at a loopback address are is known by `workers` alone.
    """
    plan = trial.generators
    local = plan is None or plan.here or is_loopback(urlsplit(plan.cluster or "").hostname or "")
    if plan is not None and not local:
        _check_elsewhere(plan, target)


def _check_elsewhere(plan: GeneratorsPlan, target: TargetPlan) -> None:
    if target.dsn is None:
        raise PlanError("managed-server-out-of-reach")
    if plan.hosts or plan.cluster is None or plan.cluster.startswith("tls://"):
        return
    if not plan.insecure:
        raise PlanError("cluster-without-tls", cluster=plan.cluster)
    if any(set(_typed_at(target, node)) - {"service"} for node in target.node_names):
        raise PlanError("password-without-tls", cluster=plan.cluster)


def workers(clusters: Clusters, plan: GeneratorsPlan, target: TargetPlan, *, say: Say) -> Workers:
    """Places for generators that may load a target. Raises PlanError, RunError."""
    # For the connections of this process; generators receive theirs in their order.
    with without_pg_variables():
        places = clusters.workers(plan, say)
    if not places.here:
        _check_elsewhere(plan, target)
    return places


def _typed_at(target: TargetPlan, node: str) -> dict[str, str]:
    nodes = dict(target.nodes)
    return typed(nodes[node]) if node in nodes else dict(target.typed) or typed(target.dsn or "")


def load(component: ComponentLoad, connection: generator.Connection, places: Workers) -> DealtLoad:
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
        keywords=_keywords(component, connection, here=places.here),
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
    node = "" if component.node == "primary" else component.node
    return DealtLoad(places, dealt, " ".join(filter(None, (component.work.name, node))))


def generated(loads: Iterable[RunningLoad]) -> tuple[GeneratorFacts, ...]:
    from pgpaces.load.cluster.load import DealtLoad

    return tuple(each for load in loads if isinstance(load, DealtLoad) for each in load.generated)


def _keywords(
    component: ComponentLoad, connection: generator.Connection, *, here: bool
) -> dict[str, str]:
    """The connection of a generator; elsewhere it finds a password itself that was not typed."""
    if here:
        return generator.for_driver(connection)
    shown = without_secrets(connection.keywords)
    keywords = {name: value for name, value in shown.items() if name not in _ONLY_HERE}
    # It looks a service that was typed up in its own files, which may have the password.
    return keywords | _typed_at(component.work.request.target, component.node)
