"""`pgpaces sweep` and `capacity`: experiments from a file or from options, to their report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli import options, output, specs
from pgpaces.cli.output import announce, fail, put, with_store
from pgpaces.cli.run import warn_of_names
from pgpaces.core.errors import PlanError, RunError
from pgpaces.core.home import is_there
from pgpaces.core.texts import Warned
from pgpaces.show import escape
from pgpaces.spec import costs, experiment_file
from pgpaces.spec.design import Experiment

if TYPE_CHECKING:
    from pgpaces.answers.sweep.page import Page
    from pgpaces.trial.strategies import Goal
    from pgpaces.trial.sweep import PlannedSweep, SweepResult

TRIALS_MAX = 10_000


@options.command(
    specs.EXPERIMENT,
    options.of("anyway", "trials", "missed", "allow_fail", "quick", "yes", "new"),
    specs.RESUME,
    options.of(*options.ANSWER, *options.RUNNING),
)
@options.argument("what", required=False, metavar="[FILE.toml|WORKLOAD]")
def sweep(**params: Any) -> int:
    """Run an experiment and find the load at which transactions start to miss the limit.

    pgpaces runs every combination of levels, in random order within each block. An option with
    several LEVELS, separated by commas, is a factor; write \\, for a comma within a level. FILE can
    describe the experiment instead; options on the command line override it.
    """
    if params["new"]:
        experiment_file.create(Path(params["new"]))
        announce("experiment-written", path=params["new"])
        return 0
    output.check(params)
    from pgpaces.server import profiles
    from pgpaces.trial import sweep as pipeline

    file, resume = params["resume"] or "", None
    if params["what"] is None and file.endswith(".toml") and is_there(file, Path.is_file):
        params |= {"what": file, "resume": "last"}
    base, experiment, goal = specs.experiment(params), None, None
    if params["resume"] is not None:
        if base is None:
            _check_fixed("quick", "trials", "missed")
        by_file = base is not None and params["resume"] == "last"
        name = base.name if base is not None and by_file else params["resume"]
        resume, experiment, goal = pipeline.find(name, params["store_path"])
    if base is not None:
        experiment = base.checked(profiles.ready_made)
    if experiment is None:
        raise PlanError("workload-or-file-missing")
    each = experiment.design.trials
    trials = len(experiment.design.cells()) * (1 if each == "auto" else each)
    if trials > TRIALS_MAX and not params["yes"]:
        raise PlanError("too-many-trials", trials=trials, most=TRIALS_MAX)
    return carry_out(experiment, params, resume=resume, goal=goal)


@options.command(
    specs.EXPERIMENT,
    options.of("anyway", "missed", "allow_fail", "goal", "by", "quick", "soak"),
    specs.RESUME,
    options.of(*options.ANSWER, *options.RUNNING),
)
@options.argument("what", required=False, metavar="[FILE.toml|WORKLOAD]")
def capacity(**params: Any) -> int:
    """Find the highest load at which WORKLOAD passes, and the lowest load at which it fails.

    Levels work as in `pgpaces sweep`; pgpaces finds the capacity of each combination. For the
    load itself, one level is the start of the search, and two levels set the search range.
    """
    from pgpaces.trial import capacity as asking

    output.check(params)
    if params["quick"] and "soak" in options.typed():
        raise PlanError("cannot-combine", options=["--quick", "--soak"])
    for name in ("duration", "transactions"):
        if params[name]:
            raise PlanError("search-chooses", option=f"--{name}")
    # Here --quick and --missed apply to the search, not to its trials.
    base = specs.experiment({**params, "quick": False, "missed": None})
    if params["like"] is not None and base is not None:
        base = base.without("duration", "transactions", "warmup", "shape")
    resume = None
    if params["resume"] is not None:
        resume, experiment, goal = asking.stored(params["resume"], params["store_path"])
    elif base is None:
        raise PlanError("workload-or-file-missing")
    if base is None:
        _check_fixed("missed", "quantile", "by", "quick", "soak")
    else:
        asked = {name: params[name] for name in ("missed", "quantile", "by", "quick", "soak")}
        experiment, goal = asking.ask(base, consent=specs.consent(params), **asked)
    return carry_out(experiment, params, resume=resume, goal=goal)


def _check_fixed(*names: str) -> None:
    """Raises PlanError for a typed option that a resumed experiment has already."""
    for name, option in options.typed().items():
        if name in (*names, "seed", "name", "from_database"):
            raise PlanError("fixed-by-resume", option=option)


def carry_out(
    experiment: Experiment,
    params: Mapping[str, Any],
    *,
    resume: str | None = None,
    goal: Goal | None = None,
    judge: Callable[[Page], int] | None = None,
) -> int:
    """Runs an experiment, prints its report, and how to resume it if trials are missing.

    A dry run only prints the plan. judge: gives the exit code if all trials were run; by default
    the verdict does. Raises as `trial.sweep.plan`.
    """
    from pgpaces.trial import sweep as pipeline

    planned = pipeline.plan(
        experiment,
        params["store_path"],
        resume=resume,
        on_store_error=params["on_store_error"],
        command=specs.typed_command(params),
        costs=costs.find(params["host_file"]),
        goal=goal,
        consent=specs.consent(params),
    )
    if planned.asks or params["as_json"] or goal is not None:
        _preview(planned, params)
    else:
        announce("no-trials-missing")
    if params["dry_run"]:
        return 0
    from pgpaces.answers.sweep.lookup import page_of
    from pgpaces.answers.sweep.report import report
    from pgpaces.answers.sweep.screen import unmeasured
    from pgpaces.cli.progress import SweepProgress, followed

    progress = SweepProgress(params["progress"])

    def warn(text: str) -> None:
        progress.teller.tell(Warned(text), whole=True)

    with followed(params, warn), contextlib.ExitStack() as stack:
        try:
            swept = pipeline.run(planned, progress, stack)
        finally:
            progress.teller.done()
        page = page_of(options.open_store(params["store_path"]), (swept.id,))
        document = report(page)
        try:
            if params["as_json"] or params["verbose"]:
                output.put_report(document, "json" if params["as_json"] else "text")
            else:
                output.show(document.top, as_json=False)
        finally:
            if params["output"]:
                output.write_report(document, params["output"])
    if swept.interrupted:
        name = "interrupted-resume" if planned.total is None else "missing-resume"
        announce(name, missing=swept.missing, command=_resume(swept.id))
        return output.INTERRUPTED_EXIT
    if swept.given_up or swept.missing:
        fail(_not_run(swept))
        return RunError.exit_code
    if (nothing := unmeasured(page)) is not None:
        (why, advice), command = nothing, with_store(f"pgpaces report {swept.id}")
        fail(RunError("measured-nothing", why=why, advice=advice, command=command))
        return RunError.exit_code
    if judge is not None:
        return judge(page)
    top = document.top.headline
    failed = top is not None and top.mark == "fail" and not params["allow_fail"]
    return output.FAIL_EXIT if failed else 0


def _preview(planned: PlannedSweep, params: Mapping[str, Any]) -> None:
    """Prints the plan and its costs in time and space: on stdout for a dry run, else on stderr."""
    from pgpaces.answers.preview import as_json, lines

    warn_of_names(planned.requests.values())
    if params["dry_run"] and params["as_json"]:
        asked = [planned.requests[at].spec for at in sorted(planned.requests)]
        plan = as_json(planned.experiment, planned.preview())
        put(escape.json_text(plan | {"specs": asked}))
        return
    goal = planned.goal
    terms = () if goal is None else goal.terms()
    shown = lines(planned.experiment, planned.preview(), terms)
    text = "".join(f"{escape.line(line)}\n" for line in shown)
    if params["dry_run"]:
        put(text)
    elif params["progress"] != 0:
        click.echo(text, err=True, nl=False)


def _not_run(swept: SweepResult) -> RunError:
    """The error of trials that could not be run. Resuming is no remedy for a cell that cannot."""
    why = swept.given_up or next((error.message for error in swept.errors), None)
    hint, resume = None, _resume(swept.id)
    if swept.by_error and swept.lasting:
        hint, resume = swept.errors[0].hint, ""
    if swept.given_up:
        return RunError("experiment-given-up", why=why, hint=hint, resume=resume)
    return RunError("trials-not-run", missing=swept.missing, why=why, hint=hint, resume=resume)


def _resume(experiment_id: str) -> str:
    command = "capacity" if click.get_current_context().info_name == "capacity" else "sweep"
    return with_store(f"pgpaces {command} --resume {experiment_id}")
