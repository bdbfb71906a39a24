"""The answer of a search: what passes, what fails, and how reliable that is.

Points in, a Capacity out. Does not know which trial comes next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.analysis.capacity.curve import (
    TRIALS_MIN,
    UNITS,
    CapacityGoal,
    Ends,
    Kind,
    LoadVerdict,
    Points,
    TrialPoint,
    judge_load,
    load_text,
)
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.goal import Limit, Verdict, out_of_order
from pgpaces.core.findings import Finding, finding
from pgpaces.core.messages import Message, message, said
from pgpaces.spec.costs import monthly
from pgpaces.spec.result import Estimate

# An answer this narrow is enough, as the log of the lowest fail over the highest pass: two steps.
_ENOUGH = 0.041
_TAIL_95 = 0.025
# Between neighboring loads whose log odds differ by more (a factor of 20) a curve is no evidence.
# _CLIFF times the threshold is far too much.
_JUMP, _CLIFF, _SHARE_MIN = 3.0, 8.0, 1e-6
# Trials between these multiples of a load describe it; others differ too much.
_DESCRIBES = (0.75, 1.1)
# The message of both bounds, by whether each is known.
_BOUNDS = {
    (True, True): "capacity-between",
    (True, False): "capacity-passes",
    (False, True): "capacity-fails",
    (False, False): "capacity-unknown",
}


class Equivalents(Struct, frozen=True):
    """What a load amounts to. rate: transactions a second at it.

    month: the cost of the machines in `currency`; None: unknown.
    """

    load: float
    rate: float
    currency: str = ""
    month: float | None = None


class Capacity(Struct, frozen=True, kw_only=True):
    """How much load passes, in `unit`: all up to `passes`; between it and `fails` is unknown.

    passes, fails: the highest load that is shown to pass and the lowest that is shown to fail; None
    if there is none. estimate: the load at which the long-run share is the threshold, with its 95%
    interval. soak: the long trial at 0.9 of `passes`; it fails only beyond chance. trials: their
    number; invalid: why some do not count.

    Of a cell: its key and levels, and both bounds rounded to three digits, to the safe side.
    equivalents: of `passes`, or of the estimate of a quick search. limit: the resource that was the
    limit where it failed. ended: the search is complete. runs: their ids.
    """

    cell: str = ""
    levels: dict[str, str] = {}
    load: Kind
    unit: str
    goal: CapacityGoal
    passes: float | None
    fails: float | None
    estimate: Estimate | None
    soak: LoadVerdict | None
    findings: tuple[Finding, ...]
    trials: int
    invalid: tuple[str, ...]
    loads: tuple[LoadVerdict, ...]
    equivalents: Equivalents | None = field(default=None, name="worth")
    limit: Limit | None = None
    ended: bool = False
    runs: tuple[str, ...] = ()

    @property
    def bounds(self) -> Message:
        ends = (self.passes, self.fails)
        passes, fails = (None if end is None else self.number(end) for end in ends)
        name = _BOUNDS[passes is not None, fails is not None]
        return said(name, unit=self.load, passes=passes, fails=fails)

    def number(self, load: float) -> str:
        """A load after the name of its kind: `171/s`, `8`."""
        return f"{load:,.0f}" if self.goal.whole else load_text(load, self.load)


class Highest(Struct, frozen=True):
    """The cell with the largest capacity, of several.

    certain: `passes` is no less than `fails` of each other cell.
    """

    cell: str
    certain: bool


class Capacities(Struct, frozen=True):
    """The answer: the capacity of each cell, and the largest; None for a single cell."""

    cells: tuple[Capacity, ...]
    most: Highest | None


def highest(cells: Sequence[Capacity]) -> Highest | None:
    """The one with the highest `passes`. None with fewer than two, or none."""

    def rank(cell: Capacity) -> tuple[float, float]:
        return cell.passes or 0.0, cell.estimate.value if cell.estimate else 0.0

    best = max(cells, key=rank, default=None)
    if best is None or len(cells) < 2 or best.passes is None:
        return None
    fails = (each.fails for each in cells if each is not best)
    return Highest(best.cell, all(end is not None and end <= best.passes for end in fails))


def judge(points: Points) -> Capacity:
    """The answer of all trials so far."""
    goal, (passes, fails) = points.goal, claims(points)
    loads = [_of_answer(at, goal.missed_max, (passes, fails)) for at in points.loads]
    soak = None
    if soaks := points.of_role("soak"):
        soak = judge_load(soaks[-1:], goal)
        over: Verdict = "fail" if soak.low > goal.missed_max else "unknown"
        soak = replace(soak, verdict="pass" if soak.share <= goal.missed_max else over)
    invalid = tuple(p.invalid or message("nothing-was-due") for p in points.every if not p.valid)
    findings = []
    if passes is not None and passes >= goal.highest:
        findings.append(finding("capacity-above-range", load=load_text(goal.highest, goal.load)))
    elif fails is not None and fails <= goal.lowest:
        findings.append(finding("capacity-below-range", lowest=load_text(goal.lowest, goal.load)))
    if out_of_order([at.verdict for at in points.loads]):
        findings.append(finding("not-monotonic"))
    if invalid:
        counts = {"invalid": len(invalid), "trials": len(points.every)}
        findings.append(finding("invalid-trials", reasons=sorted({*invalid}), **counts))
    if any(point.excused for point in points.every if point.valid):
        findings.append(finding("generator-late-loads"))
    return Capacity(
        load=goal.load,
        unit=UNITS[goal.load],
        goal=goal,
        passes=passes,
        fails=fails,
        estimate=_estimate(points),
        soak=soak,
        findings=tuple(findings),
        trials=len(points.every),
        invalid=invalid,
        loads=tuple(loads),
    )


def claims(points: Points) -> Ends:
    """What passes, with all that missed; what fails, without what the generator may explain."""
    passes, fails = _ends(points)
    if any(point.excused for point in points.every):
        _, without = _ends(points.without_excused)
        fails = None if fails is None or without is None else max(fails, without)
    return passes, fails


def narrow(points: Points) -> bool:
    """Whether more long trials would not narrow the answer, or not enough."""
    goal, (passes, fails) = points.goal, claims(points)
    if (passes or 0.0) >= goal.highest or (fails or math.inf) <= goal.lowest:
        return True
    if passes is None or fails is None:
        return False
    return math.log(fails / passes) <= _ENOUGH or (goal.whole and fails - passes <= 1)


def safely_rounded(bound: float | None, whole: bool, turn: int) -> float | None:
    """A bound with three digits, rounded to the safe side; turn: -1 of `passes`, 1 of `fails`."""
    if bound is None or whole:
        return bound
    step = 10.0 ** (math.floor(math.log10(bound)) - 2)
    steps = math.floor(bound / step + 1e-9) if turn < 0 else math.ceil(bound / step - 1e-9)
    return float(f"{steps * step:.3g}")


def _ends(points: Points) -> Ends:
    """The highest pass and the lowest fail: of the curve, else of the loads by their own trials.

    The curve's are widened where the trials at a load contradict them.
    """
    goal, loads = points.goal, points.loads
    passed = [at.load for at in loads if at.verdict == "pass"]
    failed = next((at.load for at in loads if at.verdict == "fail"), None)
    least_failed = math.inf if failed is None else failed
    most_passed = max(passed, default=-math.inf)
    # A server whose odds bend upward crosses later than a line: loads that met the goal show that.
    met = max((at.load for at in loads if at.share <= goal.missed_max), default=-math.inf)
    if (fit := points.crossing()) is None:
        passes, fails = max((load for load in passed if load < least_failed), default=None), failed
    else:
        passes, fails = _of_curve_alone(fit, points, met)
    if passes is not None and passes >= least_failed:
        passes = max((at.load for at in loads if at.load < least_failed), default=None)
    if fails is not None and fails <= most_passed:
        fails = next((at.load for at in loads if at.load > most_passed), None)
    if fails is not None and fails <= met:
        fails = next((at.load for at in loads if at.load > met), None)
    return passes, fails


def _of_curve_alone(fit: Estimate, points: Points, met: float) -> Ends:
    """The ends of the curve's interval, within the loads of the trials.

    A server may pass up to some load and fail beyond. Between two neighbors whose odds are too far
    apart a curve is no evidence, and none is needed if every trial up to one load met the goal and
    all from the next on missed far too much.
    """
    goal, loads = points.goal, points.loads
    low = min(math.exp(fit.low) / goal.margin, loads[-1].load)
    high = max(math.exp(fit.high) * goal.margin, loads[0].load) if fit.high < 700 else math.inf
    far = min(_CLIFF * goal.missed_max, 0.5)
    for below, above in pairwise(loads):
        if (
            min(below.trials, above.trials) >= TRIALS_MIN
            and all(p.share <= goal.missed_max for p in points.of_curve if p.load <= below.load)
            and all(p.share >= far for p in points.of_curve if p.load >= above.load)
        ):
            low, high = below.load, above.load
            break
        shares = (min(max(at.share, _SHARE_MIN), 1 - _SHARE_MIN) for at in (below, above))
        less, more = (math.log(share / (1 - share)) for share in shares)
        between = math.log(below.load) <= fit.value <= math.log(above.load)
        if between and more - less >= _JUMP:
            low, high = min(low, below.load), max(high, above.load)
    if goal.whole:
        # Ignore rounding errors next to an integer.
        low = float(math.floor(low + 1e-9))
        if high < math.inf:
            high = max(float(math.ceil(high - 1e-9)), low + 1, met + 1)
    return (low if low >= goal.lowest else None), (high if high <= goal.highest else None)


def _of_answer(at: LoadVerdict, allowed: float, ends: Ends) -> LoadVerdict:
    """A load without a verdict of its own, with that of the answer if its share does not differ."""
    passes, fails = ends
    if at.verdict != "unknown":
        return at
    if passes is not None and at.load <= passes and at.share <= allowed:
        return replace(at, verdict="pass")
    if fails is not None and at.load >= fails and at.share > allowed:
        return replace(at, verdict="fail")
    return at


def _estimate(points: Points) -> Estimate | None:
    fit = points.crossing(_TAIL_95)
    if fit is None or fit.value in (fit.low, fit.high):
        return None
    if fit.low == -math.inf:
        return Estimate.alone(math.exp(fit.value), fit.n)
    without = points.without_excused.crossing(_TAIL_95)
    high = max(each.high for each in (fit, without or fit))
    margin = points.goal.margin
    low, high = math.exp(fit.low) / margin, margin * math.exp(high) if high < 700 else math.inf
    return Estimate(math.exp(fit.value), low, high, fit.n)


def equivalent(
    load: float, kind: Kind, trials: Sequence[tuple[Digest, TrialPoint]]
) -> Equivalents | None:
    """A load in other units; None if no trial is valid."""
    # The valid trials at about this load; where there are none, all valid ones.
    valid = [trial for trial in trials if trial[1].valid]
    near = [t for t in valid if _DESCRIBES[0] * load <= t[1].load <= _DESCRIBES[1] * load] or valid
    if not near:
        return None
    each = 1.0 if kind == "rate" else median(p.due / p.seconds / p.load for _, p in near)
    # Trials on machines of several prices have no common cost.
    prices = {monthly(digest.trial.host.costs) for digest, _ in near}
    cost = prices.pop() if len(prices) == 1 else None
    rate = load * each
    return Equivalents(load, rate, cost.currency, cost.month) if cost else Equivalents(load, rate)
