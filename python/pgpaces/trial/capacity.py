"""The experiment of a question for a capacity, from its options. Starts nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from pgpaces.analysis.capacity.curve import CapacityGoal, Kind
from pgpaces.analysis.capacity.search import CapacitySearch, load_level
from pgpaces.core.errors import PlanError
from pgpaces.core.units import duration_ns, rate_per_s
from pgpaces.server import profiles
from pgpaces.spec import options, trust
from pgpaces.spec.design import Ask, Experiment, in_cell
from pgpaces.trial import sweep

SOAK = "10min"
# The default range of loads and where a search begins: lowest, start, highest. For clients and
# users the range of their levels.
_RANGES: Mapping[Kind, tuple[float, float, float]] = {
    "rate": (0.1, 10, 1e6),
    "users": (1, 4, 100_000),
    "clients": (1, 4, 100_000),
}
# Options that select a load of another kind.
_OTHERS: Mapping[Kind, tuple[str, ...]] = {
    "rate": ("users", "pace", "rate_per_client", "think_time"),
    "users": ("rate", "rate_per_client", "think_time", "clients"),
    "clients": ("rate", "users", "pace"),
}
_GOAL = re.compile(r"\s*p(\d+(?:\.\d+)?)\s*<=?\s*(\S.*?)\s*")


def ask(
    base: Experiment,
    *,
    missed: str | None = None,
    quantile: str | None = None,
    by: Kind | None = None,
    quick: bool = False,
    soak: str = SOAK,
    consent: trust.Consent = trust.refuse,
) -> tuple[Experiment, CapacitySearch]:
    """The experiment and the search of each of its cells. Raises PlanError.

    missed: a share, `5%`. quantile: `p99 <= 250ms`, instead of a share and a latency limit. by:
    the unit of loads. soak: how long 0.9 of the highest pass runs at the end; `0`: no soak. One
    level of the load is where the search begins, two are the smallest and the largest load. The
    search chooses the number and length of trials. consent: whether the workload's folder may
    execute programs.
    """
    base, missed_max = _threshold(base, missed, quantile)
    levels = base.design.levels
    pauses = {"rate_per_client", "think_time"} & levels.keys()
    usual: Kind = "clients" if pauses else "rate"
    load = by or ("users" if {"users", "pace"} & levels.keys() else usual)
    ends = levels.get(load, ())
    own = {n: v for n, v in levels.items() if n not in (load, "duration", "transactions")}
    for name in _OTHERS[load]:
        if name in own:
            option = name.replace("_", "-")
            raise PlanError("cannot-combine", options=[f"--by {load}", f"--{option}"])
    if load == "clients" and not pauses:
        # A pause of zero, so that the workload's default rate does not make it an open load.
        own["think_time"] = ("0s",)
    design = replace(
        base.design,
        levels=own,
        exclude=tuple(part for part in base.design.exclude if load not in part),
        extra=tuple(part for part in base.design.extra if load not in part),
        trials=1,
    )
    lowest, start, highest = _range(load, ends)
    soak_s = 0.0 if quick else duration_ns(soak, "--soak", zero=True, bare="s") / 1e9
    goal = CapacityGoal(missed_max, start, lowest, highest, load, quick, soak_s)
    base = replace(base, design=design, missed_max=missed_max)
    experiment = base.checked(profiles.ready_made)
    each = _each(experiment, goal, consent, begins=len(ends) == 1)
    clients = experiment.design.fixed.get("clients")
    return experiment, CapacitySearch(goal, each, *(() if clients is None else (int(clients),)))


def stored(name: str, store: str | Path | None) -> tuple[str, Experiment, CapacitySearch]:
    """A search in the store: its id, its experiment, its goal.

    Raises PlanError for an experiment that is no search, StoreError.
    """
    id_, experiment, goal = sweep.find(name, store)
    if not isinstance(goal, CapacitySearch):
        raise PlanError("not-a-capacity-search", experiment=experiment.name)
    return id_, experiment, goal


def _threshold(
    base: Experiment, missed: str | None, quantile: str | None
) -> tuple[Experiment, float]:
    """The share that may be missed, and the experiment with the limit that belongs to it."""
    if quantile is None:
        return base, options.MISSED.read(missed, "--missed") if missed else base.missed_max
    match = _GOAL.fullmatch(quantile)
    if match is None or not 0 < float(match[1]) < 100:
        raise PlanError("not-a-quantile-goal", goal=quantile)
    limited = any(name.partition(".")[0] == "latency_limit" for name in base.design.levels)
    if missed is not None or limited:
        other = "--latency-limit" if missed is None else "--missed"
        raise PlanError("cannot-combine", options=["--goal", other])
    if match[2].replace(".", "", 1).isdigit():
        raise PlanError("goal-without-unit", goal=quantile, quantile=match[1], number=match[2])
    duration_ns(match[2], "the time in --goal")
    # Rounded to decimal digits, so that p99 is exactly 0.01.
    missed_max = round(1 - float(match[1]) / 100, 12)
    return base.with_levels({"latency_limit": (match[2],)}), missed_max


def _range(load: Kind, ends: tuple[str, ...]) -> tuple[float, float, float]:
    """The lowest load, the first one, and the highest."""
    if load == "rate":
        # Rounded like a trial's level: a bound that differs in the last digit is never reached.
        rates = (load_level(load, rate_per_s(text, "--rate")) for text in ends)
        values = sorted(float(level.removesuffix("/s")) for level in rates)
    else:
        values = sorted(float(options.FACTORS[load].kind.read(text, f"--{load}")) for text in ends)
    if len(values) > 2:
        raise PlanError("too-many-loads", load=load, count=len(values))
    lowest, start, highest = _RANGES[load]
    if len(values) > 1:
        return values[0], min(max(start, values[0]), values[1]), values[1]
    return (min(lowest, values[0]), values[0], highest) if values else (lowest, start, highest)


def _each(
    experiment: Experiment, goal: CapacityGoal, consent: trust.Consent, *, begins: bool
) -> float | None:
    """The transactions per second of a load of 1, if a saturating trial is to find the start.

    Raises PlanError if nothing can be late.
    """
    planned = sweep.PlannedSweep.of(experiment, consent)
    each: float | None = None
    for cell in experiment.design.cells():
        # Of the cell as the user wrote it, so that errors do not name the load of a trial.
        ask = CapacitySearch(goal).first(cell)
        load = {**ask.options, goal.load: dict(ask.cell.levels)[goal.load]}
        plan, start = planned.request(Ask(cell, 1, load)).trial, goal.start
        if plan.limit_max_ns is None:
            raise in_cell(PlanError("no-latency-limit"), cell)
        if plan.load.model == "closed":
            each = 1e9 / plan.load.think_ns if plan.load.think_ns else None
        elif plan.load.rate is not None:
            each = plan.load.rate if plan.load.model == "paced" else plan.load.rate / start
    return None if begins else each
