"""`pgpaces trend`: whether and since when stored runs of one kind have another level."""

from __future__ import annotations

from typing import Any

from pgpaces.cli import options
from pgpaces.cli.output import tell

EXAMPLES = """\b
Examples:
  pgpaces trend
  pgpaces trend nightly --metric p95 -o trend.html
  pgpaces trend last --factor server
"""
METRIC = "What is followed: rate, mean, p50, p95, p99 or p99.9."
FACTOR = "What may differ beside time: server, pgpaces, set.work_mem, ..."


@options.command(epilog=EXAMPLES)
@options.argument("names", nargs=-1, metavar="[TAG|WORKLOAD|EXPERIMENT|RUN]...")
@options.options(
    options.of("metric", "factor", "anyway", *options.ANSWER, metric=METRIC, factor=FACTOR)
)
def trend(names: tuple[str, ...], **given: Any) -> None:
    """Say whether runs of one kind changed their level, since when, and by how much.

    It takes 8. Of one RUN, by default the newest, all those that differ from it in nothing but
    time. Runs that differ in more than time are refused.
    """
    from pgpaces.questions import trend as question

    found = question.trend(
        *names,
        metric=given["metric"],
        factors=given["factors"],
        anyway=given["anyway"],
        store=given["store_path"],
    )
    tell(found, given)
