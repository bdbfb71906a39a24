"""`pgpaces report`: the report of an experiment or of runs, as a page, text, tables or pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgpaces.cli import manage, options
from pgpaces.cli.files import write, write_page
from pgpaces.cli.streams import announce, put
from pgpaces.core.errors import PlanError

if TYPE_CHECKING:
    from pgpaces.show.render import Form
    from pgpaces.show.section import Report
    from pgpaces.store.store import Store

_FORMS = ("html", "md", "text", "csv", "json", "parquet", "svg", "png")


@options.command()
@options.argument("names", nargs=-1, metavar="[EXPERIMENT|RUN]...")
@options.option("-o", "--output", group="Output", metavar="FILE|DIR")
@options.option("--format", "form", group="Output", type=click.Choice(_FORMS))
@options.options(options.of("store"))
def report(
    names: tuple[str, ...], output: str | None, form: Form | None, store_path: str | None
) -> None:
    """Report an experiment or runs with sentences, tables, and charts. Default: the newest.

    If the runs belong to no experiment, the settings in which they differ become the factors.
    """
    from pgpaces.answers.sweep.lookup import page_of
    from pgpaces.answers.sweep.report import report as report_of
    from pgpaces.show import render

    output = None if output == "-" else output
    chosen = form or (render.form_of(output) if output else "text")
    if output is None and chosen in (*render.FOLDERS, "parquet"):
        raise PlanError("binary-form" if chosen == "parquet" else "form-of-folder", form=chosen)
    store = manage.open_store(store_path)
    document = report_of(page_of(store, names or ("last",)))
    if output is not None:
        announce("written", path=write(document, chosen, Path(output)))
    else:
        put(text(document) if chosen == "text" else render.render(document, chosen))


def text(document: Report) -> str:
    from pgpaces.cli.output import rendered
    from pgpaces.show.terminal import parts

    return rendered(lambda width: parts(document, width))


def show(store: Store, name: str, *, as_json: bool) -> None:
    from pgpaces.answers.sweep.lookup import page_of
    from pgpaces.answers.sweep.report import report as report_of
    from pgpaces.show import render

    document = report_of(page_of(store, (name,)))
    put(render.render(document, "json").decode() if as_json else text(document))


def write_of(store_path: str | None, name: str, output: str) -> None:
    """Writes the report of a run or an experiment, and prints its path. Raises as `write`."""
    from pgpaces.answers.sweep.lookup import page_of
    from pgpaces.store.store import Store

    write_page(page_of(Store.existing(store_path), (name,)), output)
