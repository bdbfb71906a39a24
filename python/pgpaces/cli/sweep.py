"""`pgpaces sweep`: an experiment from a file or from the command line, to its page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli import execute, experiment_options, options, output
from pgpaces.cli.run import ANYWAY
from pgpaces.cli.streams import put
from pgpaces.core.errors import PlanError
from pgpaces.core.home import is_there
from pgpaces.spec import experiment_file

if TYPE_CHECKING:
    from pgpaces.trial.sweep import SweepPlan

TRIALS_MAX = 10_000
QUICK = "Seconds instead of minutes: does all of it work?"
YES = f"Also with more than {TRIALS_MAX} trials."
EXAMPLES = """\b
Examples:
  pgpaces sweep reporting --clients 1,2,4,8 --rate-per-client 1/s -L 500ms --policy skip \\
      --server-set max_parallel_workers_per_gather=0,2,4 --trials 2 -o report.html
  pgpaces sweep experiment.toml --dry-run
  pgpaces sweep experiment.toml --quick
  pgpaces sweep --resume
  pgpaces sweep --new experiment.toml
  pgpaces sweep experiment.toml --server 15,18
"""


@options.command(epilog=EXAMPLES)
@options.argument("what", required=False, metavar="[FILE.toml|WORKLOAD]")
@options.options(experiment_options.OF_WHAT)
@options.options(
    options.of(
        *("trials", "missed", "allow_fail", "quick", "yes", "new", "schema", "anyway"),
        quick=QUICK,
        yes=YES,
        anyway=ANYWAY,
    ),
    experiment_options.HOW,
)
def sweep(**params: Any) -> int:
    """Run every combination of levels in random blocks, and find where requests start to be late.

    An option with several LEVELS, separated by commas, is a factor (a comma within a level is
    written \\,). A FILE describes the same; options on the command line override it.
    """

    if params["new"]:
        experiment_file.create(Path(params["new"]))
        click.echo(
            f"wrote {params['new']}; next: pgpaces sweep {params['new']} --dry-run", err=True
        )
        return 0
    if params["schema"]:
        from pgpaces.show import escape

        put(escape.json_text(experiment_file.schema()))
        return 0
    planned = _planned(params)
    if planned.slots or params["as_json"]:
        execute.preview(planned, params)
    else:
        click.echo("nothing is missing: every trial was run", err=True)
    if params["dry_run"]:
        return 0
    return execute.carry_out(planned, params)


def _planned(params: Mapping[str, Any]) -> SweepPlan:
    """The checked experiment. Checks the form of its report too, before hours are spent."""
    output.check(params)
    from pgpaces.server import profiles
    from pgpaces.trial import sweep as pipeline

    file = params["resume"] or ""
    if params["what"] is None and file.endswith(".toml") and is_there(file, Path.is_file):
        params = {**params, "what": file, "resume": "last"}
    draft, resume, experiment, goal = experiment_options.draft(params), None, None, None
    if draft is None and params["resume"] is not None:
        for option in ("quick", "trials", "seed", "missed", "name", "from_database"):
            if params[option] is not None and params[option] is not False:
                raise PlanError("fixed-by-resume", option=f"--{option.replace('_', '-')}")
    if params["resume"] is not None:
        by_file = draft is not None and params["resume"] == "last"
        name = draft.name if draft is not None and by_file else params["resume"]
        resume, experiment, goal = pipeline.find(name, params["store_path"])
    if draft is not None:
        experiment = draft.experiment(profiles.ready_made)
    if experiment is None:
        raise PlanError("workload-or-file-missing")
    trials = len(experiment.design.cells()) * experiment.design.trials
    if trials > TRIALS_MAX and not params["yes"]:
        raise PlanError("too-many-trials", trials=trials, most=TRIALS_MAX)
    return pipeline.plan(execute.order(experiment, params, resume, goal=goal))
