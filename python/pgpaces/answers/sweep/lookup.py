"""From the store to a report: the trials that a name refers to, as the values of a page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import version

from msgspec.structs import replace

from pgpaces.answers.answer import Answer
from pgpaces.answers.sweep import closeups
from pgpaces.answers.sweep.page import About, Page, gather
from pgpaces.answers.why import lookup as attribution
from pgpaces.show.section import Section
from pgpaces.store.store import Store
from pgpaces.trial import document


def page_of(store: Store, names: Sequence[str] = ()) -> Page:
    """The page of experiments or runs, by default of the newest experiment.

    Raises PlanError for unknown names, StoreError if the store cannot be read.
    """
    about = About(datetime.now(UTC), version("pgpaces"), disks=tuple(store.disks()))
    matches = [store.find_newest(name) for name in names or ("last",)]
    if len(matches) == 1 and store.is_experiment(matches[0]):
        row = store.experiment(matches[0])
        ids = store.ended(row.id)
        shown = replace(
            about,
            rerun=str(row.document.get("command", "")),
            id=row.id,
            started_at=row.started_at,
            state=row.state,
            failures=tuple((each.cell, each.block, each.error) for each in store.failures(row.id)),
        )
        experiment, goal = document.read(row.document), document.goal(row.document)
        digests = store.digests(ids)
        if goal is None:
            return _observed(store, gather(digests, shown, experiment))
        from pgpaces.answers.sweep import adaptive

        return _observed(
            store, adaptive.page_of(store, digests, shown, document=(experiment, goal))
        )
    ids = [
        id_
        for match in matches
        for id_ in (store.ended(match) if store.is_experiment(match) else [match])
    ]
    return _observed(store, gather(store.digests(list(dict.fromkeys(ids))), about))


def answer_for(store: Store, section: Section) -> Answer:
    """An answer whose page is that of the trials it rests on.

    The page begins with the title and the main sentences of the answer, and keeps its warnings.
    """

    def front() -> Page:
        with closing(store):
            page = page_of(store, section.trials)
        rest = (each for each in page.sections if each.key != section.key)
        answer = (each for each in section.sentences if each.weight == "main")
        warnings = (each for each in page.answer if each.weight == "warning")
        return replace(
            page, title=section.title, answer=(*answer, *warnings), sections=(section, *rest)
        )

    return Answer(section, front)


def answer_of(store: Store, experiment_id: str) -> Answer:
    """The answer of an experiment with adaptively chosen trials. Raises as page_of."""
    page = page_of(store, (experiment_id,))
    return Answer(replace(page.sections[0], sentences=page.answer), lambda: page)


def _observed(store: Store, page: Page) -> Page:
    ids = [closeups.middle(row).trial.id for row in closeups.chosen(page)]
    # The answer of a search names the limiting resource already.
    late = () if page.searched else attribution.of_cells(store, page)
    return replace(
        page,
        observed={id_: store.observed(id_) for id_ in ids},
        sections=(*page.sections, *late),
    )
