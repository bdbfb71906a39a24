"""The answer of all trials of a search: what passes, what fails, and how reliable that is.

Points in, a Capacity out. Knows no words and not which trial comes next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.capacity.center import countable, line
from pgpaces.analysis.capacity.goal import CapacityGoal, TrialPoint, excused, of_curve, of_role
from pgpaces.analysis.capacity.rule import TAIL, TRIALS_MIN, Fit, Verdict, bounds, verdict
from pgpaces.analysis.distributions import fisher_above
from pgpaces.core.messages import message
from pgpaces.spec.result import Estimate

# An answer this narrow is enough, as the log of the lowest fail over the highest pass.
ENOUGH = math.log(1.04)
# A short trial of a server that is overloaded by a few percent does not show it: in a quick search
# each end of the answer is this factor further out.
_QUICK_MARGIN = 1.15
_SOAK_SHARE = 0.9
# A shorter soak sees no checkpoint, vacuum or heat.
SOAK_MIN_S = 600
_TAIL_95 = 0.025
# The fewest trials for which the interval of a line is useful.
_LINE_MIN = 8
# Between neighboring loads whose log odds differ by more (a factor of 20) a curve is no evidence.
# _CLIFF times the threshold is far too much.
_JUMP, _CLIFF, _SHARE_MIN = 3.0, 8.0, 1e-6
# The p-value, and the least variation of a server's speed (sd, a share), of a noisy host.
_NOISE_P, _NOISE_SPEED = 0.01, 0.01


class Load(Struct, frozen=True):
    """A load with long trials, countable by these alone.

    share: missed of due; least, most: of one trial; low, high: the one-sided bounds of the long-run
    share. In a quick search every load, without bounds, because trials of seconds are no measure of
    their own spread; its verdict is the answer's, unless its trials say something else.
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
    """The long trial at 0.9 of the highest load that passes."""

    load: float
    seconds: float
    share: float
    low: float
    high: float
    passed: bool


class Capacity(Struct, frozen=True):
    """How much load passes: everything up to `passes`; between `passes` and `fails` is unknown.

    passes, fails: the highest load that is shown to pass and the lowest that is shown to fail; None
    if there is none. estimate: the load at which the long-run share is the threshold, with its 95%
    interval. flags: names of findings. speed_spread: by how much the server's speed differs between
    trials beyond chance (sd, a share). more: about how many more long trials would decide; 0 if it
    is decided, None if that is unknown. soak_load: the load of the soak; None if nothing passes.
    """

    goal: CapacityGoal
    passes: float | None
    fails: float | None
    estimate: Estimate | None
    loads: tuple[Load, ...]
    flags: tuple[str, ...]
    speed_spread: float | None
    more: int | None
    trials: int
    invalid: tuple[str, ...]
    soak_load: float | None
    soak: Soak | None

    @property
    def can_hold(self) -> bool:
        """Whether a load passes, and so did a soak of at least ten minutes."""
        soaked = self.soak is not None and self.soak.passed and self.goal.soak_s >= SOAK_MIN_S
        return self.passes is not None and soaked

    @property
    def soak_failed(self) -> bool:
        """Whether the soak failed beyond chance."""
        return self.soak is not None and self.soak.low > self.goal.missed_max


def of(points: Sequence[TrialPoint], goal: CapacityGoal) -> Capacity:
    points = countable(points, goal)
    fine = of_curve(points, goal)
    fit = line(points, goal) if len(fine) >= _LINE_MIN else None
    passes, fails, flags = _claims(points, goal)
    flags += _ends(passes, fails, points, goal=goal)
    spread = None if fit is None else speed_spread(fit)
    if spread is not None and spread >= _NOISE_SPEED:
        flags.append("noisy-host")
    more = _more(passes, fails, goal, fine=len(fine))
    if fit is None and passes is None and fails is None:
        flags.append("few-long-trials")
    invalid = tuple(p.invalid or message("numbers-impossible") for p in points if not p.valid)
    if invalid:
        limited = any(point.generator for point in points if not point.valid)
        flags.append("generator-limited-loads" if limited else "invalid-trials")
    if any(p.excused for p in points if p.valid):
        flags.append("generator-late-loads")
    soak_load = None
    if passes is not None:
        load = _SOAK_SHARE * passes
        load = float(math.floor(load)) if goal.whole else float(f"{load:.3g}")
        soak_load = max(load, goal.lowest)
    return Capacity(
        goal=goal,
        passes=passes,
        fails=fails,
        estimate=None if fit is None else _estimate(points, goal),
        loads=_judged(fine, goal, passes, fails=fails) if goal.quick else _fair(fine, goal),
        flags=tuple(flags),
        speed_spread=spread,
        more=more,
        trials=len(points),
        invalid=invalid,
        soak_load=soak_load,
        soak=_soak(points, goal),
    )


def narrow(points: Sequence[TrialPoint], goal: CapacityGoal) -> bool:
    """Whether more long trials are not worth their time."""
    if line(points, goal) is None:
        return False
    passes, fails, _ = _claims(points, goal)
    return _more(passes, fails, goal, fine=len(of_curve(points, goal))) == 0


def _claims(
    points: Sequence[TrialPoint], goal: CapacityGoal
) -> tuple[float | None, float | None, list[str]]:
    """What passes, with all that missed; what fails, without what the generator may explain."""
    passes, fails, odd = _bounds(points, goal)
    if any(point.excused for point in points):
        _, without, more = _bounds(excused(points), goal)
        fails = None if fails is None or without is None else max(fails, without)
        odd = list(dict.fromkeys([*odd, *more]))
    if not goal.quick:
        return passes, fails, odd
    # Each end has the margin of a quick search, unless it is an end of the goal.
    if passes is not None and passes < goal.highest:
        low = passes / _QUICK_MARGIN
        low = float(round(low)) if goal.whole else low
        passes = low if low >= goal.lowest else None
    if fails is not None and fails > goal.lowest:
        high = fails * _QUICK_MARGIN
        high = float(round(high)) if goal.whole else high
        fails = high if high <= goal.highest else None
    return passes, fails, odd


def _bounds(
    points: Sequence[TrialPoint], goal: CapacityGoal
) -> tuple[float | None, float | None, list[str]]:
    fine = of_curve(points, goal)
    loads = _loads(fine, goal)
    fit = line(points, goal) if len(fine) >= _LINE_MIN else None
    ends = _from_verdicts(loads) if fit is None else _from_line(fit, loads, goal)
    passes, fails, odd = _checked(*ends, loads)
    return passes, _above_met(fails, loads, goal.missed_max), odd


def _loads(fine: Sequence[TrialPoint], goal: CapacityGoal) -> tuple[Load, ...]:
    loads: dict[float, list[TrialPoint]] = {}
    for point in fine:
        loads.setdefault(point.load, []).append(point)
    return tuple(_load(points, goal) for _, points in sorted(loads.items()))


def _fair(fine: Sequence[TrialPoint], goal: CapacityGoal) -> tuple[Load, ...]:
    """The loads; one fails only without the misses that the generator may explain."""
    loads = []
    for at, without in zip(_loads(fine, goal), _loads(excused(fine), goal), strict=True):
        doubtful = at.verdict == "fail" and without.verdict != "fail"
        verdict_of: Verdict = "unknown" if doubtful else at.verdict
        loads.append(replace(at, low=min(at.low, without.low), verdict=verdict_of))
    return tuple(loads)


def _judged(
    points: Sequence[TrialPoint],
    goal: CapacityGoal,
    passes: float | None,
    *,
    fails: float | None,
) -> tuple[Load, ...]:
    """The loads of a quick search, each with the answer's verdict unless its trials differ."""
    loads = []
    for at in _loads(points, goal):
        met = at.share <= goal.missed_max
        own: Verdict = "unknown"
        if met and passes is not None and at.load <= passes:
            own = "pass"
        elif not met and fails is not None and at.load >= fails:
            own = "fail"
        loads.append(replace(at, low=0.0, high=1.0, verdict=own))
    return tuple(loads)


def _load(points: Sequence[TrialPoint], goal: CapacityGoal) -> Load:
    share = sum(p.missed for p in points) / sum(p.due for p in points)
    shares = [point.share for point in points]
    ends = (min(shares), max(shares), *bounds(points, TAIL))
    return Load(points[0].load, verdict(points, goal), len(points), share, *ends)


def _from_line(
    fit: Fit, loads: Sequence[Load], goal: CapacityGoal
) -> tuple[float | None, float | None]:
    """The ends of the curve's interval, within the loads of the trials."""
    least, most = loads[0].load, loads[-1].load
    low = min(math.exp(fit.low), most) if fit.low > -math.inf else 0.0
    high = max(math.exp(fit.high), least) if fit.high < 700 else math.inf
    low, high = _at_cliff(fit, loads, (low, high), missed_max=goal.missed_max)
    if goal.whole:
        # Ignore rounding errors next to an integer.
        low = float(math.floor(low + 1e-9))
        if high < math.inf:
            above_met = _highest_met(loads, goal.missed_max) + 1
            high = max(float(math.ceil(high - 1e-9)), low + 1, above_met)
    return (low if low >= goal.lowest else None), (high if high <= goal.highest else None)


def _at_cliff(
    fit: Fit, loads: Sequence[Load], ends: tuple[float, float], *, missed_max: float
) -> tuple[float, float]:
    """For a server that passes up to some load and fails beyond: the loads themselves.

    Between two neighbors whose odds are too far apart a curve is no evidence, and none is needed
    where every trial up to one load met the goal and all from the next on missed far too much.
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
        crosses = math.log(below.load) <= fit.x <= math.log(above.load)
        if crosses and _odds(above) - _odds(below) >= _JUMP:
            low, high = min(low, below.load), max(high, above.load)
    return low, high


def _odds(at: Load) -> float:
    share = min(max(at.share, _SHARE_MIN), 1 - _SHARE_MIN)
    return math.log(share / (1 - share))


def _from_verdicts(loads: Sequence[Load]) -> tuple[float | None, float | None]:
    """The largest load that passed below the smallest that failed, and the latter."""
    failed = min((at.load for at in loads if at.verdict == "fail"), default=None)
    below = math.inf if failed is None else failed
    passed = [at.load for at in loads if at.verdict == "pass" and at.load < below]
    return max(passed, default=None), failed


def _checked(
    passes: float | None, fails: float | None, loads: Sequence[Load]
) -> tuple[float | None, float | None, list[str]]:
    """Widened where the verdict on a load by its own trials contradicts the line."""
    flags: list[str] = []
    failed = min((at.load for at in loads if at.verdict == "fail"), default=math.inf)
    passed = max((at.load for at in loads if at.verdict == "pass"), default=-math.inf)
    if passed > failed:
        flags.append("not-monotonic")
    if passes is not None and passes >= failed:
        flags.append("trials-contradict")
        passes = max((at.load for at in loads if at.load < failed), default=None)
    if fails is not None and fails <= passed:
        flags.append("trials-contradict")
        fails = min((at.load for at in loads if at.load > passed), default=None)
    return passes, fails, list(dict.fromkeys(flags))


def _above_met(fails: float | None, loads: Sequence[Load], missed_max: float) -> float | None:
    """The load that fails; if one at or above it passed, the next that was tried and did not.

    A curve steeper than a parabola crosses later than its fit: the loads that met it show that.
    """
    met = _highest_met(loads, missed_max)
    if fails is None or fails > met:
        return fails
    return min((at.load for at in loads if at.load > met and at.share > missed_max), default=None)


def _highest_met(loads: Sequence[Load], missed_max: float) -> float:
    """The highest load whose trials together met the goal; minus infinity: none."""
    met = (at.load for at in loads if at.trials >= TRIALS_MIN and at.share <= missed_max)
    return max(met, default=-math.inf)


def _ends(
    passes: float | None,
    fails: float | None,
    points: Sequence[TrialPoint],
    *,
    goal: CapacityGoal,
) -> list[str]:
    if passes is not None and passes >= goal.highest:
        return ["capacity-above-range"]
    if fails is None or fails > goal.lowest:
        return []
    at = [p for p in points if p.valid and p.load == goal.lowest]
    above = [p for p in points if p.valid and goal.lowest < p.load <= 8 * goal.lowest]
    if at and above:
        # Where less load does not help, no load will.
        least = sum(p.missed for p in at) / sum(p.due for p in at)
        if least >= sum(p.missed for p in above) / sum(p.due for p in above) / 2:
            return ["capacity-below-range", "missed-share-flat"]
    return ["capacity-below-range"]


def speed_spread(fit: Fit) -> float | None:
    """By how much the speed differs between trials, sd as a share; None where chance explains it.

    The log odds differ by slope times the log of the speed, in addition to the variance within
    trials: an F test of the two variances at 1%.
    """
    if not 0 < fit.within < fit.variance:
        return None
    if fisher_above(fit.n - 2, fit.n, fit.variance / fit.within) > _NOISE_P:
        return None
    return math.sqrt(fit.variance - fit.within) / fit.slope


def _more(
    passes: float | None, fails: float | None, goal: CapacityGoal, *, fine: int
) -> int | None:
    if (passes is not None and passes >= goal.highest) or (
        fails is not None and fails <= goal.lowest
    ):
        return 0
    if goal.quick or passes is None or fails is None:
        return None
    width = math.log(fails / passes)
    if width <= ENOUGH or (goal.whole and fails - passes <= 1):
        return 0
    # The width of an interval goes with one over the square root of the number of trials.
    return max(1, math.ceil(fine * ((width / ENOUGH) ** 2 - 1)))


def _estimate(points: Sequence[TrialPoint], goal: CapacityGoal) -> Estimate | None:
    fit = line(points, goal, _TAIL_95)
    if fit is None or fit.x in (fit.low, fit.high):
        return None
    if fit.low == -math.inf:
        return Estimate.alone(math.exp(fit.x), fit.n)
    without = line(excused(points), goal, _TAIL_95)
    high = max(each.high for each in (fit, without or fit))
    margin = _QUICK_MARGIN if goal.quick else 1.0
    low, high = math.exp(fit.low) / margin, margin * math.exp(high) if high < 700 else math.inf
    return Estimate(math.exp(fit.x), low, high, fit.n)


def _soak(points: Sequence[TrialPoint], goal: CapacityGoal) -> Soak | None:
    soaks = of_role(points, "soak")
    if not soaks:
        return None
    last = soaks[-1]
    # Misses that a late generator may explain do not make it fail.
    low, high = bounds(excused([last]), TAIL)[0], bounds([last], TAIL)[1]
    met = last.share <= goal.missed_max
    return Soak(last.load, last.seconds, last.share, low, high, met)
