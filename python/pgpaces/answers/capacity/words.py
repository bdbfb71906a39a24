"""A capacity in words: what meets the goal, what misses it, what is unknown in between."""

from __future__ import annotations

import math

from pgpaces.answers.capacity.answer import Capacity, Flag
from pgpaces.answers.capacity.goal import CapacityGoal

# More long trials than these nobody runs.
_MORE_MAX = 100
_UNITS = {"rate": "/s", "users": " users", "clients": " clients"}


def load(value: float, goal: CapacityGoal) -> str:
    """A load with its unit: 175/s, 95 users, 8 clients."""
    number = f"{value:,.0f}" if goal.whole or value >= 1000 else f"{value:.3g}"
    if value == 1 and goal.whole:
        return f"1 {goal.load.removesuffix('s')}"
    return number + _UNITS[goal.load]


def length(seconds: float) -> str:
    """How long a trial took, in a sentence."""
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def asked(goal: CapacityGoal) -> tuple[str, ...]:
    """What a search is asked, before it begins."""
    lowest, highest = load(goal.lowest, goal), load(goal.highest, goal)
    soak = f", then {length(goal.soak_s)} at 0.9 of what meets it" if goal.soak_s else ""
    slow = "" if goal.mode == "quick" else "; a server of less than 25/s takes longer"
    share = f"{100 * goal.missed_max:.4g} %"
    return (
        f"at most {share} may miss; from {lowest} to {highest} can be offered",
        f"a {goal.mode} search{soak}{slow}",
    )


def doubts(found: Capacity) -> tuple[str, ...]:
    """What to mistrust."""
    return tuple(text for flag in found.flags if (text := _flag(flag, found)))


def outlook(found: Capacity) -> tuple[str, ...]:
    """What would help."""
    if not found.more:
        return ()
    if found.more > _MORE_MAX:
        return (
            "More trials like these would hardly narrow it; longer ones may, or a quieter host.",
        )
    plural = "s" if found.more > 1 else ""
    return (f"About {found.more} more long trial{plural} would narrow it to 4 %.",)


def safe(value: float, goal: CapacityGoal, turn: int) -> float:
    """A bound with three digits, rounded to the safe side: what is proved down, refuted up."""
    if goal.whole:
        return value
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    turned = math.floor(value / step + 1e-9) if turn < 0 else math.ceil(value / step - 1e-9)
    return float(f"{turned * step:.3g}")


def bound(value: float, goal: CapacityGoal, turn: int) -> str:
    """A bound rounded to the safe side, with its unit; turn: -1 of what is proved, 1 of refuted."""
    return load(safe(value, goal, turn), goal)


def answer(found: Capacity) -> str:
    """Up to which load it is met, from which on it is missed."""
    share = f"{100 * found.goal.missed_max:.4g} %"
    if found.goal.mode == "quick":
        return _indicative(found)
    if found.proved is None and found.refuted is None:
        return f"Which load meets it, at most {share} missed, is unknown."
    said = _bounds(found)
    return f"{said[0].upper()}{said[1:]}."


def standing(found: Capacity) -> list[str]:
    """What is proved and what is refuted so far; nothing where neither is known."""
    ends = (("meets it up to", found.proved, -1), ("misses it from", found.refuted, 1))
    return [f"{what} {bound(end, found.goal, turn)}" for what, end, turn in ends if end is not None]


def _bounds(found: Capacity) -> str:
    """What is proved and what is refuted, of a capacity of which one of them is known."""
    goal, proved, refuted = found.goal, found.proved, found.refuted
    if proved is None:
        assert refuted is not None
        return f"misses it from {bound(refuted, goal, 1)}; unknown below"
    if refuted is None:
        return f"meets it up to {bound(proved, goal, -1)}; unknown above"
    return (
        f"meets it up to {bound(proved, goal, -1)}, misses it from {bound(refuted, goal, 1)};"
        " unknown in between"
    )


def _indicative(found: Capacity) -> str:
    low, high = found.indicative
    if low is not None and high is not None:
        meets, misses = bound(low, found.goal, -1), bound(high, found.goal, 1)
        return (
            f"Quick estimate: between {meets} (most likely met) and {misses} (most likely missed)."
        )
    if low is not None:
        return f"Quick estimate: {load(low, found.goal)} or more (most likely met)."
    if high is not None:
        return f"Quick estimate: less than {load(high, found.goal)} (most likely missed)."
    return "Quick estimate: no trial counts."


def soaked(found: Capacity) -> tuple[str, ...]:
    """Whether it can hold: what the long trial said, if there was one."""
    soak = found.soak
    if soak is None:
        if found.soak_load is None:
            return ()
        return ("Whether it meets that for long is unknown: no soak ran.",)
    at, took = load(soak.load, found.goal), length(soak.seconds)
    share = f"{100 * soak.share:.3g} % missed"
    if soak.held:
        return (f"It can hold {at}: {share} in {took}.",)
    return (f"Whether it meets {at} for long is unknown: {share} in {took}.",)


def _flag(flag: Flag, found: Capacity) -> str:
    goal = found.goal
    quick = goal.mode == "quick"
    held, broke = ("met it", "missed it") if quick else ("meets it", "misses it")
    so = "may be" if quick else "is"
    spread = 100 * (found.speed_spread or 0)
    return {
        "indicative": "",
        "highest load passed": f"The highest load that can be offered, {load(goal.highest, goal)},"
        f" {held}: the capacity {so} above it.",
        "lowest load failed": f"The lowest load that can be offered, {load(goal.lowest, goal)},"
        f" {broke}: the capacity {so} below it.",
        "nobody can reach it": "Less load misses no less: no load reaches this threshold. Allow a"
        " longer latency or a larger share.",
        "inversion": "A load passed above one that failed: something else than the load decides.",
        "irregular": "Trials at one load say otherwise than all together: the answer was widened.",
        "generator-limited": f"{_count(found)} not valid, the generator was the limit: those are"
        " no bounds of the server.",
        "generator late": "The generator was late itself in some trials: the answer is wide"
        " enough for what that may explain.",
        "invalid trials": f"{_count(found)} not valid and count for nothing:"
        f" {', '.join(sorted(set(found.invalid)))}.",
        "noisy host": f"The host is noisy: its speed differs by about {spread:.2g} % (sd) from"
        " trial to trial, so the answer is wider.",
        "too few trials": "There are too few long trials for an interval: 8 are needed at least.",
    }[flag]


def _count(found: Capacity) -> str:
    n = len(found.invalid)
    return f"1 of {found.trials} trials is" if n == 1 else f"{n} of {found.trials} trials are"
