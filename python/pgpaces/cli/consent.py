"""Whether a workload's folder may execute programs: asked on a terminal, or said by --trust."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from pgpaces.report import escape

if TYPE_CHECKING:
    from pgpaces.actions import Action
    from pgpaces.trust import Consent, Question

TRUST = click.option(
    "--trust",
    is_flag=True,
    help="The folders of workloads may execute programs; their content is not asked about again.",
)


def of(given: Mapping[str, Any]) -> Consent:
    """Who is asked, by the command's options."""
    from pgpaces import trust

    return trust.grant if given["trust"] else _ask


def lines(actions: tuple[Action, ...]) -> Iterator[str]:
    """What would be executed, a line each: whatever is in it changes no other line."""
    for each in actions:
        text = escape.line(f"{each.what}, {each.file}: {each.text}".rstrip(": "))
        yield f"  {text}"


def _ask(question: Question) -> bool:
    """Asks on a terminal. Without one, or with nothing to ask about, nobody agrees."""
    if not question.actions or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    folder = escape.line(str(question.folder))
    click.echo(f"the workload in {folder} executes, as you:", err=True)
    for text in lines(question.actions):
        click.echo(text, err=True)
    click.echo("what these execute in turn is not listed; read them first", err=True)
    return click.confirm("trust what is in the folder now?", default=False, err=True)
