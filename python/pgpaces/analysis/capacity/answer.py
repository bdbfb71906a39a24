"""The answer of a search: what passes, what fails, and how reliable that is.

Points in, a Capacity out. Knows no words and not which trial comes next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import median

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.analysis.capacity.curve import (
    TRIALS_MIN,
    UNITS,
    CapacityGoal,
    Fit,
    Kind,
    TrialPoint,
    countable,
    excused,
    fitted,
    load_text,
    load_verdict,
    of_curve,
    of_role,
    share_bounds,
)
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.goal import Limit, Verdict
from pgpaces.analysis.stats import fisher_above
from pgpaces.analysis.volume import volume_of
from pgpaces.core.messages import Message, message, said
from pgpaces.spec.costs import HOURS_A_MONTH, monthly
from pgpaces.spec.result import Estimate

# An answer this narrow is enough, as the log of the lowest fail over the highest pass.
ENOUGH = math.log(1.04)
# A short trial of a server that is overloaded by a few percent does not show it: in a quick search
# each end of the answer is this factor further out.
_QUICK_MARGIN = 1.15
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
_DAY_S, _MONTH_S = 86_400, HOURS_A_MONTH * 3600
_MILLION = 1e6
# Trials between these multiples of a load describe it; others differ too much.
_DESCRIBES = (0.75, 1.1)
# The message of both bounds, by whether each is known.
_BOUNDS = {
    (True, True): "capacity-between",
    (True, False): "capacity-passes",
    (False, True): "capacity-fails",
    (False, False): "capacity-unknown",
}


class Soak(Struct, frozen=True):
    """The long trial at 0.9 of the highest load that passes."""

    load: float
    seconds: float
    share: float
    low: float
    high: float
    passed: bool


class LoadVerdict(Struct, frozen=True):
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


class Equivalents(Struct, frozen=True):
    """A load in other units; None: unknown.

    rate: transactions a second at it. users: that it serves, where they have a pace or think
    between transactions: N = X (R + Z). response_s, think_s: R and Z of such a closed load.
    month, year: the cost of the machines in `currency`; per_million transactions and per_user: the
    month's.
    """

    load: float
    rate: float
    users: float | None = None
    response_s: float | None = None
    think_s: float | None = None
    queries_per_day: float | None = None
    currency: str = ""
    month: float | None = None
    year: float | None = None
    per_million: float | None = None
    per_user: float | None = None

    @property
    def per_day(self) -> float:
        return self.rate * _DAY_S


class Capacity(Struct, frozen=True, kw_only=True):
    """How much load passes, in `unit`: all up to `passes`; between it and `fails` is unknown.

    passes, fails: the highest load that is shown to pass and the lowest that is shown to fail; None
    if there is none. estimate: the load at which the long-run share is the threshold, with its 95%
    interval. can_hold: a load passes, and so did a soak of at least ten minutes. flags: names of
    findings. speed_spread: by how much the server's speed differs between trials beyond chance (sd,
    a share). more: about how many more long trials would narrow it to 4%; 0: none; None: unknown.
    trials: their number; invalid: why some do not count.

    Of a cell: its key and levels, and both bounds rounded to three digits, to the safe side.
    equivalents: `passes` in other units. limit: the resource that was the limit where it failed.
    ended: the search is complete. runs: their ids.
    """

    cell: str = ""
    levels: dict[str, str] = {}
    load: Kind
    unit: str
    goal: CapacityGoal
    passes: float | None
    fails: float | None
    estimate: Estimate | None
    can_hold: bool
    soak: Soak | None
    flags: tuple[str, ...]
    speed_spread: float | None
    more: int | None
    trials: int
    invalid: tuple[str, ...]
    loads: tuple[LoadVerdict, ...]
    equivalents: Equivalents | None = field(default=None, name="worth")
    limit: Limit | None = None
    ended: bool = False
    runs: tuple[str, ...] = ()

    @property
    def bounds(self) -> Message:
        whole = self.load != "rate"
        ends = [safely_rounded(self.passes, whole, -1), safely_rounded(self.fails, whole, 1)]
        texts = [
            None if end is None else f"{end:,.0f}" if whole else load_text(end, "rate")
            for end in ends
        ]
        known = self.passes is not None, self.fails is not None
        return said(_BOUNDS[known], unit=self.load, passes=texts[0], fails=texts[1])

    @property
    def soak_verdict(self) -> Verdict | None:
        """None: there was no soak. It fails only beyond chance."""
        if self.soak is None:
            return None
        if self.soak.passed:
            return "pass"
        return "fail" if self.soak.low > self.goal.missed_max else "unknown"


class Highest(Struct, frozen=True):
    """The cell with the largest capacity, of several.

    certain: `passes` is no less than `fails` of each other cell. rivals: the keys of cells that may
    pass at as high a load.
    """

    cell: str
    certain: bool
    rivals: tuple[str, ...]


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
    others = [each for each in cells if each is not best]
    rivals = tuple(o.cell for o in others if o.fails is None or o.fails > best.passes)
    return Highest(best.cell, not rivals, rivals)


def judge(points: Sequence[TrialPoint], goal: CapacityGoal) -> Capacity:
    """The answer of all trials so far. Trials at loads outside of the goal do not count."""
    points = countable(points, goal)
    long = of_curve(points, goal)
    fit = fitted(points, goal) if len(long) >= _LINE_MIN else None
    passes, fails, flags = _claims(points, goal)
    ends = passes, fails
    if passes is not None and passes >= goal.highest:
        flags.append("capacity-above-range")
    elif fails is not None and fails <= goal.lowest:
        flags.append("capacity-below-range")
    # By how much the server's speed differs between trials, sd as a share. The log odds differ by
    # slope times the log of the speed, in addition to the variance within trials: an F test of the
    # two variances at 1%.
    spread = None
    if (
        fit is not None
        and 0 < fit.within < fit.variance
        and fisher_above(fit.n - 2, fit.n, fit.variance / fit.within) <= _NOISE_P
    ):
        spread = math.sqrt(fit.variance - fit.within) / fit.slope
        flags += ["noisy-host"] if spread >= _NOISE_SPEED else []
    if fit is None and passes is None and fails is None:
        flags.append("few-long-trials")
    if invalid := [point for point in points if not point.valid]:
        limited = any(point.generator for point in invalid)
        flags.append("generator-limited-loads" if limited else "invalid-trials")
    if any(point.excused for point in points if point.valid):
        flags.append("generator-late-loads")
    soak = None
    if soaks := of_role(points, "soak"):
        last = soaks[-1]
        # Misses that a late generator may explain do not make it fail.
        low, high = share_bounds(excused([last]))[0], share_bounds([last])[1]
        soak = Soak(last.load, last.seconds, last.share, low, high, last.share <= goal.missed_max)
    soaked = soak is not None and soak.passed and goal.soak_s >= SOAK_MIN_S
    return Capacity(
        load=goal.load,
        unit=UNITS[goal.load],
        goal=goal,
        passes=passes,
        fails=fails,
        estimate=None if fit is None else _estimate(points, goal),
        can_hold=passes is not None and soaked,
        soak=soak,
        flags=tuple(dict.fromkeys(flags)),
        speed_spread=spread,
        more=_more(len(long), goal, ends),
        trials=len(points),
        invalid=tuple(each.invalid or message("numbers-impossible") for each in invalid),
        loads=tuple(_verdicts(long, goal, ends)),
    )


def safely_rounded(bound: float | None, whole: bool, turn: int) -> float | None:
    """A bound with three digits, rounded to the safe side; turn: -1 of `passes`, 1 of `fails`."""
    if bound is None or whole:
        return bound
    step = 10.0 ** (math.floor(math.log10(bound)) - 2)
    steps = math.floor(bound / step + 1e-9) if turn < 0 else math.ceil(bound / step - 1e-9)
    return float(f"{steps * step:.3g}")


# The highest pass and the lowest fail; None if there is none.
_Ends = tuple[float | None, float | None]
_Claims = tuple[float | None, float | None, list[str]]


def _claims(points: Sequence[TrialPoint], goal: CapacityGoal) -> _Claims:
    """What passes, with all that missed; what fails, without what the generator may explain."""
    passes, fails, flags = _ends(points, goal)
    if any(point.excused for point in points):
        _, without, more = _ends(excused(points), goal)
        fails = None if fails is None or without is None else max(fails, without)
        flags += more
    if not goal.quick:
        return passes, fails, flags
    # Each end has the margin of a quick search, unless it is an end of the goal.
    if passes is not None and passes < goal.highest:
        low = passes / _QUICK_MARGIN
        low = float(round(low)) if goal.whole else low
        passes = low if low >= goal.lowest else None
    if fails is not None and fails > goal.lowest:
        high = fails * _QUICK_MARGIN
        high = float(round(high)) if goal.whole else high
        fails = high if high <= goal.highest else None
    return passes, fails, flags


def _ends(points: Sequence[TrialPoint], goal: CapacityGoal) -> _Claims:
    """The highest pass and the lowest fail: of the curve, else of the loads by their own trials.

    The curve's are widened where the trials at a load contradict them.
    """
    long = of_curve(points, goal)
    loads = _loads(long, goal)
    fit = fitted(points, goal) if len(long) >= _LINE_MIN else None
    failed = min((at.load for at in loads if at.verdict == "fail"), default=math.inf)
    passed = [at.load for at in loads if at.verdict == "pass"]
    highest = max(passed, default=-math.inf)
    # A curve steeper than a parabola crosses later than its fit: loads that met the goal show that.
    countable_loads = (at for at in loads if at.trials >= TRIALS_MIN)
    met = max((at.load for at in countable_loads if at.share <= goal.missed_max), default=-math.inf)
    passes = max((load for load in passed if load < failed), default=None)
    fails = failed if failed < math.inf else None
    if fit is not None:
        passes, fails = _of_curve_alone(fit, loads, goal, met=met)
    flags = ["not-monotonic"] if highest > failed else []
    if passes is not None and passes >= failed:
        flags.append("trials-contradict")
        passes = max((at.load for at in loads if at.load < failed), default=None)
    if fails is not None and fails <= highest:
        flags.append("trials-contradict")
        fails = min((at.load for at in loads if at.load > highest), default=None)
    if fails is not None and fails <= met:
        above = (at for at in loads if at.load > met and at.share > goal.missed_max)
        fails = min((at.load for at in above), default=None)
    return passes, fails, flags


def _of_curve_alone(
    fit: Fit, loads: Sequence[LoadVerdict], goal: CapacityGoal, *, met: float
) -> _Ends:
    """The ends of the curve's interval, within the loads of the trials."""
    least, most = loads[0].load, loads[-1].load
    low = min(math.exp(fit.low), most) if fit.low > -math.inf else 0.0
    high = max(math.exp(fit.high), least) if fit.high < 700 else math.inf
    low, high = _at_cliff(fit, loads, (low, high), missed_max=goal.missed_max)
    if goal.whole:
        # Ignore rounding errors next to an integer.
        low = float(math.floor(low + 1e-9))
        if high < math.inf:
            high = max(float(math.ceil(high - 1e-9)), low + 1, met + 1)
    return (low if low >= goal.lowest else None), (high if high <= goal.highest else None)


def _at_cliff(
    fit: Fit, loads: Sequence[LoadVerdict], ends: tuple[float, float], *, missed_max: float
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
        shares = (min(max(at.share, _SHARE_MIN), 1 - _SHARE_MIN) for at in (below, above))
        less, more = (math.log(share / (1 - share)) for share in shares)
        if crosses and more - less >= _JUMP:
            low, high = min(low, below.load), max(high, above.load)
    return low, high


def _loads(long: Sequence[TrialPoint], goal: CapacityGoal) -> list[LoadVerdict]:
    loads = []
    for load, group in groupby(sorted(long, key=lambda p: p.load), lambda p: p.load):
        points = list(group)
        shares = [point.share for point in points]
        share = sum(p.missed for p in points) / sum(p.due for p in points)
        ends = min(shares), max(shares), *share_bounds(points)
        loads.append(LoadVerdict(load, load_verdict(points, goal), len(points), share, *ends))
    return loads


def _verdicts(long: Sequence[TrialPoint], goal: CapacityGoal, ends: _Ends) -> list[LoadVerdict]:
    """The loads; one fails only without the misses that the generator may explain.

    In a quick search a load has the answer's verdict unless its trials differ.
    """
    (passes, fails), loads = ends, []
    for at, without in zip(_loads(long, goal), _loads(excused(long), goal), strict=True):
        low, high, verdict = min(at.low, without.low), at.high, at.verdict
        if goal.quick:
            low, high, verdict = 0.0, 1.0, "unknown"
            met = at.share <= goal.missed_max
            if met and passes is not None and at.load <= passes:
                verdict = "pass"
            elif not met and fails is not None and at.load >= fails:
                verdict = "fail"
        elif verdict == "fail" != without.verdict:
            verdict = "unknown"
        loads.append(replace(at, low=low, high=high, verdict=verdict))
    return loads


def _more(long: int, goal: CapacityGoal, ends: _Ends) -> int | None:
    passes, fails = ends
    above = passes is not None and passes >= goal.highest
    if above or (fails is not None and fails <= goal.lowest):
        return 0
    if goal.quick or passes is None or fails is None:
        return None
    width = math.log(fails / passes)
    if width <= ENOUGH or (goal.whole and fails - passes <= 1):
        return 0
    # The width of an interval goes with one over the square root of the number of trials.
    return max(1, math.ceil(long * ((width / ENOUGH) ** 2 - 1)))


def _estimate(points: Sequence[TrialPoint], goal: CapacityGoal) -> Estimate | None:
    fit = fitted(points, goal, _TAIL_95)
    if fit is None or fit.x in (fit.low, fit.high):
        return None
    if fit.low == -math.inf:
        return Estimate.alone(math.exp(fit.x), fit.n)
    without = fitted(excused(points), goal, _TAIL_95)
    high = max(each.high for each in (fit, without or fit))
    margin = _QUICK_MARGIN if goal.quick else 1.0
    low, high = math.exp(fit.low) / margin, margin * math.exp(high) if high < 700 else math.inf
    return Estimate(math.exp(fit.x), low, high, fit.n)


def equivalent(
    load: float, kind: Kind, trials: Sequence[tuple[Digest, TrialPoint]]
) -> Equivalents | None:
    """A load in other units; None if no trial is valid."""
    # The valid trials at about this load; where there are none, all valid ones.
    valid = [trial for trial in trials if trial[1].valid]
    near = [t for t in valid if _DESCRIBES[0] * load <= t[1].load <= _DESCRIBES[1] * load] or valid
    if not near:
        return None
    rate = load
    if kind != "rate":
        rate = load * median(point.due / point.seconds / point.load for _, point in near)
    digests = [digest for digest, _ in near]
    asked = digests[0].trial.plan.load
    closed = asked.model == "closed"
    thinking = bool(closed and asked.think_ns)
    own_pace = kind == "users" or (kind == "clients" and not closed)
    users = load if own_pace or thinking else None
    means = [d.summary.latency.mean.value for d in digests if d.summary.latency.mean]
    # Queries per transaction; unknown if that of a trial is.
    volumes = [(d.summary.throughput.value, volume_of(d.trial, d.summary)) for d in digests]
    queries = [of.per_s.value / tx_s for tx_s, of in volumes if of is not None and tx_s > 0]
    known = len(queries) == len(volumes)
    # Trials on machines of several prices have no common cost.
    prices = {monthly(digest.trial.host.costs) for digest in digests}
    machines = prices.pop() if len(prices) == 1 else None
    month = machines.month if machines else None
    return Equivalents(
        load=load,
        rate=rate,
        users=users,
        response_s=median(means) / 1e3 if thinking and means else None,
        think_s=asked.think_ns / 1e9 if thinking else None,
        queries_per_day=rate * median(queries) * _DAY_S if known else None,
        currency=machines.currency if machines else "",
        month=month,
        year=machines.year if machines else None,
        per_million=None if month is None else month / (rate * _MONTH_S / _MILLION),
        per_user=None if month is None or not users else month / users,
    )
