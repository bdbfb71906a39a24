"""pgpaces.sweep, open_sweep, capacity, compare and check of Python; pgpaces.run is in api.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pgpaces.analysis.capacity.curve import Kind
from pgpaces.analysis.compare import ComparisonGoal
from pgpaces.answers.answer import Answer
from pgpaces.answers.compare import Compared, compared, differing, listed, section_of
from pgpaces.answers.sweep.lookup import answer_for, answer_of
from pgpaces.core.errors import PlanError, RunError
from pgpaces.server import profiles
from pgpaces.spec import costs
from pgpaces.spec import spec as kinds
from pgpaces.spec.design import Levels
from pgpaces.spec.experiment_file import of_arguments
from pgpaces.spec.target import Target
from pgpaces.spec.trust import answer
from pgpaces.store.store import Store
from pgpaces.trial import capacity as capacity_search
from pgpaces.trial import sweep as pipeline
from pgpaces.trial.listener import SweepListener
from pgpaces.trial.pairs import experiment_of_pairs


def sweep(  # noqa: PLR0913 - the options of a command, all by keyword
    what: str | Path,
    *,
    trials: int | None = None,
    seed: int | None = None,
    name: str | None = None,
    exclude: Sequence[Mapping[str, Any]] = (),
    targets: Mapping[str, str | Target] | None = None,
    quick: bool = False,
    resume: str | None = None,
    store: str | Path | None = None,
    host_file: str | Path | None = None,
    trust: bool = False,
    listener: SweepListener | None = None,
    **levels: Any,
) -> Answer:
    """Runs every combination of levels and returns the results; the same as `pgpaces sweep`.

    what: an experiment file (.toml), a shipped workload or a folder. levels: by the name of an
    option, one or a list of them; settings as `set={"work_mem": ["4MB", "64MB"]}`, script variables
    as `define=...`, background workloads as in `pgpaces.run`, each option one level or a list.
    targets: DSNs by the name that the levels of `target` use. resume: the experiment to resume.
    trust: as for `pgpaces.run`. Raises PgpacesError if the experiment cannot begin; `page.missing`
    of the answer counts planned trials that did not run.
    """
    base = of_arguments(what, levels, targets, quick=quick)
    excluded: tuple[Levels, ...] = tuple(
        {key: values[0] for key, values in kinds.of_values(part).items()} for part in exclude
    )
    counts: dict[str, Any] = {"trials": trials, "seed": seed}
    design = replace(
        base.design,
        exclude=(*base.design.exclude, *excluded),
        **{key: count for key, count in counts.items() if count is not None},
    )
    base = replace(base, name=name or base.name, design=design)
    resumed = None if resume is None else pipeline.find(resume, store)[0]
    experiment = base.checked(profiles.ready_made)
    here = costs.find(host_file)
    planned = pipeline.plan(experiment, store, resume=resumed, costs=here, consent=answer(trust))
    swept = pipeline.run(planned, listener)
    return open_sweep(swept.id, store=store)


def open_sweep(name: str = "last", *, store: str | Path | None = None) -> Answer:
    """A stored experiment: `last`, an id, the end or start of one, or its name."""
    with closing(Store.existing(store)) as opened:
        return answer_of(opened, opened.find_experiment(name))


def capacity(  # noqa: PLR0913 - the options of a command, all by keyword
    what: str | Path | None = None,
    *,
    missed: str | None = None,
    goal: str | None = None,
    by: Kind | None = None,
    quick: bool = False,
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
    """Searches the capacity of each combination of levels; the same as `pgpaces capacity`.

    what: as for `pgpaces.sweep`. missed: the share that may miss the latency limit, or goal: a
    bound on a quantile, `p99 <= 250ms`. levels: as for `pgpaces.sweep`; one level of the load is
    the start of the search, two are its minimum and maximum. resume: the experiment to resume, as
    stored if `what` is left out. trust: as for `pgpaces.run`.

    Its value is a `pgpaces.analysis.capacity.answer.Capacities`. Ctrl-C ends the search and returns
    the answer so far. Raises PgpacesError if the search cannot begin.
    """
    soaks = soak != capacity_search.SOAK
    if quick and soaks:
        raise PlanError("cannot-combine", options=["quick", "soak"])
    for chosen in ("duration", "transactions"):
        if chosen in levels:
            raise PlanError("search-chooses", option=chosen)
    resumed = None
    if resume is not None:
        resumed, experiment, spec = capacity_search.stored(resume, store)
    elif what is None:
        raise PlanError("workload-or-file-missing")
    if what is None:
        own: dict[str, Any] = {"missed": missed, "goal": goal, "by": by, "quick": quick}
        own |= {"soak": soaks, "seed": seed, "name": name, "targets": targets}
        own |= levels
        changed = [n for n, value in own.items() if value is not None and value is not False]
        if changed:
            raise PlanError("fixed-by-resume", option=changed[0])
    else:
        base = of_arguments(what, levels, targets)
        design = base.design if seed is None else replace(base.design, seed=seed)
        base = replace(base, name=name or base.name, design=design)
        asked: dict[str, Any] = {"missed": missed, "quantile": goal, "by": by}
        asked |= {"quick": quick, "soak": soak, "consent": answer(trust)}
        experiment, spec = capacity_search.ask(base, **asked)
    here = costs.find(host_file)
    planned = pipeline.plan(
        experiment, store, resume=resumed, costs=here, goal=spec, consent=answer(trust)
    )
    return load_capacity(_whole(planned, listener), store=store)


def _whole(planned: pipeline.PlannedSweep, listener: SweepListener | None) -> str:
    """Runs a search or pairs and returns the experiment's id. Raises RunError if it gave up."""
    swept = pipeline.run(planned, listener)
    if swept.given_up:
        raise RunError("experiment-given-up", why=swept.given_up, id=swept.id)
    return swept.id


def load_capacity(name: str = "last", *, store: str | Path | None = None) -> Answer:
    """The answer of a stored search: `last`, an id, the end or start of one, or its name.

    Raises PlanError if the experiment is no search, StoreError.
    """
    id_, _, _ = capacity_search.stored(name, store)
    with closing(Store.existing(store)) as opened:
        return answer_of(opened, id_)


def answer_of_comparison(store: Store, comparison: Compared, *, anyway: bool) -> Answer:
    """A comparison as an answer. Raises PlanError if A and B differ in other factors too."""
    if comparison.other_differences and not anyway:
        compared_ = ", ".join(comparison.factors)
        differ = listed(differing(comparison.other_differences))
        if not compared_:
            raise PlanError("differ-in-unnamed", differences=differ)
        raise PlanError("differ-in-more", factors=compared_, differences=differ)
    return answer_for(store, section_of(comparison))


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
    the p95 of a load with a planned rate or pace, else its throughput. delta: a share, 0.02 for 2%.
    run: a workload for new pairs, with `levels` as for `pgpaces.sweep`, until the verdict is
    decided or there are `pairs` of them. trust: as for `pgpaces.run`. Its value is a
    `pgpaces.analysis.compare.Verdict`. Raises PlanError if A and B differ in other factors too,
    RunError if the pairs cannot be run.
    """
    if run is not None:
        goal = ComparisonGoal(metric, tuple(also), delta, pairs, same, seed)
        design, planned = experiment_of_pairs(of_arguments(run, levels, targets), (a, b), goal)
        sweep = pipeline.plan(design, store, goal=planned, consent=answer(trust))
        id_ = _whole(sweep, listener)
        with closing(Store.existing(store)) as opened:
            return answer_of(opened, id_)
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
