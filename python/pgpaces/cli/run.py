"""`pgpaces run` and `load`: one trial, with progress on stderr and the answer on stdout."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli import options, output, specs
from pgpaces.cli.output import announce, fail, put
from pgpaces.core.errors import PlanError, RunError, ServerError, StoreError
from pgpaces.core.home import is_there
from pgpaces.core.texts import Warned
from pgpaces.show import escape
from pgpaces.spec import workload as workloads
from pgpaces.spec.design import Design, Experiment
from pgpaces.spec.workload import Workload

if TYPE_CHECKING:
    from pgpaces.trial.request import Request
    from pgpaces.trial.trial import Outcome

# A command has no rate, no clients and no protocol.
_OF_COMMAND = (
    *("define", "duration", "transactions", "grace", "latency_limit", "target", "server", "set"),
    *("server_set", "data_dir", "tls", "profile", "observe_command", "node", "standbys", "pool"),
    *("pool_mode", "pool_size", "target_node", "guard", "background", "seed"),
)


@options.command(
    options.of("file", "like", "anyway"),
    options.of_trial("scripts", "variant"),
    options.of("from_database", "missed", "fail_if", "allow_fail"),
    options.of(*options.ANSWER, *options.RUNNING),
    options.of_trial(),
)
@options.argument("workload", required=False)
def run(**params: Any) -> int:
    """Run WORKLOAD and report the share of on-time transactions.

    WORKLOAD is the name of a shipped workload, or the path of a workload directory. With --file,
    your scripts run instead of the workload's scripts. Without WORKLOAD, your scripts run in the
    existing database of --target, or in an empty database on a managed server.
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
    """Time COMMAND, a shell command that loads data. It runs once, unless -t or -T is set.

    The command runs in the current directory. The PG* environment variables name an empty database
    on a managed server, or the existing database of --target.
    """
    spec, _ = specs.spec(params)
    text = spec.get("command")
    if text is None:
        context = click.get_current_context()
        raise click.MissingParameter(ctx=context, param=context.command.params[0])
    if not text.strip():
        raise PlanError("empty-command")
    if text in workloads.shipped() or is_there(Path(text, workloads.FILE)):
        raise PlanError("workload-as-command", workload=text)
    command = workloads.Command(text, None, tuple(spec.get("input", ())), spec.get("rows"))
    return _measure(workloads.of_command(command), spec, {**params, "files": ()})


def _measure(workload: Workload, spec: Mapping[str, Any], params: Mapping[str, Any]) -> int:
    from pgpaces.analysis import condition
    from pgpaces.cli.progress import TrialProgress, followed, outputs_of
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
    from pgpaces.answers import preview
    from pgpaces.trial import sweep

    estimate = sweep.preview_of(request)
    warn_of_names([request])
    alone = Experiment(request.workload.name, request.workload.name, Design())
    plan = _plan(request)
    if as_json:
        takes = preview.as_json(alone, estimate)
        plan |= {"spec": request.spec, "seconds": takes["seconds"]}
        put(escape.json_text(plan))
        return
    lines = [plan["workload"]]
    for name, value in plan.items():
        if name in ("workload", "clients_chosen", "capped") or value in (None, [], {}):
            continue
        text = str(value)
        if isinstance(value, dict):
            text = ", ".join(f"{each} (weight {weight})" for each, weight in value.items())
        elif isinstance(value, list):
            text = ", ".join(value)
        elif isinstance(value, bool | float):
            text = f"{value:g}" if isinstance(value, float) else "on" if value else "off"
        lines.append(f"  {name.replace('_', ' '):18} {text}")
    _, *takes_lines = preview.lines(alone, estimate)
    put("".join(f"{escape.line(line)}\n" for line in (*lines, *takes_lines)))


def _plan(request: Request) -> dict[str, Any]:
    from pgpaces.database import data
    from pgpaces.server import binaries
    from pgpaces.trial.request import dataset_of
    from pgpaces.trial.target_server import shown_source, shown_target

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
