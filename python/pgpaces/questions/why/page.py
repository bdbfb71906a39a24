"""Why transactions of a stored run, or of an experiment, were late: sections and their page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pgpaces.answer import Answer
from pgpaces.questions.why import lookup as attribution
from pgpaces.store.store import Store

if TYPE_CHECKING:
    from pgpaces.questions.sweep.page import Page
    from pgpaces.section import Section


def sections(store: Store, name: str) -> tuple[Section, ...]:
    """The answers for a run (one), or for the cells of an experiment that did not hold.

    For an experiment that held everywhere, the cell that missed most. Raises PlanError, StoreError.
    """
    id_ = store.find_any(name)
    if not store.placed(id_):
        return (attribution.of_run(store, id_),)
    from pgpaces.questions.sweep.lookup import page_of

    return attribution.of_page(store, page_of(store, (id_,)))


def page(store: Store, found: tuple[Section, ...], name: str) -> Page:
    """The report of what a name means, with these answers. Raises PlanError, StoreError."""
    from msgspec.structs import replace

    from pgpaces.questions.sweep.lookup import page_of

    whole = page_of(store, (store.find_any(name),))
    rest = [each for each in whole.sections if each.key.partition("-")[0] != "why"]
    title = found[0].title if len(found) == 1 else f"Why late: {whole.title}"
    return replace(whole, title=title, sections=(*found, *rest))


def why(name: str = "last", *, store: str | Path | None = None) -> Answer:
    """Says why transactions were late; the same as `pgpaces why`.

    name: a run: `last`, a tag, an id, the end or start of one; or an experiment, of which it is
    told of the cell that missed most. Its value is a `pgpaces.answers.attribution.Attribution`.
    Raises PlanError for a name that there is not, StoreError.
    """
    opened = Store.existing(store)
    found = sections(opened, name)
    return Answer(found[0], lambda: page(opened, found, name))
