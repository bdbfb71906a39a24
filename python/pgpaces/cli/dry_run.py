"""The plan of a run, without starting anything: `run --dry-run`, `load --dry-run`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pgpaces.analysis import generator
from pgpaces.analysis.goal import ALLOWED
from pgpaces.answers.sweep import preview
from pgpaces.cli.execute import warn_of_names
from pgpaces.cli.streams import put
from pgpaces.core.errors import ServerError
from pgpaces.core.messages import message
from pgpaces.database import data
from pgpaces.server import binaries
from pgpaces.show import escape
from pgpaces.spec.design import Design, Experiment
from pgpaces.store import listing
from pgpaces.store.listing import RunFilter
from pgpaces.store.store import Store
from pgpaces.trial import sweep
from pgpaces.trial.request import choose, dataset_of
from pgpaces.trial.site import shown_source, shown_target

if TYPE_CHECKING:
    from pgpaces.trial.request import Request

# Runs that are searched for one of the same workload.
_LOOKED_AT = 50


def show(request: Request, *, in_json: bool) -> None:
    """Prints the plan. Raises PlanError, ScriptError, TrustError for a request that cannot run."""
    estimate = sweep.preview_of(request)
    warn_of_names([request])
    alone = Experiment(request.workload.name, request.workload.name, Design())
    document = _document(request) | _generators(request)
    if in_json:
        takes = preview.as_json(alone, estimate)
        names = ("seconds", "store_bytes", "cost")
        asked = {"spec": request.spec}
        put(escape.json_text(document | asked | {name: takes[name] for name in names}))
        return
    _, *takes_lines = preview.lines(alone, estimate)
    lines = list(_lines(document))
    if request.trial.generators and request.trial.load.rate and not document["generators_needed"]:
        lines.append(message("plan-generators-unknown"))
    for line in (*lines, *takes_lines):
        put(f"{escape.line(line)}\n")


def _document(request: Request) -> dict[str, Any]:
    trial, scripts = request.trial, choose(request.workload, request.scripts)
    target, limit, programs = request.target, trial.limit_ns, None
    if target.dsn is not None:
        server = shown_target(target.dsn)
    else:
        with contextlib.suppress(ServerError):  # a running server, or one that is not fetched
            programs = binaries.find(target.server)
        version = f"PostgreSQL {programs.version}" if programs else target.server
        server = f"managed, {version}"
    databases: tuple[str, ...] = ()
    if not request.as_is:
        databases = data.names(dataset_of(request), programs.major if programs else None)
    return {
        "workload": request.workload.name,
        "scripts": {script.name: script.weight for script in scripts},
        "scale": None if request.workload.alone else request.scale or request.workload.scale,
        "from_database": shown_source(request.from_database),
        "server": server,
        "databases": list(databases),
        "load": str(trial.load),
        "clients": trial.clients_for(None),
        "clients_chosen": trial.clients is None,
        "capped": target.dsn is not None and trial.clients is None and trial.load.model == "open",
        "guard": None if target.dsn is None else trial.guard,
        "transactions_each": trial.transactions,
        "latency_limit_ms": None if limit is None else limit / 1e6,
        "missed_max": request.missed_max,
    }


def _generators(request: Request) -> dict[str, Any]:
    """The generators that the rate needs, by what a core did in the last run of the workload."""
    trial, needed = request.trial, {"generators_needed": None, "transactions_per_core": None}
    if trial.load.rate is None:
        return needed
    each = trial.clients_for(None) if trial.load.model == "paced" else 1
    rate = trial.load.rate * trial.load.shape.peak * each
    for row in listing.at_once(request.store, RunFilter(_LOOKED_AT)) or []:
        if (row.workload, row.state, row.damage) != (request.workload.name, "finished", None):
            continue
        [digest] = Store.open(request.store).digests([row.id])
        cores = digest.summary.generator.cpu * (digest.trial.setup.threads or 1)
        if cores and digest.summary.throughput.value:
            per_core = digest.summary.throughput.value / cores
            count = generator.generators_needed(rate, per_core, max(1, (os.cpu_count() or 2) // 2))
            return {"generators_needed": count, "transactions_per_core": round(per_core)}
    return needed


def _lines(plan: Mapping[str, Any]) -> Iterator[str]:
    scripts = [f"{name} (weight {weight})" for name, weight in plan["scripts"].items()]
    yield f"{plan['workload']}: {', '.join(scripts)}"
    yield f"  server: {plan['server']}"
    database, *copies = plan["databases"] or [None]
    source, scale, count = plan["from_database"], plan["scale"], plan["transactions_each"]
    if database is None:
        yield message("plan-data-existing")
    elif source:
        yield message("plan-data-copy", database=database, source=source)
    else:
        yield message("plan-data-scale" if scale else "plan-data", database=database, scale=scale)
    yield from (message("plan-copy", database=copy) for copy in copies)
    name = "plan-load-transactions" if count else "plan-load"
    yield message(name, load=plan["load"], clients=plan["clients"], count=count)
    if plan["capped"]:
        yield message("plan-connections")
    if plan["guard"] is not None:
        yield message("plan-guard-on" if plan["guard"] else "plan-guard-off")
    if (needed := plan["generators_needed"]) is not None:
        yield message("plan-generators", count=needed, per_core=plan["transactions_per_core"])
    if (limit_ms := plan["latency_limit_ms"]) is not None:
        share = ALLOWED if plan["missed_max"] is None else plan["missed_max"]
        yield message("plan-goal", share_percent=100 * share, limit_ms=limit_ms)
