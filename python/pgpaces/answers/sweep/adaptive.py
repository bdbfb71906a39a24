"""The page of trials that were chosen one after another; its first section is their purpose."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pgpaces.analysis import differences, grouping, outcome
from pgpaces.analysis.capacity.searches import Searches
from pgpaces.analysis.capacity.trials import cell_search
from pgpaces.analysis.cells import sound
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.pairing import Pairing
from pgpaces.analysis.sequential import Tell
from pgpaces.answers.again import decisive
from pgpaces.answers.capacity import section as capacity
from pgpaces.answers.compare import section as comparing
from pgpaces.answers.compare import words as verdicts
from pgpaces.answers.sweep import facts
from pgpaces.answers.sweep.page import About, Page, gather
from pgpaces.answers.why import lookup as attribution
from pgpaces.show.section import Section, Sentence
from pgpaces.spec.design import Experiment
from pgpaces.store.store import Store
from pgpaces.trial.strategies import Goal


def page_of(
    store: Store, digests: Sequence[Digest], about: About, *, document: tuple[Experiment, Goal]
) -> Page:
    experiment, goal = document
    placed = replace(experiment, design=grouping.as_chosen(experiment.design, digests))
    page = gather(digests, replace(about, chosen=True), placed)
    tells = [Tell.of(digest) for digest in digests]
    if isinstance(goal, Pairing):
        section = _comparison(goal, tells, digests, about=about)
    else:
        cells = tuple(experiment.design.cells())
        own = Searches(goal, cells).own(tells)
        searched = [cell_search(goal, cell, own[cell.key]) for cell in cells]
        limits = {each.cell.key: attribution.limit(store, each) for each in searched}
        section = capacity.section(searched, limits, stopped(about))
    failure = outcome.no_trial(digests)
    return replace(
        page,
        answer=(
            section.sentences if failure is None else (Sentence(f"FAIL: {failure[0]}.", "main"),)
        ),
        sections=(replace(section, sentences=()), *page.sections),
        searched="" if isinstance(goal, Pairing) else goal.goal.load,
        # Without the number of trials of each cell, which follows from the goal.
        options=tuple(pair for pair in page.options if pair[0] != facts.TRIALS),
    )


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
    differing = verdicts.refused(differences.between(of[a], of[b], names), ", ".join(names))
    verdict = goal.standing(tells)
    running = about.state == "running"
    basis = comparing.VerdictBasis(
        pairs,
        ids=tuple(digest.trial.id for digest in digests),
        left_out=sum(not sound(d) for d in digests) if running else len(digests) - 2 * len(pairs),
        notes=(*comparing.planned(verdict.metric.name, digests), *comparing.differing(differing)),
        running=running,
    )
    section = comparing.section(verdict, *goal.names(), basis=basis)
    return replace(section, next=tuple(decisive(about.rerun, verdict)))
