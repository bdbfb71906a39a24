"""From the store to a report: the trials that a name refers to, as the values of a page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import version

from msgspec.structs import replace

from pgpaces.analysis import differences, validity
from pgpaces.analysis.capacity.search import CapacitySearch
from pgpaces.analysis.cells import sound
from pgpaces.analysis.certainty import Certainty
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.sequential import Pairing, Tell
from pgpaces.answers import capacity, run
from pgpaces.answers import compare as comparing
from pgpaces.answers import why as attribution
from pgpaces.answers.answer import Answer
from pgpaces.answers.sweep import over_time, screen
from pgpaces.answers.sweep.page import About, Page, gather
from pgpaces.answers.trials import decisive
from pgpaces.show.section import Headline, Next, Section
from pgpaces.spec.design import Experiment
from pgpaces.store.store import Store
from pgpaces.trial import document


def page_of(store: Store, names: Sequence[str] = ("last",)) -> Page:
    """The page of experiments or runs, by default of the newest experiment; empty without names.

    Raises PlanError for unknown names, StoreError if the store cannot be read.
    """
    about = About(datetime.now(UTC), version("pgpaces"), disks=tuple(store.disks()))
    matches = [store.find_newest(name) for name in names]
    if len(matches) == 1 and store.is_experiment(matches[0]):
        row = store.experiment(matches[0])
        about = replace(
            about,
            rerun=str(row.document.get("command", "")),
            id=row.id,
            state=row.state,
            failures=tuple((each.cell, each.block, each.error) for each in store.failures(row.id)),
        )
        stored = document.read(row.document)
        experiment, goal = stored.experiment, stored.goal
        digests = store.digests(store.ended(row.id))
        if goal is None or isinstance(goal, Certainty):
            about = replace(about, chosen=goal is not None)
            return _explained(store, gather(digests, about, experiment))
        return _explained(store, _chosen(store, digests, about, experiment=experiment, goal=goal))
    ids = [
        id_
        for match in matches
        for id_ in (store.ended(match) if store.is_experiment(match) else [match])
    ]
    digests = store.digests(list(dict.fromkeys(ids)))
    page = gather(digests, about)
    if len(digests) != 1:
        return _explained(store, page)
    [digest], trial = digests, store.load(digests[0].trial.id)
    answer = run.section(trial, digest.summary, digest.series, whole=True)
    # Its numbers and its setup are those of the page.
    first = replace(answer, rows=(), value=None, document=dict, rank="numbers")
    page = replace(page, first=first, sections=(over_time.section(digest, trial.observed),))
    return _explained(store, page)


def answer_for(store: Store, section: Section) -> Answer:
    """An answer whose page is that of the trials it rests on, with the answer first."""

    def front() -> Page:
        with closing(store):
            return replace(page_of(store, section.trials), title=section.title, first=section)

    return Answer(section, front)


def answer_of(store: Store, experiment_id: str) -> Answer:
    """The answer of an experiment with adaptively chosen trials. Raises as page_of."""
    page = page_of(store, (experiment_id,))
    return Answer(screen.section(page) if page.first is None else page.first, lambda: page)


def _explained(store: Store, page: Page) -> Page:
    """With the reason why requests were late; the answer of a search names it already."""
    late = None if page.searched else attribution.of_cell(store, page)
    more = (replace(late, folded=True),) if late else ()
    return replace(page, sections=(*page.sections, *more))


def _chosen(
    store: Store,
    digests: Sequence[Digest],
    about: About,
    *,
    experiment: Experiment,
    goal: CapacitySearch | Pairing,
) -> Page:
    """The page of trials that were chosen one after another, with the answer to their purpose."""
    cells = tuple(dict(cell.levels) for cell in differences.cells_of(digests))
    design = replace(experiment.design, factors=(), exclude=(), extra=cells)
    page = gather(digests, replace(about, chosen=True), replace(experiment, design=design))
    tells = [Tell.of(digest) for digest in digests]
    if isinstance(goal, Pairing):
        section = _comparison(goal, tells, digests, about=about)
    else:
        searched = goal.over(experiment.design.cells()).of_cells(tells)
        limits = {each.cell.key: attribution.limit(store, each) for each in searched}
        section = capacity.section(searched, limits, stopped(about))
        page = replace(page, searched=goal.goal.load)
    if (failure := validity.no_trial(digests)) is not None:
        head = Headline("FAIL", "fail", failure.sentence)
        section = replace(section, headline=head, main="", findings=())
    own = () if about.state == "running" else section.next
    onward, more = (*own, *screen.steps(page)), (screen.aside(page),)
    return replace(page, first=replace(section, next=onward, aside=more))


def stopped(about: About) -> str:
    """Why the last loads of a finished search could not be run; empty of one that was cut short."""
    errors = [error for _, _, error in about.failures]
    return errors[-1] if errors and about.state == "finished" else ""


def _comparison(
    goal: Pairing, tells: Sequence[Tell], digests: Sequence[Digest], *, about: About
) -> Section:
    pairs = tuple(goal.pairs(tells))
    a, b, _ = (cell.key for cell in goal.cells)
    of = {key: [t.digest for t in tells if t.digest and t.cell.key == key] for key in (a, b)}
    names = [name for name, level in goal.a.items() if goal.b[name] != level]
    others, verdict = differences.differ((of[a], of[b]), names), goal.standing(tells)
    running = about.state == "running"
    left_out = sum(not sound(d) for d in digests) if running else len(digests) - 2 * len(pairs)
    found = comparing.findings_of_trials(verdict.metric, digests, others, left_out=left_out)
    more = decisive(about.id, verdict, goal.names())
    return comparing.section(
        verdict,
        *goal.names(),
        ids=[digest.trial.id for digest in digests],
        found=[*found],
        differences=others,
        running=running,
        steps=[Next(each, "next-pairs") for each in more],
    )
