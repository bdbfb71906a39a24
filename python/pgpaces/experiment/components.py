"""The component loads of a trial: scripts of one workload that go to one server, with own clients.

A trial has one component unless its scripts go to several servers, or other workloads run beside
it. Of an open load each component has its share of the rate: independent Poisson streams add up to
one of their sum. Of clients and users each has its share, one at least.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.experiment import functions
from pgpaces.experiment.request import Request, check_clients, choose, node_of, nodes_of, source_of
from pgpaces.facts import ComponentFacts, Prepared
from pgpaces.generators import engine as generator
from pgpaces.generators.composite import RunningLoad
from pgpaces.plan import TrialPlan
from pgpaces.texts import encoded
from pgpaces.workload import WorkloadScript

# Connections that are left to a command: programs that load make several.
_OF_COMMAND = 16
# So many Python users a process has at least, where nobody asks for a number of them.
_OF_A_PROCESS = 8
_SEEDS = 0x9E37_79B9_7F4A_7C15  # the golden ratio of 2^64: far from each other


class Work(Struct, frozen=True):
    """A workload whose data stands ready.

    name: empty of the trial's own, else of one beside it.
    """

    name: str
    request: Request
    scripts: tuple[WorkloadScript, ...]
    commands: list[Sequence[generator.ScriptCommand]]
    prepared: Prepared
    scale: int

    def variables(self) -> dict[str, str]:
        """Those of the scripts: the scale, the workload's own, and what was given."""
        own = self.request.workload.variables
        return {"scale": str(self.scale), **own, **dict(self.request.trial.variables)}


class ComponentLoad(Struct, frozen=True):
    """Scripts of a work that go to a node.

    places: of its scripts among those of the work; weights: of each, here. plan: with its share of
    the load. labels: what its scripts are called in the trial.
    """

    work: Work
    node: str
    places: tuple[int, ...]
    weights: tuple[int, ...]
    plan: TrialPlan
    labels: tuple[str, ...] = ()

    @property
    def clients(self) -> int:
        """How many it has."""
        return self.plan.clients or 1

    @property
    def scripts(self) -> tuple[WorkloadScript, ...]:
        """Its scripts."""
        return tuple(
            replace(self.work.scripts[place], weight=weight)
            for place, weight in zip(self.places, self.weights, strict=True)
        )

    @property
    def commands(self) -> list[Sequence[generator.ScriptCommand]]:
        """Those of each of its scripts."""
        return [self.work.commands[place] for place in self.places]

    def engine_plan(self) -> generator.EnginePlan:
        """Its plan, with the number of threads decided."""
        half = max(1, (os.cpu_count() or 2) // 2)
        each = 64 if self.work.request.workload.users is None else _OF_A_PROCESS
        threads = self.plan.threads or max(1, min(half, self.clients // each))
        decided = replace(self.plan, variables=tuple(self.work.variables().items()))
        names = [script.name for script in self.scripts]
        return generator.EnginePlan.of(decided, self.clients, threads, names)

    def load(self, connection: generator.Connection) -> RunningLoad:
        """It, connected. Raises PgpacesError."""
        if self.work.request.workload.users is not None:
            return functions.load(self, connection)
        texts = [(source_of(s), s.weight, encoded(s.text)) for s in self.scripts]
        return generator.Engine(self.engine_plan(), texts, connection)

    def facts(self) -> ComponentFacts:
        """What a record of the trial says of it."""
        return ComponentFacts(
            of=self.work.name,
            workload=self.work.request.workload.name,
            node=self.node,
            scripts=self.labels,
            load_text=str(self.plan.load),
            model=self.plan.load.model,
            rate=self.plan.load.rate,
            clients=self.clients,
            seed=self.plan.seed,
            limit_ns=self.plan.limit_ns,
            limits=limits([self], self.plan.limit_ns),
            policy=self.plan.policy,
            dbname=self.work.prepared.dbname,
        )


def component_loads(
    works: Sequence[Work], nodes: Sequence[str], free: int | None
) -> tuple[ComponentLoad, ...]:
    """The component loads of these works, the trial's own first. nodes: names of all.

    free: connections that the server has left; None where it does not say. Raises PlanError.
    """
    if free is not None and any(work.request.workload.command is not None for work in works):
        free = max(1, free - _OF_COMMAND)
    found = [component for work in works for component in _of_work(work, nodes, free)]
    named = []
    for number, component in enumerate(found):
        before = f"{component.work.name}/" if component.work.name else ""
        behind = f" on {component.node}"
        labels = tuple(
            f"{before}{script.name}{behind if _goes_twice(component.work, place, found) else ''}"
            for place, script in zip(component.places, component.scripts, strict=True)
        )
        seed = (component.plan.seed + number * _SEEDS) % 2**64
        named.append(replace(component, labels=labels, plan=replace(component.plan, seed=seed)))
    return tuple(named)


def _goes_twice(work: Work, place: int, among: Sequence[ComponentLoad]) -> bool:
    """Whether a script goes to several nodes."""
    return sum(component.work is work and place in component.places for component in among) > 1


def _of_work(work: Work, nodes: Sequence[str], free: int | None) -> Iterator[ComponentLoad]:
    plan = work.request.trial
    weights = _weights(work.request, work.scripts, nodes)
    shares = {node: sum(found.values(), Fraction()) for node, found in weights.items()}
    clients = _shares(plan.clients_for(free), list(shares.values()))
    total = sum(shares.values(), Fraction())
    # Weights are whole numbers, also of a script that goes to several nodes.
    parts = math.lcm(*(w.denominator for found in weights.values() for w in found.values()))
    for (node, found), count in zip(weights.items(), clients, strict=True):
        load = plan.load
        if load.model == "open" and load.rate is not None and len(weights) > 1:
            load = replace(load, rate=load.rate * float(shares[node] / total))
        whole = tuple(int(weight * parts) for weight in found.values())
        here = {work.scripts[place].name for place in found}
        own = tuple((name, limit) for name, limit in plan.limits if name in here)
        share = replace(plan, load=load, clients=count, limits=own)
        yield ComponentLoad(work, node, tuple(found), whole, share)


def clients_at(request: Request, nodes: Sequence[str]) -> dict[str, int]:
    """How many clients a workload has at each node, where it was asked for a number of them."""
    if request.trial.clients is None:
        return {}
    weights = _weights(request, choose(request.workload, request.scripts), nodes)
    shares = [sum(found.values(), Fraction()) for found in weights.values()]
    return dict(zip(weights, _shares(request.trial.clients, shares), strict=True))


def _weights(
    request: Request, scripts: Sequence[WorkloadScript], nodes: Sequence[str]
) -> dict[str, dict[int, Fraction]]:
    """For each node the scripts that go there, by place, with their share of the weight."""
    found: dict[str, dict[int, Fraction]] = {}
    for place, script in enumerate(scripts):
        where = nodes_of(node_of(request, script.name, nodes), nodes)
        for node in where:
            found.setdefault(node, {})[place] = Fraction(script.weight, len(where))
    # A node with nothing to do is none, but where nothing at all is: the engine says that.
    busy = {node: each for node, each in found.items() if any(each.values())}
    return busy or dict(list(found.items())[:1])


def _shares(clients: int, weights: Sequence[Fraction]) -> list[int]:
    """How many clients each has: one at least, the others by weight. Raises PlanError."""
    check_clients(clients, len(weights))
    total = sum(weights) or 1
    exact = [clients * weight / total for weight in weights]
    counts = [max(1, int(share)) for share in exact]
    while sum(counts) != clients:
        step = 1 if sum(counts) < clients else -1
        able = [n for n, count in enumerate(counts) if count + step >= 1]
        furthest = max(able, key=lambda n: step * (exact[n] - counts[n]))
        counts[furthest] += step
    return counts


def limits(found: Sequence[ComponentLoad], general: int | None) -> tuple[tuple[str, int], ...]:
    """The script and limit, ns, of each with another limit than the general one; 0: none."""
    every: dict[str, int | None] = {}
    for component in found:
        own = dict(component.plan.limits)
        for label, script in zip(component.labels, component.scripts, strict=True):
            every[label] = own.get(script.name, component.plan.limit_ns)
    return tuple((label, limit or 0) for label, limit in every.items() if limit != general)
