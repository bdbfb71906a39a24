"""A or B: trials in, a verdict out. Pure.

The rules are those of docs/explanation/method.md, section 6. Knows no clock, no store and no words.
sequential.py says which pairs to run; across.py has the arithmetic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.across import (
    ALPHA,
    Effect,
    effect_of_groups,
    effect_of_next,
    effect_of_pairs,
    holm,
    share_error,
)
from pgpaces.analysis.cells import sound
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.summary import Summary
from pgpaces.core import metrics
from pgpaces.core.errors import PlanError, similar
from pgpaces.core.metrics import is_share
from pgpaces.spec.result import Estimate, Place

Outcome = Literal["better", "worse", "same", "unknown"]
Why = Literal["", "few", "nothing new", "unbounded", "noise", "biased", "wide", "apart", "look"]
# pairs: run as pairs. blocks: of an experiment in random order. trials: no pairs, in mixed order.
# apart: all of one before all of the other. runs: a run against earlier ones, each a session.
Basis = Literal["pairs", "blocks", "trials", "apart", "runs"]
_PAIRED = ("pairs", "blocks")

PAIRS_MIN = 8
BASELINE_MIN = 4
_TRIALS_MIN = 2
# The fewest pairs, or earlier runs, that give a verdict; else the fewest trials of each.
_LEAST = {"pairs": PAIRS_MIN, "blocks": PAIRS_MIN, "runs": BASELINE_MIN}
_LOOKS = 3
# O'Brien and Fleming (Biometrics 35, 1979) at 5%, as two-sided p for Student's t: 3.4 sigma is p =
# .0005 for a normal distribution, and 1% for t with 7 degrees. As one-sided p the same three cost
# 4.9% together, so the tests of equivalence use them too.
BOUNDS = (0.0005, 0.0141, 0.0451)
# The drift of a machine between two groups: the standard deviation of each, as in
# docs/explanation/method.md, section 6.
_DRIFT = 0.08


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


class TrialValues(Struct, frozen=True):
    """The values of one trial, by a metric's name; infinite for a time that was never reached."""

    values: Mapping[str, float]
    missed: int
    due: int


_Groups = tuple[Sequence[TrialValues], Sequence[TrialValues]]


class Pair(Struct, frozen=True):
    """Two trials that ran next to each other. same: both of A, to measure the noise."""

    number: int
    a: TrialValues
    b: TrialValues
    same: bool = False


class Secondary(Struct, frozen=True):
    """The result for a secondary metric. p: by Holm, over all of them. a, b: means of the sides."""

    metric: str
    estimate: Estimate
    p: float
    outcome: Literal["better", "worse", "unknown"]
    a: Estimate | None
    b: Estimate | None


class Verdict(Struct, frozen=True):
    """The answer and its basis.

    estimate: B over A, or B - A of shares. p: decides where it is at most level. noise: A over A.
    detectable: the smallest effect detected in 8 of 10 cases, as a ratio less 1 or a difference of
    shares; needed: the pairs in all of a new comparison that would decide (None: too many), or the
    fewest of any where there are too few. undefined: pairs without a ratio. a, b: means of the
    sides. trials: of A and B.
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
    secondary: tuple[Secondary, ...] = ()
    a: Estimate | None = None
    b: Estimate | None = None
    trials: tuple[int, int] = (0, 0)


def trial_values(summary: Summary) -> TrialValues:
    times = ((name, summary.latency.estimate(name)) for name in metrics.TIMES)
    values = {name: estimate.value for name, estimate in times if estimate is not None}
    values["throughput"] = summary.throughput.value
    return TrialValues(values, summary.counts.missed, summary.counts.due)


def compare_stored(a: Iterable[Digest], b: Iterable[Digest], goal: ComparisonGoal) -> Verdict:
    """The verdict on stored trials, without those that did not end or are invalid.

    Trials of the blocks of an experiment are pairs. Others are compared as two groups, which is
    weaker: the difference includes the drift of the machine, which nothing can remove where all of
    one group ran before all of the other.
    """
    of_a, of_b = [d for d in a if sound(d)], [d for d in b if sound(d)]
    pairs = pairs_of_blocks(of_a, of_b)
    if 2 * len(pairs) >= max(len(of_a), len(of_b), 2 * _TRIALS_MIN):
        return compare_pairs(pairs, goal, basis="blocks")
    order = sorted((d.trial.started_at, is_b) for is_b, of in enumerate((of_a, of_b)) for d in of)
    groups = [[trial_values(d.summary) for d in of] for of in (of_a, of_b)]
    mixed = alternate([bool(is_b) for _, is_b in order])
    return compare_trials(groups[0], groups[1], goal, basis="trials" if mixed else "apart")


def pairs_of_blocks(a: Iterable[Digest], b: Iterable[Digest]) -> list[Pair]:
    """Pairs of trials of one block of one experiment, whose order was random.

    The two have the same levels except of those factors in which A and B have no common level.
    """
    placed = [[(d.trial.place, d) for d in of if d.trial.place is not None] for of in (a, b)]
    names = {name for place, _ in placed[0] for name in place.levels}
    every = [{(n, place.levels.get(n)) for place, _ in of for n in names} for of in placed]
    compared = names - {name for name, _ in every[0] & every[1]}

    def common(place: Place) -> tuple[object, ...]:
        levels = (pair for pair in place.levels.items() if pair[0] not in compared)
        return place.experiment, place.block, *sorted(levels)

    of_a, of_b = ({common(place): trial_values(d.summary) for place, d in of} for of in placed)
    both = [key for key in of_a if key in of_b]
    return [Pair(n, of_a[key], of_b[key]) for n, key in enumerate(both, 1)]


def alternate(order: Sequence[bool]) -> bool:
    """Whether the trials of two groups alternated; order: whether each is of B, by time.

    A random order changes groups 2 a b / (a + b) times; half of that, at least 2, is enough.
    """
    changes = sum(one != other for one, other in itertools.pairwise(order))
    b = sum(order)
    return changes >= max(2, b * (len(order) - b) / max(1, len(order)))


def compare_pairs(
    pairs: Sequence[Pair], goal: ComparisonGoal, level: float = ALPHA, *, basis: Basis = "pairs"
) -> Verdict:
    """The verdict on these pairs. level: the p that decides."""
    a, b = ([getattr(pair, of) for pair in pairs if not pair.same] for of in "ab")
    same = [p for p in pairs if p.same and len(numbers((p.a, p.b), goal.metric)) == 2]
    noise = _effect(([p.a for p in same], [p.b for p in same]), goal.metric, basis)
    return compare_trials(a, b, goal, basis=basis, level=level, noise=noise)


def compare_trials(
    a: Sequence[TrialValues],
    b: Sequence[TrialValues],
    goal: ComparisonGoal,
    *,
    basis: Basis,
    level: float = ALPHA,
    noise: Effect | None = None,
) -> Verdict:
    """The verdict on B against A by the values of their trials; those of pairs in the same order.

    trials: Welch's test on the logarithms, or shares, of each trial. apart: a drift of 8% (standard
    deviation) of each group's level is added to the error, so that there is a verdict on a large
    difference and none on a small one. A share near its limit moves much more than the machine
    does, so there is no verdict on shares. runs: a prediction of B, because runs of different days
    include the drift of the machine. noise: the effect of A against itself.
    """
    metric = goal.metric
    share, apart = is_share(metric), basis == "apart"
    count = len(a) if basis == "runs" else min(len(a), len(b))
    base = Verdict(
        "unknown", "few", metric, goal.margin, count, basis, level=level, trials=(len(a), len(b)),
        a=own_estimate(a, metric), b=own_estimate(b, metric),
    )  # fmt: skip
    if basis == "runs" and not b:
        return replace(base, why="nothing new")
    if basis in _PAIRED:
        undefined = sum(len(numbers(both, metric)) < 2 for both in zip(a, b, strict=True))
    else:
        undefined = len(a) + len(b) - len(numbers((*a, *b), metric))
    if undefined:
        return replace(base, why="unbounded", undefined=undefined)
    effect = _effect((a, b), metric, basis)
    if effect is None:
        of_a, of_b = numbers(a, metric), numbers(b, metric)
        single = _alone(fmean(of_b) - fmean(of_a), metric) if of_a and of_b else None
        return replace(base, estimate=single, needed=_LEAST.get(basis, _TRIALS_MIN))
    outcome, why = _decide(base, effect, noise)
    detectable = effect.detectable()
    verdict = replace(
        base,
        outcome=outcome,
        why=why,
        estimate=_estimate(metric, effect),
        p=effect.p(),
        noise=None if noise is None else _estimate(metric, noise),
        detectable=detectable if share else math.expm1(min(detectable, 700)),
        secondary=_secondary((a, b), goal, basis),
    )
    if apart and (share or outcome == "unknown"):
        return replace(verdict, outcome="unknown", why="apart")
    # More trials decrease neither the drift between groups nor the spread of the new run.
    if outcome != "unknown" or apart or basis == "runs":
        return verdict
    return replace(verdict, needed=effect.needed(_margin(base)))


def _effect(groups: _Groups, metric: str, basis: Basis) -> Effect | None:
    """B less A; None for too few trials, or if one has no number."""
    a, b = groups
    of_a, of_b = numbers(a, metric), numbers(b, metric)
    if len(of_a) < len(a) or len(of_b) < len(b):
        return None
    share = is_share(metric)
    hits = [[(each.missed, each.due) for each in side] for side in groups]
    error_min = share_error(*hits) if share else 0.0
    if basis in _PAIRED:
        return effect_of_pairs([y - x for x, y in zip(of_a, of_b, strict=True)], error_min)
    if basis == "runs":
        return effect_of_next(of_a, of_b, error_min) if len(of_a) >= BASELINE_MIN else None
    drift = _DRIFT if basis == "apart" and not share else 0.0
    return effect_of_groups(of_a, of_b, error_min, drift=drift)


def _decide(base: Verdict, effect: Effect, noise: Effect | None) -> tuple[Outcome, Why]:
    """The outcome by the tests.

    Equivalence comes first: a difference within delta does not matter, even if it is not 0. For
    that the noise floor, the largest effect that A with itself leaves possible, must be within
    delta. Where A with itself shows an effect, the measurement is biased, and B is better or worse
    only if its interval lies further from 0 than that of A with itself, to either side.
    """
    margin = _margin(base)
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


def numbers(trials: Sequence[TrialValues], metric: str) -> list[float]:
    """Logarithms, or shares, of those trials that have one."""
    if is_share(metric):
        return [each.missed / each.due for each in trials if each.due]
    values = (each.values.get(metric) for each in trials)
    return [math.log(value) for value in values if value and 0 < value < math.inf]


def own_estimate(trials: Sequence[TrialValues], metric: str) -> Estimate | None:
    """The mean of trials of one kind, geometric where the metric compares ratios.

    None without trials, and where one of them has no number.
    """
    values = numbers(trials, metric)
    if not values or len(values) < len(trials):
        return None
    effect = effect_of_pairs(values)
    if effect is None:
        return _alone(values[0], metric)
    estimate = _estimate(metric, effect)
    return replace(estimate, low=max(0.0, estimate.low))


def _secondary(groups: _Groups, goal: ComparisonGoal, basis: Basis) -> tuple[Secondary, ...]:
    names = (name for name in goal.secondary if basis != "apart" or not is_share(name))
    every = ((metric, _effect(groups, metric, basis)) for metric in names)
    effects = [(metric, effect) for metric, effect in every if effect is not None]
    results = []
    ps = holm([effect.p() for _, effect in effects])
    for (metric, effect), p in zip(effects, ps, strict=True):
        outcome = direction(metric, higher=effect.value > 0) if p <= ALPHA else "unknown"
        a, b = (own_estimate(side, metric) for side in groups)
        results.append(Secondary(metric, _estimate(metric, effect), p, outcome, a, b))
    return tuple(results)


def _alone(value: float, metric: str) -> Estimate:
    return Estimate.alone(value if is_share(metric) else math.exp(value), 1)


def _estimate(metric: str, effect: Effect) -> Estimate:
    """An effect on the metric's own scale, with its interval of 95%."""
    if not is_share(metric):
        return effect.ratio()
    estimate = effect.interval()
    return replace(estimate, low=max(-1.0, estimate.low), high=min(1.0, estimate.high))


def _margin(base: Verdict) -> float:
    return base.delta if is_share(base.metric) else math.log1p(base.delta)
