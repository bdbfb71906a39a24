"""A trial whose data and server stand ready: its connection, its plan, the record of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pgpaces import database, host
from pgpaces.disk.device import device_of
from pgpaces.experiment.request import Request
from pgpaces.experiment.site import Site, for_driver
from pgpaces.generators import engine as generator
from pgpaces.result import Finding, Trial
from pgpaces.store import new_id
from pgpaces.workload import WorkloadScript

_STARTED = "postmaster_started"
# Names of this machine.
LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Cell:
    """A trial whose data and server stand ready."""

    request: Request
    scripts: tuple[WorkloadScript, ...]
    commands: list[list[generator.Command]]
    site: Site
    prepared: database.Prepared
    scale: int
    applied: database.Applied

    def connection(self) -> generator.Connection:
        """The way of the load to its database, with the session settings asked for."""
        present = self.site.access.keywords.get("options", "")
        overrides = {k: v for k, v in self.site.access.keywords.items() if k != "options"}
        overrides["dbname"] = self.prepared.dbname
        overrides["options"] = database.as_options(present, self.applied.options)
        overrides.setdefault("application_name", "pgpaces")
        return generator.resolve("", **overrides)

    def variables(self) -> dict[str, str]:
        """Those of the scripts: the scale, the workload's own, and what was given."""
        own = self.request.workload.variables
        return {"scale": str(self.scale), **own, **dict(self.request.trial.variables)}

    def engine_plan(self) -> generator.EnginePlan:
        """The trial with the number of clients and threads decided."""
        trial = self.request.trial
        free = None if trial.clients else database.free_connections(self.site.access)
        clients = trial.clients_for(free)
        threads = trial.threads or max(1, min((os.cpu_count() or 2) // 2, clients // 64))
        decided = replace(trial, variables=tuple(self.variables().items()))
        names = [script.name for script in self.scripts]
        return generator.EnginePlan.of(decided, clients, threads, names)


def record(cell: Cell, plan: generator.EnginePlan, connection: generator.Connection) -> Trial:
    """The record of a trial that is about to start, with all that a rerun needs."""
    from importlib.metadata import version

    request, workload = cell.request, cell.request.workload
    access = replace(cell.site.access, keywords=for_driver(connection))
    server = database.facts(access, cell.prepared.dbname)
    shown = ("host", "hostaddr", "port", "user", "sslmode")
    server["target"] = {k: v for k, v in connection.keywords.items() if k in shown}
    server |= _data_disk(server)
    how = {**dict.fromkeys(cell.site.given, "start"), **cell.applied.how}
    server |= {"ours": cell.site.ours, **cell.site.server, "applied": how}
    scripts = [
        {**asdict(script), "commands": [[c.line, c.text, c.is_sql] for c in commands]}
        for script, commands in zip(cell.scripts, cell.commands, strict=True)
    ]
    return Trial(
        id=new_id(),
        state="running",
        started_at=datetime.now(UTC),
        version=version("pgpaces"),
        plan={
            **asdict(plan),
            "variables": [[name, generator.decoded(text)] for name, text in plan.variables],
            "shape": str(request.trial.load.shape),
            "limits": [list(limit) for limit in request.trial.limits],
            "load_text": str(request.trial.load),
            "model": request.trial.load.model,
            "settings": dict(request.trial.settings),
            "kill_switch": request.trial.kill_switch,
        },
        workload={
            "name": workload.name,
            "description": workload.description,
            "hash": workload.hash,
            "scale": cell.scale,
            "data_seed": request.data_seed,
            "init": {step.name: step.text for step in workload.init},
            "scripts": scripts,
            "prepared": asdict(cell.prepared),
        },
        server=server,
        host=host.facts(),
        notes=cell.prepared.notes,
        findings=tuple(_changed(cell, server)),
        place=request.place,
    )


def _data_disk(server: Mapping[str, Any]) -> dict[str, str]:
    """The device of the data of a server on this machine; nothing where that is not known."""
    data, where = server.get("data_directory"), server["target"].get("host", "")
    if not data or not (where.startswith(("/", "@")) or where in LOCAL):
        return {}
    with contextlib.suppress(OSError):
        Path(data).lstat()  # behind a tunnel is another machine, with other folders
        return {"data_disk": device_of(Path(data)).id}
    return {}


def _changed(cell: Cell, now: Mapping[str, Any]) -> Iterator[Finding]:
    """What became of the server since earlier trials that this one is to be compared with."""
    request, before = cell.request, cell.request.expected
    if before is None:
        return
    if cell.site.ours or request.target.restart:  # we start these ourselves
        before = {name: value for name, value in before.items() if name != _STARTED}
    meant = [name for name, _ in request.trial.settings]
    for text in database.same_server(before, now, meant):
        said = f"the server is not as it was for earlier trials of the experiment: {text}"
        yield Finding("server", "warning", said)
