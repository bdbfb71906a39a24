"""`pgpaces report`: the report of an experiment or of runs, as a page, text, tables or pictures."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgpaces.cli import manage, options
from pgpaces.cli.main import put
from pgpaces.errors import PlanError, RunError
from pgpaces.home import is_there

if TYPE_CHECKING:
    from pgpaces.questions.sweep.page import Page
    from pgpaces.report.render import Form
    from pgpaces.section import Report
    from pgpaces.store.store import Store

_FORMS = ("html", "md", "text", "csv", "json", "parquet", "svg", "png")


@options.command(
    epilog="\b\nExamples:\n  pgpaces report -o report.html\n  pgpaces report pi-reporting\n"
    "  pgpaces report RUN RUN -o report.md\n  pgpaces report -o charts --format svg"
)
@options.argument("names", nargs=-1, metavar="[EXPERIMENT|RUN]...")
@options.option(
    "-o",
    "--output",
    group="Output",
    metavar="FILE|FOLDER",
    help="The file, or the folder of svg and png.",
)
@options.option(
    "--format",
    "form",
    group="Output",
    type=click.Choice(_FORMS),
    help="[default: by the ending of the file, else text]",
)
@options.options(options.of("store"))
def report(
    names: tuple[str, ...], output: str | None, form: Form | None, store_path: str | None
) -> None:
    """Report an experiment or runs in words, tables and charts. Default: the newest.

    For runs that belong to no experiment, the differences between them become the factors.
    """
    from pgpaces.questions.sweep.lookup import page_of
    from pgpaces.questions.sweep.report import report as report_of
    from pgpaces.report import render

    output = None if output == "-" else output
    chosen = form or (render.form_of(output) if output else "text")
    if output is None and chosen in (*render.FOLDERS, "parquet"):
        where = "a folder" if chosen in render.FOLDERS else "a file"
        raise PlanError(f"{chosen} goes into {where}, not to stdout", f"name {where} with --output")
    store = manage.open_store(store_path)
    document = report_of(page_of(store, names))
    if output is not None:
        click.echo(f"written: {write(document, chosen, Path(output))}", err=True)
    else:
        put(text(document) if chosen == "text" else render.render(document, chosen))


def text(document: Report) -> str:
    """The report for the width of the terminal."""
    from pgpaces.cli.output import rendered
    from pgpaces.report.terminal import parts

    return rendered(lambda width: parts(document, width))


def show(store: Store, name: str, *, as_json: bool) -> None:
    """Prints the report of a run or an experiment."""
    from pgpaces.questions.sweep.lookup import page_of
    from pgpaces.questions.sweep.report import report as report_of
    from pgpaces.report import render

    document = report_of(page_of(store, (name,)))
    put(render.render(document, "json").decode() if as_json else text(document))


def write_of(store_path: str | None, name: str, output: str) -> None:
    """Writes the report of a run or an experiment, and prints its path. Raises as `write`."""
    from pgpaces.questions.sweep.lookup import page_of
    from pgpaces.store.store import Store

    write_page(page_of(Store.existing(store_path), (name,)), output)


def write_page(page: Page, output: str) -> None:
    """Writes the report of a page, and prints its path. Raises as `write`."""
    from pgpaces.questions.sweep.report import report as report_of

    write_report(report_of(page), output)


def write_report(report: Report, output: str) -> None:
    """Writes a report, and prints its path. Raises as `write`."""
    from pgpaces.report.render import form_of

    click.echo(f"written: {write(report, form_of(output), Path(output))}", err=True)


def write(document: Report, form: Form, path: Path) -> Path:
    """Writes the report. Raises RunError where the file cannot be written."""
    from pgpaces.report import render

    picture = next((each for each in render.FOLDERS if each == form), None)
    if picture is None:
        return save(render.render(document, form), path)
    from pgpaces.report.draw import pictures

    with writing(path):
        files = pictures(document, picture)
        path.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (path / name).write_bytes(content)
    return path


def save(content: bytes, path: Path) -> Path:
    """Writes a file, which replaces an older one only once it is complete. Raises RunError.

    A device, such as /dev/null, or a pipe is written directly; links are followed.
    """
    with writing(path):
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return path
        whole = path.resolve()
        temporary = whole.with_name(f".{whole.name}.{os.getpid()}")
        try:
            temporary.write_bytes(content)
            temporary.replace(whole)
        finally:
            temporary.unlink(missing_ok=True)
    return path


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises RunError where a file cannot be written."""
    try:
        yield
    except OSError as error:
        is_folder = is_there(path, Path.is_dir)
        hint = f"name a file, such as {path / 'report.html'}" if is_folder else "name another file"
        raise RunError(f"{path} cannot be written: {error.strerror or error}", hint) from None
