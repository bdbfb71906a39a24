"""`pgpaces sweep`: an experiment from a file or from the command line, to its page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgpaces import experiment_file
from pgpaces.cli import execute, experiment_options, options
from pgpaces.errors import PlanError
from pgpaces.home import is_there

if TYPE_CHECKING:
    from pgpaces.design import Experiment
    from pgpaces.draft import Draft
    from pgpaces.experiment.strategies import Goal
    from pgpaces.experiment.sweep import SweepPlan

TRIALS_MAX = 10_000
QUICK = "Seconds instead of minutes: does all of it work?"
YES = f"Also with more than {TRIALS_MAX} trials."
EXAMPLES = """\b
Examples:
  pgpaces sweep reporting --clients 1,2,4,8 --rate-per-client 1/s -L 500ms --policy skip \\
      --server-set max_parallel_workers_per_gather=0,2,4 --trials 2 -o report.html
  pgpaces sweep experiment.toml --dry-run
  pgpaces sweep experiment.toml --quick
  pgpaces sweep experiment.toml --within 30min
  pgpaces sweep --resume
  pgpaces sweep --new experiment.toml
  pgpaces sweep experiment.toml --server 15,18
"""


@options.command(epilog=EXAMPLES)
@options.argument("what", required=False, metavar="[FILE.toml|WORKLOAD]")
@options.options(experiment_options.OF_WHAT)
@options.options(
    options.of("trials", "within", "missed", "quick", "yes", "new", "schema", quick=QUICK, yes=YES),
    experiment_options.HOW,
)
def sweep(**given: Any) -> int:
    """Run every combination of levels, in random blocks, and say from where it misses the limit.

    An option with several LEVELS, separated by commas, is a factor (a comma within a level is
    written \\,). A FILE describes the same; options on the command line go before it.
    """
    from pgpaces.cli.main import put

    if given["new"]:
        experiment_file.create(Path(given["new"]))
        click.echo(f"wrote {given['new']}; next: pgpaces sweep {given['new']} --dry-run", err=True)
        return 0
    if given["schema"]:
        from pgpaces.report import escape

        put(escape.json_text(experiment_file.schema()))
        return 0
    planned = _planned(given)
    if planned.slots or given["as_json"]:
        execute.preview(planned, given)
    else:
        click.echo("nothing is missing: every trial was run", err=True)
    if given["dry_run"]:
        return 0
    return execute.carry_out(planned, given)


def _planned(given: Mapping[str, Any]) -> SweepPlan:
    """The experiment, checked; also the form of its report, before hours are spent."""
    execute.check_output(given)
    from pgpaces.experiment import sweep as pipeline

    given = _of_file(given)
    _check_within(given)
    draft, resume, experiment, goal = experiment_options.draft(given), None, None, None
    if draft is None and given["resume"] is not None:
        _check_unchanged(given)
    if given["resume"] is not None:
        by_file = draft is not None and given["resume"] == "last"
        name = draft.name if draft is not None and by_file else given["resume"]
        resume, experiment, goal = pipeline.find(name, given["store_path"])
    if draft is not None:
        experiment, goal = _asked(draft, goal)
    if experiment is None:
        raise PlanError(
            "nothing to sweep was named",
            "name an experiment file or a workload; `pgpaces sweep --new FILE` writes a file",
        )
    _check_size(experiment, given)
    return pipeline.plan(execute.order(experiment, given, resume, goal))


def _asked(draft: Draft, before: Goal | None) -> tuple[Experiment, Goal | None]:
    """What a draft asks for. before: the goal of what is resumed, where it is."""
    from pgpaces.answers.time_budget import TimeBudget
    from pgpaces.experiment import time_budget
    from pgpaces.servers import profiles

    if draft.time_budget is None and isinstance(before, TimeBudget):
        draft = draft.with_time_budget(f"{before.budget_s:g}s")
    if draft.time_budget is not None:
        return time_budget.ask(draft)
    return draft.experiment(profiles.ready_made), before


def _check_within(given: Mapping[str, Any]) -> None:
    """Raises PlanError for what says how many trials there are, or how long, beside a time."""
    why = {"trials": "how many there are", "quick": "how short they are"}
    for name, what in why.items():
        if given["within"] and given[name]:
            raise PlanError(
                f"--{name} and --within exclude each other",
                f"within a time trials are run where they decide, and that says {what}: choose one",
            )


def _of_file(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """`--resume FILE` as `FILE --resume`: no experiment is called like a file that is there."""
    file = given["resume"] or ""
    if given["what"] is None and file.endswith(".toml") and is_there(file, Path.is_file):
        return {**given, "what": file, "resume": "last"}
    return given


def _check_unchanged(given: Mapping[str, Any]) -> None:
    """Raises PlanError for options that an experiment from the store would not follow."""
    names = ("quick", "trials", "within", "seed", "missed", "name", "from_database")
    asked = [f"--{name.replace('_', '-')}" for name in names if _is_given(given[name])]
    if asked:
        raise PlanError(
            f"{asked[0]} does not change an experiment that is resumed",
            "leave it out; what the experiment is stands in the store",
        )


def _is_given(value: object) -> bool:
    return value is not None and value is not False


def _check_size(experiment: Experiment, given: Mapping[str, Any]) -> None:
    trials = len(experiment.design.cells()) * experiment.design.trials
    if trials > TRIALS_MAX and not given["yes"]:
        raise PlanError(
            f"the grid has {trials} trials", f"more than {TRIALS_MAX} need --yes, or fewer levels"
        )
