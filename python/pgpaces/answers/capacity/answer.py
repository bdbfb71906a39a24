"""What all trials of a search say together: proved, refuted, and how far that can be believed.

Points in, a Capacity out. Knows no words and not which trial comes next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from pgpaces.answers.capacity.centre import bracket, indicated, judged, line
from pgpaces.answers.capacity.goal import CapacityGoal, TrialPoint, excused, of_role
from pgpaces.answers.capacity.rule import TAIL, TRIALS_MIN, Fit, Verdict, bounds, by_load, verdict
from pgpaces.answers.distributions import fisher_above
from pgpaces.result import Estimate

Flag = Literal[
    "indicative",
    "highest load passed",
    "lowest load failed",
    "nobody can reach it",
    "inversion",
    "irregular",
    "generator-limited",
    "generator late",
    "invalid trials",
    "noisy host",
    "too few trials",
]
# An answer this narrow is enough, as the log of refuted over proved.
ENOUGH = math.log(1.04)
_SOAK_SHARE = 0.9
_TAIL_95 = 0.025
# The first number of trials of which a line has an interval that says something.
_LINE_MIN = 8
# Neighbouring loads whose log odds differ by more (a factor of 20) may be no two points of a curve.
# So many times the threshold is far too much.
_JUMP, _CLIFF, _SHARE_MIN = 3.0, 8.0, 1e-6
# By less than this the speed of no server is the same.
_NOISE_P, _NOISE_SPEED = 0.01, 0.01


class Load(Struct, frozen=True):
    """A load that was tried for long, judged by its own trials alone.

    share: what missed; least, most: of one of its trials; low, high: the one-sided bounds of its
    long-run share.
    """

    load: float
    verdict: Verdict
    trials: int
    share: float
    least: float
    most: float
    low: float
    high: float


class Soak(Struct, frozen=True):
    """What the long trial at 0.9 of what is proved said."""

    load: float
    seconds: float
    share: float
    low: float
    high: float
    held: bool


class Capacity(Struct, frozen=True):
    """What a server holds: proved, refuted, and between them it is not known.

    proved: None where no load is shown to hold; refuted: None where none is shown not to. estimate:
    the load at which the long-run share is the threshold, with its 95 % interval. indicative: by
    short trials; of a quick search the loads that most likely meet and miss it (`indicated`), else
    the highest that held and the lowest that did not. speed_spread: by how much
    the server's speed differs between trials beyond chance (sd, a share). more: how many more long
    trials would about decide, 0 where it is decided, None where nobody can say. soak_load: where
    the soak belongs, None where nothing is proved.
    """

    goal: CapacityGoal
    proved: float | None
    refuted: float | None
    estimate: Estimate | None
    indicative: tuple[float | None, float | None]
    loads: tuple[Load, ...]
    flags: tuple[Flag, ...]
    speed_spread: float | None
    more: int | None
    trials: int
    invalid: tuple[str, ...]
    soak_load: float | None
    soak: Soak | None

    @property
    def decided(self) -> bool:
        """Whether there is an answer from both sides, as narrow as wished, or at an end."""
        return self.more == 0

    @property
    def can_hold(self) -> bool:
        """Whether "can hold" may be said: proved, and the soak held."""
        return self.proved is not None and self.soak is not None and self.soak.held


def of(points: Sequence[TrialPoint], goal: CapacityGoal) -> Capacity:
    """What the points say so far, however few they are."""
    points = judged(points, goal)
    fine = of_role(points, "fine")
    found = line(points, goal) if len(fine) >= _LINE_MIN else None
    flags: list[Flag] = ["indicative"] if goal.mode == "quick" else []
    proved, refuted, odd = _claims(points, goal)
    flags += odd
    ends = bracket(points, goal) if goal.mode == "quick" else (proved, refuted)
    flags += _ends(*ends, points, goal)
    spread = None if found is None else speed_spread(found)
    if spread is not None and spread >= _NOISE_SPEED:
        flags.append("noisy host")
    more = _more(proved, refuted, goal, len(fine))
    if goal.mode != "quick" and found is None and proved is None and refuted is None:
        flags.append("too few trials")
    wrong = tuple(p.invalid or "its numbers cannot be" for p in points if not p.valid)
    if wrong:
        limited = any("generator" in text for text in wrong)
        flags.append("generator-limited" if limited else "invalid trials")
    if any(p.excused for p in points if p.valid):
        flags.append("generator late")
    return Capacity(
        goal=goal,
        proved=proved,
        refuted=refuted,
        estimate=_estimate(points, goal) if found is not None else None,
        indicative=(indicated if goal.mode == "quick" else bracket)(points, goal),
        loads=_loads(fine, goal),
        flags=tuple(flags),
        speed_spread=spread,
        more=more,
        trials=len(points),
        invalid=wrong,
        soak_load=_soak_load(proved, goal),
        soak=_soak(points, goal),
    )


def narrow(points: Sequence[TrialPoint], goal: CapacityGoal) -> bool:
    """Whether more long trials are not worth it."""
    if line(points, goal) is None:
        return False
    proved, refuted, _ = _claims(points, goal)
    return _more(proved, refuted, goal, len(of_role(points, "fine"))) == 0


def _claims(
    points: Sequence[TrialPoint], goal: CapacityGoal
) -> tuple[float | None, float | None, list[Flag]]:
    """What is proved, by all that missed; and refuted, without what the generator may explain."""
    proved, refuted, odd = _bounds(points, goal)
    if not any(point.excused for point in points):
        return proved, refuted, odd
    _, without, more = _bounds(excused(points), goal)
    both = None if refuted is None or without is None else max(refuted, without)
    return proved, both, list(dict.fromkeys([*odd, *more]))


def _bounds(
    points: Sequence[TrialPoint], goal: CapacityGoal
) -> tuple[float | None, float | None, list[Flag]]:
    fine = of_role(points, "fine")
    loads = _loads(fine, goal)
    found = line(points, goal) if len(fine) >= _LINE_MIN else None
    ends = _from_verdicts(loads) if found is None else _from_line(found, loads, goal)
    return _checked(*ends, loads)


def _loads(fine: Sequence[TrialPoint], goal: CapacityGoal) -> tuple[Load, ...]:
    return tuple(_load(found, goal) for found in by_load(fine).values())


def _load(points: Sequence[TrialPoint], goal: CapacityGoal) -> Load:
    found = bounds(points, TAIL[goal.mode])
    share = sum(p.missed for p in points) / sum(p.due for p in points)
    shares = [point.share for point in points]
    said = verdict(points, goal)
    ends = (min(shares), max(shares), found.low, found.high)
    return Load(points[0].load, said, len(points), share, *ends)


def _from_line(
    found: Fit, loads: Sequence[Load], goal: CapacityGoal
) -> tuple[float | None, float | None]:
    """Where the curve's interval ends; nothing is claimed beyond the loads that were tried."""
    least, most = loads[0].load, loads[-1].load
    low = min(math.exp(found.low), most) if found.low > -math.inf else 0.0
    high = max(math.exp(found.high), least) if found.high < 700 else math.inf
    # A curve that bends more than a parabola is below the line through it: not so its own loads.
    held = [at.load for at in loads if at.trials >= TRIALS_MIN and at.share <= goal.missed_max]
    high = max(high, *held) if held else high
    low, high = _jumped(found, loads, (low, high), goal.missed_max)
    if goal.whole:
        # A hair's breadth below a whole number is that number.
        low = float(math.floor(low + 1e-9))
        high = max(float(math.ceil(high - 1e-9)), low + 1) if high < math.inf else high
    return (low if low >= goal.lowest else None), (high if high <= goal.highest else None)


def _jumped(
    found: Fit, loads: Sequence[Load], ends: tuple[float, float], missed_max: float
) -> tuple[float, float]:
    """Of a server that holds everything up to some load and nothing beyond: the loads themselves.

    Between two neighbours whose odds are too far apart no curve says anything, and nothing needs to
    where every trial up to one held, and from the other on every trial missed far too much.
    """
    low, high = ends
    far = min(_CLIFF * missed_max, 0.5)
    for n, (below, above) in enumerate(pairwise(loads), 1):
        if (
            min(below.trials, above.trials) >= TRIALS_MIN
            and all(at.most <= missed_max for at in loads[:n])
            and all(at.least >= far for at in loads[n:])
        ):
            return below.load, above.load
        is_there = math.log(below.load) <= found.x <= math.log(above.load)
        if is_there and _odds(above) - _odds(below) >= _JUMP:
            low, high = min(low, below.load), max(high, above.load)
    return low, high


def _odds(at: Load) -> float:
    share = min(max(at.share, _SHARE_MIN), 1 - _SHARE_MIN)
    return math.log(share / (1 - share))


def _from_verdicts(loads: Sequence[Load]) -> tuple[float | None, float | None]:
    """The largest load that passed below the smallest that failed, and that one."""
    failed = min((at.load for at in loads if at.verdict == "failed"), default=None)
    below = math.inf if failed is None else failed
    passed = [at.load for at in loads if at.verdict == "passed" and at.load < below]
    return max(passed, default=None), failed


def _checked(
    proved: float | None, refuted: float | None, loads: Sequence[Load]
) -> tuple[float | None, float | None, list[Flag]]:
    """Widened where a load's own trials say otherwise than the line."""
    flags: list[Flag] = []
    failed = min((at.load for at in loads if at.verdict == "failed"), default=math.inf)
    passed = max((at.load for at in loads if at.verdict == "passed"), default=-math.inf)
    if passed > failed:
        flags.append("inversion")
    if proved is not None and proved >= failed:
        flags.append("irregular")
        proved = max((at.load for at in loads if at.load < failed), default=None)
    if refuted is not None and refuted <= passed:
        flags.append("irregular")
        refuted = min((at.load for at in loads if at.load > passed), default=None)
    return proved, refuted, list(dict.fromkeys(flags))


def _ends(
    proved: float | None, refuted: float | None, points: Sequence[TrialPoint], goal: CapacityGoal
) -> list[Flag]:
    """What is said at an end of what can be offered. proved, refuted: of short trials if quick."""
    if proved is not None and proved >= goal.highest:
        return ["highest load passed"]
    if refuted is None or refuted > goal.lowest:
        return []
    at = [p for p in points if p.valid and p.load == goal.lowest]
    above = [p for p in points if p.valid and goal.lowest < p.load <= 8 * goal.lowest]
    if at and above:
        # Where less load does not help, no load will.
        least = sum(p.missed for p in at) / sum(p.due for p in at)
        if least >= sum(p.missed for p in above) / sum(p.due for p in above) / 2:
            return ["lowest load failed", "nobody can reach it"]
    return ["lowest load failed"]


def speed_spread(found: Fit) -> float | None:
    """By how much the speed differs between trials, sd as a share; None where chance explains it.

    The log odds differ by slope times the log of the speed, beside what differs within trials: an
    F test of the two variances at 1 %.
    """
    if not 0 < found.within < found.variance:
        return None
    if fisher_above(found.n - 2, found.n, found.variance / found.within) > _NOISE_P:
        return None
    return math.sqrt(found.variance - found.within) / found.slope


def _more(proved: float | None, refuted: float | None, goal: CapacityGoal, fine: int) -> int | None:
    if (proved is not None and proved >= goal.highest) or (
        refuted is not None and refuted <= goal.lowest
    ):
        return 0
    if goal.mode == "quick" or proved is None or refuted is None:
        return None
    width = math.log(refuted / proved)
    if width <= ENOUGH or (goal.whole and refuted - proved <= 1):
        return 0
    # An interval is as wide as one over the root of the number of trials.
    return max(1, math.ceil(fine * ((width / ENOUGH) ** 2 - 1)))


def _estimate(points: Sequence[TrialPoint], goal: CapacityGoal) -> Estimate | None:
    found = line(points, goal, _TAIL_95)
    if found is None:
        return None
    if found.low == -math.inf:
        return Estimate.alone(math.exp(found.x), found.n)
    without = line(excused(points), goal, _TAIL_95)
    high = max(each.high for each in (found, without or found))
    return Estimate(math.exp(found.x), math.exp(found.low), math.exp(min(high, 700)), found.n)


def _soak_load(proved: float | None, goal: CapacityGoal) -> float | None:
    if proved is None or goal.mode == "quick":
        return None
    load = _SOAK_SHARE * proved
    load = float(math.floor(load)) if goal.whole else float(f"{load:.3g}")
    return max(load, goal.lowest)


def _soak(points: Sequence[TrialPoint], goal: CapacityGoal) -> Soak | None:
    soaks = of_role(points, "soak")
    if not soaks:
        return None
    found, last = bounds(soaks[-1:], TAIL[goal.mode]), soaks[-1]
    return Soak(
        last.load, last.seconds, last.share, found.low, found.high, last.share <= goal.missed_max
    )
