"""The outputs of a verdict for continuous integration: JUnit, summary, annotation, exit code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli.files import save, writing
from pgpaces.cli.output import check_folder, text

if TYPE_CHECKING:
    from pgpaces.show.section import Section

WORSE_EXIT, UNDECIDED_EXIT = 30, 32
EXITS = {"better": 0, "equivalent": 0, "worse": WORSE_EXIT, "inconclusive": UNDECIDED_EXIT}


def check(params: Mapping[str, Any]) -> None:
    """Raises PlanError for files that cannot be written, before anything is run."""
    for name in ("junit", "summary"):
        if params[name]:
            check_folder(Path(params[name]).resolve().parent)


def tell(section: Section, params: Mapping[str, Any]) -> None:
    """Writes the requested files. Raises RunError where a file cannot be written.

    The annotation goes to stderr, which GitHub reads too, so that stdout stays the answer.
    """
    from pgpaces.show import ci, markdown

    if params["junit"]:
        shown = text([section], verbose=False, plain=True)
        save(ci.junit(section, shown), Path(params["junit"]))
    if params["summary"]:
        path = Path(params["summary"])
        with writing(path), path.open("ab") as file:
            file.write(markdown.summary(section).encode("utf-8", "replace"))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        click.echo(ci.annotation(section), err=True)


def exit_code(section: Section) -> int:
    return EXITS[section.value.outcome]
