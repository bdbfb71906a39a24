"""The page of trials that were chosen as it went: what they were chosen for comes first."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pgpaces.answers import differences, grouping, outcome, pairing
from pgpaces.answers.digest import Digest
from pgpaces.answers.pairing import Pairing
from pgpaces.answers.sequential import Tell
from pgpaces.answers.time_budget import TimeBudget, took_s
from pgpaces.design import Experiment
from pgpaces.experiment.strategies import Goal
from pgpaces.questions.capacity import lookup as capacity
from pgpaces.questions.compare import section as comparing
from pgpaces.questions.compare import words as verdicts
from pgpaces.questions.sweep import facts, words
from pgpaces.questions.sweep.page import About, Page, gather
from pgpaces.section import Section, Sentence
from pgpaces.store.store import Store


def page_of(
    store: Store, digests: Sequence[Digest], about: About, asked: tuple[Experiment, Goal]
) -> Page:
    """The page of trials that were chosen as it went: what they were chosen for comes first.

    Of a budget over the cells of a design it is the page of any sweep, and how it was spent.
    """
    experiment, goal = asked
    if isinstance(goal, TimeBudget):
        page = gather(digests, replace(about, chosen=True), experiment)
        said = words.spent(page.rows, goal.budget_s, took_s(digests))
        return replace(page, answer=(*page.answer, said), options=_without_trials(page))
    made = replace(experiment, design=grouping.as_chosen(experiment.design, digests))
    page = gather(digests, replace(about, chosen=True), made)
    told = [Tell.of(digest) for digest in digests]
    searched = not isinstance(goal, Pairing)
    if isinstance(goal, Pairing):
        found = _compared(goal, told, digests)
    else:
        found = capacity.section_of(store, goal, experiment.design.cells(), told)
    first = replace(found, sentences=())
    failed = outcome.no_trial(digest.summary for digest in digests)
    return replace(
        page,
        answer=found.sentences if failed is None else (Sentence(f"FAIL: {failed[0]}.", "main"),),
        sections=(first, *page.sections),
        searched=searched,
        options=_without_trials(page),
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
    return tuple(pair for pair in page.options if pair[0] != facts.TRIALS)
