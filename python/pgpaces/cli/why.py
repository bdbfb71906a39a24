"""`pgpaces why`: the cause that coincides with the late transactions of a run or an experiment."""

from __future__ import annotations

from pgpaces.cli import options
from pgpaces.cli.files import write_page
from pgpaces.cli.output import text, with_own_store
from pgpaces.cli.streams import put


@options.command()
@options.argument("name", default="last", metavar="[RUN|EXPERIMENT]")
@options.options(options.of(*options.ANSWER))
def why(
    name: str, *, verbose: bool, as_json: bool, output: str | None, store_path: str | None
) -> None:
    """Show which cause coincides with the late transactions of a run, and how to test it.

    For an experiment, the command shows up to three cells that missed the limit. The result can
    also be that no cause dominates.
    """
    from pgpaces.answers import why as attribution
    from pgpaces.show import escape, render
    from pgpaces.show.data import document
    from pgpaces.store.store import Store

    # An unknown form is an error before anything is read.
    if output:
        render.form_of(output)
    store = Store.existing(store_path)
    name = store.find_newest(name)
    answers = attribution.sections(store, name)
    documents = [document(with_own_store(each)) for each in answers]
    put(escape.json_text(documents) if as_json else text(answers, verbose=verbose))
    if output:
        write_page(attribution.page_with(store, answers, name), output)
