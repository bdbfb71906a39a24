"""`pgpaces trend`: whether and since when stored runs of one kind have changed their level."""

from __future__ import annotations

from typing import Any

from pgpaces.cli import options
from pgpaces.cli.output import tell
from pgpaces.core.metrics import FOLLOWED

EXAMPLES = """\b
Examples:
  pgpaces trend
  pgpaces trend nightly --metric p95 -o trend.html
  pgpaces trend last --factor server
"""
METRIC = (
    f"Metric to follow: {', '.join(FOLLOWED)}."
    " [default: p95 of loads with a planned rate, else throughput]"
)
FACTOR = "Factor that may differ as well as time: server, pgpaces, set.work_mem, ..."


@options.command(epilog=EXAMPLES)
@options.argument("names", nargs=-1, metavar="[TAG|WORKLOAD|EXPERIMENT|RUN]...")
@options.options(
    options.of("metric", "factor", "anyway", *options.ANSWER, metric=METRIC, factor=FACTOR)
)
def trend(names: tuple[str, ...], **params: Any) -> None:
    """Say whether runs of one kind changed their level, since when, and by how much.

    It requires 8 runs. One RUN, by default the newest, stands for all that differ from it in
    nothing but time. Runs that differ in more than time are refused.
    """
    from pgpaces.answers import trend as question

    answer = question.trend(
        *names,
        metric=params["metric"] or "",
        factors=params["factors"],
        anyway=params["anyway"],
        store=params["store_path"],
    )
    tell(answer, params)
