"""From the store to a report: the trials that a name refers to, as the values of a page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain

from msgspec.structs import replace

from pgpaces.analysis import differences
from pgpaces.analysis.cells import sound
from pgpaces.analysis.sequential import Certainty, Pairing, Tell
from pgpaces.answers import capacity, over_time, rehearse, run
from pgpaces.answers import compare as comparing
from pgpaces.answers import why as attribution
from pgpaces.answers.answer import Answer
from pgpaces.answers.sweep import screen
from pgpaces.answers.sweep.page import About, Page, gather
from pgpaces.show.section import Headline, Section
from pgpaces.spec.migration import Rehearsal
from pgpaces.store.store import Store
from pgpaces.trial import document


def page_of(store: Store, names: Sequence[str] = ("last",)) -> Page:
    """The page of experiments or runs, by default of the newest experiment; empty without names.

    Raises PlanError for unknown names, StoreError if the store cannot be read.
    """
    about = About(datetime.now(UTC), version("pgpaces"), disks=tuple(store.disks()))
    found = [store.find_newest(name) for name in names]
    if len(found) == 1 and store.is_experiment(found[0]):
        page = _of_experiment(store, found[0], about)
    else:
        ids = [store.ended(each) if store.is_experiment(each) else [each] for each in found]
        page = gather(store.digests(list(dict.fromkeys(chain(*ids)))), about)
        if len(page.digests) == 1:
            [digest] = page.digests
            trial = store.load(digest.trial.id)
            answer = run.section(trial, digest.summary, digest.series, whole=True)
            # Its numbers and its setup are those of the page.
            first = replace(answer, rows=(), value=None, document=dict, rank="numbers")
            details = over_time.section(digest, trial.observed)
            page = replace(page, first=first, sections=(details,))
    # The answer of a search names the limit already.
    late = None if page.searched else attribution.of_cell(store, page)
    more = (replace(late, folded=True),) if late else ()
    return replace(page, sections=(*page.sections, *more))


def answer_for(store: Store, section: Section, *, only_of: str = "") -> Answer:
    """An answer whose page is that of the trials it rests on, with the answer first.

    only_of: the page is that of this run or experiment, without other answers.
    """

    def front() -> Page:
        with closing(store):
            page = page_of(store, (only_of,) if only_of else section.trials)
            more = () if only_of else page.sections
            return replace(page, title=section.title, first=section, sections=more)

    return Answer(section, front)


def answer_of(store: Store, experiment_id: str) -> Answer:
    """The answer of an experiment. Raises as page_of."""
    page = page_of(store, (experiment_id,))
    return Answer(page.first or screen.section(page), lambda: page)


def _of_experiment(store: Store, id_: str, about: About) -> Page:
    """The page, with the answer to the purpose of trials that were chosen one after another."""
    row = store.experiment(id_)
    stored = document.read(row.document)
    experiment, goal = stored.experiment, stored.goal
    about = replace(
        about,
        rerun=str(row.document.get("command", "")),
        id=row.id,
        state=row.state,
        failures=tuple((each.cell, each.block, each.error) for each in store.failures(row.id)),
        chosen=goal is not None,
    )
    digests = store.digests(store.ended(row.id))
    page = gather(digests, about, experiment)
    if goal is None or isinstance(goal, Certainty):
        return page
    tells = [Tell.of(digest) for digest in digests]
    if isinstance(goal, Rehearsal):
        trials = [digest.trial for digest in digests if digest.trial.rehearsed is not None]
        goal = goal.with_passes(t.rehearsed for t in trials if t.rehearsed is not None)
        goal = replace(goal, interrupted=row.state == "interrupted")
        section = rehearse.section(goal, trials)
    elif isinstance(goal, Pairing):
        section = _comparison(goal, tells, about)
    else:
        searched = goal.over(experiment.design.cells()).of_cells(tells)
        limits = {each.cell.key: attribution.limit(store, each) for each in searched}
        section = capacity.section(searched, limits, stopped(about))
    if page.failure is not None:
        head = Headline("FAIL", "fail", page.failure.sentence)
        section = replace(section, headline=head, main="", findings=())
    own = () if about.state == "running" else section.next
    steps = () if isinstance(goal, Rehearsal) else screen.steps(page)
    first = replace(section, next=(*own, *steps), aside=(screen.aside(page),))
    return replace(page, first=first, searched=not isinstance(goal, Pairing))


def stopped(about: About) -> str:
    """Why the last loads of a finished search could not be run; empty of one that was cut short."""
    errors = [error for _, _, error in about.failures]
    return errors[-1] if errors and about.state == "finished" else ""


def _comparison(goal: Pairing, tells: Sequence[Tell], about: About) -> Section:
    digests = [tell.digest for tell in tells if tell.digest is not None]
    of_a, of_b = (
        [tell.digest for tell in tells if tell.digest and tell.cell.key == cell.key]
        for cell in goal.cells[:2]
    )
    varied = [name for name, level in goal.a.items() if goal.b[name] != level]
    others, verdict = differences.differ((of_a, of_b), varied), goal.standing(tells)
    running = about.state == "running"
    counted = sum(map(sound, digests)) if running else 2 * len(goal.pairs(tells))
    found = comparing.findings_of_trials(
        verdict.metric, digests, others, left_out=len(digests) - counted
    )
    return comparing.section(
        verdict,
        *goal.names(),
        ids=[digest.trial.id for digest in digests],
        found=[*found],
        differences=others,
        running=running,
        steps=[*comparing.decisive(about.id, verdict, goal.names())],
    )
