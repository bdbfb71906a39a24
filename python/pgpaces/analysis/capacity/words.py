"""A capacity in words: what meets the goal, what misses it, what is unknown in between."""

from __future__ import annotations

import math

from pgpaces.analysis.capacity.answer import SOAK_MIN_S, Capacity, Flag
from pgpaces.analysis.capacity.goal import CapacityGoal
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
    soak = f", then {length(goal.soak_s)} at 0.9 of what meets it" if goal.soak_s else ""
    slow = "" if goal.quick else "; a server of less than 25/s takes longer"
    share = f"{100 * goal.missed_max:.4g}%"
    return (
        f"at most {share} may miss; from {lowest} to {highest} can be offered",
        f"a {'quick' if goal.quick else 'normal'} search{soak}{slow}",
    )


def doubts(capacity: Capacity) -> tuple[str, ...]:
    goal = capacity.goal
    spread = 100 * (capacity.speed_spread or 0)
    texts: dict[Flag, str] = {
        "highest load passed": f"The highest load that can be offered, {load(goal.highest, goal)},"
        " meets it: the capacity is above it.",
        "lowest load failed": f"The lowest load that can be offered, {load(goal.lowest, goal)},"
        " misses it: the capacity is below it.",
        "no load reaches it": "Less load misses no less: no load reaches this threshold. Allow a"
        " longer latency or a larger share.",
        "inversion": "A load passed above one that failed: something other than the load decides.",
        "irregular": "Trials at one load contradict all of them together: the answer was widened.",
        "generator-limited": f"{_count(capacity)} not valid because the generator was the"
        " bottleneck, so no bound of the server.",
        "generator late": "The load generator was late in some trials: the range includes what"
        " that may explain.",
        "invalid trials": f"{_count(capacity)} not valid and do not count:"
        f" {', '.join(sorted(set(capacity.invalid)))}.",
        "noisy host": f"The host is noisy: its speed differs by about {spread:.2g}% (sd) from"
        " trial to trial, so the answer is wider.",
        "too few trials": "There are too few long trials for an interval: 8 are needed at least.",
    }
    return tuple(texts[flag] for flag in capacity.flags)


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
    """A bound with three digits, rounded to the safe side; turn: -1 of proved, 1 of refuted."""
    if goal.whole:
        return value
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    steps = math.floor(value / step + 1e-9) if turn < 0 else math.ceil(value / step - 1e-9)
    return float(f"{steps * step:.3g}")


def bound(value: float, goal: CapacityGoal, turn: int) -> str:
    """A bound rounded to the safe side, with its unit; turn: -1 of proved, 1 of refuted."""
    return load(safe(value, goal, turn), goal)


def answer(capacity: Capacity) -> str:
    share = f"{100 * capacity.goal.missed_max:.4g}%"
    bounds = standing(capacity)
    if not bounds:
        return f"Which load meets it, at most {share} missed, is unknown."
    one_sided = "above" if capacity.refuted is None else "below"
    text = f"{', '.join(bounds)}; unknown {'in between' if len(bounds) > 1 else one_sided}."
    return f"{text[0].upper()}{text[1:]}"


def standing(capacity: Capacity) -> list[str]:
    ends = (("meets it up to", capacity.proved, -1), ("misses it from", capacity.refuted, 1))
    return [
        f"{what} {bound(end, capacity.goal, turn)}" for what, end, turn in ends if end is not None
    ]


def soaked(capacity: Capacity) -> tuple[str, ...]:
    """Whether the server can hold the load: the result of the soak, if there was one."""
    soak = capacity.soak
    if soak is None:
        if capacity.soak_load is None:
            return ()
        return ("Whether it meets that for long is unknown: no soak ran.",)
    at, result = load(soak.load, capacity.goal), f"{significant(100 * soak.share)}% missed"
    result = f"{result} in {length(soak.seconds)}"
    if soak.met and capacity.goal.soak_s < SOAK_MIN_S:
        return (f"It met {at} in a short soak: {result}; ten minutes show what it can hold.",)
    if soak.met:
        return (f"It can hold {at}: {result}.",)
    if capacity.misses_for_long:
        return (f"It does not meet {at} for long: {result}.",)
    return (f"Whether it meets {at} for long is unknown: {result}.",)


def _count(capacity: Capacity) -> str:
    n = len(capacity.invalid)
    return f"1 of {capacity.trials} trials is" if n == 1 else f"{n} of {capacity.trials} trials are"
