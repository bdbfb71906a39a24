"""A capacity in words: what passes, what fails, and what is unknown in between."""

from __future__ import annotations

import math

from pgpaces.analysis.capacity.answer import SOAK_MIN_S, Capacity
from pgpaces.analysis.capacity.goal import CapacityGoal
from pgpaces.core.findings import Finding, needed
from pgpaces.core.units import rate_text, significant

# More long trials than these are not worth their time.
_MORE_MAX = 100
_UNITS = {"rate": "/s", "users": " users", "clients": " clients"}


def load(value: float, goal: CapacityGoal) -> str:
    number = f"{value:,.0f}" if goal.whole else rate_text(value)
    if value == 1 and goal.whole:
        return f"1 {goal.load.removesuffix('s')}"
    return number + _UNITS[goal.load]


def length(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def terms(goal: CapacityGoal) -> tuple[str, ...]:
    lowest, highest = load(goal.lowest, goal), load(goal.highest, goal)
    soak = f", then {length(goal.soak_s)} at 0.9 of the highest pass" if goal.soak_s else ""
    slow = "" if goal.quick else "; a server of less than 25/s takes longer"
    share = f"{100 * goal.missed_max:.4g}%"
    return (
        f"at most {share} may miss; from {lowest} to {highest} can be offered",
        f"a {'quick' if goal.quick else 'normal'} search{soak}{slow}",
    )


def doubts(capacity: Capacity) -> list[Finding]:
    goal = capacity.goal
    values = {
        "load": load(goal.highest, goal),
        "lowest": load(goal.lowest, goal),
        "speed_percent": 100 * (capacity.speed_spread or 0),
        "invalid": len(capacity.invalid),
        "trials": capacity.trials,
        "reasons": sorted(set(capacity.invalid)),
    }
    return [Finding(flag, needed(flag, values)) for flag in capacity.flags]


def outlook(capacity: Capacity) -> tuple[str, ...]:
    if not capacity.more:
        return ()
    if capacity.more > _MORE_MAX:
        return (
            "More trials like these would hardly narrow it; longer ones may, or a quieter host.",
        )
    plural = "s" if capacity.more > 1 else ""
    return (f"About {capacity.more} more long trial{plural} would narrow it to 4%.",)


def safe(value: float, goal: CapacityGoal, turn: int) -> float:
    """A bound with three digits, rounded to the safe side; turn: -1 of `passes`, 1 of `fails`."""
    if goal.whole:
        return value
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    steps = math.floor(value / step + 1e-9) if turn < 0 else math.ceil(value / step - 1e-9)
    return float(f"{steps * step:.3g}")


def bound(value: float, goal: CapacityGoal, turn: int) -> str:
    """A bound rounded to the safe side, with its unit; turn: -1 of `passes`, 1 of `fails`."""
    return load(safe(value, goal, turn), goal)


def answer(capacity: Capacity) -> str:
    bounds = standing(capacity)
    if not bounds:
        share = f"{100 * capacity.goal.missed_max:.4g}%"
        return f"Unknown: no load is known to pass (at most {share} missed) or to fail."
    gap = "in between" if len(bounds) > 1 else "above" if capacity.fails is None else "below"
    text = f"{'; '.join(bounds)}; unknown {gap}."
    return f"{text[0].upper()}{text[1:]}"


def standing(capacity: Capacity) -> list[str]:
    ends = (("pass up to", capacity.passes, -1), ("fail from", capacity.fails, 1))
    return [
        f"{what} {bound(end, capacity.goal, turn)}" for what, end, turn in ends if end is not None
    ]


def soaked(capacity: Capacity) -> tuple[str, ...]:
    """The verdict of the soak, if a load passes."""
    soak = capacity.soak
    if soak is None:
        return () if capacity.soak_load is None else ("Soak: did not run.",)
    verdict = "pass" if soak.passed else "fail" if capacity.soak_failed else "unknown"
    share = f"{significant(100 * soak.share)}% missed"
    text = (
        f"Soak: {verdict} at {load(soak.load, capacity.goal)} for {length(soak.seconds)}, {share}"
    )
    short = soak.passed and capacity.goal.soak_s < SOAK_MIN_S
    return (f"{text}; a soak of 10 minutes shows more." if short else f"{text}.",)
