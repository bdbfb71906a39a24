"""Prints the answers of commands: words and tables in the terminal, JSON, or a report in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pgpaces.cli.main import put

if TYPE_CHECKING:
    from pgpaces.answer import Answer
    from pgpaces.section import Section


def tell(
    answer: Answer, params: Mapping[str, Any], document: Mapping[str, Any] | None = None
) -> None:
    """Prints an answer, and writes its report where `--output` names a file.

    params: of the command. document: shown by `--json` in place of the value.
    """
    from pgpaces.report import escape

    if params["as_json"]:
        put(escape.json_text(_keys(answer, document)))
    else:
        put(text((answer.section,), verbose=params["verbose"]))
    if params["output"]:
        from pgpaces.cli.report import write_page

        write_page(answer.page, params["output"])


def text(sections: Sequence[Section], *, verbose: bool) -> str:
    """Answers for the width of the terminal: each in one screen, or all of it."""
    from rich.console import Console

    from pgpaces.report import terminal

    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as shown:
        for number, each in enumerate(sections):
            if number:
                console.print()
            for part in (terminal.whole if verbose else terminal.brief)(each, console.width):
                console.print(part)
    return shown.get()


def _keys(answer: Answer, document: Mapping[str, Any] | None) -> dict[str, Any]:
    """The answer as JSON: `title`, `answer`, `trials`, and its value."""
    from pgpaces.report.data import section

    keys = section(answer.section)
    if document is not None:
        del keys["value"]
    return {**(document or {}), **keys}
