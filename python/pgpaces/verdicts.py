"""Comparisons and capacities in Python, also of trials that are run for them; no arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pgpaces.answer import Answer
from pgpaces.errors import PlanError, RunError
from pgpaces.sweeps import drafted
from pgpaces.trust import answer

if TYPE_CHECKING:
    from pgpaces.answers.capacity.goal import Kind, Mode
    from pgpaces.answers.compare import ComparisonGoal
    from pgpaces.design import Target
    from pgpaces.draft import Draft
    from pgpaces.experiment.listener import SweepListener
    from pgpaces.questions.compare.stored import Compared
    from pgpaces.store import Store
    from pgpaces.trust import Consent


def of_comparison(store: Store, found: Compared, *, anyway: bool) -> Answer:
    """A comparison as an answer. Raises PlanError where more differs than what is compared."""
    from pgpaces.questions.compare import stored as comparing
    from pgpaces.questions.sweep.stored import answer_behind

    if found.beside and not anyway:
        raise comparing.refusal(found)
    return answer_behind(store, comparing.section(found))


def compare(  # noqa: PLR0913 - the options of a command, all by keyword
    a: str,
    b: str,
    *,
    metric: str = "rate",
    also: Sequence[str] = (),
    delta: float | None = None,
    factors: Sequence[str] = (),
    experiment: str = "last",
    anyway: bool = False,
    run: str | Path | None = None,
    pairs: int = 24,
    same: int = 8,
    seed: int = 1,
    targets: Mapping[str, str | Target] | None = None,
    store: str | Path | None = None,
    trust: bool = False,
    listener: SweepListener | None = None,
    **levels: Any,
) -> Answer:
    """Says whether B is better than A, from stored trials or new pairs; as `pgpaces compare`.

    a, b: levels of an experiment (`"variant=log"`), tags, runs or experiments. delta: a share, 0.02
    for 2 %. run: a workload of which new pairs are run, with `levels` as for `pgpaces.sweep`, until
    they are decided or there are `pairs` of them. trust: as for `pgpaces.run`. Its
    value is a `pgpaces.answers.compare.Verdict`. Raises PlanError where they differ in more than
    what is compared, RunError where pairs are not to be had.
    """
    from pgpaces.answers.compare import ComparisonGoal
    from pgpaces.questions.compare.stored import compared
    from pgpaces.store import Store

    if run is not None:
        goal = ComparisonGoal(metric, tuple(also), delta, pairs, same, seed)
        draft = drafted(run, levels, targets)
        return _new_pairs((a, b), goal, draft, (store, answer(trust)), listener)
    if levels:
        raise PlanError(
            f"{', '.join(levels)}: levels are of new pairs, and stored trials are compared",
            "name a workload with run=, or leave them out",
        )
    opened, goal = Store.existing(store), ComparisonGoal(metric, tuple(also), delta)
    found = compared(opened, (a, b), goal, factors, experiment)
    return of_comparison(opened, found, anyway=anyway)


def _new_pairs(
    names: tuple[str, str],
    goal: ComparisonGoal,
    draft: Draft,
    where: tuple[str | Path | None, Consent],
    listener: SweepListener | None,
) -> Answer:
    from pgpaces.experiment import pairs
    from pgpaces.experiment import sweep as pipeline

    experiment, pairing = pairs.ask(draft, names, goal)
    store, consent = where
    order = pipeline.Order(experiment, store, goal=pairing, consent=consent)
    swept = pipeline.run(pipeline.plan(order), listener)
    if swept.given_up:
        raise RunError(swept.given_up)
    return _chosen(swept.id, store)


def _chosen(experiment_id: str, store: str | Path | None) -> Answer:
    """The answer of an experiment whose trials were chosen as it went."""
    from pgpaces.questions.sweep.stored import page_of
    from pgpaces.store import Store

    opened = Store.existing(store)
    page = page_of(opened, (experiment_id,))
    section = replace(page.sections[0], said=page.answer)
    return Answer(section, lambda: page_of(opened, (experiment_id,)))


def check(  # noqa: PLR0913 - the options of a command, all by keyword
    run: str = "last",
    *,
    baseline: str,
    metric: str = "rate",
    also: Sequence[str] = (),
    delta: float | None = None,
    factors: Sequence[str] = (),
    anyway: bool = False,
    store: str | Path | None = None,
) -> Answer:
    """Says whether a run is worse than those of a baseline; the same as `pgpaces check`.

    Its value is a `pgpaces.answers.compare.Verdict`. Raises PlanError as `compare`.
    """
    from pgpaces.answers.compare import ComparisonGoal
    from pgpaces.questions.compare.stored import checked
    from pgpaces.store import Store

    opened, goal = Store.existing(store), ComparisonGoal(metric, tuple(also), delta)
    found = checked(opened, (baseline, run), goal, factors)
    return of_comparison(opened, found, anyway=anyway)


def capacity(  # noqa: PLR0913 - the options of a command, all by keyword
    what: str | Path | None = None,
    *,
    missed: str | None = None,
    goal: str | None = None,
    by: Kind | None = None,
    quick: bool = False,
    strict: bool = False,
    soak: str = "10min",
    seed: int | None = None,
    name: str | None = None,
    targets: Mapping[str, str | Target] | None = None,
    resume: str | None = None,
    store: str | Path | None = None,
    host_file: str | Path | None = None,
    trust: bool = False,
    listener: SweepListener | None = None,
    **levels: Any,
) -> Answer:
    """Searches how much each combination of levels holds; the same as `pgpaces capacity`.

    what: as for `pgpaces.sweep`. missed: the share that may miss the latency limit, or goal: a
    bound on a quantile, `p99 <= 250ms`. levels: as for `pgpaces.sweep`; of the load itself one is
    where the search begins, two are the least and the most that is offered. resume: the experiment
    to go on with, as it stands in the store where `what` is left out. trust: as for `pgpaces.run`.

    Its value is a `pgpaces.answers.capacity.value.Capacities`. Ctrl-C ends the search: the answer
    is what is known so far. Raises PgpacesError for what keeps it from beginning.
    """
    from pgpaces import host_file as costs
    from pgpaces.experiment import capacity as asking
    from pgpaces.experiment import sweep as pipeline

    if quick and strict:
        raise PlanError("quick and strict exclude each other", "choose one")
    for chosen in ("duration", "transactions"):
        if chosen in levels:
            raise PlanError(f"{chosen} is for the search to choose", "leave it out")
    known = None
    if resume is not None:
        known, experiment, sought = asking.stored(resume, store)
    elif what is None:
        raise PlanError("nothing to search was named", "name a workload or an experiment file")
    if what is not None:
        mode: Mode = "quick" if quick else "strict" if strict else "normal"
        draft = drafted(what, levels, targets)
        draft = replace(draft, name=name or draft.name, seed=draft.seed if seed is None else seed)
        question = asking.CapacityQuestion(missed, goal, by, mode, soak)
        experiment, sought = asking.ask(draft, question, answer(trust))
    order = pipeline.Order(
        experiment,
        store,
        resume=known,
        costs=costs.find(host_file),
        goal=sought,
        consent=answer(trust),
    )
    swept = pipeline.run(pipeline.plan(order), listener)
    if swept.given_up:
        hint = f"pgpaces.verdicts.load_capacity('{swept.id}') has what is known all the same"
        raise RunError(swept.given_up, hint)
    return load_capacity(swept.id, store=store)


def load_capacity(name: str = "last", *, store: str | Path | None = None) -> Answer:
    """The answer of a stored search: `last`, an id, the end or start of one, or its name.

    Raises PlanError for an experiment that is no search, StoreError.
    """
    from pgpaces.experiment import capacity as asking

    id_, _, _ = asking.stored(name, store)
    return _chosen(id_, store)
