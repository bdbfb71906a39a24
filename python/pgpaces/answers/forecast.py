"""What if it grows: throughput by load, fitted and extrapolated a little. Pure.

The universal scalability law (Gunther, Guerrilla Capacity Planning, 2007, ch. 4-6), and the bounds
of operational analysis (Denning and Buzen, ACM Computing Surveys 10, 1978), which need no model.
scipy is imported where it is used.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.answers.arrays import Numbers, np
from pgpaces.result import Estimate

LOADS_MIN, TRIALS_MIN = 6, 3
HELD_OUT = 2
HOLDOUT_MAX = 0.10
REACH = 1.5
BOOTSTRAPS = 2000
_TAIL = 0.025
_POINTS = 40
_STEPS, _STEP_MIN = 60, 1e-7
# Which of the three a fit may have at its bound, though not both of what one user takes.
_ZEROS = ((1, 2), (1,), (0, 2), (0,), (2,))

Refusal = Literal["", "few loads", "few trials", "nothing done", "hold-out"]


class Point(Struct, frozen=True):
    """One trial: the number of users or clients, and their transactions a second.

    busy: the utilization of each resource by its name, 0 to 1.
    """

    load: float
    rate: float
    busy: Mapping[str, float] = field(default_factory=dict)


class Usl(Struct, frozen=True):
    """X(N) = g N / (1 + a (N - 1) + b N (N - 1)).

    g: throughput of one; a: contention, the serial share of the work; b: coherency, the cost of
    each pair of users.
    """

    g: float
    a: float
    b: float

    def at(self, load: float) -> float:
        """Throughput at a load."""
        return self.g * load / (1 + self.a * (load - 1) + self.b * load * (load - 1))

    @property
    def peak(self) -> float | None:
        """N* = sqrt((1 - a) / b); None without coherency."""
        return math.sqrt((1 - self.a) / self.b) if self.b > 0 else None


class Bounds(Struct, frozen=True):
    """The bounds of any system: X(N) <= min(1 / Dmax, N / (D + Z)).

    each: 1 / (D + Z), the largest throughput per user at any measured load, by Little's law
    X (R + Z) = N; exact where a single user was measured. most: 1 / Dmax by the utilization law
    D = U / X, for `limit`, the busiest resource; None without samples of resources. D is the least
    demand of any trial, as other programs may use a resource too: so no trial is above a bound.
    """

    each: float
    most: float | None
    limit: str | None

    def at(self, load: float) -> float:
        """The most at a load."""
        return min(load * self.each, math.inf if self.most is None else self.most)


class Reading(Struct, frozen=True):
    """The forecast at one load. within: at most the largest measured load. bound: see Bounds."""

    load: float
    rate: Estimate
    bound: float
    within: bool = field(name="tried")


class Forecast(Struct, frozen=True):
    """The forecast by the trials. refusal: why there is no curve, else empty.

    loads: their number; trials: the fewest of one of them. holdout: the larger relative error of a
    fit without the last two loads, at these. peak: N*, and peak_rate the throughput there; None
    where there may be no peak (b's interval includes 0), or where it is beyond reach, which is 1.5
    x the largest measured load. peak_beyond: so is its interval. falls: it is below every load.
    """

    refusal: Refusal
    loads: int
    trials: int
    reach: float
    bounds: Bounds | None
    holdout: float | None = None
    usl: Usl | None = None
    g: Estimate | None = None
    a: Estimate | None = None
    b: Estimate | None = None
    peak: Estimate | None = None
    peak_rate: Estimate | None = None
    peak_beyond: bool = False
    falls: bool = False
    curve: tuple[Reading, ...] = ()


def fit(loads: Sequence[float], rates: Sequence[float]) -> Usl:
    """The law by bounded least squares: g > 0, 0 <= a <= 1, b >= 0.

    With c = (1 - a, a, b) / g throughput is N / (c0 + c1 N + c2 N (N - 1)): three numbers of at
    least 0, scaled to similar sizes for the solver.
    """
    from scipy.optimize import least_squares

    n, x = np.asarray(loads, dtype=float), np.asarray(rates, dtype=float)
    scale = _scale(n, x)
    design = _design(n) * scale

    def errors(c: Numbers) -> Any:
        return n / np.maximum(design @ c, 1e-12) - x

    def slopes(c: Numbers) -> Any:
        return -design * (n / (design @ c) ** 2)[:, None]

    solution = least_squares(
        errors,
        np.array([1.0, 0.05, 0.05]),
        jac=slopes,
        bounds=(0, np.inf),
        x_scale="jac",
        xtol=1e-12,
        ftol=1e-14,
        gtol=1e-14,
        max_nfev=2000,
    ).x
    # The solver stays inside of its bounds; a parameter next to one is 0.
    ends = [np.where(np.isin(np.arange(3), zeros), 0.0, solution) for zeros in _ZEROS]
    candidates = (*ends, solution)
    squares = [float(np.sum(errors(c) ** 2)) for c in candidates]
    near = min(squares) * (1 + 1e-9) + 1e-18 * float(np.sum(x * x))
    best = next(c for c, cost in zip(candidates, squares, strict=True) if cost <= near)
    return Usl(*(float(value) for value in _law(best * scale)))


def _law(c: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """g, a and b of (1 - a, a, b) / g, along the last axis."""
    one = c[..., 0] + c[..., 1]
    return 1 / one, c[..., 1] / one, c[..., 2] / one


def _design(loads: Numbers) -> Numbers:
    return np.stack([np.ones_like(loads), loads, loads * (loads - 1)], axis=1)


def _scale(loads: Numbers, rates: Numbers) -> Numbers:
    """The largest possible size of each of the three: if it alone made up the largest N / X."""
    top = float(np.max(loads))
    each = float(np.max(loads[rates > 0] / rates[rates > 0], initial=1e-9))
    return np.array([each, each / max(1.0, top), each / max(1.0, top * (top - 1))])


def fits(loads: Numbers, means: Numbers, weights: Numbers, start: Usl) -> Numbers:
    """The same for many sets of means at once: rows of (1 - a, a, b) / g.

    Levenberg and Marquardt in all rows together, with parameters fixed at a bound that they would
    leave (Nocedal and Wright, Numerical Optimization, 2006, 10.3, 16.7): a solver called for each
    takes seconds. weights: trials of each load; least squares over trials are those over their
    means.
    """
    scale = _scale(loads, means.max(axis=0))
    design, roots = _design(loads) * scale, np.sqrt(weights)
    first = np.array([1 - start.a, start.a, start.b]) / start.g / scale
    c = np.tile(first, (len(means), 1))
    damping, eye = np.full(len(means), 1e-3), np.eye(3)
    cost = _cost(c, design, (loads, means, weights))
    for _ in range(_STEPS):
        below = c @ design.T
        errors = (means - loads / below) * roots
        slopes = (loads / below**2 * roots)[:, :, None] * -design
        gradient = np.matmul(errors[:, None, :], slopes)[:, 0]
        fixed = (c <= 0) & (gradient < 0)
        slopes *= ~fixed[:, None, :]
        normal = np.matmul(slopes.transpose(0, 2, 1), slopes) + eye * fixed[:, :, None]
        diagonal = np.einsum("rii->ri", normal) * damping[:, None]
        step = np.linalg.solve(normal + eye * diagonal[:, :, None], (gradient * ~fixed)[:, :, None])
        trial = np.maximum(c + step[:, :, 0], 0)
        new = _cost(trial, design, (loads, means, weights))
        done = float(np.abs(trial - c).max()) < _STEP_MIN
        good = new <= cost
        c, cost = np.where(good[:, None], trial, c), np.where(good, new, cost)
        damping = np.where(good, damping / 10, damping * 4)
        if done:
            break
    return c * scale


def _cost(c: Numbers, design: Numbers, data: tuple[Numbers, Numbers, Numbers]) -> Numbers:
    loads, means, weights = data
    # Where one user would take no time at all, the error is large, not infinite.
    below = np.maximum(c @ design.T, 1e-12)
    return np.asarray(((means - loads / below) ** 2 * weights).sum(axis=1))


def bounds(points: Sequence[Point]) -> Bounds | None:
    """The operational bounds; None without throughput.

    The limit is the resource with the largest demand over all trials together.
    """
    used = [point for point in points if point.rate > 0]
    if not used:
        return None
    each = max(point.rate / point.load for point in used)
    samples: dict[str, list[tuple[float, float]]] = {}
    for point in used:
        for name, busy in point.busy.items():
            if busy:
                samples.setdefault(name, []).append((busy, point.rate))

    def demand(name: str) -> float:
        return sum(busy for busy, _ in samples[name]) / sum(rate for _, rate in samples[name])

    limit = max(samples, key=demand, default=None)
    if limit is None:
        return Bounds(each, None, None)
    return Bounds(each, max(rate / busy for busy, rate in samples[limit]), limit)


def forecast(
    points: Sequence[Point], seed: int = 1, bootstraps: int = BOOTSTRAPS, at: Sequence[float] = ()
) -> Forecast:
    """The forecast for larger loads. at: more loads for the curve, if they are within reach.

    Refused with fewer than 6 loads or fewer than 3 trials of one of them, where one has no
    throughput, and where a fit without the last two loads is wrong by more than 10% at one of
    these: the law does not apply there.
    """
    groups: dict[float, list[float]] = {}
    for point in points:
        groups.setdefault(point.load, []).append(point.rate)
    loads = sorted(groups)
    rates = [groups[load] for load in loads]
    if len(loads) < LOADS_MIN:
        return _base("few loads", points)
    if min(map(len, rates)) < TRIALS_MIN:
        return _base("few trials", points)
    if any(sum(of_load) <= 0 for of_load in rates):
        return _base("nothing done", points)
    error = holdout(loads, rates)
    if error > HOLDOUT_MAX:
        return _base("hold-out", points, error)
    usl = _fit_trials(loads, rates)
    drawn = _resampled(loads, rates, (usl, seed, bootstraps))
    return _of_fit(usl, drawn, points, error, at)


def _fit_trials(loads: Sequence[float], rates: Sequence[Sequence[float]]) -> Usl:
    each = [load for load, of_load in zip(loads, rates, strict=True) for _ in of_load]
    return fit(each, [rate for of_load in rates for rate in of_load])


def holdout(loads: Sequence[float], rates: Sequence[Sequence[float]]) -> float:
    """The larger relative error at the last two loads of a fit to those before; 1: 100%."""
    usl = _fit_trials(loads[:-HELD_OUT], rates[:-HELD_OUT])
    means = [math.fsum(of_load) / len(of_load) for of_load in rates[-HELD_OUT:]]
    last = zip(loads[-HELD_OUT:], means, strict=True)
    return max(abs(usl.at(load) - mean) / mean if mean > 0 else math.inf for load, mean in last)


def _resampled(
    loads: Sequence[float], rates: Sequence[Sequence[float]], how: tuple[Usl, int, int]
) -> Numbers:
    """Fits to bootstrap samples of the trials at each load: rows of (1 - a, a, b) / g.

    Three trials show little of a spread, so the samples are drawn from the relative deviations of
    all loads, times sqrt(k / (k - 1)) as deviations from a mean of k are too small (Davison and
    Hinkley, Bootstrap Methods, 1997, 6.2), and stretched at a load with a wider spread than all.
    """
    usl, seed, bootstraps = how
    draw = np.random.default_rng(seed)
    values = [np.asarray(of_load, dtype=float) for of_load in rates]
    counts = np.array([float(len(of_load)) for of_load in rates])
    middle = np.array([of_load.mean() for of_load in values])
    parts = [
        (of_load / mean - 1) * math.sqrt(len(of_load) / (len(of_load) - 1))
        for of_load, mean in zip(values, middle, strict=True)
    ]
    pool = np.concatenate(parts)
    spread = max(float(np.sqrt(np.mean(pool**2))), 1e-12)
    means = np.empty((bootstraps, len(loads)))
    for place, own in enumerate(parts):
        wider = max(1.0, float(np.sqrt(np.mean(own**2))) / spread)
        drawn = pool[draw.integers(0, len(pool), (bootstraps, len(own)))].mean(axis=1)
        means[:, place] = middle[place] * np.maximum(1 + wider * drawn, 1e-3)
    return fits(np.asarray(loads, dtype=float), means, counts, usl)


def _of_fit(
    usl: Usl, drawn: Numbers, points: Sequence[Point], error: float, at: Sequence[float]
) -> Forecast:
    """The forecast by a fit and its bootstraps."""
    n, base = len(points), _base("", points, error)
    g, a, b = _law(drawn)
    result = replace(
        base,
        usl=usl,
        g=_band(usl.g, g, n),
        a=_band(usl.a, a, n),
        b=_band(usl.b, b, n),
        curve=tuple(_curve(usl, drawn, points, base, at)),
    )
    if usl.peak is None or result.b is None or result.b.low <= 0:
        return result
    peak = _band(usl.peak, np.sqrt((1 - a) / np.maximum(b, 1e-300)), n)
    if peak.high > base.reach:
        return replace(result, peak_beyond=peak.low > base.reach)
    if peak.value < min(point.load for point in points):
        return replace(result, falls=True)
    rate = _band(usl.at(peak.value), _rates(drawn, np.array([peak.value]))[:, 0], n)
    return replace(result, peak=peak, peak_rate=rate)


def _base(refusal: Refusal, points: Sequence[Point], error: float | None = None) -> Forecast:
    """The parts of a forecast that need no curve."""
    groups = Counter(point.load for point in points)
    reach = REACH * max(groups, default=0.0)
    fewest = min(groups.values(), default=0)
    return Forecast(refusal, len(groups), fewest, reach, bounds(points), error)


def _curve(
    usl: Usl, drawn: Numbers, points: Sequence[Point], base: Forecast, at: Sequence[float]
) -> Iterable[Reading]:
    """The curve up to its reach."""
    measured = {point.load for point in points}
    even = np.linspace(min(measured), base.reach, _POINTS).tolist()
    loads = sorted(load for load in measured.union(even, at) if 0 < load <= base.reach)
    for load, rates in zip(loads, _rates(drawn, np.asarray(loads)).T, strict=True):
        bound = base.bounds.at(load) if base.bounds else math.inf
        yield Reading(load, _band(usl.at(load), rates, len(points)), bound, load <= max(measured))


def _rates(drawn: Numbers, loads: Numbers) -> Numbers:
    """Throughput of each fit at each load."""
    return np.asarray(loads / (drawn @ _design(loads).T))


def _band(value: float, drawn: Numbers, n: int) -> Estimate:
    """A value with the percentiles of its bootstraps, widened to include it."""
    low, high = (float(end) for end in np.quantile(drawn, (_TAIL, 1 - _TAIL)))
    return Estimate(value, min(low, value), max(high, value), n)
