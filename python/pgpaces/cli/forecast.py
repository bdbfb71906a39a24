"""`pgpaces forecast`: what more clients or users would do, from trials at several of them."""

from __future__ import annotations

from typing import Any

import click

from pgpaces.cli import options
from pgpaces.cli.output import tell

EXAMPLES = """\b
Examples:
  pgpaces sweep tpcb-like --clients 1,2,3,4,5,6,8 -T 15s --trials 3
  pgpaces forecast --to 12
  pgpaces forecast pi-reporting --where set.work_mem=64MB -o forecast.html
"""


@options.command(epilog=EXAMPLES)
@options.argument("names", nargs=-1, metavar="[EXPERIMENT|RUN]...")
@options.option(
    "--to",
    group="Load",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="What N would do, at most 1.5 times the most that were tried.",
)
@options.old(
    *("--in", "old_chosen"),
    group="Workload",
    metavar="FACTOR=LEVEL,...",
    now="--where",
)
@options.options(options.of("where", *options.ANSWER))
def forecast(names: tuple[str, ...], **given: Any) -> None:
    """Say what more clients or users would do. Default: of the newest experiment.

    From trials at 6 numbers of clients or users, 3 at each: the universal scalability law beside
    bounds that hold without a law. Where these trials allow no forecast, it says why.
    """
    from pgpaces.questions import forecast as question

    found = question.forecast(
        *names,
        chosen=given["chosen"] or given["old_chosen"] or "",
        to=given["to"],
        store=given["store_path"],
    )
    tell(found, given)
