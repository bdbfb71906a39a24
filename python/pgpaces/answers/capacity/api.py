"""Capacity searches in Python: run one, or read it from the store."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pgpaces.analysis.capacity.curve import Kind
from pgpaces.answers.answer import Answer
from pgpaces.answers.sweep.lookup import answer_of
from pgpaces.core.errors import PlanError, RunError
from pgpaces.spec import costs
from pgpaces.spec.experiment_file import drafted
from pgpaces.spec.target import Target
from pgpaces.spec.trust import answer
from pgpaces.store.store import Store
from pgpaces.trial import capacity as asking
from pgpaces.trial import sweep as pipeline
from pgpaces.trial.listener import SweepListener


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
    soaks = soak != asking.CapacityQuestion().soak
    if quick and soaks:
        raise PlanError("cannot-combine", options=["quick", "soak"])
    for chosen in ("duration", "transactions"):
        if chosen in levels:
            raise PlanError("search-chooses", option=chosen)
    resumed = None
    if resume is not None:
        resumed, experiment, spec = asking.stored(resume, store)
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
        draft = drafted(what, levels, targets)
        draft = replace(draft, name=name or draft.name, seed=draft.seed if seed is None else seed)
        question = asking.CapacityQuestion(missed, goal, by, quick, soak)
        experiment, spec = asking.ask(draft, question, answer(trust))
    planned = pipeline.plan(
        experiment,
        store,
        resume=resumed,
        costs=costs.find(host_file),
        goal=spec,
        consent=answer(trust),
    )
    swept = pipeline.run(planned, listener)
    if swept.given_up:
        raise RunError("experiment-given-up", why=swept.given_up, id=swept.id)
    return load_capacity(swept.id, store=store)


def load_capacity(name: str = "last", *, store: str | Path | None = None) -> Answer:
    """The answer of a stored search: `last`, an id, the end or start of one, or its name.

    Raises PlanError if the experiment is no search, StoreError.
    """
    id_, _, _ = asking.stored(name, store)
    with closing(Store.existing(store)) as opened:
        return answer_of(opened, id_)
