"""`pgpaces explain`: what a finding, an error, or a metric means."""

from __future__ import annotations

import click

from pgpaces.cli import options
from pgpaces.cli.streams import put


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _every() if name.startswith(incomplete)]


def _every() -> dict[str, dict[str, str]]:
    """The explanations of all names."""
    from pgpaces.core import causes, findings

    every = {name: findings.explanation(name) for name in findings.explained_names()}
    entries = map(causes.explanation, causes.catalog().causes)
    return every | {entry["name"]: entry for entry in entries}


@options.command()
@click.argument("name", required=False, shell_complete=_names)
@options.options(options.of("json"))
def explain(name: str | None, as_json: bool) -> int:
    """Explain a finding, an error, a metric, or a cause. Without a name, list all names.

    pgpaces prints findings as `NAME: SENTENCE`. The explanation says what a finding means, how it
    affects the verdict, and what to do. Metrics are the numbers that pgpaces shows.
    """
    from pgpaces.core.errors import PlanError, similar
    from pgpaces.core.findings import explained
    from pgpaces.show import escape

    every = _every()
    if name is not None and name not in every:
        raise PlanError("unknown-name", name=name, near=similar(name, every))
    if as_json:
        put(escape.json_text(every[name] if name else [*every.values()]))
    elif name is None:
        width = max(map(len, every))
        put("".join(f"{each:{width}}  {every[each]['severity']}\n" for each in every))
    else:
        put(f"{explained(every[name])}\n")
    return 0
