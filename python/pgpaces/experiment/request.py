"""What a trial is asked to be, and whether it can be. Starts nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pgpaces import database
from pgpaces.costs import Costs
from pgpaces.errors import PlanError
from pgpaces.generators import engine as generator
from pgpaces.plan import TargetPlan, TrialPlan
from pgpaces.result import Place
from pgpaces.workload import Workload, WorkloadScript

_SCALE_MAX = 1_000_000

OnStoreError = Literal["continue", "stop"]


@dataclass(frozen=True, slots=True)
class Request:
    """A trial to be run: of what, how, where.

    scripts: names, with weights, to run of all. keep: it is stored. on_store_error: whether the
    load goes on in memory while the store takes nothing, or nothing new falls due any more.
    place: where in an experiment it stands, if it is part of one. from_database: the database whose
    copy is measured instead of the workload's data; one copy for each `occasion`.
    expected: facts of the server as it was for earlier trials that this one is to compare with.
    observe: sensors look at the server beside the load, and plans are looked at behind it.
    costs: of the server's machine.
    """

    workload: Workload
    trial: TrialPlan
    target: TargetPlan = field(default_factory=TargetPlan)
    scale: int | None = None
    data_seed: int = 1
    scripts: tuple[tuple[str, int | None], ...] = ()
    store: Path | str | None = None
    keep: bool = True
    on_store_error: OnStoreError = "continue"
    place: Place | None = None
    # Not in the repr: it may hold a password.
    from_database: str | None = field(default=None, repr=False)
    occasion: str = ""
    observe: bool = True
    expected: Mapping[str, Any] | None = field(default=None, repr=False)
    costs: Costs | None = None


def wish_of(request: Request) -> database.Wish:
    """The data that a trial goes to, where that is made for it."""
    return database.Wish(
        request.workload,
        request.scale or request.workload.scale,
        request.data_seed,
        own=request.target.own,
        fresh=request.target.fresh,
        from_database=request.from_database,
        occasion=request.occasion,
    )


def check(request: Request) -> None:
    """Raises PlanError, ScriptError for what cannot be, before anything is started."""
    made = not request.target.as_is
    if made and request.scale is not None and not 1 <= request.scale <= _SCALE_MAX:
        raise PlanError(f"scale {request.scale} cannot be", f"from 1 to {_SCALE_MAX}")
    if request.trial.kill_switch is not None and request.target.dsn is None:
        raise PlanError(
            "a kill switch guards the other sessions of somebody's server; ours has none",
            "name the server with --target",
        )
    scripts = choose(request.workload, request.scripts)
    request.trial.limits_of([script.name for script in scripts])
    commands_of(scripts)


def commands_of(scripts: Sequence[WorkloadScript]) -> list[list[generator.Command]]:
    """The commands of each script. Raises ScriptError."""
    return [generator.commands(source_of(script), script.text) for script in scripts]


def source_of(script: WorkloadScript) -> str:
    """What messages about a script call it."""
    return script.source or f"{script.name}.sql"


def choose(
    workload: Workload, wanted: Sequence[tuple[str, int | None]]
) -> tuple[WorkloadScript, ...]:
    """The scripts of a workload that run, all by default. Raises PlanError for unknown ones."""
    if not wanted:
        return workload.scripts
    known = {script.name: script for script in workload.scripts}
    for name, _ in wanted:
        if name not in known:
            raise PlanError(
                f"workload {workload.name} has no script '{name}'", f"it has {', '.join(known)}"
            )
    return tuple(
        known[name] if weight is None else replace(known[name], weight=weight)
        for name, weight in wanted
    )
