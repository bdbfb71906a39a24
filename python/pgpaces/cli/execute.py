"""An experiment from the command line, once it is planned: preview, progress, report."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli import consent, experiment_options
from pgpaces.errors import RunError, ServerError

if TYPE_CHECKING:
    from pgpaces.design import Experiment
    from pgpaces.experiment.request import Request
    from pgpaces.experiment.strategies import Goal
    from pgpaces.experiment.sweep import Order, SweepPlan, SweepResult
    from pgpaces.questions.sweep.page import Page

INTERRUPTED_EXIT = 130


def check_output(given: Mapping[str, Any]) -> None:
    """Raises PlanError for a report that could not be written, before hours are spent."""
    if given["output"]:
        from pgpaces.report import render

        render.form_of(given["output"])
        experiment_options.check_folder(Path(given["output"]).resolve().parent)


def order(
    experiment: Experiment, given: Mapping[str, Any], resume: str | None, goal: Goal | None = None
) -> Order:
    """The experiment as it is to be run. goal: what its trials are chosen for as it goes."""
    from pgpaces import host_file
    from pgpaces.experiment import sweep as pipeline

    return pipeline.Order(
        experiment=experiment,
        store=given["store_path"],
        resume=resume,
        on_store_error=given["on_store_error"],
        command=experiment_options.command(given),
        costs=host_file.find(given["host_file"]),
        goal=goal,
        consent=consent.of(given),
    )


def _report(swept: SweepResult, given: Mapping[str, Any]) -> Page:
    """The answer so far, on stdout and where the user wants it."""
    from pgpaces.cli import output, report
    from pgpaces.cli.main import put
    from pgpaces.questions.sweep.lookup import page_of
    from pgpaces.questions.sweep.report import report as report_of
    from pgpaces.report import render
    from pgpaces.store.store import Store

    page = page_of(Store.open(given["store_path"]), (swept.id,))
    found = report_of(page)
    try:
        if given["as_json"]:
            put(render.render(found, "json").decode())
        else:
            brief = output.text((found.top,), verbose=False)
            put(report.text(found) if given["verbose"] else brief)
    finally:
        if given["output"]:
            written = report.write(found, render.form_of(given["output"]), Path(given["output"]))
            click.echo(f"written: {written}", err=True)
    return page


def preview(planned: SweepPlan, given: Mapping[str, Any]) -> None:
    """Says what it will take: on stdout where that was all that was asked, else on stderr."""
    from pgpaces.cli.main import put
    from pgpaces.experiment import strategies
    from pgpaces.questions.sweep.preview import as_json, lines
    from pgpaces.report import escape

    warn_of_names(planned.requests.values())
    for note in _mixed(planned.order.experiment):
        click.echo(f"note: {escape.line(note)}", err=True)
    if given["dry_run"] and given["as_json"]:
        put(escape.json_text(as_json(planned.order.experiment, planned.preview)))
        return
    order = planned.order
    asked = () if order.goal is None else strategies.question(order.goal)
    chosen = order.goal is not None
    said = lines(order.experiment, planned.preview, chosen=chosen, goals=asked)
    text = "".join(f"{escape.line(line)}\n" for line in said)
    if given["dry_run"]:
        put(text)
    elif given["progress"] != 0:
        click.echo(text, err=True, nl=False)


def _mixed(experiment: Experiment) -> Iterator[str]:
    """A sentence where versions of different builds are compared."""
    from pgpaces.servers import packages

    factors = {factor.name: factor.levels for factor in experiment.design.factors}
    said = packages.mixed(factors["server"]) if "server" in factors else None
    yield from () if said is None else (said,)


def warn_of_names(requests: Iterable[Request]) -> None:
    """A note for each setting that a version which is here does not list by this name."""
    from pgpaces.report import escape
    from pgpaces.servers import binaries, describe

    asked: dict[str | None, set[str]] = {}
    for request in requests:
        settings = (*request.trial.settings, *request.target.server_settings)
        if request.target.dsn is None and settings:
            names = {name for name, _ in settings}
            asked.setdefault(request.target.server, set()).update(names)
    for server, names in asked.items():
        try:
            found = binaries.find(server)
        except ServerError:
            continue  # to be fetched, or one that runs
        for name, near in describe.misspelled(found, sorted(names)):
            text = f"PostgreSQL {found.version} lists no setting {name}; did you mean {near}?"
            click.echo(f"note: {escape.line(text)}", err=True)


def carry_out(
    planned: SweepPlan, given: Mapping[str, Any], judge: Callable[[Page], int] = lambda _: 0
) -> int:
    """Runs it, shows what was found, and says how to go on where something is missing.

    judge: what it ends with where all of it was run.
    """
    from pgpaces.answers import outcome
    from pgpaces.cli.main import fail
    from pgpaces.cli.progress import SweepProgress
    from pgpaces.experiment import sweep as pipeline

    progress = SweepProgress(given["progress"])
    with contextlib.ExitStack() as held:
        try:
            swept = pipeline.run(planned, progress, held)
        finally:
            progress.teller.done()
        page = _report(swept, given)
    if swept.interrupted:
        what = "interrupted" if planned.total is None else f"missing: {_count(swept.missing)}"
        click.echo(f"{what}; go on with: {_resume(swept.id, given)}", err=True)
        return INTERRUPTED_EXIT
    if swept.given_up:
        fail(RunError(swept.given_up, f"once the reason is gone: {_resume(swept.id, given)}"))
        return RunError.exit_code
    if swept.missing:
        fail(
            RunError(
                f"{_count(swept.missing)} could not be run",
                f"once the reason is gone: {_resume(swept.id, given)}",
            )
        )
        return RunError.exit_code
    if (found := outcome.no_trial(digest.summary for digest in page.digests)) is not None:
        text, advice = found
        fail(RunError(text, f"{advice}; the trials are stored: pgpaces report {swept.id}"))
        return RunError.exit_code
    return judge(page)


def _count(trials: int) -> str:
    return "1 trial" if trials == 1 else f"{trials} trials"


def _resume(experiment_id: str, given: Mapping[str, Any]) -> str:
    """The command that goes on with it, from the store that was named, without a password."""
    context = click.get_current_context()
    command = "capacity" if context.info_name == "capacity" else "sweep"
    words = ["pgpaces", command, "--resume", experiment_id]
    source = context.get_parameter_source("store_path")
    if source is click.core.ParameterSource.COMMANDLINE:
        words += [
            "--store",
            "DSN" if experiment_options.SECRET.search(given["store_path"]) else given["store_path"],
        ]
    return shlex.join(words)
