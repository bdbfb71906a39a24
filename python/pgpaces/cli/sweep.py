"""`pgpaces sweep`: an experiment from a file or from the command line, to its page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgpaces.cli import execute, experiment_options, options, output
from pgpaces.cli.streams import announce, put
from pgpaces.core.errors import PlanError
from pgpaces.core.home import is_there
from pgpaces.spec import experiment_file

if TYPE_CHECKING:
    from pgpaces.trial.sweep import PlannedSweep

TRIALS_MAX = 10_000


@options.command()
@options.argument("what", required=False, metavar="[FILE.toml|WORKLOAD]")
@options.options(experiment_options.OF_WHAT)
@options.options(
    options.of("trials", "missed", "allow_fail", "quick", "yes", "new", "schema", "anyway"),
    experiment_options.HOW,
)
def sweep(**params: Any) -> int:
    """Run an experiment and find the load at which requests start to miss the limit.

    pgpaces runs every combination of levels, in random order within each block. An option with
    several LEVELS, separated by commas, is a factor; write \\, for a comma within a level. FILE can
    describe the experiment instead; options on the command line override it.
    """

    if params["new"]:
        experiment_file.create(Path(params["new"]))
        announce("experiment-written", path=params["new"])
        return 0
    if params["schema"]:
        from pgpaces.show import escape

        put(escape.json_text(experiment_file.schema()))
        return 0
    planned = _planned(params)
    if planned.asks or params["as_json"]:
        execute.preview(planned, params)
    else:
        announce("no-trials-missing")
    if params["dry_run"]:
        return 0
    return execute.carry_out(planned, params)


def _planned(params: Mapping[str, Any]) -> PlannedSweep:
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
    return execute.plan(experiment, params, resume, goal=goal)
