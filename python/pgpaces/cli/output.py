"""How commands tell an answer: words and tables in the terminal, JSON, or its report in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pgpaces.cli.main import put
from pgpaces.cli.report import write_page

if TYPE_CHECKING:
    from pgpaces.answer import Answer
    from pgpaces.section import Section


def tell(
    found: Answer, given: Mapping[str, Any], document: Mapping[str, Any] | None = None
) -> None:
    """Prints an answer, and writes its report where `--output` names a file.

    given: the command's options. document: what `--json` shows for the value, by keys of its own.
    """
    from pgpaces.report import escape

    if given["as_json"]:
        put(escape.json_text(_keys(found, document)))
    else:
        put(text((found.section,), verbose=given["verbose"]))
    if given["output"]:
        write_page(found.page, given["output"])


def text(sections: Sequence[Section], *, verbose: bool) -> str:
    """Answers for the terminal that there is: each in one screen, or all of it."""
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


def _keys(found: Answer, document: Mapping[str, Any] | None) -> dict[str, Any]:
    """The answer as JSON: `title`, `answer`, `trials`, and its value."""
    from pgpaces.report.data import section

    keys = section(found.section)
    if document is not None:
        del keys["value"]
    return {**(document or {}), **keys}
