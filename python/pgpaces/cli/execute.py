"""A planned experiment of a command: preview, progress, report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli import consent, experiment_options
from pgpaces.cli.files import write_report
from pgpaces.cli.run import FAIL_EXIT
from pgpaces.cli.streams import announce, fail, put
from pgpaces.core.errors import RunError, ServerError

if TYPE_CHECKING:
    from pgpaces.answers.sweep.page import Page
    from pgpaces.spec.design import Experiment
    from pgpaces.trial.request import Request
    from pgpaces.trial.strategies import Goal
    from pgpaces.trial.sweep import PlannedSweep, SweepResult

INTERRUPTED_EXIT = 130


def plan(
    experiment: Experiment,
    params: Mapping[str, Any],
    resume: str | None,
    *,
    goal: Goal | None = None,
) -> PlannedSweep:
    """The checked experiment. Raises as `sweep.plan`."""
    from pgpaces.spec import costs
    from pgpaces.trial import sweep as pipeline

    return pipeline.plan(
        experiment,
        params["store_path"],
        resume=resume,
        on_store_error=params["on_store_error"],
        command=experiment_options.command(params),
        costs=costs.find(params["host_file"]),
        goal=goal,
        consent=consent.of(params),
    )


def preview(planned: PlannedSweep, params: Mapping[str, Any]) -> None:
    """Prints the plan and its costs in time and space: on stdout for a dry run, else on stderr."""
    from pgpaces.answers.sweep.preview import as_json, lines
    from pgpaces.server import packages
    from pgpaces.show import escape

    warn_of_names(planned.requests.values())
    factors = {each.name: each.levels for each in planned.experiment.design.factors}
    if note := packages.mixed(factors.get("server", ())):
        click.echo(f"note: {escape.line(note)}", err=True)
    if params["dry_run"] and params["as_json"]:
        specs = [planned.requests[at].spec for at in sorted(planned.requests)]
        plan = as_json(planned.experiment, planned.preview())
        put(escape.json_text(plan | {"specs": specs}))
        return
    goal = planned.goal
    terms = () if goal is None else goal.terms()
    shown = lines(planned.experiment, planned.preview(), chosen=goal is not None, goals=terms)
    text = "".join(f"{escape.line(line)}\n" for line in shown)
    if params["dry_run"]:
        put(text)
    elif params["progress"] != 0:
        click.echo(text, err=True, nl=False)


def warn_of_names(requests: Iterable[Request]) -> None:
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


def carry_out(
    planned: PlannedSweep, params: Mapping[str, Any], judge: Callable[[Page], int] | None = None
) -> int:
    """Runs an experiment, prints its report, and how to resume it if trials are missing.

    judge: gives the exit code if all trials were run; by default the verdict does.
    """
    from pgpaces.answers.sweep.lookup import page_of
    from pgpaces.answers.sweep.report import report as report_of
    from pgpaces.answers.sweep.screen import unmeasured
    from pgpaces.cli import output, report
    from pgpaces.cli.followed import followed
    from pgpaces.cli.output import with_store
    from pgpaces.cli.progress import SweepProgress
    from pgpaces.core.texts import Warned
    from pgpaces.show import render
    from pgpaces.store.store import Store
    from pgpaces.trial import sweep as pipeline

    progress = SweepProgress(params["progress"])

    def warn(text: str) -> None:
        progress.teller.tell(Warned(text), whole=True)

    with followed(params, warn), contextlib.ExitStack() as stack:
        try:
            swept = pipeline.run(planned, progress, stack)
        finally:
            progress.teller.done()
        page = page_of(Store.open(params["store_path"]), (swept.id,))
        document = report_of(page)
        try:
            if params["as_json"]:
                put(render.render(document, "json").decode())
            elif params["verbose"]:
                put(report.text(document))
            else:
                put(output.text((document.top,), verbose=False))
        finally:
            if params["output"]:
                write_report(document, params["output"])
    if swept.interrupted:
        name = "interrupted-resume" if planned.total is None else "missing-resume"
        announce(name, missing=swept.missing, command=_resume(swept.id))
        return INTERRUPTED_EXIT
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
    return FAIL_EXIT if failed else 0


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
    from pgpaces.cli.output import with_store

    command = "capacity" if click.get_current_context().info_name == "capacity" else "sweep"
    return with_store(f"pgpaces {command} --resume {experiment_id}")
