"""`pgpaces report`: what an experiment or some runs say, as a page, text, tables or pictures."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgpaces.cli import options
from pgpaces.cli.main import put
from pgpaces.errors import PgpacesError, PlanError, RunError

if TYPE_CHECKING:
    from pgpaces.report.page import Page
    from pgpaces.report.render import Form
    from pgpaces.store import Store

_FORMS = ("html", "md", "text", "csv", "json", "parquet", "svg", "png")


@click.command(
    epilog="\b\nExamples:\n  pgpaces report -o report.html\n  pgpaces report pi-reporting\n"
    "  pgpaces report RUN RUN -o report.md\n  pgpaces report -o charts --format svg"
)
@click.argument("names", nargs=-1, metavar="[EXPERIMENT|RUN]...")
@click.option("-o", "--output", type=click.Path(), help="The file, or the folder of svg and png.")
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMS),
    help="[default: by the ending of the file, else text]",
)
@options.options((options.STORE,))
def report(
    names: tuple[str, ...], output: str | None, form: Form | None, store_path: str | None
) -> None:
    """Say what an experiment found: in words, tables and charts. Default: the newest experiment.

    Of runs that belong to no experiment, what differs between them becomes the factors.
    """
    from pgpaces.cli.runs import _open
    from pgpaces.report import render

    chosen = form or (render.form_of(output) if output else "text")
    if output is None and chosen in (*render.FOLDERS, "parquet"):
        raise PlanError(f"{chosen} does not go to a terminal", "name where with --output")
    page = gather(_open(store_path), names)
    if output is None:
        put(text(page) if chosen == "text" else render.render(page, chosen).decode())
        return
    written = write(page, chosen, Path(output))
    click.echo(f"written: {written}", err=True)


def text(page: Page) -> str:
    """The report for the terminal that there is."""
    from pgpaces.report.terminal import terminal

    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return terminal(page, shutil.get_terminal_size((100, 24)).columns, colour=colour)


def write(page: Page, form: Form, path: Path) -> Path:
    """Writes the report. Raises RunError where the file cannot be written."""
    from pgpaces.report import render

    try:
        if form in ("svg", "png"):
            pictures = render.folder(page, form)
            path.mkdir(parents=True, exist_ok=True)
            for name, content in pictures.items():
                (path / name).write_bytes(content)
        else:
            # What was there stays until all of it is written.
            content = render.render(page, form)
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                beside.write_bytes(content)
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from None
    return path


def gather(store: Store, names: tuple[str, ...]) -> Page:
    """The page of an experiment, of several, or of runs. Raises PlanError for unknown names."""
    from importlib.metadata import version

    from pgpaces.report.page import About
    from pgpaces.report.page import gather as gathered

    about = About(datetime.now(UTC), version("pgpaces"))
    found = [_find(store, name) for name in names] or [_newest(store)]
    if len(found) == 1 and found[0][1] == "experiment":
        from pgpaces.experiment.document import read

        row = store.experiment(found[0][0])
        ids = [each.id for each in store.placed(row.id)]
        failures = tuple((each.cell, each.block, each.error) for each in store.failures(row.id))
        rerun = str(row.document.get("command", ""))
        told = About(**about, rerun=rerun, id=row.id, started_at=row.started_at, failures=failures)
        return gathered(store.digests(ids), told, read(row.document))
    ids = [
        id_
        for what, kind in found
        for id_ in ([each.id for each in store.placed(what)] if kind == "experiment" else [what])
    ]
    return gathered(store.digests(list(dict.fromkeys(ids))), about)


def _newest(store: Store) -> tuple[str, str]:
    newest = store.experiments(1)
    if not newest:
        raise PlanError(
            "there is no experiment in the store", "name a RUN, or make one: pgpaces sweep"
        )
    return newest[0].id, "experiment"


def _find(store: Store, name: str) -> tuple[str, str]:
    """The id of what a name means, and what it is: an experiment, else a run."""
    try:
        return store.find_experiment(name), "experiment"
    except PgpacesError as no_experiment:
        try:
            return store.find(name), "run"
        except PlanError as no_run:
            several = "several" in str(no_experiment)
            raise no_experiment if several else no_run from None
