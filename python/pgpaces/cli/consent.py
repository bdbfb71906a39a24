"""Whether a workload's folder may execute programs: asked on a terminal, or granted by --trust."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from pgpaces.show import escape

if TYPE_CHECKING:
    from pgpaces.spec.actions import Action
    from pgpaces.spec.trust import Consent, Question


def of(params: Mapping[str, Any]) -> Consent:
    """The consent by a command's options. Scripts that these name need none; folders do."""
    typed = {file.rpartition("@")[0] or file for file in params["files"]} | set(params["files"])
    with contextlib.suppress(ValueError):  # unpaired quotes, which are reported when it is parsed
        for word in (word for text in params["background"] for word in shlex.split(text)):
            typed |= {word, *word.partition("=")[2].split(",")}

    def answer(question: Question) -> bool:
        script = question.path.is_file() and str(question.path) in typed
        if params["trust"] or script:
            return True
        if not question.actions or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        click.echo(f"{escape.line(str(question.path))} executes, as you:", err=True)
        for text in lines(question.actions):
            click.echo(text, err=True)
        click.echo("what these execute in turn is not listed; read them first", err=True)
        return click.confirm("trust what is in it now?", default=False, err=True)

    return answer


def lines(actions: tuple[Action, ...]) -> Iterator[str]:
    for each in actions:
        text = escape.line(f"{each.what}, {each.file}: {each.text}".rstrip(": "))
        yield f"  {text}"
