"""The record of a trial: its facts before it starts, then its seconds as they come, then its end.

Every second goes to the store and to an accumulator.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pgpaces.analysis.accumulator import Accumulator
from pgpaces.analysis.digest import Digest, digest
from pgpaces.analysis.summary import Summary
from pgpaces.core.errors import StoreError
from pgpaces.core.findings import Finding, Notes, finding
from pgpaces.core.locality import is_local
from pgpaces.core.messages import message
from pgpaces.core.record import Interval
from pgpaces.core.series import Collection, Sample, Series
from pgpaces.core.texts import Say, Warned
from pgpaces.database import identity
from pgpaces.load.engine import for_driver
from pgpaces.monitor import machine
from pgpaces.spec.costs import Costs
from pgpaces.spec.result import Estimate, Observed, Trial
from pgpaces.spec.setup import (
    HostFacts,
    ScriptCommand,
    ScriptFacts,
    ServerFacts,
    Setup,
    WorkloadFacts,
)
from pgpaces.spec.workload import WorkloadScript
from pgpaces.store.store import Store, new_id
from pgpaces.trial.prepare import ReadyTrial, Work
from pgpaces.trial.request import POOL, PRIMARY, commands_of

# Characters of a script, or of a line of it, that are stored; the hash is of all of it.
_KEPT_MAX = 2**20
# Well within the time after which a silent run counts as interrupted.
_BEAT_S = 5.0


def trial_of(ready: ReadyTrial) -> Trial:
    """The record of a trial that is about to start, with all that a rerun needs."""
    from importlib.metadata import version

    request, server = ready.request, _server(ready)
    return Trial(
        id=new_id(),
        state="running",
        started_at=datetime.now(UTC),
        spec=request.spec,
        setup=Setup(
            clients=sum(each.clients for each in ready.components),
            threads=sum(each.engine_plan().threads for each in ready.components),
            variables=tuple(ready.works[0].variables().items()),
            components=tuple(component.facts() for component in ready.components),
            workload=_workload(ready.works[0]).but(scripts=tuple(_scripts(ready))),
            background={work.name: _workload(work) for work in ready.works[1:]},
            server=server,
            host=host_facts(request.costs),
        ),
        version=version("pgpaces"),
        notes=tuple(_notes(ready)),
        findings=tuple(_findings(ready, server)),
        place=request.place,
    )


def _workload(work: Work) -> WorkloadFacts:
    workload = work.request.workload
    return WorkloadFacts(
        name=workload.name,
        description=workload.description,
        hash=workload.hash,
        scale=work.request.scale,
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
        workload = component.work.request.workload
        every = commands_of(workload, component.scripts)
        for label, script, commands in zip(component.labels, component.scripts, every, strict=True):
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
    if "\\;" in script.text or any(each.text.startswith("\\if") for each in commands):
        return None
    return sum(command.is_sql for command in commands)


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
    if ready.warning is not None:
        yield ready.warning


class Recorder:
    """Stores intervals and samples as they come, adds intervals to the accumulator, and drops them.

    What the store refuses stays in memory and is written later; without a store nothing is kept.
    error: the first error of the store. delayed: the number of seconds that it refused at first.
    notes: without repetitions. first_error: the first error of a client. unread: stored samples
    could not be read back.
    """

    def __init__(self, store: Store | None, trial: Trial, say: Say) -> None:
        self._store, self.trial, self._say = store, trial, say
        self.accumulator = Accumulator()
        self.notes = Notes()
        self.first_error = ""
        self.error: StoreError | None = None
        self.delayed = 0
        self._waiting: deque[tuple[Interval | None, Sequence[Sample], Sequence[Observed]]] = deque()
        self._failing = self._sampled = self.unread = False

    def begin(self) -> None:
        """Stores that the trial starts. Raises StoreError: nothing is lost yet."""
        if self._store:
            self._store.begin(self.trial)

    def add(
        self,
        interval: Interval,
        samples: Sequence[Sample] = (),
        observed: Sequence[Observed] = (),
    ) -> None:
        """Adds a second, without the lines that were printed immediately, and what is new since.

        observed: observations that replace those of their kind, see Store.add.
        """
        errors = (text for level, text in interval.lines if level == "error")
        self.first_error = self.first_error or next(errors, "")
        self.notes.add(*interval.notes)
        self.accumulator.add(interval)
        self._sampled = self._sampled or bool(samples)
        if self._store:
            self._waiting.append((replace(interval, lines=()), samples, observed))
        try:
            self._flush()
        except StoreError as error:
            self.delayed += 1
            self.error = self.error or error
            if not self._failing:
                self._say(Warned(message("store-refuses", error=error.message)))
            self._failing = True
        else:
            if self._failing:
                self._say(message("store-accepts-again"))
            self._failing = False

    def series(self, last: Sequence[Sample]) -> tuple[Series, ...]:
        """All samples: read from the store, and those that it refused. last: the last ones."""
        self._waiting.append((None, last, ()))
        with contextlib.suppress(StoreError):
            self._flush()
        collection = Collection()
        if self._store and (self._sampled or last):
            try:
                collection = self._store.series(self.trial.id)
            except StoreError:
                self.unread = True
        for _, samples, _ in self._waiting:
            collection.add(samples)
        return collection.series()

    def _flush(self) -> None:
        while self._store and self._waiting:
            interval, samples, observed = self._waiting[0]
            self._store.add(self.trial.id, interval, samples, observed=observed)
            self._waiting.popleft()

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Between the last second and the end, which may take minutes, the trial still runs."""
        ended = threading.Event()

        def beat() -> None:
            while self._store and not ended.wait(_BEAT_S):
                with contextlib.suppress(StoreError):
                    self._store.beat(self.trial.id)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def finish(self, trial: Trial, result: Digest) -> None:
        """Stores the end of the trial, and its digest. Raises StoreError; may be repeated."""
        self._flush()
        if self._store:
            self._store.add(trial.id, None, observed=trial.observed)
            self._store.finish(trial, brief(result.summary), result)


def store_imported(store: Store, trial: Trial) -> Summary:
    """Stores a whole imported trial; returns its answer. Raises StoreError."""
    result = digest(trial)
    store.begin(trial)
    for interval in trial.intervals:
        store.add(trial.id, interval)
    store.finish(trial, brief(result.summary), result)
    return result.summary


def brief(summary: Summary) -> dict[str, Any]:
    missed = summary.missed
    return {
        "due": summary.counts.due,
        "missed": summary.counts.missed,
        "missed_share": None if missed is None else [missed.value, missed.low, missed.high],
        "validity": summary.validity.state,
        "throughput": summary.throughput.value,
        "p50_ms": _finite(summary.latency.p50, "value"),
        "p99_ms": _finite(summary.latency.p99, "value"),
        "p99_low_ms": _finite(summary.latency.p99, "low"),
        "p99_high_ms": _finite(summary.latency.p99, "high"),
    }


def _finite(estimate: Estimate | None, name: str) -> float | None:
    value = math.nan if estimate is None else getattr(estimate, name)
    return value if math.isfinite(value) else None
