"""Prints the answers of commands: words and tables in the terminal, JSON, or a report in a file."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from msgspec.structs import replace

from pgpaces.cli.files import write_page
from pgpaces.cli.streams import put
from pgpaces.core.errors import PlanError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pgpaces.answers.answer import Answer
    from pgpaces.show.section import Section

# A smaller width, such as COLUMNS=0, has no room for a word.
_WIDTH_MIN = 40
# A connection string with a password.
SECRET = re.compile(r"password|^[^/]*://[^@/]*:[^@/]*@", re.IGNORECASE)
# A command of a text, without those that follow it.
_COMMAND = re.compile(r"pgpaces [a-z].*?(?= && pgpaces |; pgpaces |\Z)", re.DOTALL)


def check(params: Mapping[str, Any]) -> None:
    """Raises PlanError for a report that cannot be written, before hours are spent."""
    if params["output"]:
        from pgpaces.show import render

        render.form_of(params["output"])
        check_folder(Path(params["output"]).resolve().parent)


def check_folder(folder: Path) -> None:
    """Raises PlanError for a folder in which the report cannot be written."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise PlanError("folder-not-writable", path=folder)


def tell(answer: Answer, params: Mapping[str, Any]) -> None:
    """Prints an answer, and writes its report where `--output` names a file."""
    show(answer.section, as_json=params["as_json"], verbose=params["verbose"])
    if params["output"]:
        write_page(answer.page, params["output"])


def show(answer: Section, *, as_json: bool, verbose: bool = False) -> None:
    """Prints an answer as JSON, in one screen, or all of it."""
    from pgpaces.show import data, escape

    document = escape.json_text(data.document(with_own_store(answer))) if as_json else ""
    put(document or text((answer,), verbose=verbose))


def text(sections: Sequence[Section], *, verbose: bool, plain: bool = False) -> str:
    """Answers for the width of the terminal: each in one screen, or all of it.

    plain: without colors, for a file.
    """
    from pgpaces.show import terminal

    show = terminal.whole if verbose else terminal.brief

    def parts(width: int) -> Iterator[RenderableType]:
        for number, each in enumerate(sections):
            yield from ("",) if number else ()
            yield from show(with_own_store(each), width)

    return rendered(parts, plain=plain)


def with_own_store(section: Section) -> Section:
    sentences = (
        replace(each, text=with_store(each.text)) if each.text.startswith("pgpaces ") else each
        for each in section.sentences
    )
    return replace(
        section,
        sentences=tuple(sentences),
        next=tuple(replace(each, command=with_store(each.command)) for each in section.next),
        aside=tuple(map(with_store, section.aside)),
    )


def with_store(text: str) -> str:
    """A text that ends in commands, with the --store of this command line but without a password.

    A store that $PGPACES_STORE names is that of the next command too.
    """
    context = click.get_current_context(silent=True)
    store = None if context is None else context.params.get("store_path")
    if store is None:
        return text
    from pgpaces.show import escape

    word = escape.command(shlex.quote("DSN" if SECRET.search(store) else store))
    return _COMMAND.sub(
        lambda one: one[0] if " --store" in one[0] else f"{one[0]} --store {word}", text
    )


def rendered(parts: Callable[[int], Iterable[RenderableType]], *, plain: bool = False) -> str:
    """What a terminal of the user's width shows. parts: by that width. plain: without colors."""
    from rich.console import Console, Group

    colors: Literal["auto"] | None = None if plain else "auto"
    console = Console(highlight=False, markup=False, emoji=False, color_system=colors)
    console.width = max(_WIDTH_MIN, console.width)
    with console.capture() as shown:
        # A command is not cropped, and not broken either: as a part of a group it stays as it is.
        console.print(Group(*parts(console.width)), crop=False)
    return shown.get()
