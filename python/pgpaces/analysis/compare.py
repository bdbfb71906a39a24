"""A or B: pairs of trials in, a verdict out, or the pairs to run next. Pure.

The rules are those of docs/explanation/method.md, section 6. Knows no clock, no store and no words.
pairing.py forms pairs of new trials, unpaired.py of stored ones; effect.py has the arithmetic.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.analysis.effect import ALPHA, Effect, holm, over_pairs, ratio_of, share_error
from pgpaces.analysis.summary import Summary
from pgpaces.core import metrics
from pgpaces.core.errors import PlanError, similar
from pgpaces.core.metrics import is_share
from pgpaces.spec.result import Estimate

Outcome = Literal["better", "worse", "same", "unknown"]
Why = Literal["", "few", "nothing new", "unbounded", "noise", "biased", "wide", "apart", "look"]
# pairs: run as pairs. blocks: of an experiment in random order. trials: no pairs, in mixed order.
# apart: all of one before all of the other. runs: a run against earlier ones, each a session.
Basis = Literal["pairs", "blocks", "trials", "apart", "runs"]

PAIRS_MIN = 8
_LOOKS = 3
# O'Brien and Fleming (Biometrics 35, 1979) at 5%, as two-sided p for Student's t: 3.4 sigma is p =
# .0005 for a normal distribution, and 1% for t with 7 degrees. As one-sided p the same three cost
# 4.9% together, so the tests of equivalence use them too.
BOUNDS = (0.0005, 0.0141, 0.0451)


def metric_of(*, planned: bool) -> str:
    """The metric by default: p95 of an open or paced load, whose throughput is the plan's."""
    return "p95" if planned else "throughput"


class ComparisonGoal(Struct, frozen=True):
    """The rules of a comparison, fixed before any trial.

    metric: the primary one, on which the verdict is; empty until `of` chooses it by the load.
    secondary: others, with Holm. delta: a difference that does not matter: a share of A, and for
    shares the difference itself; None takes the default. pairs: the maximum number of pairs; from
    24 on there are three interim looks. same: pairs of A with itself, for the noise floor. Raises
    PlanError.
    """

    metric: str = "throughput"
    secondary: tuple[str, ...] = ()
    delta: float | None = None
    pairs: int = 24
    same: int = 8
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.metric:
            return
        for name in (self.metric, *self.secondary):
            if name not in metrics.COMPARED:
                choices, near = [*metrics.COMPARED], similar(name, metrics.COMPARED)
                raise PlanError(
                    "not-a-choice", what="metric", value=name, choices=choices, near=near
                )
        if self.metric in self.secondary:
            raise PlanError("given-twice", what=f"metric '{self.metric}'")
        if not 0 < self.margin < 1:
            range_ = "above 0 and below 1"
            raise PlanError("out-of-range", what="delta", value=f"{self.margin:g}", range=range_)
        if not PAIRS_MIN <= self.pairs <= 10_000:
            range_ = f"from {PAIRS_MIN} to 10000"
            raise PlanError("out-of-range", what="pairs", value=self.pairs, range=range_)
        if self.same and not PAIRS_MIN <= self.same <= 10_000:
            raise PlanError("same-out-of-range", pairs=self.same, low=PAIRS_MIN)

    def of(self, *, planned: bool) -> ComparisonGoal:
        """The goal with a metric, by default that of the load; it is no secondary one then."""
        metric = self.metric or metric_of(planned=planned)
        others = tuple(name for name in self.secondary if self.metric or name != metric)
        return replace(self, metric=metric, secondary=others)

    @property
    def margin(self) -> float:
        """delta, or its default: 2%, and 0.5 percentage points of shares."""
        default = 0.005 if is_share(self.metric) else 0.02
        return default if self.delta is None else self.delta

    @property
    def looks(self) -> tuple[tuple[int, float], ...]:
        """The numbers of pairs at which there is a look, each with the p that decides."""
        if self.pairs < PAIRS_MIN * _LOOKS:
            return ((self.pairs, ALPHA),)
        thirds = (math.ceil(self.pairs * part / _LOOKS) for part in range(1, _LOOKS + 1))
        return tuple(zip(thirds, BOUNDS, strict=True))


class Side(Struct, frozen=True):
    """The values of one trial, by a metric's name; infinite for a time that was never reached."""

    values: Mapping[str, float]
    missed: int
    due: int


class Pair(Struct, frozen=True):
    """Two trials that ran next to each other. same: both of A, to measure the noise."""

    number: int
    a: Side
    b: Side
    same: bool = False


class PlannedPair(Struct, frozen=True):
    """A pair to run. b_first: B, or the second A, runs first. seed: of both trials' arrivals."""

    number: int
    same: bool
    b_first: bool
    seed: int


class Secondary(Struct, frozen=True):
    """The result for a secondary metric. p: by Holm, over all of them."""

    metric: str
    estimate: Estimate
    p: float
    outcome: Literal["better", "worse", "unknown"]


class Verdict(Struct, frozen=True):
    """The answer and its basis.

    estimate: B over A, or B - A of shares. p: decides where it is at most level. noise: A over A.
    detectable: the smallest effect detected in 8 of 10 cases, as a ratio less 1 or a difference of
    shares; needed: the pairs in all of a new comparison that would decide (None: too many), or the
    fewest of any where there are too few. undefined: pairs without a ratio.
    """

    outcome: Outcome
    why: Why
    metric: str
    delta: float
    pairs: int
    basis: Basis = "pairs"
    estimate: Estimate | None = None
    p: float | None = None
    level: float = ALPHA
    noise: Estimate | None = None
    detectable: float | None = None
    needed: int | None = None
    undefined: int = 0
    secondary: tuple[Secondary, ...] = field(default=())


def side(summary: Summary) -> Side:
    times = ((name, summary.latency.estimate(name)) for name in metrics.TIMES)
    values = {name: estimate.value for name, estimate in times if estimate is not None}
    return Side(
        {**values, "throughput": summary.throughput.value},
        summary.counts.missed,
        summary.counts.due,
    )


def next_pairs(pairs: Sequence[Pair], goal: ComparisonGoal) -> tuple[PlannedPair, ...] | Verdict:
    """The pairs to run next, in order, or the verdict: a pure function of the pairs so far.

    There is a verdict only at the looks of the goal; the first look that decides is final.
    """
    pairs = sorted(pairs, key=lambda pair: pair.number)
    real = [pair for pair in pairs if not pair.same]
    numbers_run = {pair.number for pair in pairs}
    verdict = None
    for look, level in goal.looks:
        missing = tuple(each for each in planned(goal, look) if each.number not in numbers_run)
        if missing:
            return missing
        verdict = judge([*real[:look], *(p for p in pairs if p.same)], goal, level)
        if verdict.outcome != "unknown" or verdict.why == "unbounded":
            break
    assert verdict is not None, "a goal has a look"
    return verdict


def unknown(pairs: Sequence[Pair], goal: ComparisonGoal) -> Verdict:
    """The estimate between two looks, without an outcome. needed: pairs at the next look.

    A decision whenever the numbers look good is wrong more often than the level promises.
    """
    verdict = judge(sorted(pairs, key=lambda pair: pair.number), goal, 0.0)
    run = {pair.number for pair in pairs}
    looks = [look for look, _ in goal.looks]
    after = [n for n in looks if any(each.number not in run for each in planned(goal, n))]
    needed = (after or looks[-1:])[0]
    others = tuple(replace(each, outcome="unknown") for each in verdict.secondary)
    verdict = replace(verdict, outcome="unknown", secondary=others)
    return replace(verdict, why="look", needed=needed)


@cache
def planned(goal: ComparisonGoal, upto: int) -> tuple[PlannedPair, ...]:
    """The pairs up to a look in their order, numbers from 1: a prefix of those up to the next.

    Between two looks half of the pairs begin with B, and those of A with itself are mixed among
    those before the first look; a hash of the seed gives the order.
    """

    def rank(place: int) -> bytes:
        return hashlib.sha256(f"{goal.seed}/{look}/{place}".encode()).digest()

    plan: list[PlannedPair] = []
    before = 0
    for look, _ in goal.looks:
        if look > upto:
            break
        kinds = [(False, n % 2 == 0) for n in range(look - before)]
        kinds += [(True, n % 2 == 0) for n in range(0 if before else goal.same)]
        for place in sorted(range(len(kinds)), key=rank):
            same, b_first = kinds[place]
            number = len(plan) + 1
            plan.append(PlannedPair(number, same, b_first, goal.seed + number - 1))
        before = look
    return tuple(plan)


def judge(
    pairs: Sequence[Pair], goal: ComparisonGoal, level: float = ALPHA, *, basis: Basis = "pairs"
) -> Verdict:
    """The verdict on these pairs. level: the p that decides."""
    real = [pair for pair in pairs if not pair.same]
    same = [pair for pair in pairs if pair.same]
    metric = goal.metric
    differences, effect = effect_of(real, metric)
    undefined = len(real) - len(differences)
    base = Verdict("unknown", "few", metric, goal.margin, len(real), basis, level=level)
    if undefined:
        return replace(base, why="unbounded", undefined=undefined)
    if effect is None:
        single = alone(differences[0], metric) if differences else None
        return replace(base, estimate=single, needed=PAIRS_MIN)
    base = replace(base, secondary=_secondary(real, goal))
    return conclude(base, effect, effect_of(same, metric)[1])


def conclude(base: Verdict, effect: Effect, noise: Effect | None = None) -> Verdict:
    """The base with the outcome of an effect. noise: that of A with itself."""
    metric = base.metric
    outcome, why = _decide(base, effect, noise)
    margin = _margin(metric, base.delta)
    return replace(
        base,
        outcome=outcome,
        why=why,
        estimate=shown(metric, effect),
        p=effect.p(),
        noise=None if noise is None else shown(metric, noise),
        detectable=_size(metric, effect.detectable()),
        needed=effect.needed(margin) if outcome == "unknown" else None,
    )


def _decide(base: Verdict, effect: Effect, noise: Effect | None) -> tuple[Outcome, Why]:
    """The outcome by the tests.

    Equivalence comes first: a difference within delta does not matter, even if it is not 0. For
    that the noise floor, the largest effect that A with itself leaves possible, must be within
    delta. Where A with itself shows an effect, the measurement is biased, and B is better or worse
    only if its interval lies further from 0 than that of A with itself, to either side.
    """
    margin = _margin(base.metric, base.delta)
    if effect.p_within(margin) <= base.level:
        floor = 0.0 if noise is None else abs(noise.value) + noise.half()
        return ("same", "") if floor <= margin else ("unknown", "noise")
    if effect.p() > base.level:
        return "unknown", "wide"
    biased = noise is not None and noise.p() <= ALPHA
    if noise and biased and abs(effect.value) - effect.half() <= abs(noise.value) + noise.half():
        return "unknown", "biased"
    return direction(base.metric, higher=effect.value > 0), ""


def direction(metric: str, *, higher: bool) -> Literal["better", "worse"]:
    return "better" if higher == (metrics.metric(metric).better == "higher") else "worse"


def effect_of(pairs: Sequence[Pair], metric: str) -> tuple[list[float], Effect | None]:
    """The differences of those pairs that have one, and their mean as an effect."""
    values = (numbers((pair.a, pair.b), metric) for pair in pairs)
    differences = [both[1] - both[0] for both in values if len(both) == 2]
    error_min = 0.0
    if is_share(metric):
        error_min = share_error(hits(pair.a for pair in pairs), hits(pair.b for pair in pairs))
    return differences, over_pairs(differences, error_min)


def numbers(sides: Sequence[Side], metric: str) -> list[float]:
    """Logarithms, or shares, of those trials that have one."""
    if is_share(metric):
        return [each.missed / each.due for each in sides if each.due]
    values = (each.values.get(metric) for each in sides)
    return [math.log(value) for value in values if value and 0 < value < math.inf]


def own(sides: Sequence[Side], metric: str) -> Estimate | None:
    """The mean of trials of one kind, geometric where the metric compares ratios.

    None without trials, and where one of them has no number.
    """
    values = numbers(sides, metric)
    if not values or len(values) < len(sides):
        return None
    effect = over_pairs(values)
    if effect is None:
        return alone(values[0], metric)
    estimate = shown(metric, effect)
    return replace(estimate, low=max(0.0, estimate.low))


def hits(sides: Iterable[Side]) -> tuple[int, int]:
    """Missed and due transactions, over some trials."""
    counts = [(each.missed, each.due) for each in sides]
    return sum(missed for missed, _ in counts), sum(due for _, due in counts)


def _secondary(pairs: Sequence[Pair], goal: ComparisonGoal) -> tuple[Secondary, ...]:
    effects = []
    for metric in goal.secondary:
        differences, effect = effect_of(pairs, metric)
        if effect is not None and len(differences) == len(pairs):
            effects.append((metric, effect))
    return secondaries(effects)


def secondaries(effects: Sequence[tuple[str, Effect]]) -> tuple[Secondary, ...]:
    results = []
    ps = holm([effect.p() for _, effect in effects])
    for (metric, effect), p in zip(effects, ps, strict=True):
        outcome = direction(metric, higher=effect.value > 0) if p <= ALPHA else "unknown"
        results.append(Secondary(metric, shown(metric, effect), p, outcome))
    return tuple(results)


def alone(value: float, metric: str) -> Estimate:
    return Estimate.alone(value if is_share(metric) else math.exp(value), 1)


def shown(metric: str, effect: Effect) -> Estimate:
    """An effect on the metric's own scale, with its interval of 95%."""
    half = effect.half()
    low, high = effect.value - half, effect.value + half
    if is_share(metric):
        return Estimate(effect.value, max(-1.0, low), min(1.0, high), effect.n)
    return ratio_of(effect.value, low, high, n=effect.n)


def _margin(metric: str, delta: float) -> float:
    return delta if is_share(metric) else math.log1p(delta)


def _size(metric: str, effect: float) -> float:
    return effect if is_share(metric) else math.expm1(min(effect, 700))
