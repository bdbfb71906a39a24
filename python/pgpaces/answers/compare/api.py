"""Comparisons in Python: of stored trials, or of new pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pgpaces.analysis.compare import ComparisonGoal
from pgpaces.answers.answer import Answer
from pgpaces.answers.compare.lookup import Compared, compared, section
from pgpaces.answers.compare.words import differing, listed
from pgpaces.answers.sweep.lookup import answer_for, answer_of
from pgpaces.core.errors import PlanError, RunError
from pgpaces.spec.experiment_file import drafted
from pgpaces.spec.target import Target
from pgpaces.spec.trust import answer
from pgpaces.store.store import Store
from pgpaces.trial import sweep as pipeline
from pgpaces.trial.listener import SweepListener
from pgpaces.trial.pairs import experiment_of_pairs


def answer_of_comparison(store: Store, comparison: Compared, *, anyway: bool) -> Answer:
    """A comparison as an answer. Raises PlanError if A and B differ in other factors too."""
    if comparison.other_differences and not anyway:
        compared_ = ", ".join(comparison.factors)
        differ = listed(differing(comparison.other_differences))
        if not compared_:
            raise PlanError("differ-in-unnamed", differences=differ)
        raise PlanError("differ-in-more", factors=compared_, differences=differ)
    return answer_for(store, section(comparison))


def compare(  # noqa: PLR0913 - the options of a command, all by keyword
    a: str,
    b: str,
    *,
    metric: str = "",
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

    a, b: levels of an experiment (`"variant=log"`), tags, runs or experiments. metric: empty for
    the p95 of a load with a planned rate, else its throughput. delta: a share, 0.02 for 2%. run: a
    workload for new pairs, with `levels` as for `pgpaces.sweep`, until the verdict is decided or
    there are `pairs` of them. trust: as for `pgpaces.run`. Its value is a
    `pgpaces.analysis.compare.Verdict`. Raises PlanError if A and B differ in other factors too,
    RunError if the pairs cannot be run.
    """
    if run is not None:
        goal = ComparisonGoal(metric, tuple(also), delta, pairs, same, seed)
        design, planned = experiment_of_pairs(drafted(run, levels, targets), (a, b), goal)
        sweep = pipeline.plan(design, store, goal=planned, consent=answer(trust))
        swept = pipeline.run(sweep, listener)
        if swept.given_up:
            raise RunError("experiment-given-up", why=swept.given_up, id=swept.id)
        with closing(Store.existing(store)) as opened:
            return answer_of(opened, swept.id)
    if levels:
        raise PlanError("levels-of-stored-trials", levels=[*levels])
    goal = ComparisonGoal(metric, tuple(also), delta)
    with closing(Store.existing(store)) as opened:
        comparison = compared(opened, (a, b), goal, factors=factors, of=experiment)
        return answer_of_comparison(opened, comparison, anyway=anyway)


def check(
    run: str = "last",
    *,
    baseline: str,
    metric: str = "",
    also: Sequence[str] = (),
    delta: float | None = None,
    factors: Sequence[str] = (),
    anyway: bool = False,
    store: str | Path | None = None,
) -> Answer:
    """Says whether a run is worse than those of a baseline; the same as `pgpaces check`.

    Its value is a `pgpaces.analysis.compare.Verdict`. Raises PlanError as `compare`.
    """
    goal = ComparisonGoal(metric, tuple(also), delta)
    with closing(Store.existing(store)) as opened:
        names = (baseline, run)
        comparison = compared(opened, names, goal, factors=factors, of_baseline=True)
        return answer_of_comparison(opened, comparison, anyway=anyway)
