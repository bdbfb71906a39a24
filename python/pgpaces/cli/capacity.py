"""`pgpaces capacity`: searches the highest load that passes, trial by trial."""

from __future__ import annotations

from typing import Any

import click

from pgpaces.cli import consent, execute, experiment_options, options, output
from pgpaces.core.errors import PlanError


@options.command()
@options.argument("what", required=False, metavar="[FILE.toml|WORKLOAD]")
@options.options(
    options.of("missed", "allow_fail", "goal", "by", "quick", "soak", "anyway"),
    experiment_options.OF_WHAT,
)
@options.options(experiment_options.HOW)
def capacity(**params: Any) -> int:
    """Find the highest load at which WORKLOAD passes, and the lowest load at which it fails.

    Levels work as in `pgpaces sweep`; pgpaces searches the capacity of each combination. For the
    load itself, one level is the start of the search, and two levels set the search range.
    """
    from pgpaces.trial import capacity as asking

    output.check(params)
    source = click.get_current_context().get_parameter_source("soak")
    soak_given = source is click.core.ParameterSource.COMMANDLINE
    if params["quick"] and soak_given:
        raise PlanError("cannot-combine", options=["--quick", "--soak"])
    for name in ("duration", "transactions"):
        if params[name]:
            raise PlanError("search-chooses", option=f"--{name}")
    # Here --quick and --missed apply to the search, not to its trials.
    draft = experiment_options.draft({**params, "quick": False, "missed": None})
    if params["like"] is not None and draft is not None:
        draft = draft.without("duration", "transactions", "warmup", "shape")
    resume = None
    if params["resume"] is not None:
        resume, experiment, goal = asking.stored(params["resume"], params["store_path"])
    elif draft is None:
        raise PlanError("workload-or-file-missing")
    if draft is None:
        names = ("missed", "quantile", "by", "quick", "seed", "name", "from_database")
        changed = [n for n in names if params[n] is not None and params[n] is not False]
        changed += ["soak"] if soak_given else []
        if changed:
            option = changed[0].replace("quantile", "goal").replace("_", "-")
            raise PlanError("fixed-by-resume", option=f"--{option}")
    else:
        question = asking.CapacityQuestion(
            params["missed"], params["quantile"], params["by"], params["quick"], params["soak"]
        )
        experiment, goal = asking.ask(draft, question, consent.of(params))
    planned = execute.plan(experiment, params, resume, goal=goal)
    execute.preview(planned, params)
    return 0 if params["dry_run"] else execute.carry_out(planned, params)
