"""A capacity in words: what passes, what fails, and what is unknown in between."""

from __future__ import annotations

import math

from pgpaces.analysis.capacity.answer import SOAK_MIN_S, Capacity
from pgpaces.analysis.capacity.goal import CapacityGoal
from pgpaces.core.findings import Finding, needed
from pgpaces.core.messages import message
from pgpaces.core.units import rate_text

# More long trials than these are not worth their time.
_MORE_MAX = 100
_UNITS = {"rate": "/s", "users": " users", "clients": " clients"}


def load(value: float, goal: CapacityGoal) -> str:
    number = f"{value:,.0f}" if goal.whole else rate_text(value)
    if value == 1 and goal.whole:
        return f"1 {goal.load.removesuffix('s')}"
    return number + _UNITS[goal.load]


def terms(goal: CapacityGoal) -> tuple[str, ...]:
    lowest, highest = load(goal.lowest, goal), load(goal.highest, goal)
    share = 100 * goal.missed_max
    return (
        message("search-range", missed_percent=share, lowest=lowest, highest=highest),
        message("search-quick" if goal.quick else "search-normal"),
        *([message("search-soak", soak_s=goal.soak_s)] if goal.soak_s else ()),
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
        return (message("more-trials-useless"),)
    return (message("more-trials-useful", more=capacity.more),)


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
    """`users: 20 pass, 24 fail`; which of the two is unknown if there is none."""
    goal, unit = capacity.goal, capacity.goal.load
    passes, fails = (
        None if end is None else load(safe(end, goal, turn), goal).split()[0]
        for end, turn in ((capacity.passes, -1), (capacity.fails, 1))
    )
    if passes is None and fails is None:
        return message("capacity-unknown", unit=unit)
    if fails is None:
        return message("capacity-passes", unit=unit, passes=passes)
    if passes is None:
        return message("capacity-fails", unit=unit, fails=fails)
    return message("capacity-between", unit=unit, passes=passes, fails=fails)


def ends(capacity: Capacity) -> tuple[str | None, str | None]:
    """The load that passes and the load that fails; None if there is none."""
    return (
        None if capacity.passes is None else bound(capacity.passes, capacity.goal, -1),
        None if capacity.fails is None else bound(capacity.fails, capacity.goal, 1),
    )


def soaked(capacity: Capacity) -> tuple[str, ...]:
    """The verdict of the soak, if a load passes."""
    soak = capacity.soak
    if soak is None:
        return () if capacity.soak_load is None else (message("soak-missing"),)
    verdict = "pass" if soak.passed else "fail" if capacity.soak_failed else "unknown"
    short = soak.passed and capacity.goal.soak_s < SOAK_MIN_S
    at, share = load(soak.load, capacity.goal), 100 * soak.share
    name = "soak-short" if short else "soak-ended"
    return (message(name, verdict=verdict, load=at, soak_s=soak.seconds, missed_percent=share),)
