"""`pgpaces explain`: what a finding, an error, or a metric means."""

from __future__ import annotations

import click

from pgpaces.cli import options
from pgpaces.cli.streams import put


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from pgpaces.core import findings

    return [name for name in findings.explained_names() if name.startswith(incomplete)]


@options.command(
    epilog="\b\nExamples:\n  pgpaces explain\n  pgpaces explain generator-late\n"
    "  pgpaces explain p95\n  pgpaces explain cpu-steal --json"
)
@click.argument("name", required=False, shell_complete=_names)
@options.options(options.of("json"))
def explain(name: str | None, as_json: bool) -> int:
    """Explain a finding, an error, or a metric by its name; without a name, list all names.

    pgpaces shows findings as `NAME: SENTENCE`. The explanation says what a finding means, what it
    does to the verdict, and what to do. Metrics are the numbers that pgpaces shows.
    """
    from pgpaces.core import findings
    from pgpaces.core.errors import PlanError, similar
    from pgpaces.show import escape

    every = {each: findings.explanation(each) for each in findings.explained_names()}
    if name is not None and name not in every:
        raise PlanError("unknown-name", name=name, near=similar(name, every))
    if as_json:
        put(escape.json_text(every[name] if name else [*every.values()]))
    elif name is None:
        width = max(map(len, every))
        put("".join(f"{each:{width}}  {every[each]['severity']}\n" for each in every))
    else:
        put(f"{findings.explained(name)}\n")
    return 0
