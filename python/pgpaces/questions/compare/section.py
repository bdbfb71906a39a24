"""B against A as a section: words, a table of metrics, the effects and the trials as charts.

A verdict and the trials behind it in, a section out; knows no store. Charts are Vega-Lite
specifications as data, as in sweep/charts.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.answers import compare
from pgpaces.answers.compare import METRICS, Metric, Pair, Side, Verdict
from pgpaces.chart import Axis, Chart, Layer, Place, Point, number_at, series
from pgpaces.questions.compare import words as verdicts
from pgpaces.questions.sweep.axes import log_ticks
from pgpaces.report.escape import line as shown
from pgpaces.report.numbers import NOT_KNOWN, interval, interval_line, milliseconds, percent, rate
from pgpaces.result import Estimate
from pgpaces.section import Figure, Headline, Mark, Section, Sentence, Table, TableCell

KEY = "comparison"
_MARKS: dict[str, Mark] = {
    "better": "meets",
    "equivalent": "meets",
    "worse": "misses",
    "inconclusive": "unknown",
}
_ROW_HEIGHT = 44
_HEIGHT = 200
_TICKS_MAX = 8
# Beyond this range a ratio is drawn on a logarithmic axis.
_LINEAR = (0.5, 2.0)
# What is further off than this is told in the table alone.
_RATIO_MAX = 1e4


class VerdictBasis(Struct, frozen=True):
    """What a verdict rests on: pairs, or trials in the order of time, each with whether it is B's.

    ids: of all trials. left_out: how many there were that did not end or are not valid. notes: what
    else is to be said.
    """

    pairs: tuple[Pair, ...] = ()
    trials: tuple[tuple[bool, Side], ...] = ()
    ids: tuple[str, ...] = ()
    left_out: int = 0
    notes: tuple[Sentence, ...] = ()

    @property
    def a(self) -> tuple[Side, ...]:
        """The trials of A; not those of pairs of A with itself."""
        return self._of(b=False)

    @property
    def b(self) -> tuple[Side, ...]:
        """The trials of B."""
        return self._of(b=True)

    def _of(self, *, b: bool) -> tuple[Side, ...]:
        paired = ((pair.b if b else pair.a) for pair in self.pairs if not pair.same)
        return (*paired, *(side for is_b, side in self.trials if is_b == b))


class _Told(Struct, frozen=True):
    """One metric: its effect, and what the verdict on it is."""

    metric: Metric
    estimate: Estimate | None
    p: float | None
    outcome: str
    delta: float | None = None
    noise: Estimate | None = None


def section(verdict: Verdict, a: str, b: str, seen: VerdictBasis) -> Section:
    """The section of a verdict on B against A. a, b: what they are called."""
    told = (
        _Told(verdict.metric, verdict.estimate, verdict.p, verdict.outcome, verdict.delta,
              verdict.noise),
        *(_Told(s.metric, s.estimate, s.p, s.outcome) for s in verdict.secondary),
    )  # fmt: skip
    return Section(
        key=KEY,
        title=f"{b} against {a}",
        sentences=(*verdicts.comparison(verdict, a, b), *_left_out(seen), *seen.notes),
        headline=Headline(
            verdict.outcome.upper(), _MARKS[verdict.outcome], f"{b} against {a}{_looks(verdict)}"
        ),
        facts=tuple(_facts(told, seen)),
        tables=(_table(told, (a, b), seen),) if seen.a or seen.b else (),
        figures=tuple(_figures(told, (a, b), seen)),
        value=verdict,
        trials=seen.ids,
    )


def _looks(verdict: Verdict) -> str:
    """What the verdict stands on, in a few words."""
    return f", {verdicts.count(verdict.pairs, verdict.basis)}"


def _facts(told: Sequence[_Told], seen: VerdictBasis) -> Iterator[tuple[str, str]]:
    """Each metric: what A and B had, and how much B differs; then where that lies about nothing."""
    for each in told:
        a, b = (compare.own(sides, each.metric) for sides in (seen.a, seen.b))
        title, unit = named(each.metric).split(", ")
        unit = "tx/s" if unit == "1/s" else unit
        values = ""
        if a is not None and b is not None:
            values = f"{number(each.metric, a.value)} → {number(each.metric, b.value)} {unit}   "
        if each.estimate is None:
            yield title, f"{values}no difference can be told"
            continue
        value, ends = short(each.metric, each.estimate)
        yield title, f"{values}{value}" + (f"   95% CI {ends}" if each.estimate.estimable else "")
        if each is told[0] and (drawn := _drawn(each.metric, each.estimate)):
            yield "", drawn


def _drawn(metric: Metric, found: Estimate) -> str:
    """The interval on a line, beside no difference; empty where there is none."""
    if metric.scale == "share" or found.low <= 0:
        return interval_line(found, 0.0, lambda value: _signed(metric, found, value))
    # Half and twice are as far from no difference.
    value, low, high = (math.log(each) for each in (found.value, found.low, found.high))
    logs = replace(found, value=value, low=low, high=high)
    return interval_line(logs, 0.0, lambda value: _signed(metric, found, math.exp(value)))


def _left_out(seen: VerdictBasis) -> Iterator[Sentence]:
    if seen.left_out:
        what = "trial" if seen.left_out == 1 else "trials"
        yield Sentence(
            f"Left out: {seen.left_out} {what} not brought to an end, or not valid.",
            "warning",
        )


# --- the table ------------------------------------------------------------------------------------


def _table(told: Sequence[_Told], names: tuple[str, str], seen: VerdictBasis) -> Table:
    note = (
        f"A is {names[0]}, B is {names[1]}. Values are means over trials, geometric ones but for"
        " shares, with 95 % intervals."
    )
    rows = tuple(
        (
            TableCell(named(each.metric)),
            _own(seen.a, each.metric),
            _own(seen.b, each.metric),
            _effect(each),
            TableCell("-" if each.p is None else f"{each.p:.2g}"),
            TableCell(each.outcome, "", _MARKS[each.outcome]),
        )
        for each in told
    )
    columns = ("metric", "A", "B", "B against A", "p", "B is")
    return Table(f"{KEY}-metrics", "By metric", columns, 1, rows, note, spare=("p", "B is"))


def named(metric: Metric) -> str:
    """A metric with its unit."""
    unit = {"rate": "1/s", "missed": "%"}.get(metric.name, "ms")
    return f"{verdicts.title(metric)}, {unit}"


def number(metric: Metric, value: float) -> str:
    """A metric's value without its unit."""
    if metric.name == "rate":
        return rate(value)
    return percent(value) if metric.scale == "share" else milliseconds(value, "above")


def _own(sides: Sequence[Side], metric: Metric) -> TableCell:
    found = compare.own(sides, metric)
    if found is None:
        return TableCell("-")
    return TableCell(number(metric, found.value), interval(found, partial(number, metric)))


def _effect(told: _Told) -> TableCell:
    if told.estimate is None:
        return TableCell("-")
    return TableCell(*short(told.metric, told.estimate))


def short(metric: Metric, found: Estimate) -> tuple[str, str]:
    """An effect and its interval in few characters: `+17.4 %` and `+16.2 to +18.5`."""
    value, low, high = (_signed(metric, found, end) for end in (found.value, found.low, found.high))
    unit = " points" if metric.scale == "share" else " times" if _in_times(metric, found) else " %"
    return f"{value}{unit}", f"{low} to {high}" if found.estimable else NOT_KNOWN


def _in_times(metric: Metric, found: Estimate) -> bool:
    high = found.high if found.estimable else found.value
    return metric.scale == "ratio" and max(found.value, high) >= _LINEAR[1]


def _signed(metric: Metric, found: Estimate, value: float) -> str:
    if metric.scale == "share":
        return f"{100 * value:+.2f}"
    return f"{value:.3g}" if _in_times(metric, found) else f"{100 * (value - 1):+.3g}"


# --- effects --------------------------------------------------------------------------------------


def _figures(told: Sequence[_Told], names: tuple[str, str], seen: VerdictBasis) -> Iterator[Figure]:
    ratios = [each for each in told if each.metric.scale == "ratio" and _drawable(each)]
    shares = [each for each in told if each.metric.scale == "share" and _drawable(each)]
    for key, group in ((f"{KEY}-effect", ratios), (f"{KEY}-shares", shares)):
        if group:
            yield _effects(key, group, seen)
    if (seen.pairs or seen.trials) and (values := _by_trial(told[0].metric, names, seen)):
        yield _over_trials(told[0].metric, names, seen, values)


def _drawable(told: _Told) -> bool:
    found = told.estimate
    return found is not None and 1 / _RATIO_MAX < abs(found.value) + 1 < _RATIO_MAX


def _effects(key: str, told: Sequence[_Told], seen: VerdictBasis) -> Figure:
    share = told[0].metric.scale == "share"
    band = told[0].delta
    parts = ["bars are 95 % intervals", _dots_are(seen)]
    if band is not None:
        parts.append(f"the band is what does not matter, {verdicts.size(told[0].metric, band)}")
    rows = tuple((name, *short(metric, estimate)) for name, metric, estimate in _rows(told))
    return Figure(
        key,
        "Difference of shares" if share else "B over A",
        f"{'B less A, in points' if share else 'B over A, where 1 is no difference'};"
        f" {'; '.join(parts)}",
        ("metric", "B against A", "95 % interval"),
        rows,
        (_effect_chart(told, seen),),
    )


def _dots_are(seen: VerdictBasis) -> str:
    if seen.pairs:
        return "small dots are single pairs"
    return "small dots are single trials over the mean of A, hollow ones A's own"


def _rows(told: Sequence[_Told]) -> Iterator[tuple[str, Metric, Estimate]]:
    """What has a row of its own in the chart: metrics, and A with itself."""
    for each in told:
        if each.estimate is not None:
            yield verdicts.title(each.metric), each.metric, each.estimate
        if each.noise is not None:
            yield _SAME, each.metric, each.noise


_SAME = "A with itself"


def _dots(told: Sequence[_Told], seen: VerdictBasis) -> Iterator[Point]:
    """Each pair, or each trial over the mean of A, as the axis has it."""
    for each in told:
        name, metric = verdicts.title(each.metric), each.metric
        if seen.pairs:
            for pair in seen.pairs:
                both = compare.numbers((pair.a, pair.b), metric)
                if len(both) == 2 and not (pair.same and each.noise is None):
                    row = _SAME if pair.same else name
                    yield Point(_placed(metric, both[1] - both[0]), row)
            continue
        of_a = compare.numbers(seen.a, metric)
        middle = sum(of_a) / len(of_a) if of_a else 0.0
        for is_b, side in seen.trials if of_a else ():
            for found in compare.numbers((side,), metric):
                yield Point(_placed(metric, found - middle), name, filled=is_b)


def _placed(metric: Metric, difference: float) -> float:
    """A difference of logarithms as a ratio; of shares in points."""
    return 100 * difference if metric.scale == "share" else math.exp(min(difference, 700))


def _effect_chart(told: Sequence[_Told], seen: VerdictBasis) -> Chart:
    share = told[0].metric.scale == "share"
    factor, centre = (100.0, 0.0) if share else (1.0, 1.0)
    points = tuple(
        _effect_point(name, metric, estimate, factor) for name, metric, estimate in _rows(told)
    )
    dots = tuple(dot for dot in _dots(told, seen) if abs(number_at(dot.x)) < _RATIO_MAX)
    band = _band(told[0].delta, share=share)
    places = [number_at(place) for p in (*dots, *points) for place in (p.x, p.low, p.high)
              if place is not None]  # fmt: skip
    names = tuple(dict.fromkeys(str(point.y) for point in points))
    layers = [Layer("point", dots, "ink", size=16, opacity=0.6, offset=0.75, name="a trial")]
    if band:
        layers.append(Layer("rect", (Point(band[0], end=band[1]),), "muted", opacity=0.14))
    layers += _estimates([point for point in points if point.y != _SAME], "line0")
    layers += _estimates([point for point in points if point.y == _SAME], "muted")
    layers.append(Layer("rule", (Point(centre),), "alarm", size=1, dash=(5, 4)))
    return Chart(
        _effect_axis([centre, *band, *places], share=share),
        Axis(names=names),
        tuple(layers),
        height=50 + _ROW_HEIGHT * len(names),
    )


def _effect_point(name: str, metric: Metric, estimate: Estimate, factor: float) -> Point:
    known = estimate.estimable and math.isfinite(estimate.high)
    low, high = (factor * estimate.low, factor * estimate.high) if known else (None, None)
    text = short(metric, estimate)[0]
    return Point(factor * estimate.value, name, low=low, high=high, text=text)


def _estimates(points: Sequence[Point], color: str) -> Iterator[Layer]:
    """Estimates with their intervals, and what they are as text."""
    if points:
        bars = tuple(point for point in points if point.low is not None)
        yield Layer("rule", bars, color, along="x", size=2.2)
        yield Layer("point", tuple(points), color, size=70)
        yield Layer("text", tuple(points), "ink", dy=-11)


def _band(delta: float | None, *, share: bool) -> tuple[float, ...]:
    """Between which values a difference does not matter."""
    if delta is None:
        return ()
    return (-100 * delta, 100 * delta) if share else (1 / (1 + delta), 1 + delta)


def _effect_axis(values: Sequence[float], *, share: bool) -> Axis:
    low, high = min(values), max(values)
    if share or (low >= _LINEAR[0] and high <= _LINEAR[1]):
        room = 0.08 * (high - low) or 0.1
        title = "B less A, points" if share else "B over A"
        return Axis(title, ends=(low - room, high + room), grid=True)
    low, high = 0.9 * max(low, 1 / _RATIO_MAX), 1.1 * max(high, 1.0)
    return Axis("B over A", scale="log", ends=(low, high), ticks=log_ticks(low, high), grid=True)


# --- trials ---------------------------------------------------------------------------------------


def _by_trial(metric: Metric, names: tuple[str, str], seen: VerdictBasis) -> list[Point]:
    """Each trial's value in its order, by what it is of."""
    labels = _labels(names)
    if seen.pairs:
        every = [
            (pair.number, labels[0] if pair.same else label, side)
            for pair in seen.pairs
            for label, side in zip(labels, (pair.a, pair.b), strict=True)
        ]
    else:
        every = [(n, labels[is_b], side) for n, (is_b, side) in enumerate(seen.trials, 1)]
    return [
        Point(float(n), _placed(metric, found), series=label)
        for n, label, side in every
        for found in compare.numbers((side,), metric)
    ]


def _labels(names: tuple[str, str]) -> tuple[str, str]:
    return f"A: {shown(names[0])}", f"B: {shown(names[1])}"


def _over_trials(
    metric: Metric, names: tuple[str, str], seen: VerdictBasis, points: Sequence[Point]
) -> Figure:
    paired = bool(seen.pairs)
    what = "pair" if paired else "trial, in the order of time"
    scaled = METRICS["missed"].scale == metric.scale
    rows = tuple(
        (
            f"{number_at(each.x):.0f}",
            each.series,
            number(metric, number_at(each.y) / (100 if scaled else 1)),
        )
        for each in points
    )
    return Figure(
        f"{KEY}-trials",
        f"{verdicts.title(metric).capitalize()} of each trial",
        "every trial that counts; "
        + ("lines join the two of a pair" if paired else "what drifts shows over all of them"),
        (what.partition(",")[0], "of", named(metric)),
        rows,
        (_trial_chart(metric, _labels(names), what, points),),
    )


def _trial_chart(
    metric: Metric, names: tuple[str, str], what: str, points: Sequence[Point]
) -> Chart:
    at = sorted({number_at(each.x) for each in points})
    pairs: dict[Place, list[float]] = {}
    for each in points if what == "pair" else ():
        pairs.setdefault(each.x, []).append(number_at(each.y))
    joined = [Point(x, low=min(of), high=max(of)) for x, of in pairs.items() if len(of) == 2]
    ticks = tuple(at[:: -(-len(at) // _TICKS_MAX) or 1])
    return Chart(
        Axis(what, ticks=ticks, format="d", room=12),
        Axis(named(metric), room=10, nice=True),
        (
            Layer("point", tuple(points), size=42, opacity=0.9),
            Layer("rule", tuple(joined), "muted", size=1, opacity=0.5),
        ),
        series(names),
        height=_HEIGHT,
    )


def differing(said: Sequence[Sentence]) -> tuple[Sentence, ...]:
    """What differs beside what is compared, as one thing to mind; said: see verdicts.refused."""
    if not said:
        return ()
    return (replace(said[0], text=" ".join(each.text for each in said), weight="warning"),)
