"""`pgpaces explain`: what a finding means, and what to do about it."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from pgpaces.cli import options
from pgpaces.cli.streams import put


class FindingName(click.ParamType[str]):
    """The name of a finding, completed from the catalog."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from pgpaces.core.findings import catalog

        return [
            CompletionItem(name, help=entry.severity)
            for name, entry in catalog().items()
            if name.startswith(incomplete)
        ]


@options.command(
    epilog="\b\nExamples:\n  pgpaces explain\n  pgpaces explain generator-late\n"
    "  pgpaces explain cpu-steal --json"
)
@click.argument("name", required=False, type=FindingName())
@options.options(options.of("json"))
def explain(name: str | None, as_json: bool) -> int:
    """Explain a finding by its name; without a name, list all findings.

    pgpaces shows findings as `NAME: SENTENCE`. The explanation says what a finding means, what it
    does to the verdict, and what to do.
    """
    from pgpaces.core import findings
    from pgpaces.core.errors import PlanError, nearest
    from pgpaces.show import escape

    every = findings.catalog()
    if name is not None and name not in every:
        near = nearest(name, every)
        raise PlanError(
            f"no finding is called '{name}'", near or "`pgpaces explain` lists all findings"
        )
    names = [*every] if name is None else [name]
    if as_json:
        entries: list[Any] = [findings.explanation(each) for each in names]
        put(escape.json_text(entries if name is None else entries[0]))
    elif name is None:
        width = max(map(len, every))
        put("".join(f"{each:{width}}  {every[each].severity}\n" for each in names))
    else:
        put(f"{findings.explained(name)}\n")
    return 0
