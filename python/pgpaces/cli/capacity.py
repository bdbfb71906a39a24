"""`pgpaces capacity`: how much it holds, from a search whose trials follow from each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli import consent, execute, experiment_options, options
from pgpaces.errors import PlanError

if TYPE_CHECKING:
    from pgpaces.answers.capacity.goal import Mode
    from pgpaces.experiment.sweep import SweepPlan

QUICK = "A quick estimate in three minutes, without a soak."
EXAMPLES = """\b
Examples:
  pgpaces capacity reporting -L 500ms --missed 5%
  pgpaces capacity tpcb-like --goal 'p99 <= 50ms' --quick
  pgpaces capacity garden --users 1,500 --pace 1/s -L 200ms -o capacity.html
  pgpaces capacity reporting --rate-per-client 1/s -L 500ms \\
      --server-set max_parallel_workers_per_gather=0,2,4
  pgpaces capacity --resume
"""


@options.command(epilog=EXAMPLES)
@options.argument("what", required=False, metavar="[FILE.toml|WORKLOAD]")
@options.options(
    options.of("missed", "goal", "by", "quick", "strict", "soak", quick=QUICK),
    experiment_options.OF_WHAT,
)
@options.options(experiment_options.HOW)
def capacity(**given: Any) -> int:
    """Say up to which load WORKLOAD meets the goal, and from which on it misses it.

    Levels as in `pgpaces sweep`; of each combination the capacity is searched. Of the load itself
    one level is where the search begins, two are the least and the most that is offered.
    """
    planned = _planned(given)
    execute.preview(planned, given)
    return 0 if given["dry_run"] else execute.carry_out(planned, given)


def _planned(given: Mapping[str, Any]) -> SweepPlan:
    from pgpaces.experiment import capacity as asking
    from pgpaces.experiment import sweep as pipeline

    execute.check_output(given)
    if given["quick"] and given["strict"]:
        raise PlanError("--quick and --strict exclude each other", "choose one")
    if given["quick"] and _soak_given():
        raise PlanError("--soak is of a search without --quick", "leave one of them out")
    for name in ("duration", "transactions"):
        if given[f"level_{name}"]:
            raise PlanError(f"--{name} is for the search to choose", "leave it out")
    # Here quick is of the search, and so is what may be missed.
    draft = experiment_options.draft({**given, "quick": False, "missed": None})
    resume = None
    if given["resume"] is not None:
        resume, experiment, goal = asking.stored(given["resume"], given["store_path"])
    elif draft is None:
        raise PlanError("nothing to search was named", "name a workload or an experiment file")
    if draft is None:
        _check_unchanged(given)
    else:
        mode: Mode = "quick" if given["quick"] else "strict" if given["strict"] else "normal"
        asked = (given["missed"], given["quantile"], given["by"])
        question = asking.CapacityQuestion(*asked, mode, given["soak"])
        experiment, goal = asking.ask(draft, question, consent.of(given))
    return pipeline.plan(execute.order(experiment, given, resume, goal))


def _soak_given() -> bool:
    source = click.get_current_context().get_parameter_source("soak")
    return source is click.core.ParameterSource.COMMANDLINE


def _check_unchanged(given: Mapping[str, Any]) -> None:
    """Raises PlanError for options that a search from the store would not follow."""
    names = ("missed", "quantile", "by", "quick", "strict", "seed", "name", "from_database")
    asked = [name for name in names if given[name] not in (None, False)]
    asked += ["soak"] if _soak_given() else []
    if asked:
        option = asked[0].replace("quantile", "goal").replace("_", "-")
        raise PlanError(
            f"--{option} does not change a search that is resumed",
            "leave it out; what is asked stands in the store",
        )
