"""`pgpaces run` and `load`: one trial, with progress on stderr and the answer on stdout."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli import options, output, specs
from pgpaces.cli.output import announce, fail, put
from pgpaces.core.errors import PlanError, RunError, ServerError, StoreError
from pgpaces.core.home import is_there
from pgpaces.core.messages import message
from pgpaces.show import escape

if TYPE_CHECKING:
    from pgpaces.spec.workload import Workload
    from pgpaces.trial.request import Request
    from pgpaces.trial.trial import Outcome

# A command has no rate, no clients and no protocol.
_OF_COMMAND = (
    *("define", "duration", "transactions", "grace", "latency_limit", "target", "server", "set"),
    *("server_set", "data_dir", "tls", "profile", "observe_command", "node", "standbys", "pool"),
    *("pool_mode", "pool_size", "target_node", "guard", "background", "seed"),
)
# Runs that are searched for one of the same workload.
_LOOKED_AT = 50


@options.command(
    options.of("file", "like", "anyway"),
    options.of_trial("scripts", "variant"),
    options.of("from_database", "missed", "fail_if", "allow_fail"),
    options.of(*options.ANSWER, *options.RUNNING),
    options.of_trial(),
)
@options.argument("workload", required=False)
def run(**params: Any) -> int:
    """Run WORKLOAD and report the share of transactions on time.

    WORKLOAD is the name of a shipped workload or a directory. With --file, your scripts run instead
    of the workload's scripts. Without WORKLOAD, your scripts run in the existing database of
    --target, or in an empty database on a managed server.
    """
    from pgpaces.trial.request import workload_of

    spec, stored = specs.spec(params)
    workload = workload_of(spec, specs.consent(params), typed=True)
    specs.check_unchanged(stored, workload, params)
    return _measure(workload, spec, params)


@options.command(
    options.of("like", "input", "rows", "from_database", "missed", "fail_if", "allow_fail"),
    options.of_trial(*_OF_COMMAND),
    options.of(*options.ANSWER, *options.RUNNING),
)
@options.argument("command", required=False)
def load(**params: Any) -> int:
    """Time COMMAND, a shell command that loads data. It runs once, or as -t and -T specify.

    The command runs in the current directory. PG* variables point it to an empty database on a
    managed server, or to the existing database of --target.
    """
    from pgpaces.spec import workload

    spec, _ = specs.spec(params)
    text = spec.get("command")
    if text is None:
        context = click.get_current_context()
        raise click.MissingParameter(ctx=context, param=context.command.params[0])
    if not text.strip():
        raise PlanError("empty-command")
    if text in workload.shipped() or is_there(Path(text, workload.FILE)):
        raise PlanError("workload-as-command", workload=text)
    command = workload.Command(text, None, tuple(spec.get("input", ())), spec.get("rows"))
    return _measure(workload.of_command(command), spec, {**params, "files": ()})


def _measure(workload: Workload, spec: Mapping[str, Any], params: Mapping[str, Any]) -> int:
    from pgpaces.analysis import condition
    from pgpaces.cli.progress import TrialProgress, followed, outputs_of
    from pgpaces.core.texts import Warned
    from pgpaces.trial import trial as pipeline
    from pgpaces.trial.request import run_of

    output.check(params)
    outputs_of(params["live"], params["metrics"])
    conditions = [condition.parse_condition(text) for text in params["fail_if"]]
    request = run_of(
        spec,
        workload,
        consent=specs.consent(params),
        host_file=params["host_file"],
        store=params["store_path"],
        on_store_error=params["on_store_error"],
    )
    if params["dry_run"]:
        _show_plan(request, as_json=params["as_json"])
        return 0
    progress = TrialProgress(params["progress"])
    # The imports for the answer take a while: a signal during them does not lose the answer.
    warned = followed(params, lambda text: progress.say(Warned(text)))
    with warned, contextlib.ExitStack() as stack:
        try:
            outcome = pipeline.run(request, progress, stack)
        finally:
            progress.done()
        from pgpaces.answers.run import section

        summary, whole = outcome.summary, params["verbose"] or not outcome.stored
        answer = section(
            outcome.trial, summary, outcome.series, whole=whole, in_store=outcome.stored
        )
        text = output.shown(answer, as_json=params["as_json"], verbose=whole)
    put(text)
    if params["output"] and outcome.stored:
        from pgpaces.cli.answers import report_of

        store = options.open_store(params["store_path"])
        output.write_report(report_of(store, outcome.trial.id), params["output"])
    for each in conditions:
        if condition.changed_by_cut(each, summary, outcome.whole):
            announce("fail-if-by-warmup", condition=each.text)
        if each(summary):
            announce("fail-if-true", condition=each.text, measured=each.measured(summary))
    top = answer.headline
    failed = top is not None and top.mark == "fail" and not params["allow_fail"]
    failed = failed or any(each(summary) for each in conditions)
    return _exit_code(outcome, failed, params["output"])


def _exit_code(outcome: Outcome, failed: bool, report: str | None) -> int:
    from pgpaces.analysis.validity import no_measurement

    lost = outcome.store_error
    if lost is not None and not outcome.stored:
        name = "result-and-report-lost" if report else "result-lost"
        lost = StoreError(name, why=lost.message, hint=lost.hint, path=report)
    errors = [each for each in (outcome.error, lost) if each is not None]
    for error in errors:
        fail(error)
    if errors:
        return errors[0].exit_code
    if outcome.killed:
        fail(RunError("trial-killed", why=str(outcome.killed)))
        return output.KILLED_EXIT
    if outcome.trial.state == "interrupted":
        return output.INTERRUPTED_EXIT
    if (nothing := no_measurement(outcome.summary)) is not None:
        command = output.with_store(f"pgpaces show {outcome.trial.id}")
        values = {"why": nothing.sentence, "advice": nothing.advice, "command": command}
        fail(RunError("measured-nothing", **values))
        return RunError.exit_code
    if outcome.aborted:
        return RunError.exit_code
    return output.FAIL_EXIT if failed else 0


def warn_of_names(requests: Iterable[Request]) -> None:
    """Warns of settings that the PostgreSQL of managed servers does not have."""
    from pgpaces.server import binaries

    by_server: dict[str | None, set[str]] = {}
    for request in requests:
        settings = (*request.trial.settings, *request.target.server_settings)
        if request.target.dsn is None and settings:
            names = {name for name, _ in settings}
            by_server.setdefault(request.target.server, set()).update(names)
    for server, names in by_server.items():
        try:
            programs = binaries.find(server)
        except ServerError:
            continue  # not fetched yet, or a running server
        for name, near in binaries.misspelled_settings(programs, sorted(names)):
            announce("setting-unknown", version=programs.version, name=name, near=near)


def _show_plan(request: Request, *, as_json: bool) -> None:
    """Prints the plan. Raises PlanError, ScriptError, TrustError for a request that cannot run."""
    from pgpaces.answers.sweep import preview
    from pgpaces.spec.design import Design, Experiment
    from pgpaces.trial import sweep

    estimate = sweep.preview_of(request)
    warn_of_names([request])
    alone = Experiment(request.workload.name, request.workload.name, Design())
    plan = _plan(request) | _generators(request)
    if as_json:
        takes = preview.as_json(alone, estimate)
        plan |= {"spec": request.spec, "seconds": takes["seconds"], "cost": takes["cost"]}
        put(escape.json_text(plan))
        return
    _, *takes_lines = preview.lines(alone, estimate)
    lines = list(_plan_lines(plan))
    if request.trial.generators and request.trial.load.rate and not plan["generators_needed"]:
        lines.append(message("plan-generators-unknown"))
    for line in (*lines, *takes_lines):
        put(f"{escape.line(line)}\n")


def _plan(request: Request) -> dict[str, Any]:
    from pgpaces.database import data
    from pgpaces.server import binaries
    from pgpaces.trial.request import dataset_of
    from pgpaces.trial.site import shown_source, shown_target

    trial, scripts = request.trial, request.scripts
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
        "scale": None if request.workload.alone else request.scale,
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
        "missed_max": request.spec.get("missed"),
    }


def _generators(request: Request) -> dict[str, Any]:
    """The generators that the rate needs, by what a core did in the last run of the workload."""
    from pgpaces.analysis import generator
    from pgpaces.store.store import Store

    trial, needed = request.trial, {"generators_needed": None, "transactions_per_core": None}
    if trial.load.rate is None:
        return needed
    each = trial.clients_for(None) if trial.load.model == "paced" else 1
    rate = trial.load.rate * trial.load.shape.peak * each
    try:
        store = Store.existing(request.store)
        rows = store.trials(_LOOKED_AT)
    except StoreError:
        return needed
    for row in rows:
        if (row.workload, row.state, row.damage) != (request.workload.name, "finished", None):
            continue
        [digest] = store.digests([row.id])
        cores = digest.summary.generator.cpu * (digest.trial.setup.threads or 1)
        if cores and digest.summary.throughput.value:
            per_core = digest.summary.throughput.value / cores
            count = generator.generators_needed(rate, per_core, max(1, (os.cpu_count() or 2) // 2))
            return {"generators_needed": count, "transactions_per_core": round(per_core)}
    return needed


def _plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    from pgpaces.analysis.goal import ALLOWED

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
