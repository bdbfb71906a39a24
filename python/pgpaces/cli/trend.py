"""`pgpaces trend`: whether and since when stored runs of one kind have changed their level."""

from __future__ import annotations

from typing import Any

from pgpaces.cli import options
from pgpaces.cli.output import tell


@options.command()
@options.argument("names", nargs=-1, metavar="[TAG|WORKLOAD|EXPERIMENT|RUN]...")
@options.options(options.of("metric", "factor", "anyway", *options.ANSWER))
def trend(names: tuple[str, ...], **params: Any) -> None:
    """Report whether the results of similar runs changed, since when, and by how much.

    The command needs 8 runs. One RUN (by default the newest) selects all runs that differ from it
    only in time. pgpaces refuses runs that differ in anything else.
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
