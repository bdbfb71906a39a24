"""B against A as a section: words, a table of metrics, the effects and the trials as charts.

A verdict and its trials in, a section out; knows no store.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import compare
from pgpaces.analysis.compare import Pair, Secondary, Side, Verdict
from pgpaces.analysis.differences import Between
from pgpaces.analysis.digest import Digest
from pgpaces.answers.compare import words as verdicts
from pgpaces.answers.compare.words import short
from pgpaces.answers.sweep.axes import log_ticks
from pgpaces.core import metrics
from pgpaces.core.findings import Finding, finding
from pgpaces.core.messages import message, said
from pgpaces.core.metrics import axis, header, is_share, number, title
from pgpaces.show.chart import Axis, Chart, Layer, Place, Point, number_at, series
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, capital, interval_line, metric_cell
from pgpaces.show.screen import Next, Screen, Values
from pgpaces.show.section import Column, Figure, Headline, Mark, Section, Table, TableCell, table
from pgpaces.spec.result import Estimate

KEY = "comparison"
# The effect on the metric of the verdict, or on another one.
Effect = Verdict | Secondary
_MARKS: dict[str, Mark] = {"better": "pass", "same": "pass", "worse": "fail", "unknown": "unknown"}
_ROW_HEIGHT = 44
_HEIGHT = 200
_TICKS_MAX = 8
SCREEN = Screen(first=(), details=("trials", "p", "A and A", "differs"))
# The first line, and what a verdict rests on, by its basis.
BASIS = {
    "pairs": ("comparison-pairs", "basis-pairs"),
    "blocks": ("comparison-pairs", "basis-blocks"),
    "trials": ("comparison-trials", "basis-trials"),
    "apart": ("comparison-trials", "basis-apart"),
    "runs": ("comparison-runs", "basis-runs"),
}
# Beyond this range a ratio is drawn on a logarithmic axis.
_LINEAR = (0.5, 2.0)
# Larger ratios are in the table only.
_RATIO_MAX = 1e4


class VerdictBasis(Struct, frozen=True):
    """The trials of a verdict: pairs, or trials in chronological order, with True for those of B.

    ids: of all trials. findings: of the trials. differences: of A and B, other than the compared
    factors. running: more trials follow.
    """

    pairs: tuple[Pair, ...] = ()
    trials: tuple[tuple[bool, Side], ...] = ()
    ids: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    differences: tuple[Between, ...] = ()
    running: bool = False

    @property
    def a(self) -> tuple[Side, ...]:
        """The trials of A without those of pairs of A with itself."""
        return self._of(b=False)

    @property
    def b(self) -> tuple[Side, ...]:
        return self._of(b=True)

    def _of(self, *, b: bool) -> tuple[Side, ...]:
        paired = ((pair.b if b else pair.a) for pair in self.pairs if not pair.same)
        return (*paired, *(side for is_b, side in self.trials if is_b == b))


def section(
    verdict: Verdict, a: str, b: str, *, basis: VerdictBasis, steps: Sequence[Next] = ()
) -> Section:
    effects: tuple[Effect, ...] = (verdict, *verdict.secondary)
    main, *others = (each.metric for each in effects)
    values = {"a": a, "b": b, "of_a": len(basis.a), "of_b": len(basis.b), "count": verdict.pairs}
    top = message(BASIS[verdict.basis][0], **values)
    effect = verdicts.with_ends(main, verdict.estimate)
    told = {"outcome": verdict.outcome, "metric": title(main), "effect": effect}
    return replace(SCREEN, first=(main, "", *others)).section(
        Headline(verdict.outcome.upper(), _MARKS[verdict.outcome], top),
        [*_effects_shown(effects, basis), *_details(verdict, basis)],
        key=KEY,
        title=message("comparison-title", a=a, b=b),
        findings=[*basis.findings, *verdicts.findings(verdict, running=basis.running)],
        steps=steps,
        main=message("comparison", a=a, b=b, **told),
        whole=True,
        tables=(_table(effects, (a, b), basis),) if basis.a or basis.b else (),
        figures=tuple(_figures(effects, (a, b), basis)),
        value=verdict,
        trials=basis.ids,
    )


def _effects_shown(effects: Sequence[Effect], basis: VerdictBasis) -> Values:
    """Each metric: values of A and B, and the effect, in columns; the first also drawn."""
    rows = []
    for each in effects:
        a, b = (compare.own(sides, each.metric) for sides in (basis.a, basis.b))
        of_a, of_b = a and number(each.metric, a.value), b and metrics.shown(each.metric, b.value)
        effect, ends = short(each.metric, each.estimate) if each.estimate else (None, None)
        known = ends if each.estimate and each.estimate.estimable else None
        rows.append((each.metric, message("comparison-sides", a=of_a, b=of_b), effect, known))
    widths = [max(len(row[at] or "") for row in rows) for at in (1, 2)]
    for metric, sides, effect, ends in rows:
        columns = {"sides": sides.ljust(widths[0]), "effect": effect and effect.ljust(widths[1])}
        yield metric, said("comparison-effect", ends=ends, **columns)
    first = effects[0]
    if first.estimate is not None and (drawn := _drawn(first.metric, first.estimate)):
        yield "", said("comparison-drawn", line=drawn)


def _drawn(metric: str, estimate: Estimate) -> str:
    # On a logarithmic axis one half and twice are equally far from no difference.
    logs = not is_share(metric) and estimate.low > 0
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = map(math.log, ends) if logs else ends
    none = 0.0 if logs or is_share(metric) else 1.0

    def form(at: float) -> str:
        text = verdicts.signed(metric, estimate, math.exp(at) if logs else at)
        return text if at == none else f"{text}{verdicts.unit(metric, estimate)}"

    return interval_line(replace(estimate, value=value, low=low, high=high), none, form)


def _details(verdict: Verdict, basis: VerdictBasis) -> Values:
    yield "trials", said(BASIS[verdict.basis][1], count=verdict.pairs)
    if verdict.p is not None:
        yield "p", said("p-at-look", p=verdict.p, level=verdict.level)
    if (noise := verdicts.with_ends(verdict.metric, verdict.noise)) is not None:
        yield "A and A", said("noise-floor", noise=noise)
    yield from (("differs", each) for each in verdicts.differing(basis.differences))


def _table(effects: Sequence[Effect], names: tuple[str, str], basis: VerdictBasis) -> Table:
    columns: list[Column[Effect]] = [
        ("metric", lambda each: axis(each.metric)),
        ("A", lambda each: metric_cell(each.metric, compare.own(basis.a, each.metric))),
        ("B", lambda each: metric_cell(each.metric, compare.own(basis.b, each.metric))),
        (
            "B against A",
            lambda e: TableCell(*short(e.metric, e.estimate)) if e.estimate else NOT_KNOWN,
        ),
        ("p", lambda each: NOT_KNOWN if each.p is None else f"{each.p:.2g}"),
        ("B is", lambda each: TableCell(each.outcome, "", _MARKS[each.outcome])),
    ]
    note = message("table-comparison", a=names[0], b=names[1])
    name, spare = message("title-metrics"), ("p", "B is")
    return table(f"{KEY}-metrics", name, columns, items=effects, note=note, spare=spare)


def _figures(
    effects: Sequence[Effect], names: tuple[str, str], basis: VerdictBasis
) -> Iterator[Figure]:
    ratios = [each for each in effects if not is_share(each.metric) and _drawable(each)]
    shares = [each for each in effects if is_share(each.metric) and _drawable(each)]
    for key, group in ((f"{KEY}-effect", ratios), (f"{KEY}-shares", shares)):
        if group:
            yield _effects(key, group, basis)
    if (basis.pairs or basis.trials) and (values := _by_trial(effects[0].metric, names, basis)):
        yield _over_trials(effects[0].metric, names, basis, points=values)


def _drawable(effect: Effect) -> bool:
    estimate = effect.estimate
    return estimate is not None and 1 / _RATIO_MAX < abs(estimate.value) + 1 < _RATIO_MAX


def _effects(key: str, effects: Sequence[Effect], basis: VerdictBasis) -> Figure:
    share = is_share(effects[0].metric)
    band = _delta(effects[0])
    dots = "small dots are single trials over the mean of A, hollow ones A's own"
    parts = ["bars are 95% intervals", "small dots are single pairs" if basis.pairs else dots]
    if band is not None:
        parts.append(f"the band is what does not matter, {verdicts.size(effects[0].metric, band)}")
    rows = tuple((name, *short(metric, estimate)) for name, metric, estimate in _rows(effects))
    return Figure(
        key,
        "Difference of shares" if share else "B over A",
        f"{'B less A, in points' if share else 'B over A, where 1 is no difference'};"
        f" {'; '.join(parts)}",
        ("metric", "B against A", "95% interval"),
        rows,
        (_effect_chart(effects, basis),),
    )


def _delta(effect: Effect) -> float | None:
    return effect.delta if isinstance(effect, Verdict) else None


def _noise(effect: Effect) -> Estimate | None:
    return effect.noise if isinstance(effect, Verdict) else None


def _rows(effects: Sequence[Effect]) -> Iterator[tuple[str, str, Estimate]]:
    for each in effects:
        if each.estimate is not None:
            yield title(each.metric), each.metric, each.estimate
        if (noise := _noise(each)) is not None:
            yield _SAME, each.metric, noise


_SAME = "A with itself"


def _dots(effects: Sequence[Effect], basis: VerdictBasis) -> Iterator[Point]:
    """Each pair, or each trial over the mean of A, in units of the axis."""
    for each in effects:
        name, metric = title(each.metric), each.metric
        if basis.pairs:
            for pair in basis.pairs:
                both = compare.numbers((pair.a, pair.b), metric)
                if len(both) == 2 and not (pair.same and _noise(each) is None):
                    row = _SAME if pair.same else name
                    yield Point(_placed(metric, both[1] - both[0]), row)
            continue
        of_a = compare.numbers(basis.a, metric)
        middle = sum(of_a) / len(of_a) if of_a else 0.0
        for is_b, side in basis.trials if of_a else ():
            for value in compare.numbers((side,), metric):
                yield Point(_placed(metric, value - middle), name, filled=is_b)


def _placed(metric: str, difference: float) -> float:
    """A difference of logarithms as a ratio; of shares in points."""
    return 100 * difference if is_share(metric) else math.exp(min(difference, 700))


def _effect_chart(effects: Sequence[Effect], basis: VerdictBasis) -> Chart:
    share = is_share(effects[0].metric)
    factor, none = (100.0, 0.0) if share else (1.0, 1.0)
    points = []
    for name, metric, estimate in _rows(effects):
        finite = estimate.estimable and math.isfinite(estimate.high)
        low, high = (factor * estimate.low, factor * estimate.high) if finite else (None, None)
        text = short(metric, estimate)[0]
        points.append(Point(factor * estimate.value, name, low=low, high=high, text=text))
    dots = tuple(dot for dot in _dots(effects, basis) if abs(number_at(dot.x)) < _RATIO_MAX)
    places = [number_at(place) for p in (*dots, *points) for place in (p.x, p.low, p.high)
              if place is not None]  # fmt: skip
    layers = [Layer("point", dots, "ink", size=16, opacity=0.6, offset=0.75, name="a trial")]
    if (delta := _delta(effects[0])) is not None:
        band = (-100 * delta, 100 * delta) if share else (1 / (1 + delta), 1 + delta)
        layers.append(Layer("rect", (Point(band[0], end=band[1]),), "muted", opacity=0.14))
        places += band
    layers += _estimates([point for point in points if point.y != _SAME], "line0")
    layers += _estimates([point for point in points if point.y == _SAME], "muted")
    layers.append(Layer("rule", (Point(none),), "alarm", size=1, dash=(5, 4)))
    low, high = min(none, *places), max(none, *places)
    if share or (low >= _LINEAR[0] and high <= _LINEAR[1]):
        room = 0.08 * (high - low) or 0.1
        title = "B less A, points" if share else "B over A"
        x = Axis(title, ends=(low - room, high + room), grid=True)
    else:
        low, high = 0.9 * max(low, 1 / _RATIO_MAX), 1.1 * max(high, 1.0)
        ticks = log_ticks(low, high)
        x = Axis("B over A", scale="log", ends=(low, high), ticks=ticks, grid=True)
    names = tuple(dict.fromkeys(str(point.y) for point in points))
    return Chart(x, Axis(names=names), tuple(layers), height=50 + _ROW_HEIGHT * len(names))


def _estimates(points: Sequence[Point], color: str) -> Iterator[Layer]:
    if points:
        bars = tuple(point for point in points if point.low is not None)
        yield Layer("rule", bars, color, along="x", size=2.2)
        yield Layer("point", tuple(points), color, size=70)
        yield Layer("text", tuple(points), "ink", dy=-11)


def _by_trial(metric: str, names: tuple[str, str], basis: VerdictBasis) -> list[Point]:
    labels = _labels(names)
    if basis.pairs:
        every = [
            (pair.number, labels[0] if pair.same else label, side)
            for pair in basis.pairs
            for label, side in zip(labels, (pair.a, pair.b), strict=True)
        ]
    else:
        every = [(n, labels[is_b], side) for n, (is_b, side) in enumerate(basis.trials, 1)]
    return [
        Point(float(n), _placed(metric, value), series=label)
        for n, label, side in every
        for value in compare.numbers((side,), metric)
    ]


def _labels(names: tuple[str, str]) -> tuple[str, str]:
    return f"A: {shown(names[0])}", f"B: {shown(names[1])}"


def _over_trials(
    metric: str, names: tuple[str, str], basis: VerdictBasis, *, points: Sequence[Point]
) -> Figure:
    paired = bool(basis.pairs)
    what = "pair" if paired else "trial, in the order of time"
    rows = tuple(
        (
            f"{number_at(each.x):.0f}",
            each.series,
            number(metric, number_at(each.y) / metrics.scale(metric)),
        )
        for each in points
    )
    at = sorted({number_at(each.x) for each in points})
    pairs: dict[Place, list[float]] = {}
    for each in points if paired else ():
        pairs.setdefault(each.x, []).append(number_at(each.y))
    joined = [Point(x, low=min(of), high=max(of)) for x, of in pairs.items() if len(of) == 2]
    ticks = tuple(at[:: -(-len(at) // _TICKS_MAX) or 1])
    chart = Chart(
        Axis(what, ticks=ticks, format="d", room=12),
        Axis(axis(metric), room=10, nice=True),
        (
            Layer("point", tuple(points), size=42, opacity=0.9),
            Layer("rule", tuple(joined), "muted", size=1, opacity=0.5),
        ),
        series(_labels(names)),
        height=_HEIGHT,
    )
    return Figure(
        f"{KEY}-trials",
        f"{capital(title(metric))} of each trial",
        "every trial that counts; "
        + ("lines join the two of a pair" if paired else "what drifts shows over all of them"),
        (what.partition(",")[0], "of", header(metric)),
        rows,
        (chart,),
    )


def is_planned(digests: Sequence[Digest]) -> bool:
    """Whether the throughput of all is the plan's: by a rate, or by the pace of each user."""
    return all(each.trial.plan.model != "closed" for each in digests)


def of_trials(
    metric: str, digests: Sequence[Digest], differences: Sequence[Between], *, left_out: int
) -> Iterator[Finding]:
    """What weakens a comparison of trials by this metric. left_out: how many do not count."""
    if differences:
        yield finding("sides-differ-otherwise", factors=[each.name for each in differences])
    if metric == "throughput" and is_planned(digests):
        yield finding("throughput-is-planned")
    if left_out:
        yield finding("trials-left-out", count=left_out)
