"""`pgpaces run`: one trial, with progress on stderr and the answer on stdout."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from pgpaces.cli import consent, options
from pgpaces.errors import PlanError, RunError
from pgpaces.home import is_there
from pgpaces.report import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgpaces.answers.digest import Bucket
    from pgpaces.answers.summary import Summary
    from pgpaces.experiment.trial import Outcome
    from pgpaces.result import Trial
    from pgpaces.workload import Workload

FAIL_IF_EXIT = 30
KILLED_EXIT = 31
INTERRUPTED_EXIT = 130

EXAMPLES = """\b
Examples:
  pgpaces run reporting --rate 1 --latency-limit 500ms
  pgpaces run reporting --users 8 --pace 1/s -L 500ms --duration 10min
  pgpaces run tpcb-like --clients 10 -M prepared -T 60s
  pgpaces run sensor --variant log --clients 4 --dry-run
  pgpaces run ./my-workload --target postgresql://pi4/bench --fail-if 'missed > 5%'
  pgpaces run reporting --standbys 2 --pool pgpool --rate 20 -L 500ms
  pgpaces run simple-update --standbys 1 --beside 'reporting node=standby1 rate=1/s'
  pgpaces run -f read.sql@9 -f write.sql --target postgresql://pi4/shop --rate 50
"""


@options.command(epilog=EXAMPLES)
@options.argument("workload", required=False)
@options.options(
    options.of("file"),
    options.of_trial("scripts", "variant"),
    options.of("from_database", "missed", "fail_if", *options.ANSWER, *options.RUNNING),
    options.of_trial(),
)
@options.old("--command", group="Workload", metavar="COMMAND", now="`pgpaces load COMMAND`")
@options.option(
    "--input", "inputs", group="Workload", rare=True, multiple=True, help="Of --command."
)
@options.option("--rows", group="Workload", rare=True, help="Of --command.")
def run(**given: Any) -> int:
    """Run WORKLOAD (a shipped one or a folder) and say what share of it was on time.

    With --file, scripts of yours run instead of the workload's; without WORKLOAD they run in the
    database that --target names, as it stands, or in an empty one on a managed server.
    """
    return measure(_workload(given), given)


def measure(found: Workload, given: dict[str, Any]) -> int:
    """Runs it once and shows the answer; the exit code."""
    from pgpaces import levels
    from pgpaces.answers import condition
    from pgpaces.cli import execute
    from pgpaces.cli.main import put
    from pgpaces.cli.progress import TrialProgress
    from pgpaces.draft import share
    from pgpaces.experiment import single
    from pgpaces.experiment import trial as pipeline

    execute.check_output(given)
    # A run wants that database as it is now; an experiment keeps its copy for all its trials.
    given["fresh"] = given["fresh"] or given["from_database"] is not None
    fails = condition.parse(given["fail_if"]) if given["fail_if"] else None
    request = single.run_of(
        found,
        options.values(given),
        single.background_of(levels.backgrounds(given["beside"])),
        consent.of(given),
        given["host_file"],
        store=given["store_path"],
        on_store_error=given["on_store_error"],
        from_database=given["from_database"],
        missed_max=None if given["missed"] is None else share(given["missed"], "--missed"),
    )
    if given["dry_run"]:
        from pgpaces.cli import dry_run

        dry_run.show(request, as_json=given["as_json"])
        return 0
    progress = TrialProgress(given["progress"])
    # What tells an answer takes a while to import: a signal meanwhile does not cost it.
    with contextlib.ExitStack() as held:
        try:
            outcome = pipeline.run(request, progress, held)
        finally:
            progress.done()
        shown = (outcome.trial, outcome.summary, outcome.series)
        text = told(*shown, as_json=given["as_json"], verbose=given["verbose"])
    put(text)
    if given["output"]:
        from pgpaces.cli import report

        report.write_of(given["store_path"], outcome.trial.id, given["output"])
    if fails is not None and condition.hangs_on_the_cut(fails, outcome.summary, outcome.whole):
        text = f"--fail-if '{given['fail_if']}' is decided by the warm-up that was left out"
        click.echo(f"warning: {text}: see the finding above", err=True)
    failed = fails is not None and fails(outcome.summary)
    if fails is not None and failed:
        seen = fails.seen(outcome.summary)
        click.echo(f"--fail-if '{fails.text}' is true: it is {seen}", err=True)
    return _exit_code(outcome, failed)


def _workload(given: Mapping[str, Any]) -> Workload:
    """The workload named, with the scripts of these files if there are any; or a command."""
    from pgpaces import trust, workload

    name, scripts = given["workload"], options.files(given["files"])
    if given["command"] is not None:
        if name is not None or scripts:
            raise PlanError(
                "--command is run instead of a workload or a --file",
                "leave one of them out, or run the other one --beside it",
            )
        return of_command(given)
    for option, value in (("--input", given["inputs"]), ("--rows", given["rows"])):
        if value:
            raise PlanError(f"{option} belongs to --command", "a workload says its own")
    if name is not None:
        found = trust.find(name, consent.of(given))
        if given["variant"] is not None:
            found = trust.variant(found, given["variant"], consent.of(given))
        return replace(found, scripts=scripts) if scripts else found
    if given["variant"] is not None:
        raise PlanError("--variant is of a workload, and none is named", "name it as well")
    if not scripts:
        raise PlanError(
            "nothing to run was named",
            "name a workload (`pgpaces workload list`) or a --file; `pgpaces load` times a command",
        )
    return workload.of_scripts("scripts", scripts)


def of_command(given: Mapping[str, Any]) -> Workload:
    """A workload that is nothing but the command. Raises PlanError where it is none."""
    from pgpaces import workload

    text = given["command"]
    if not text.strip():
        raise PlanError("the command is empty", "name a program, such as 'pgbench -i -s 10'")
    if text in workload.shipped() or is_there(Path(text, workload.FILE)):
        raise PlanError(f"{text} is a workload, and no command", f"`pgpaces run {text}` runs it")
    return workload.of_command(workload.Command(text, None, given["inputs"], given["rows"]))


def told(
    trial: Trial,
    summary: Summary,
    series: Sequence[Bucket],
    *,
    as_json: bool,
    verbose: bool = True,
) -> str:
    """An answer: in one screen, or with every table; or as JSON."""
    from pgpaces.questions import run as question

    if as_json:
        return escape.json_text(question.document(trial, summary))
    from rich.console import Console

    from pgpaces.report import terminal

    console = Console(highlight=False, markup=False, emoji=False)
    section = question.section(trial, summary, series)
    parts = (terminal.whole if verbose else terminal.brief)(section, console.width)
    with console.capture() as text:
        for part in parts:
            console.print(part)
    return text.get()


def _exit_code(outcome: Outcome, failed: bool) -> int:
    from pgpaces.answers.outcome import no_measurement
    from pgpaces.cli.main import fail

    for error in (outcome.error, outcome.store_error):
        if error is not None:
            fail(error)
            return error.exit_code
    if outcome.killed:
        fail(RunError(outcome.killed))
        return KILLED_EXIT
    if outcome.trial.state == "interrupted":
        return INTERRUPTED_EXIT
    if (found := no_measurement(outcome.summary)) is not None:
        text, advice = found
        fail(RunError(text, f"{advice}; the run is stored: pgpaces show {outcome.trial.id}"))
        return RunError.exit_code
    if outcome.aborted:
        return RunError.exit_code
    return FAIL_IF_EXIT if failed else 0
