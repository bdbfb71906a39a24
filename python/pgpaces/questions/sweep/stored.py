"""From the store to a report: which trials a name means, gathered into the values of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pgpaces.answer import Answer
from pgpaces.answers import differences, outcome, pairing, placed
from pgpaces.answers.capacity import trials
from pgpaces.answers.capacity.trials import Sought
from pgpaces.answers.digest import Digest
from pgpaces.answers.pairing import Pairing
from pgpaces.answers.sequential import Tell
from pgpaces.answers.time_budget import TimeBudget, took_s
from pgpaces.design import Cell, Experiment
from pgpaces.errors import PgpacesError, PlanError
from pgpaces.experiment import document, strategies
from pgpaces.experiment.strategies import Goal
from pgpaces.questions import forecast as forecasting
from pgpaces.questions.capacity import section as capacity
from pgpaces.questions.compare import section as comparing
from pgpaces.questions.compare import words as verdicts
from pgpaces.questions.sweep import closeups, facts, words
from pgpaces.questions.sweep.page import About, Page, gather
from pgpaces.questions.why import stored as attribution
from pgpaces.section import Section, Sentence
from pgpaces.store import Store


def page_of(store: Store, names: Sequence[str] = ()) -> Page:
    """The page of an experiment, of several, or of runs; without a name of the newest experiment.

    With the answers that its trials allow. Raises PlanError for unknown names, StoreError for what
    cannot be read.
    """
    return forecasting.added(gathered(store, names))


def gathered(store: Store, names: Sequence[str] = ()) -> Page:
    """The same page without answers that were not what its trials were run for."""
    from importlib.metadata import version

    about = About(datetime.now(UTC), version("pgpaces"), disks=tuple(store.disks()))
    found = [_find(store, name) for name in names or (store.find_last(),)]
    if len(found) == 1 and found[0][1] == "experiment":
        row = store.experiment(found[0][0])
        ids = [each.id for each in store.placed(row.id)]
        shown = replace(
            about,
            rerun=str(row.document.get("command", "")),
            id=row.id,
            started_at=row.started_at,
            failures=tuple((each.cell, each.block, each.error) for each in store.failures(row.id)),
        )
        experiment, goal = document.read(row.document), document.goal(row.document)
        digests = store.digests(ids)
        if goal is None:
            return _observed(store, gather(digests, shown, experiment))
        return _observed(store, _chosen(store, digests, shown, (experiment, goal)))
    ids = [
        id_
        for what, kind in found
        for id_ in ([each.id for each in store.placed(what)] if kind == "experiment" else [what])
    ]
    return _observed(store, gather(store.digests(list(dict.fromkeys(ids))), about))


def _chosen(
    store: Store, digests: Sequence[Digest], about: About, asked: tuple[Experiment, Goal]
) -> Page:
    """The page of trials that were chosen as it went: what they were chosen for comes first.

    Of a budget over the cells of a design it is the page of any sweep, and how it was spent.
    """
    experiment, goal = asked
    if isinstance(goal, TimeBudget):
        page = gather(digests, replace(about, chosen=True), experiment)
        said = words.spent(page.rows, goal.budget_s, took_s(digests))
        return replace(page, answer=(*page.answer, said), asked=_without_trials(page))
    made = replace(experiment, design=placed.as_chosen(experiment.design, digests))
    page = gather(digests, replace(about, chosen=True), made)
    found = _standing(store, goal, experiment.design.cells(), digests)
    first = replace(found, said=())
    failed = outcome.no_trial(digest.summary for digest in digests)
    return replace(
        page,
        answer=found.said if failed is None else (Sentence(f"FAIL: {failed[0]}.", "main"),),
        sections=(first, *page.sections),
        searched=isinstance(goal, Sought),
        asked=_without_trials(page),
    )


def _standing(
    store: Store, goal: Sought | Pairing, cells: Sequence[Cell], digests: Sequence[Digest]
) -> Section:
    """The answer so far of what trials are chosen for. cells: those of the design."""
    told = [Tell.of(digest) for digest in digests]
    if isinstance(goal, Pairing):
        return _compared(goal, told, digests)
    own = strategies.Searches(goal, tuple(cells)).own(told)
    found = [trials.found(goal, cell, own[cell.key]) for cell in cells]
    return capacity.section(
        found, {each.cell.key: attribution.limit(store, each) for each in found}
    )


def _compared(goal: Pairing, told: Sequence[Tell], digests: Sequence[Digest]) -> Section:
    pairs = tuple(pairing.pairs(goal, told))
    a, b, _ = (cell.key for cell in goal.cells)
    of = {key: [t.digest for t in told if t.digest and t.cell.key == key] for key in (a, b)}
    names = [name for name, level in goal.a.items() if goal.b[name] != level]
    differing = verdicts.refused(differences.between(of[a], of[b], names), ", ".join(names))
    seen = comparing.VerdictBasis(
        pairs,
        ids=tuple(digest.trial.id for digest in digests),
        left_out=len(digests) - 2 * len(pairs),
        notes=comparing.differing(differing),
    )
    return comparing.section(pairing.standing(goal, told), *pairing.names(goal), seen)


def _without_trials(page: Page) -> tuple[tuple[str, str], ...]:
    """What was asked: nobody asked for so many of each cell."""
    return tuple(pair for pair in page.asked if pair[0] != facts.TRIALS)


def page_behind(store: Store, section: Section) -> Page:
    """The page of the trials that an answer stands on, with the answer first. Raises as page_of."""
    return fronted(page_of(store, section.trials), section)


def answer_behind(store: Store, section: Section) -> Answer:
    """An answer whose page is that of the trials it stands on."""
    return Answer(section, lambda: page_behind(store, section))


def fronted(page: Page, section: Section) -> Page:
    """A page as that of one answer: its title and its answer, what to mind of the trials behind."""
    rest = (each for each in page.sections if each.key != section.key)
    answer = (each for each in section.said if each.weight == "main")
    mind = (each for each in page.answer if each.weight == "warning")
    return replace(page, title=section.title, answer=(*answer, *mind), sections=(section, *rest))


def _observed(store: Store, page: Page) -> Page:
    """With what was seen of servers in the trials that stand for the cells shown in detail, and

    why those were late that did not hold.
    """
    ids = [closeups.middle(row).trial.id for row in closeups.chosen(page)]
    # Loads of a search that were too high are late for what was the limit, which it says.
    late = () if page.searched else attribution.of_cells(store, page)
    return replace(
        page,
        observed={id_: store.observed(id_) for id_ in ids},
        sections=(*page.sections, *late),
    )


def _find(store: Store, name: str) -> tuple[str, str]:
    """The id of what a name means, and what it is: an experiment, else a run."""
    try:
        return store.find_experiment(name), "experiment"
    except PgpacesError as no_experiment:
        try:
            return store.find(name), "run"
        except PlanError as no_run:
            several = "several" in str(no_experiment)
            if several:
                raise no_experiment from None
            raise (
                PlanError(
                    f"there is no experiment and no run '{name}' in {store.address}",
                    "`pgpaces runs -E` lists experiments, `pgpaces runs` lists runs",
                )
                if "there is no run" in no_run.message
                else no_run
            ) from None
