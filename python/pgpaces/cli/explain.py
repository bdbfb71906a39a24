"""`pgpaces explain`: what a finding or an error means, and what to do about it."""

from __future__ import annotations

import click

from pgpaces.cli import options
from pgpaces.cli.streams import put


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from pgpaces.core import errors, findings

    names = [*findings.catalog(), *errors.catalog()]
    return [name for name in names if name.startswith(incomplete)]


@options.command()
@click.argument("name", required=False, shell_complete=_names)
@options.options(options.of("json"))
def explain(name: str | None, as_json: bool) -> int:
    """Explain a finding or an error by its name. Without a name, list all names.

    pgpaces prints findings as `NAME: SENTENCE`. The explanation says what a finding means, how it
    affects the verdict, and what to do.
    """
    from pgpaces.core import errors, findings
    from pgpaces.core.errors import PlanError, similar
    from pgpaces.show import escape

    every = {name: findings.explanation(name) for name in findings.catalog()}
    every |= {name: findings.explanation(name) for name in errors.catalog()}
    if name is not None and name not in every:
        raise PlanError("unknown-finding", finding=name, near=similar(name, every))
    if as_json:
        put(escape.json_text(every[name] if name else [*every.values()]))
    elif name is None:
        width = max(map(len, every))
        put("".join(f"{each:{width}}  {every[each]['severity']}\n" for each in every))
    else:
        put(f"{findings.explained(name)}\n")
    return 0
