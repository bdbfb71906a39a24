"""Why transactions of a stored run, or of an experiment, were late: sections and their page."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from pgpaces.answers.answer import Answer
from pgpaces.answers.why import lookup as attribution
from pgpaces.store.store import Store

if TYPE_CHECKING:
    from pgpaces.answers.sweep.page import Page
    from pgpaces.show.section import Section


def sections(store: Store, name: str) -> tuple[Section, ...]:
    """The answer for a run, or the answers for the cells of an experiment that missed the limit.

    If all cells met it, the answer for the one that missed most. Raises PlanError, StoreError.
    """
    id_ = store.find_any(name)
    if not store.is_experiment(id_):
        return (attribution.of_run(store, id_),)
    from pgpaces.answers.sweep.lookup import page_of

    return attribution.of_page(store, page_of(store, (id_,)))


def page(store: Store, answers: tuple[Section, ...], name: str) -> Page:
    """The report of the run or experiment, with these answers. Raises PlanError, StoreError."""
    from msgspec.structs import replace

    from pgpaces.answers.sweep.lookup import page_of

    whole = page_of(store, (store.find_any(name),))
    rest = [each for each in whole.sections if each.key.partition("-")[0] != "why"]
    title = answers[0].title if len(answers) == 1 else f"Why late: {whole.title}"
    return replace(whole, title=title, sections=(*answers, *rest))


def why(name: str = "last", *, store: str | Path | None = None) -> Answer:
    """Attributes the lateness of transactions; the same as `pgpaces why`.

    name: a run: `last`, a tag, an id, the end or start of one; or an experiment, of which the cell
    that missed most is explained. The value is a `pgpaces.analysis.attribution.Attribution`.
    Raises PlanError for a name that does not exist, StoreError.
    """
    with closing(Store.existing(store)) as opened:
        answers = sections(opened, name)

    def whole() -> Page:
        with closing(opened):
            return page(opened, answers, name)

    return Answer(answers[0], whole)
