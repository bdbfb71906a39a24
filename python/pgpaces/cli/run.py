"""`pgpaces run`: one trial, with progress on stderr and the answer on stdout."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli import options
from pgpaces.errors import PlanError, RunError
from pgpaces.experiment import Listener
from pgpaces.plan import trial_plan
from pgpaces.report import escape

if TYPE_CHECKING:
    from pgpaces.experiment import Outcome
    from pgpaces.generators.engine import EnginePlan
    from pgpaces.result import Interval, Trial
    from pgpaces.workload import Workload

FAIL_IF_EXIT = 30
KILLED_EXIT = 31
INTERRUPTED_EXIT = 130

EXAMPLES = """\b
Examples:
  pgpaces run reporting --rate 1 --latency-limit 500ms
  pgpaces run reporting --users 8 --pace 1/s -L 500ms --duration 10min
  pgpaces run tpcb-like --clients 10 -M prepared -T 60s
  pgpaces run ./my-workload --target postgresql://pi4/bench --fail-if 'missed > 5%'
  pgpaces run -f read.sql@9 -f write.sql --target postgresql://pi4/shop --rate 50
"""


class _Progress(Listener):
    """Tells on stderr what happens: a line that is rewritten on a terminal, else now and then."""

    def __init__(self, every_s: int | None) -> None:
        self._terminal = sys.stderr.isatty()
        self._every_s = every_s if every_s is not None else (1 if self._terminal else 5)
        self._due = self._missed = self._ended = self._latency_ns = self._succeeded = 0
        self._since = 0
        self._open = False
        self._last_say = 0.0
        self._last_text = ""

    def say(self, text: str) -> None:
        """A stage; repeated ones only every 5 s where there is no terminal."""
        if not self._every_s:
            return
        now, stage = time.monotonic(), text.split(",", maxsplit=1)[0]
        if (
            self._terminal
            or now - self._last_say >= 5
            or text.split(",", maxsplit=1)[0] != self._last_text
        ):
            self._write(text, rewrite=True)
            self._last_say, self._last_text = now, stage

    def started(self, trial: Trial, plan: EnginePlan, connect_ns: int) -> None:
        """Says what runs."""
        if self._every_s:
            end = f"{(plan.warmup_ns + (plan.duration_ns or 0)) / 1e9:g} s"
            count = f"{plan.transactions} transactions each"
            self._write(
                f"running {trial.workload['name']}: {trial.plan['load_text']},"
                f" {plan.clients} clients, {end if plan.duration_ns else count}",
                rewrite=False,
            )

    def interval(self, interval: Interval) -> None:
        """Counts, and says so every few seconds; what clients say comes at once."""
        for level, text in interval.lines:
            prefix = {"plain": "", "info": "pgpaces: "}.get(level, f"pgpaces: {level}: ")
            self._write(f"{prefix}{text}", rewrite=False, whole=True)
        for tally in interval.tallies:
            failed = sum(tally.failed.values())
            self._due += tally.due
            self._missed += tally.late + tally.skipped + failed + tally.unfinished
            self._latency_ns += tally.latency.sum_ns
            self._succeeded += tally.latency.count
        self._since += 1
        if self._every_s and self._since >= self._every_s:
            from pgpaces.report.text import milliseconds, rate

            mean_ms = self._latency_ns / self._succeeded / 1e6 if self._succeeded else None
            stage = "warm-up" if interval.second < 0 else f"{interval.second + 1} s"
            self._write(
                f"{stage}: {rate(self._succeeded / self._since)}/s,"
                f" mean latency {milliseconds(mean_ms, '-')} ms, missed {self._missed}",
                rewrite=True,
            )
            self._missed = self._latency_ns = self._succeeded = self._since = 0

    def stopping(self, count: int) -> None:
        """Says what Ctrl-C does."""
        if count == 1:
            self._write("stopping: waiting for what was due (again to end at once)", rewrite=False)

    def _write(self, text: str, *, rewrite: bool, whole: bool = False) -> None:
        # Whoever closes stderr wants to hear no more; the run goes on.
        with contextlib.suppress(OSError):
            self._tell(text, rewrite=rewrite, whole=whole)

    def _tell(self, text: str, *, rewrite: bool, whole: bool) -> None:
        text = escape.lines(text) if whole else escape.line(text)
        if not self._terminal:
            click.echo(text, err=True)
            return
        width = os.get_terminal_size(sys.stderr.fileno()).columns - 1
        shown = text if whole else text[:width]
        click.echo(f"\r\x1b[K{shown}" + ("" if rewrite else "\n"), err=True, nl=False)
        self._open = rewrite

    def done(self) -> None:
        """Leaves the line that was being rewritten."""
        if self._open:
            click.echo("\r\x1b[K", err=True, nl=False)


@click.command(epilog=EXAMPLES)
@click.argument("workload", required=False)
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    metavar="FILE[@WEIGHT]",
    help="A script of pgbench's language to run; -: the standard input.",
)
@click.option(
    "--scale", "-s", type=click.IntRange(1), help="Size of the data. [default: the workload's]"
)
@click.option(
    "--data-seed", type=click.IntRange(0), default=1, show_default=True, help="Of the data."
)
@click.option(
    "--script", "scripts", multiple=True, metavar="NAME[@WEIGHT]", help="Run only these scripts."
)
@options.options(options.LOAD, options.TRIAL, options.TARGET, options.GUARD, (options.STORE,))
@click.option(
    "--on-store-error",
    type=click.Choice(["continue", "stop"]),
    default="continue",
    show_default=True,
    help="While the store takes nothing: go on in memory, or end the run.",
)
@click.option(
    "-P",
    "--progress",
    type=click.IntRange(0),
    metavar="SECONDS",
    help="How often to tell; 0: never.",
)
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON on stdout.")
@click.option("--fail-if", metavar="CONDITION", help=f"Exit code {FAIL_IF_EXIT} if it is so.")
def run(**given: Any) -> int:
    """Run WORKLOAD (a shipped one or a folder) and say what share of it was on time.

    With --file, scripts of yours run instead of the workload's; without WORKLOAD they run in the
    database that --target names, as it stands, or in an empty one on a server of ours.
    """
    from pgpaces import experiment
    from pgpaces.answers import condition

    found = _workload(given["workload"], given["files"])
    fails = condition.parse(given["fail_if"]) if given["fail_if"] else None
    request = experiment.Request(
        workload=found,
        trial=trial_plan(given, found.load),
        target=options.target(given, as_is=given["workload"] is None),
        scale=given["scale"],
        data_seed=given["data_seed"],
        scripts=options.scripts(given["scripts"]),
        store=given["store_path"],
        on_store_error=given["on_store_error"],
    )
    progress = _Progress(given["progress"])
    try:
        outcome = experiment.run(request, progress)
    finally:
        progress.done()
    _print(outcome, as_json=given["as_json"])
    return _exit_code(outcome, fails is not None and fails(outcome.summary))


def _workload(name: str | None, files: Sequence[str]) -> Workload:
    """The workload named, with the scripts of these files if there are any."""
    from pgpaces import workload

    scripts = options.files(files)
    if name is not None:
        found = workload.find(name)
        return replace(found, scripts=scripts) if scripts else found
    if not scripts:
        raise PlanError(
            "nothing to run was named", "name a workload (`pgpaces workload list`) or a --file"
        )
    return workload.of_scripts("scripts", scripts)


def _print(outcome: Outcome, *, as_json: bool) -> None:
    from pgpaces.cli.main import put

    if as_json:
        from pgpaces.answers.summary import as_json as plain

        document = {
            "run": outcome.trial.id,
            "state": outcome.trial.state,
            "workload": outcome.trial.workload["name"],
            "scale": outcome.trial.workload["scale"],
            "server": outcome.trial.server["version"],
            "plan": dict(outcome.trial.plan),
            "notes": list(outcome.trial.notes),
            **plain(outcome.summary),
        }
        put(escape.json_text(document))
        return
    from rich.console import Console

    from pgpaces.report.text import answer

    console = Console(highlight=False)
    with console.capture() as text:
        for part in answer(outcome.trial, outcome.summary, console.width):
            console.print(part)
    put(text.get())


def _exit_code(outcome: Outcome, failed: bool) -> int:
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
    if outcome.aborted:
        return RunError.exit_code
    return FAIL_IF_EXIT if failed else 0
