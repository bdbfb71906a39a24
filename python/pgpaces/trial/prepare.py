"""Prepares everything that a trial needs, and cleans up after it.

In this order: what a killed run left changed is put back, settings of the whole server (some
restart it, which would end the sessions that hold the data), data, settings of sessions and
databases, up-to-date standbys, a pool, a look at the scripts, a command to time.

A trial is made of component loads, scripts of one workload on one server with their own clients. It
has one unless its scripts go to several servers, or it has background workloads. Each component of
an open load has its share of the rate: independent Poisson streams add up to one stream with the
sum of the rates. Each has its share of clients or users, at least one.

On a server that pgpaces does not manage, a load is a guest. It takes at most half of the free
connections, unless the user asked for clients, and always leaves a few to others.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import psycopg
from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.accumulator import Accumulator
from pgpaces.core import sessions
from pgpaces.core.errors import (
    ConnectionsError,
    HopelessError,
    PgpacesError,
    PrepareError,
    ServerError,
    hopeless_name,
)
from pgpaces.core.findings import Finding, finding
from pgpaces.core.locality import is_local
from pgpaces.core.messages import message
from pgpaces.core.sessions import Session
from pgpaces.core.texts import Say, Warned, encoded
from pgpaces.database import changes, data, identity, inputs, programs, psql, settings, streaming
from pgpaces.database.access import Access
from pgpaces.database.changes import Terms
from pgpaces.database.identity import Room
from pgpaces.database.settings import Applied
from pgpaces.load import engine as generator
from pgpaces.load.command import CommandLoad
from pgpaces.load.composite import RunningLoad
from pgpaces.load.engine import Connection, for_driver
from pgpaces.monitor import plans
from pgpaces.server import pooler
from pgpaces.spec.load import TrialPlan
from pgpaces.spec.setup import ComponentFacts, PoolFacts, Prepared
from pgpaces.spec.target import without_secrets
from pgpaces.spec.workload import WorkloadScript
from pgpaces.trial.request import (
    POOL,
    PRIMARY,
    Request,
    clients_at,
    dataset_of,
    shares_data,
    shares_of,
    source_of,
    typed_at,
    weights_at,
)
from pgpaces.trial.target_server import Site, restarting

if TYPE_CHECKING:
    from pgpaces.load.cluster.load import DealtLoad
    from pgpaces.load.cluster.workers import Workers

Check = Callable[[], None]
_TIMEOUT_MS = 10_000
# Characters of a script up to which it is looked at.
_LENGTH_MAX = 2**20
# SQLSTATE classes of a script that cannot work: login, catalog, schema, and syntax or access.
_CANNOT_WORK = ("28", "3D", "3F", "42")
# How long a command has to end by itself when it is stopped.
_POLITE_NS = 5_000_000_000
# Sessions of pgpaces during a load: those that lock its data, a server's sensors, the guard.
_OF_DATA, _OF_SENSORS, _OF_GUARD = 2, 2, 2
# Connections that stay free on a server of others, beside those reserved for superusers.
LEFT_FREE = 3
# Clients that nobody asked for, where free connections cannot be counted.
UNSEEN = 20
# Connections where a pooler of ours hides their number: it takes 100, and sensors need some.
_OF_A_POOLER = 90
_HELD_BACK_MIN = 0.01
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

    def load(self, connection: Connection, workers: Workers | None = None) -> RunningLoad:
        """The connected load. workers: those of several generators. Raises PgpacesError."""
        if self.command is not None:
            return self.command
        if workers is not None:
            return _dealt(self, connection, workers)
        if (users := self.work.request.workload.users) is not None:
            from pgpaces.load.python_users.load import UsersLoad, user_connection

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
    whose facts are in `pool`. warning: unconfirmed workloads run as a superuser.
    """

    request: Request
    works: tuple[Work, ...]
    site: Site
    applied: Applied
    components: tuple[ComponentLoad, ...]
    nodes: Mapping[str, Access]
    pool: PoolFacts
    warning: Finding | None

    @property
    def prepared(self) -> Prepared:
        return self.works[0].prepared

    def way(self, node: str, dbname: str) -> Connection:
        """The connection to a database on a node, with the requested session settings."""
        access = self.nodes[node]
        present = access.keywords.get("options", "")
        overrides = {k: v for k, v in access.keywords.items() if k != "options"}
        overrides["dbname"] = dbname
        overrides["options"] = settings.as_options(present, self.applied.options)
        overrides["application_name"] = overrides.get("application_name") or "pgpaces"
        return generator.resolve("", **overrides)

    def connection(self, component: ComponentLoad) -> Connection:
        return self.way(component.node, component.work.prepared.dbname)

    def primary(self) -> Connection:
        """The connection to the primary, whose counters and facts are the trial's."""
        return self.way(PRIMARY, self.prepared.dbname)


@contextlib.contextmanager
def prepared(where: Site, request: Request, say: Say, *, check: Check) -> Iterator[ReadyTrial]:
    """A trial whose data, settings, standbys and pool stand ready within this context.

    check: raises StoppedError after a request to stop; preparation calls it with each progress
    message, which is every few seconds.
    """

    def say_and_check(text: str) -> None:
        check()
        say(text)

    target = request.target
    restart = restarting(target.restart, where.access) if target.restart else None
    pooled = request.pool is not None
    terms = Terms(where.managed, target.alter_system, restart, say, pooled)
    changing = {n: v for n, v in request.trial.settings if n not in where.start_settings}
    with changes.journal(where.access, terms) as journal, contextlib.ExitStack() as stack:
        whole = settings.server_contexts(where.access, changing)
        of_server = {name: changing[name] for name in whole}
        rest = {name: value for name, value in changing.items() if name not in whole}
        around = stack.enter_context(settings.applied(journal, where.access.dbname, of_server))
        if where.managed:
            stack.enter_context(streaming.on_standbys(where.standbys, of_server))
        budget = Budget(where, request)
        every = (request, *(other for _, other in request.background))
        names = [each.workload.name for each in every if not each.workload.trusted]
        warning: Finding | None = None
        if names and not where.managed and identity.is_superuser(where.access):
            warning = finding("unconfirmed-superuser", workloads=names)
            say(Warned(str(warning)))
        works = stack.enter_context(_works(where, request, say_and_check))
        inner = Applied()
        # The facts of the first database stand for the trial.
        for dbname in dict.fromkeys(work.prepared.dbname for work in works):
            applied = stack.enter_context(settings.applied(journal, dbname, rest))
            inner = inner if inner.how else applied
        effect = Applied(inner.options, {**around.how, **inner.how}, inner.verified)
        effect = replace(effect, verified={**around.verified, **inner.verified})
        check()
        components = component_loads(
            works,
            request.node_names,
            budget.clients(),
            local=is_local(where.access.keywords),
        )
        if not where.managed:
            say(budget.line(works[0].prepared.dbname, sum(c.clients for c in components)))
        if where.standbys:
            say(message("standbys-awaited"))
            streaming.wait_for_standbys(where.access, where.standbys, say, check=check)
        nodes, about = stack.enter_context(_pool(where, request, components, say=say))
        ready = ReadyTrial(request, works, where, effect, components, nodes, about, warning)
        for component in components:
            _probe(ready, component)
        yield replace(
            ready,
            components=tuple(
                stack.enter_context(_with_command(ready, component, say, check=check))
                for component in components
            ),
        )


def _dealt(component: ComponentLoad, connection: Connection, places: Workers) -> DealtLoad:
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
    component: ComponentLoad, connection: Connection, *, here: bool
) -> dict[str, str]:
    """The connection of a generator; elsewhere it finds a password itself that was not typed."""
    if here:
        return for_driver(connection)
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


def _probe(ready: ReadyTrial, component: ComponentLoad) -> None:
    """Raises ServerError, HopelessError if it cannot log in or its scripts cannot run."""
    connection, request = ready.connection(component), component.work.request
    generator.probe(connection)
    if not request.trial.keep_going:
        alone = ready.site.managed and request.workload.alone
        check_scripts(component, connection, runs=alone or request.from_database is not None)


@contextlib.contextmanager
def _works(where: Site, request: Request, say: Say) -> Iterator[tuple[Work, ...]]:
    sharing = [other for _, other in request.background if shares_data(request, other)]
    writes = any(each.workload.writes for each in (request, *sharing))
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(_data(where, request, say, writes=writes))
        works = [Work("", request, own)]
        for name, other in request.background:
            prepared = own
            if not shares_data(request, other):
                data_of_other = _data(where, other, say, writes=other.workload.writes)
                prepared = stack.enter_context(data_of_other)
            works.append(Work(name, other, prepared))
        yield tuple(works)


@contextlib.contextmanager
def _data(where: Site, request: Request, say: Say, *, writes: bool) -> Iterator[Prepared]:
    if request.as_is:
        yield data.as_is(where.access)
        return
    spec = dataset_of(request)
    spec = replace(spec, workload=replace(spec.workload, writes=writes))
    with data.prepare(where.access, spec, say) as prepared:
        yield prepared


@contextlib.contextmanager
def _pool(
    where: Site, request: Request, components: tuple[ComponentLoad, ...], *, say: Say
) -> Iterator[tuple[Mapping[str, Access], PoolFacts]]:
    """Access to all nodes, including a requested managed pool, and the facts of that pool.

    It is started for each trial: no connection in it is older than the trial's settings.
    """
    nodes = {"primary": where.access, **where.nodes}
    if request.pool is None:
        yield nodes, PoolFacts()
        return
    clients = sum(component.clients for component in components if component.node == POOL)
    # Clients that keep a connection of the pool; pgbouncer has a pool for each database.
    keeping: Counter[str] = Counter()
    for component in components:
        if component.node == POOL and not component.plan.connect_each:
            keeping[component.work.prepared.dbname] += component.clients
    most = max(keeping.values(), default=0)
    pooler.check_slots(
        request.pool, most if request.pool.pooler == "pgbouncer" else keeping.total()
    )
    with pooler.pool(request.pool, max(1, clients), where.servers, say=say) as running:
        way = {"host": running.host, "port": str(running.port)}
        keywords = {k: v for k, v in where.access.keywords.items() if k not in ("host", "port")}
        about = PoolFacts(
            pooler=request.pool.pooler,
            version=running.version,
            mode=request.pool.mode,
            size=running.size,
        )
        yield {**nodes, POOL: replace(where.access, keywords={**keywords, **way})}, about


def check_scripts(component: ComponentLoad, connection: Connection, *, runs: bool) -> None:
    """Raises HopelessError for a statement that the server does not accept.

    The server plans each statement (EXPLAIN), which finds typos, missing relations and missing
    rights and executes nothing. runs: nothing there can be harmed, as in a copy or on a managed
    server, so it also runs scripts once, in a transaction that is rolled back.
    """
    if not component.work.request.workload.is_scripts:
        return
    try:
        # Each statement is prepared, so that several in one text are refused.
        with sessions.connect(
            for_driver(connection), "pgpaces check", autocommit=False, prepare_threshold=0
        ) as session:
            session.execute(f"SET LOCAL statement_timeout = {_TIMEOUT_MS}".encode())
            for sql in component.plan.on_connect:
                session.execute(encoded(sql))
            variables = tuple(component.work.variables().items())
            for script in component.scripts:
                if len(script.text) > _LENGTH_MAX or not script.weight:
                    continue
                try:
                    found = generator.rehearse(
                        script.name, script.text, variables, seed=component.plan.seed
                    )
                except PgpacesError:  # its clients give up, too
                    continue
                _check_statements(session, script.name, [sql for _, sql in found], runs=runs)
            session.rollback()
    except (psycopg.Error, ServerError):
        return  # the load itself finds out, and says it


def _check_statements(session: Session, name: str, statements: list[str], *, runs: bool) -> None:
    for sql in statements:
        kind = plans.kind_of(sql)
        if kind == "transaction":
            continue
        if kind != "plan" and not runs:
            return  # what follows may need what this one makes
        try:
            with session.transaction():
                session.execute(encoded(sql if runs else f"EXPLAIN {sql}"))
        except psycopg.Error as error:
            state = error.sqlstate or ""
            if state[:2] in _CANNOT_WORK and ";" not in sql.rstrip().rstrip(";"):
                why = f"{error.diag.message_primary or error}: {sql}"
                values = {"script": name, "why": why, "sqlstate": state}
                raise HopelessError(hopeless_name(state), **values) from None
            return


@contextlib.contextmanager
def _with_command(
    ready: ReadyTrial, component: ComponentLoad, say: Say, *, check: Check
) -> Iterator[ComponentLoad]:
    """The component with its command, if it has one, ready to run within this context.

    check: raises if the end was requested while something runs before a command. Raises PlanError
    for unknown placeholders, RunError for a missing program, PrepareError if the command to run
    before it fails.
    """
    work = component.work
    workload, command = work.request.workload, work.request.workload.command
    if command is None:
        yield component
        return
    keywords = for_driver(ready.connection(component))
    way = psql.ClientProgram(ready.site.access.psql, keywords, keywords["dbname"])
    values = {"seed": str(work.request.spec.get("data_seed", 1)), **work.variables()}
    with (
        programs.program_environment(way, workload, values, say=say) as environment,
        contextlib.ExitStack() as stack,
    ):
        # Not `grace`, which is at least the latency limit: that may be an hour here.
        polite_ns = _POLITE_NS if component.plan.grace_ns is None else component.plan.grace_ns

        def order(run: tuple[str, ...] | str, succeeds: tuple[int, ...]) -> programs.CommandOrder:
            base = environment.order(component.labels[0], run)
            timeout_s, ending = command.timeout_ns / 1e9, ((signal.SIGTERM, polite_ns / 1e9),)
            return replace(base, succeeds=succeeds, timeout_s=timeout_s, ending=ending)

        def say_and_check(text: str) -> None:
            say(text)
            check()

        runner = programs.Runner([environment.scratch], environment.files)
        stack.callback(runner.close)
        measured = order(command.run, command.succeeds)
        if command.before is not None:
            what = message("before-command", workload=workload.name)
            say(what)
            before = order(command.before, (0,))
            result = programs.run_reporting(runner, before, what, say=say_and_check)
            if result is None or result.failed:
                why, output = (result.failed, result.output) if result else ("stopped", "")
                raise PrepareError("before-failed", workload=workload.name, why=why, output=output)
        accompanies = bool(work.name)
        plan = component.engine_plan()
        load = CommandLoad(measured, plan, runner, accompanies=accompanies, say=say)
        if command.input:
            words = [inputs.filled(pattern, environment.values) for pattern in command.input]
            paths = inputs.matching(words, environment.folder)
            load.input_bytes = sum(path.stat().st_size for path in paths)
        yield replace(component, command=load)


class Budget:
    """The connections of the servers of a trial. Raises ConnectionsError if they are too few."""

    def __init__(self, where: Site, request: Request) -> None:
        self._guest, self._where, self._request = not where.managed, where, request
        self._room: Room | None = None
        self._check()

    def clients(self) -> int:
        """The most that a load takes where nobody said how many, by what is free now."""
        self._room = identity.room(self._where.access, guest=self._guest)
        free = None if self._room is None else self._usable(PRIMARY, self._room)
        if not self._guest:
            return _OF_A_POOLER if free is None else free
        return UNSEEN if free is None else max(1, free // 2)

    def _check(self) -> None:
        request = self._request
        needs: Counter[str] = Counter()
        every = (request, *(other for _, other in request.background))
        for each in every:
            needs.update(clients_at(each, request.node_names))
        if request.pool is not None:
            through = needs.pop(POOL, 0)
            needs[PRIMARY] += min(through, request.pool.size or through)
        needs[PRIMARY] = needs[PRIMARY] or int(self._guest)
        for node, access in {PRIMARY: self._where.access, **self._where.standbys}.items():
            room = identity.room(access, guest=self._guest) if needs[node] else None
            if room is None or (free := self._usable(node, room)) >= needs[node]:
                continue
            name, numbers = "too-few-connections", {"enough": needs[node] + 20}
            if self._guest:
                name = "too-few-connections-left"
                numbers = {"sessions": room.others, "most": room.most, "reserved": LEFT_FREE}
            error = ConnectionsError(name, free=max(0, free), needed=needs[node], **numbers)
            raise error.at("" if node == PRIMARY else node)

    def _usable(self, node: str, room: Room) -> int:
        request = self._request
        free = room.free - _OF_SENSORS * request.observe
        if node == PRIMARY and not request.as_is:
            free -= _OF_DATA
        if self._guest:
            free -= LEFT_FREE + _OF_GUARD * request.trial.guard
        return free

    def line(self, dbname: str, clients: int) -> str:
        keywords, room = self._where.access.keywords, self._room
        host = "localhost" if is_local(keywords) else keywords.get("host", "")
        values = {"dbname": dbname, "host": host, "clients": clients}
        if room is None:
            return message("target-without-count", **values)
        values |= {"others": room.others, "free": room.free, "most": room.most}
        return message("target", **values)


def held_back(
    components: Sequence[ComponentLoad], accumulator: Accumulator, *, guest: bool
) -> Iterator[Finding]:
    """A finding if a load waited for clients that it did not take out of courtesy."""
    own = [component for component in components if not component.work.name]
    plan, taken = own[0].work.request.trial, sum(component.clients for component in own)
    wanted = plan.clients_for(None)
    if not guest or plan.clients is not None or taken >= wanted:
        return
    sent, at_once = accumulator.sent_count, accumulator.dispatch()[0].count
    waited = 1 - at_once / sent if sent else 0.0
    if waited < _HELD_BACK_MIN:
        return
    yield finding("connection-cap", percent=100 * waited, clients=taken, wanted=wanted)
