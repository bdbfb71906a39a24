"""A or B: pairs of trials in, a verdict out, or the pairs to run next. Pure.

The rules are those of docs/explanation/method.md, section 6. Knows no clock, no store and no words.
Which trials are pairs is decided by who ran them, or in stored.py; the arithmetic is in effect.py.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.answers.cells import TIMES
from pgpaces.answers.effect import ALPHA, Effect, bca, holm, over_pairs, ratio_of, share_error
from pgpaces.answers.summary import Summary
from pgpaces.errors import PlanError
from pgpaces.result import Estimate

Outcome = Literal["better", "worse", "equivalent", "inconclusive"]
Why = Literal["", "few", "unbounded", "noise", "biased", "wide", "apart", "look"]
# pairs: run as such. blocks: of an experiment in random order. trials: no pairs, their order mixed.
# apart: all of one before all of the other. runs: a run against earlier ones, each a session.
Basis = Literal["pairs", "blocks", "trials", "apart", "runs"]

PAIRS_MIN = 8
_LOOKS = 3
# O'Brien and Fleming (Biometrics 35, 1979) at 5 %, as two-sided p, referred to t: 3.4 sigma would
# be p = .0005 of a normal, and 1 % of a t of 7 degrees. As one-sided p the same three cost 4.9 %
# together, so the tests of equivalence use them too.
BOUNDS = (0.0005, 0.0141, 0.0451)


class Metric(Struct, frozen=True):
    """What is compared. delta: by default, a difference that does not matter.

    ratio: B over A by logarithms, delta a share of it. share: B - A, as a share may be 0 and has no
    logarithm then; delta in the same unit, 0.005 being half a point of a hundred.
    """

    name: str
    better: Literal["higher", "lower"]
    scale: Literal["ratio", "share"] = "ratio"
    delta: float = 0.02


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("rate", "higher"),
        *(Metric(name, "lower") for name in TIMES),
        Metric("missed", "lower", "share", 0.005),
    )
}


class ComparisonGoal(Struct, frozen=True):
    """What is asked, before anything is run.

    metric: the primary one, on which the verdict is. secondary: others, with Holm. delta: see
    Metric; None takes that of the metric. pairs: at most so many; from 24 on they are looked at
    three times. same: pairs of A with itself, for the noise floor. Raises PlanError.
    """

    metric: str = "rate"
    secondary: tuple[str, ...] = ()
    delta: float | None = None
    pairs: int = 24
    same: int = 8
    seed: int = 1

    def __post_init__(self) -> None:
        for name in (self.metric, *self.secondary):
            if name not in METRICS:
                raise PlanError(f"{name} is nothing to compare by", f"one of {', '.join(METRICS)}")
        if self.metric in self.secondary:
            raise PlanError(f"{self.metric} is the primary metric and a secondary one", "once")
        if not 0 < self.margin < 1:
            raise PlanError(f"a delta of {self.margin:g} cannot be", "more than 0, less than 1")
        if not PAIRS_MIN <= self.pairs <= 10_000:
            raise PlanError(f"{self.pairs} pairs cannot be", f"from {PAIRS_MIN} to 10000")
        if self.same and not PAIRS_MIN <= self.same <= 10_000:
            raise PlanError(
                f"{self.same} pairs of A with itself tell no noise floor",
                f"{PAIRS_MIN} or more, or 0 to do without",
            )

    @property
    def primary(self) -> Metric:
        """The metric of the verdict."""
        return METRICS[self.metric]

    @property
    def margin(self) -> float:
        """delta, of the metric's own scale."""
        return self.primary.delta if self.delta is None else self.delta

    @property
    def looks(self) -> tuple[tuple[int, float], ...]:
        """After how many pairs they are looked at, and the p that decides there."""
        if self.pairs < PAIRS_MIN * _LOOKS:
            return ((self.pairs, ALPHA),)
        thirds = (math.ceil(self.pairs * part / _LOOKS) for part in range(1, _LOOKS + 1))
        return tuple(zip(thirds, BOUNDS, strict=True))


class Side(Struct, frozen=True):
    """What one trial says. values: by a metric's name; infinite where it fell among what missed."""

    values: Mapping[str, float]
    missed: int
    due: int


class Pair(Struct, frozen=True):
    """Two trials that ran beside each other. same: both were of A, the noise of the place."""

    number: int
    a: Side
    b: Side
    same: bool = False


class PlannedPair(Struct, frozen=True):
    """A pair to run. b_first: what is in B's place comes first. seed: of both trials' arrivals."""

    number: int
    same: bool
    b_first: bool
    seed: int


class NextPairs(Struct, frozen=True):
    """What has to be run before anything can be said, in this order."""

    pairs: tuple[PlannedPair, ...]


class Secondary(Struct, frozen=True):
    """A metric beside the primary one. p: by Holm, over all of them."""

    metric: Metric
    estimate: Estimate
    p: float
    outcome: Literal["better", "worse", "inconclusive"]


class Verdict(Struct, frozen=True):
    """The answer, and what it rests on.

    estimate: B over A, or B - A of shares; bootstrap: the same by BCa, from 25 pairs on. p is held
    against level. noise: A over A. detectable: the smallest effect found in 8 of 10, as a ratio
    less 1 or a difference of shares; needed: with so many pairs in all, a comparison of its own
    would decide (None: none that is of use). undefined: pairs without a ratio. For few of them,
    needed is how many it takes to begin with.
    """

    outcome: Outcome
    why: Why
    metric: Metric
    delta: float
    pairs: int
    basis: Basis = "pairs"
    estimate: Estimate | None = None
    bootstrap: Estimate | None = None
    p: float | None = None
    level: float = ALPHA
    noise: Estimate | None = None
    detectable: float | None = None
    needed: int | None = None
    undefined: int = 0
    secondary: tuple[Secondary, ...] = field(default=())


def side(summary: Summary) -> Side:
    """What a trial says, for comparing it."""
    found = {name: summary.latency.estimate(name) for name in TIMES}
    values = {name: estimate.value for name, estimate in found.items() if estimate is not None}
    return Side({**values, "rate": summary.rate.value}, summary.counts.missed, summary.counts.due)


def next_pairs(pairs: Sequence[Pair], goal: ComparisonGoal) -> NextPairs | Verdict:
    """What to run next, or the verdict: a pure function of the pairs so far, in any order.

    Looks at pairs of A and B when as many are there as the goal says, at no other time; what a
    look decided stays decided.
    """
    known = sorted(pairs, key=lambda pair: pair.number)
    real = [pair for pair in known if not pair.same]
    have = {pair.number for pair in known}
    verdict = None
    for look, level in goal.looks:
        wanted = tuple(each for each in planned(goal, look) if each.number not in have)
        if wanted:
            return NextPairs(wanted)
        verdict = judge([*real[:look], *(p for p in known if p.same)], goal, level)
        if verdict.outcome != "inconclusive" or verdict.why == "unbounded":
            break
    assert verdict is not None, "a goal has a look"
    return verdict


def undecided(pairs: Sequence[Pair], goal: ComparisonGoal) -> Verdict:
    """What pairs say between two looks: a number, and no verdict. needed: pairs at the next look.

    Who concludes whenever it looks good is wrong more often than the level says.
    """
    found = judge(sorted(pairs, key=lambda pair: pair.number), goal, 0.0)
    after = [look for look, _ in goal.looks if look > found.pairs] or [goal.looks[-1][0]]
    others = tuple(replace(each, outcome="inconclusive") for each in found.secondary)
    return replace(found, outcome="inconclusive", why="look", needed=after[0], secondary=others)


@cache
def planned(goal: ComparisonGoal, upto: int) -> tuple[PlannedPair, ...]:
    """The pairs up to a look in their order, numbers from 1: a prefix of those up to the next.

    Between two looks half of the pairs begin with B, and those of A with itself are mixed among
    those before the first look; the order is that of a hash of the seed.
    """
    found: list[PlannedPair] = []
    before = 0
    for look, _ in goal.looks:
        if look > upto:
            break
        kinds = [(False, n % 2 == 0) for n in range(look - before)]
        kinds += [(True, n % 2 == 0) for n in range(0 if before else goal.same)]
        order = sorted(range(len(kinds)), key=lambda place: _hash(goal, look, place))
        for place in order:
            same, b_first = kinds[place]
            number = len(found) + 1
            found.append(PlannedPair(number, same, b_first, goal.seed + number - 1))
        before = look
    return tuple(found)


def _hash(goal: ComparisonGoal, look: int, place: int) -> bytes:
    return hashlib.sha256(f"{goal.seed}/{look}/{place}".encode()).digest()


def judge(
    pairs: Sequence[Pair], goal: ComparisonGoal, level: float = ALPHA, basis: Basis = "pairs"
) -> Verdict:
    """The verdict on these pairs. level: the p that decides."""
    real = [pair for pair in pairs if not pair.same]
    same = [pair for pair in pairs if pair.same]
    metric = goal.primary
    every, effect = effect_of(real, metric)
    undefined = len(real) - len(every)
    base = Verdict("inconclusive", "few", metric, goal.margin, len(real), basis, level=level)
    if undefined:
        return replace(base, why="unbounded", undefined=undefined)
    if effect is None:
        single = alone(every[0], metric) if every else None
        return replace(base, estimate=single, needed=PAIRS_MIN)
    ends = bca(every, goal.seed)
    bootstrap = None if ends is None else _as(metric, effect.value, *ends, n=effect.n)
    found = replace(base, bootstrap=bootstrap, secondary=_secondary(real, goal))
    return concluded(found, effect, effect_of(same, metric)[1])


def concluded(base: Verdict, effect: Effect, noise: Effect | None = None) -> Verdict:
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
        needed=effect.needed(margin) if outcome == "inconclusive" else None,
    )


def _decide(base: Verdict, effect: Effect, noise: Effect | None) -> tuple[Outcome, Why]:
    """What the tests say.

    Equivalence comes first: what lies within delta does not matter, also where it is not 0. The
    noise floor, the largest effect that A with itself leaves possible, has to be within delta for
    it. Where A with itself shows an effect, the place tells equal things apart, and then B is
    better or worse only if its interval lies beyond that of A with itself.
    """
    margin = _margin(base.metric, base.delta)
    if effect.p_within(margin) <= base.level:
        floor = 0.0 if noise is None else abs(noise.value) + noise.half()
        return ("equivalent", "") if floor <= margin else ("inconclusive", "noise")
    if effect.p() > base.level:
        return "inconclusive", "wide"
    if noise is not None and noise.p() <= ALPHA:
        apart = abs(effect.value - noise.value) > effect.half() + noise.half()
        if not apart:
            return "inconclusive", "biased"
    return direction(base.metric, effect), ""


def direction(metric: Metric, effect: Effect) -> Literal["better", "worse"]:
    """Which way an effect points."""
    return "better" if (effect.value > 0) == (metric.better == "higher") else "worse"


def effect_of(pairs: Sequence[Pair], metric: Metric) -> tuple[list[float], Effect | None]:
    """The differences of those pairs that have one, and what they say together."""
    both = [numbers((pair.a, pair.b), metric) for pair in pairs]
    every = [found[1] - found[0] for found in both if len(found) == 2]
    if metric.scale == "ratio":
        return every, over_pairs(every)
    error_min = share_error(hits(pair.a for pair in pairs), hits(pair.b for pair in pairs))
    return every, over_pairs(every, error_min)


def numbers(sides: Sequence[Side], metric: Metric) -> list[float]:
    """Logarithms, or shares, of those trials that have one."""
    if metric.scale == "share":
        return [each.missed / each.due for each in sides if each.due]
    values = (each.values.get(metric.name) for each in sides)
    return [math.log(value) for value in values if value and 0 < value < math.inf]


def own(sides: Sequence[Side], metric: Metric) -> Estimate | None:
    """What trials of one kind say by themselves: their mean, geometric where ratios are compared.

    None of nothing, and where the number of one is none.
    """
    found = numbers(sides, metric)
    if not found or len(found) < len(sides):
        return None
    effect = over_pairs(found)
    if effect is None:
        return alone(found[0], metric)
    estimate = shown(metric, effect)
    return replace(estimate, low=max(0.0, estimate.low))


def hits(sides: Iterable[Side]) -> tuple[int, int]:
    """What missed and what was due, over some trials."""
    every = list(sides)
    return sum(each.missed for each in every), sum(each.due for each in every)


def _secondary(pairs: Sequence[Pair], goal: ComparisonGoal) -> tuple[Secondary, ...]:
    """Those secondary metrics that all pairs have."""
    metrics = [METRICS[name] for name in goal.secondary]
    found = [(metric, *effect_of(pairs, metric)) for metric in metrics]
    return secondaries(
        [(m, e) for m, every, e in found if e is not None and len(every) == len(pairs)]
    )


def secondaries(found: Sequence[tuple[Metric, Effect]]) -> tuple[Secondary, ...]:
    """Effects of other metrics, with Holm over all of them."""
    ps = holm([effect.p() for _, effect in found])
    return tuple(
        Secondary(
            metric,
            shown(metric, effect),
            p,
            direction(metric, effect) if p <= ALPHA else "inconclusive",
        )
        for (metric, effect), p in zip(found, ps, strict=True)
    )


def alone(value: float, metric: Metric) -> Estimate:
    """An effect without an interval."""
    return Estimate.alone(math.exp(value) if metric.scale == "ratio" else value, 1)


def shown(metric: Metric, effect: Effect) -> Estimate:
    """An effect on the metric's own scale, with its interval of 95 %."""
    half = effect.half()
    return _as(metric, effect.value, effect.value - half, effect.value + half, n=effect.n)


def _as(metric: Metric, middle: float, low: float, high: float, *, n: int) -> Estimate:
    if metric.scale == "ratio":
        return ratio_of(middle, low, high, n)
    return Estimate(middle, max(-1.0, low), min(1.0, high), n)


def _margin(metric: Metric, delta: float) -> float:
    return math.log1p(delta) if metric.scale == "ratio" else delta


def _size(metric: Metric, effect: float) -> float:
    return math.expm1(min(effect, 700)) if metric.scale == "ratio" else effect
