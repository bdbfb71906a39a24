"""What a run would be, without starting anything: `run --dry-run`, `load --dry-run`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pgpaces.answers.goal import ALLOWED
from pgpaces.cli.execute import warn_of_names
from pgpaces.cli.main import put
from pgpaces.database import data
from pgpaces.design import Design, Experiment
from pgpaces.errors import ServerError
from pgpaces.experiment import sweep, targets
from pgpaces.experiment.request import choose, spec_of
from pgpaces.questions.sweep import preview
from pgpaces.report import escape
from pgpaces.servers import binaries

if TYPE_CHECKING:
    from pgpaces.experiment.request import Request


def show(request: Request, *, as_json: bool) -> None:
    """Prints the plan. Raises PlanError, ScriptError, TrustError for what cannot be run."""
    found = sweep.preview_of(request)
    warn_of_names([request])
    alone = Experiment(request.workload.name, request.workload.name, Design())
    document = _document(request)
    if as_json:
        takes = preview.as_json(alone, found)
        names = ("seconds", "store_bytes", "data_bytes", "copy_bytes", "cost")
        put(escape.json_text(document | {name: takes[name] for name in names}))
        return
    _, *takes_lines = preview.lines(alone, found)
    for line in (*_lines(document), *takes_lines):
        put(f"{escape.line(line)}\n")


def _document(request: Request) -> dict[str, Any]:
    """The plan as plain values; milliseconds."""
    trial, scripts = request.trial, choose(request.workload, request.scripts)
    limit = trial.limit_ns
    return {
        "workload": request.workload.name,
        "scripts": {script.name: script.weight for script in scripts},
        "scale": None if request.workload.alone else request.scale or request.workload.scale,
        "from_database": targets.source(request.from_database),
        "server": _server(request),
        "databases": _databases(request),
        "load": str(trial.load),
        "clients": trial.clients_for(None),
        "clients_chosen": trial.clients is None,
        "transactions_each": trial.transactions,
        "latency_limit_ms": None if limit is None else limit / 1e6,
        "missed_max": request.missed_max,
    }


def _server(request: Request) -> str:
    target = request.target
    if target.dsn is not None:
        return targets.target(target.dsn)
    try:
        return f"managed, PostgreSQL {binaries.find(target.server).version}"
    except ServerError:  # one that runs, or is fetched
        return f"managed, {target.server}"


def _databases(request: Request) -> list[str]:
    """Those that are made where they are not there; none where the load goes to what is there."""
    if request.as_is:
        return []
    major = None
    if request.target.dsn is None:
        try:
            major = binaries.find(request.target.server).major
        except ServerError:
            major = None
    return list(data.names(spec_of(request), major))


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    scripts = [f"{name} (weight {weight})" for name, weight in found["scripts"].items()]
    yield f"{found['workload']}: {', '.join(scripts)}"
    yield f"  server: {found['server']}"
    made, *copies = found["databases"] or [None]
    source = f", a copy of {found['from_database']}" if found["from_database"] else ""
    scale = f" at scale {found['scale']}" if found["scale"] and not source else ""
    if made is None:
        yield "  data: what the target has, as it stands; no database is made"
    else:
        yield f"  data: database {made}{source}{scale}, made where it is not there"
    yield from (f"  data of the run: database {copy}, a copy that is dropped" for copy in copies)
    often = found["transactions_each"]
    each = f", {_count(often, 'transaction')} each" if often else ""
    yield f"  load: {found['load']}; {_count(found['clients'], 'client')}{each}"
    if found["latency_limit_ms"] is not None:
        share = ALLOWED if found["missed_max"] is None else found["missed_max"]
        yield f"  goal: at most {100 * share:.3g}% miss {found['latency_limit_ms']:g} ms"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
