"""Whether a workload's folder may execute programs: asked on a terminal, or granted by --trust."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli.streams import announce
from pgpaces.show import escape

if TYPE_CHECKING:
    from pgpaces.spec.trust import Action, Consent, Question


def of(params: Mapping[str, Any]) -> Consent:
    """The consent by a command's options. Scripts that these name need none."""
    typed = {file.rpartition("@")[0] or file for file in params["files"]} | set(params["files"])
    with contextlib.suppress(ValueError):  # unpaired quotes, which are reported when it is parsed
        for word in (word for text in params["background"] for word in shlex.split(text)):
            typed |= {word, *word.partition("=")[2].split(",")}

    def answer(question: Question) -> bool:
        from pgpaces.core.messages import message

        script = question.path.is_file() and str(question.path) in typed
        if params["trust"] or script:
            return True
        if not question.actions or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        announce("executes-these", path=question.path)
        for text in lines(question.actions):
            click.echo(text, err=True)
        announce("programs-unlisted")
        return click.confirm(message("confirm-trust"), default=False, err=True)

    return answer


def lines(actions: tuple[Action, ...]) -> Iterator[str]:
    for each in actions:
        text = escape.line(f"{each.what}, {each.file}: {each.text}".rstrip(": "))
        yield f"  {text}"
