"""The experiment of a sweep with a time budget, from its options. Starts nothing."""

from __future__ import annotations

from msgspec.structs import replace

from pgpaces.answers.time_budget import TimeBudget
from pgpaces.design import Experiment
from pgpaces.draft import Draft
from pgpaces.errors import PlanError
from pgpaces.units import SECOND_NS, duration_ns


def ask(draft: Draft) -> tuple[Experiment, TimeBudget]:
    """The experiment and its time budget. Raises PlanError.

    All trials have the same duration; without one in the draft it follows from the budget.
    """
    from pgpaces.servers import profiles

    assert draft.time_budget is not None
    if "transactions" in draft.levels or any("transactions" in part for part in draft.extra):
        raise PlanError(
            "how long trials take that end by count is not known",
            "give a duration, or leave both out: the time budget chooses one",
        )
    if len(draft.levels.get("duration", ())) > 1 or any("duration" in e for e in draft.extra):
        raise PlanError("in a time budget trials are of one duration", "give one, or leave it out")
    budget_s = duration_ns(draft.time_budget, "time_budget") / SECOND_NS
    trial = draft.levels.get("duration")
    warmups = [
        *draft.levels.get("warmup", ()),
        *(e["warmup"] for e in draft.extra if "warmup" in e),
    ]
    experiment = replace(draft, trials=1).experiment(profiles.ready_made)
    goal = TimeBudget(
        budget_s=budget_s,
        missed_max=draft.missed_max,
        seed=draft.seed,
        trial_s=duration_ns(trial[0], "duration", bare="s") / SECOND_NS if trial else None,
        warmup_s=max(map(_warmup_s, warmups)) if warmups else None,
    )
    return experiment, goal


def _warmup_s(level: str) -> float:
    return duration_ns(level, "warmup", zero=True, bare="s") / SECOND_NS
