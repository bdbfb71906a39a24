"""What is asked of a capacity, as people write it, made into an experiment. Starts nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pgpaces import levels, options, trust
from pgpaces.answers.capacity.goal import CapacityGoal, Kind, Mode
from pgpaces.answers.capacity.trials import Sought, first, level
from pgpaces.design import Cell, Experiment, Levels, Slot
from pgpaces.draft import Draft, share
from pgpaces.errors import PlanError
from pgpaces.experiment.order import Builder, Order
from pgpaces.plan import TrialPlan
from pgpaces.units import duration_ns, rate_per_s

# What can be offered where nobody says less: of clients and users what a level can be.
_LOWEST: Mapping[Kind, float] = {"rate": 0.1, "users": 1, "clients": 1}
_HIGHEST: Mapping[Kind, float] = {"rate": 1e6, "users": 100_000, "clients": 100_000}
_START: Mapping[Kind, float] = {"rate": 10, "users": 4, "clients": 4}
_MODELS: Mapping[Kind, tuple[str, ...]] = {
    "rate": ("open",),
    "users": ("paced",),
    "clients": ("closed", "open"),
}
# What makes a load of another kind.
_OTHERS: Mapping[Kind, tuple[str, ...]] = {
    "rate": ("users", "pace", "rate_per_client", "think_time"),
    "users": ("rate", "rate_per_client", "think_time", "clients"),
    "clients": ("rate", "users", "pace"),
}
_GOAL = re.compile(r"\s*p(\d+(?:\.\d+)?)\s*<=?\s*(\S.*?)\s*")


class CapacityQuestion(Struct, frozen=True):
    """How much it holds, as asked; None: not said.

    missed: a share, `5%`. quantile: `p99 <= 250ms`, instead of a share and a latency limit. by:
    what a load is counted in. soak: how long 0.9 of what is proved runs at the end, `0` for not at
    all.
    """

    missed: str | None = None
    quantile: str | None = None
    by: Kind | None = None
    mode: Mode = "normal"
    soak: str = "10min"


def ask(
    draft: Draft, question: CapacityQuestion, consent: trust.Consent = trust.refuse
) -> tuple[Experiment, Sought]:
    """The experiment and the search of each of its cells. Raises PlanError for what cannot be.

    One level of the load is where the search begins, several are the least and the most that is
    offered. How long trials are, and how many, is the search's. consent: whether the workload's
    folder may execute programs.
    """
    draft, missed_max = _threshold(draft, question)
    load = question.by or _kind(draft.levels)
    ends = draft.levels.get(load, ())
    kept = {n: v for n, v in draft.levels.items() if n not in (load, "duration", "transactions")}
    _check_kind(load, kept)
    if load == "clients" and not {"rate_per_client", "think_time"} & kept.keys():
        # The pause of none, so that no rate of the workload's own makes it an open load.
        kept["think_time"] = ("0s",)
    factors = frozenset(name for name in draft.factors if name in kept)
    made = replace(draft, levels=kept, factors=factors, trials=1, missed_max=missed_max)
    made = replace(made, exclude=_without(made.exclude, load), extra=_without(made.extra, load))
    goal = _goal(load, ends, missed_max, question)
    experiment = made.experiment(_profile)
    each = _each(experiment, goal, consent, begins=len(ends) == 1)
    clients = experiment.design.fixed.get("clients")
    return experiment, Sought(goal, each, *(() if clients is None else (int(clients),)))


def stored(name: str, store: str | Path | None) -> tuple[str, Experiment, Sought]:
    """A search in the store: its id, its experiment, what is sought.

    Raises PlanError for an experiment that is none, StoreError.
    """
    from pgpaces.experiment import sweep

    found, experiment, goal = sweep.find(name, store)
    if not isinstance(goal, Sought):
        raise PlanError(
            f"experiment {experiment.name} is no search for a capacity",
            "`pgpaces runs -E` lists experiments; others are resumed by `pgpaces sweep --resume`",
        )
    return found, experiment, goal


def _profile(name: str) -> Levels | None:
    from pgpaces.servers import profiles

    return profiles.ready_made(name)


def _threshold(draft: Draft, question: CapacityQuestion) -> tuple[Draft, float]:
    """The share that may miss, and the draft with the limit that belongs to it."""
    if question.quantile is None:
        text = question.missed or None
        return draft, share(text, "--missed") if text else draft.missed_max
    found = _GOAL.fullmatch(question.quantile)
    if found is None or not 0 < float(found[1]) < 100:
        raise PlanError(
            f"--goal '{question.quantile}' is no bound on a quantile",
            "such as 'p99 <= 250ms'; a mean says nothing of how many were late",
        )
    if question.missed is not None or any(_is_limit(name) for name in draft.levels):
        raise PlanError(
            "a goal on a quantile is a latency limit and a share that may miss it",
            "leave out --missed and --latency-limit, or the goal",
        )
    if found[2].replace(".", "", 1).isdigit():
        raise PlanError(
            f"--goal '{question.quantile}' has no unit: {found[2]} of what?",
            f"write 'p{found[1]} <= {found[2]}ms'",
        )
    # Decimal digits, so that p99 is 0.01 and not a hair less.
    missed = round(1 - float(found[1]) / 100, 12)
    return draft.with_levels({"latency_limit": (found[2],)}), missed


def _is_limit(name: str) -> bool:
    return name == "latency_limit" or name.startswith("latency_limit.")


def _kind(given: Mapping[str, tuple[str, ...]]) -> Kind:
    if "users" in given or "pace" in given:
        return "users"
    return "clients" if {"rate_per_client", "think_time"} & given.keys() else "rate"


def _check_kind(load: Kind, kept: Mapping[str, tuple[str, ...]]) -> None:
    """Raises PlanError for levels of another kind of load than the one that was asked for."""
    for name in _OTHERS[load]:
        if name in kept:
            option = f"--{name.replace('_', '-')}"
            raise PlanError(f"--by {load} does not go with {option}", "leave one of them out")


def _without(parts: tuple[Levels, ...], load: Kind) -> tuple[Levels, ...]:
    """What is excluded or added, where it is not about the load that is searched."""
    return tuple(part for part in parts if load not in part)


def _goal(
    load: Kind, ends: tuple[str, ...], missed_max: float, question: CapacityQuestion
) -> CapacityGoal:
    values = sorted(_value(load, text) for text in ends)
    if len(values) > 2:
        raise PlanError(
            f"a search for a capacity by {load} has {len(values)} levels of them",
            "one is where it begins, two are the least and the most that is offered",
        )
    lowest, highest = _LOWEST[load], _HIGHEST[load]
    start = _START[load]
    if len(values) > 1:
        lowest, highest = values[0], values[-1]
        start = min(max(start, lowest), highest)
    elif values:
        start, lowest = values[0], min(lowest, values[0])
    soak_s = duration_ns(question.soak, "--soak", zero=True, bare="s") / 1e9
    quick = question.mode == "quick"
    return CapacityGoal(
        missed_max, start, lowest, highest, load, question.mode, 0.0 if quick else soak_s
    )


def _value(load: Kind, text: str) -> float:
    if load == "rate":
        # As a trial's level says it: an end that is cut off by a digit is never reached.
        return float(level(load, rate_per_s(text, "--rate")).removesuffix("/s"))
    found: int = options.FACTORS[load].kind.read(text)
    return float(found)


def _each(
    experiment: Experiment, goal: CapacityGoal, consent: trust.Consent, *, begins: bool
) -> float | None:
    """How many transactions a second a load of 1 brings, if a saturating trial shall tell the rest.

    Raises PlanError where levels make another kind of load than the one that is searched, or where
    nothing can be late.
    """
    builder = Builder.of(Order(experiment, consent=consent))
    found: float | None = None
    for cell in experiment.design.cells():
        # Of the cell as it was asked for: what is wrong with it is nothing about a trial's load.
        ask = first(Sought(goal), cell)
        load: dict[str, str | None] = {goal.load: dict(ask.cell.levels)[goal.load]}
        request = builder.request(Slot(1, cell), "", {**ask.given, **load})
        _check(request.trial, cell, goal)
        plan, start = request.trial, goal.start
        if plan.load.model == "closed":
            found = 1e9 / plan.load.think_ns if plan.load.think_ns else None
        elif plan.load.rate is not None:
            found = plan.load.rate if plan.load.model == "paced" else plan.load.rate / start
    return None if begins else found


def _check(plan: TrialPlan, cell: Cell, goal: CapacityGoal) -> None:
    if plan.load.model not in _MODELS[goal.load]:
        error = PlanError(
            f"a search by {goal.load} found a load that is {plan.load.model}",
            "say --by rate, --by users (with --pace) or --by clients (with --rate-per-client or"
            " --think-time, or neither)",
        )
        raise levels.in_cell(error, cell)
    if plan.limit_ns is None and not plan.limits:
        error = PlanError(
            "nothing says what is late, so every load holds",
            "add --latency-limit, such as 500ms, or --goal 'p99 <= 250ms'",
        )
        raise levels.in_cell(error, cell)
