"""A trial whose data and servers stand ready: the ways to them, and the record of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.core.findings import Finding, finding
from pgpaces.core.locality import is_local
from pgpaces.database import identity, settings
from pgpaces.database.access import Access
from pgpaces.database.settings import Applied
from pgpaces.load import engine as generator
from pgpaces.load.engine import for_driver
from pgpaces.monitor import machine
from pgpaces.spec.costs import Costs
from pgpaces.spec.result import Trial
from pgpaces.spec.setup import (
    HostFacts,
    PoolFacts,
    Prepared,
    ScriptCommand,
    ScriptFacts,
    ServerFacts,
    Setup,
    WorkloadFacts,
)
from pgpaces.spec.workload import WorkloadScript
from pgpaces.store.store import new_id
from pgpaces.trial.components import ComponentLoad, Work
from pgpaces.trial.request import POOL, PRIMARY, Request
from pgpaces.trial.site import Site

# Characters of a script, or of a line of it, that are stored; the hash is of all of it.
_KEPT_MAX = 2**20


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


def trial_of(ready: ReadyTrial) -> Trial:
    """The record of a trial that is about to start, with all that a rerun needs."""
    from importlib.metadata import version

    request, server = ready.request, _server(ready)
    return Trial(
        id=new_id(),
        state="running",
        started_at=datetime.now(UTC),
        spec=request.spec,
        setup=_setup(ready, server),
        version=version("pgpaces"),
        notes=tuple(_notes(ready)),
        findings=tuple(_findings(ready, server)),
        place=request.place,
    )


def _setup(ready: ReadyTrial, server: ServerFacts) -> Setup:
    return Setup(
        clients=sum(each.clients for each in ready.components),
        threads=sum(each.engine_plan().threads for each in ready.components),
        variables=tuple(ready.works[0].variables().items()),
        components=tuple(component.facts() for component in ready.components),
        workload=_workload(ready.works[0]).but(scripts=tuple(_scripts(ready))),
        background={work.name: _workload(work) for work in ready.works[1:]},
        server=server,
        host=host_facts(ready.request.costs),
    )


def _workload(work: Work) -> WorkloadFacts:
    workload = work.request.workload
    return WorkloadFacts(
        name=workload.name,
        description=workload.description,
        hash=workload.hash,
        scale=work.scale,
        init={step.name: step.text for step in workload.init},
        scripts=(),
        prepared=work.prepared,
    )


def host_facts(costs: Costs | None) -> HostFacts:
    """The facts of this machine. costs: of the server's machine."""
    plain = {} if costs is None else costs.plain()
    return machine.facts().but(pid=os.getpid(), costs=(plain,) if plain else ())


def _scripts(ready: ReadyTrial) -> Iterator[ScriptFacts]:
    """The scripts of every component, in the order in which its intervals count them."""
    for component in ready.components:
        for label, script, commands in zip(
            component.labels, component.scripts, component.commands, strict=True
        ):
            workload = component.work.request.workload
            command = None if workload.command is None else "command"
            yield ScriptFacts(
                name=label,
                weight=script.weight,
                text=script.text[:_KEPT_MAX],
                source=script.source,
                queries=queries_of(script, commands),
                node=component.node,
                commands=tuple(each.but(text=each.text[:_KEPT_MAX]) for each in commands),
                length=len(script.text) if len(script.text) > _KEPT_MAX else None,
                kind=command if workload.users is None else "users",
            )


def queries_of(script: WorkloadScript, commands: Sequence[ScriptCommand]) -> int | None:
    """The number of queries of a transaction; None if it is not certain.

    Branches may differ, and several queries joined by `\\;` are one command.
    """
    if script.queries is not None or not commands:
        return script.queries
    if "\\;" in script.text:
        return None
    sums, others, whole = [0], list[set[int]](), list[bool]()
    for command in commands:
        word = "" if command.is_sql else command.text.split(None, 1)[0].lower()
        if command.is_sql:
            sums[-1] += 1
        elif word == "\\if":
            sums.append(0)
            others.append(set())
            whole.append(False)
        elif word in ("\\elif", "\\else"):
            others[-1].add(sums[-1])
            sums[-1], whole[-1] = 0, word == "\\else"
        elif word == "\\endif":
            every = others.pop() | {sums.pop()} | (set() if whole.pop() else {0})
            if len(every) > 1:
                return None
            sums[-1] += every.pop()
    return sums[0]


def _server(ready: ReadyTrial) -> ServerFacts:
    """Facts of the primary, as a session of the load sees them; addresses of the other nodes."""
    shown = ("host", "hostaddr", "port", "user", "sslmode")
    connection = ready.primary()
    access = replace(ready.site.access, keywords=for_driver(connection))
    ways = {PRIMARY: connection.keywords} | {n: way.keywords for n, way in ready.nodes.items()}
    nodes = {name: {k: v for k, v in way.items() if v and k in shown} for name, way in ways.items()}
    server: ServerFacts = identity.facts(access, ready.prepared.dbname).but(
        target={k: v for k, v in connection.keywords.items() if v and k in shown},
        ours=ready.site.managed,
        **ready.site.server,
        applied={**dict.fromkeys(ready.site.start_settings, "start"), **ready.applied.how},
        nodes={name: nodes[name] for name in ready.nodes},
        standbys=len(ready.site.standbys),
        pool=ready.pool,
    )
    data = server.data_directory
    if data and is_local(server.target):
        with contextlib.suppress(OSError):
            Path(data).lstat()  # a tunnel leads to another machine, with other folders
            return server.but(data_device=machine.device_of(Path(data)).id)
    return server


def _notes(ready: ReadyTrial) -> Iterator[Finding]:
    """Requested variables without effect, and what the numbers of several components mean."""
    for work in ready.works:
        yield from work.prepared.notes
        for name, _ in work.request.trial.variables:
            if not work.request.workload.uses(name):
                workload = work.request.workload.name
                yield finding("variable-unused", workload=workload, variable=name)
    own = [component for component in ready.components if not component.work.name]
    if len(own) > 1:
        nodes = [component.node for component in own]
        clients = [component.clients for component in own]
        yield finding("several-queues", queues=len(own), nodes=nodes, clients=clients)


def as_superuser(where: Site, request: Request) -> Finding | None:
    """A finding if unconfirmed workloads run as a superuser on an external server, else None."""
    every = (request, *(other for _, other in request.background))
    names = [each.workload.name for each in every if not each.workload.trusted]
    if not names or where.managed or not identity.is_superuser(where.access):
        return None
    return finding("unconfirmed-superuser", workloads=names)


def _findings(ready: ReadyTrial, now: ServerFacts) -> Iterator[Finding]:
    """What is unusual before the load begins.

    The server has changed since the earlier trials with which this one is compared, no component
    uses the pool, or an unconfirmed workload is run as a superuser.
    """
    request, before = ready.request, ready.request.expected
    if before is not None:
        if ready.site.managed or request.target.restart:  # pgpaces starts these itself
            before = before.but(postmaster_started=None)
        names = [name for name, _ in request.trial.settings]
        yield from identity.server_changes(before, now, names)
    where = dict.fromkeys(component.node for component in ready.components)
    if ready.pool and POOL not in where:
        yield finding("pool-unused", pooler=ready.pool.pooler, nodes=list(where))
    if (warning := as_superuser(ready.site, request)) is not None:
        yield warning
