"""`pgpaces forecast`: the throughput of more clients or users, from trials at several numbers."""

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
    help="Forecast N clients or users, at most 1.5 times the highest measured number.",
)
@options.old(
    *("--in", "old_chosen"),
    group="Workload",
    metavar="FACTOR=LEVEL,...",
    now="--where",
)
@options.options(options.of("where", *options.ANSWER))
def forecast(names: tuple[str, ...], **params: Any) -> None:
    """Forecast the throughput of more clients or users. Default: of the newest experiment.

    From trials at 6 numbers of clients or users, 3 at each: the universal scalability law, and
    bounds that need no law. If these trials allow no forecast, it says why.
    """
    from pgpaces.questions import forecast as question

    answer = question.forecast(
        *names,
        chosen=params["chosen"] or params["old_chosen"] or "",
        to=params["to"],
        store=params["store_path"],
    )
    tell(answer, params)
