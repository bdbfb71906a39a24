"""B against A as a section: words, a table of metrics, the effects and the trials as charts.

A verdict and its trials in, a section out; knows no store.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.compare import Pair, Secondary, Side, Verdict, numbers, own_estimate
from pgpaces.analysis.differences import Between
from pgpaces.analysis.digest import Digest
from pgpaces.answers.compare import words as verdicts
from pgpaces.answers.compare.words import short
from pgpaces.core import metrics
from pgpaces.core.findings import Finding, finding
from pgpaces.core.messages import message, said
from pgpaces.core.metrics import axis, header, is_share, number, title
from pgpaces.show.charts import Datum, amounts, names, of_metric, series
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, capital, interval_line, metric_cell
from pgpaces.show.screen import Next, Screen, Values
from pgpaces.show.section import (
    Column,
    Figure,
    Headline,
    Mark,
    Section,
    Table,
    TableCell,
    figure,
    table,
)
from pgpaces.spec.result import Estimate

KEY = "comparison"
# The effect on the metric of the verdict, or on another one.
Effect = Verdict | Secondary
_MARKS: dict[str, Mark] = {"better": "pass", "same": "pass", "worse": "fail", "unknown": "unknown"}
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
        a, b = (own_estimate(sides, each.metric) for sides in (basis.a, basis.b))
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
        ("A", lambda each: metric_cell(each.metric, own_estimate(basis.a, each.metric))),
        ("B", lambda each: metric_cell(each.metric, own_estimate(basis.b, each.metric))),
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
        yield _over_trials(effects[0].metric, names, basis, rows=values)


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
    rows = list(_rows(effects, basis))
    places = [abs(row[name]) for row in rows for name in _PLACES if name in row]
    # A ratio beyond this range has a logarithmic axis.
    log = not share and (min(places) < _LINEAR[0] or max(places) > _LINEAR[1])
    title = "B less A, points" if share else "B over A"
    return figure(
        key,
        "Difference of shares" if share else "B over A",
        f"{'B less A, in points' if share else 'B over A, where 1 is no difference'};"
        f" {'; '.join(parts)}",
        columns=("metric", "B against A", "95% interval"),
        data=rows,
        template="difference",
        x=amounts(title, log=log, zero=False, nice=False, padding=14, tickCount=5, grid=True),
        y=names("", list(dict.fromkeys(row["y"] for row in rows if "y" in row)), down=True),
    )


def _delta(effect: Effect) -> float | None:
    return effect.delta if isinstance(effect, Verdict) else None


def _noise(effect: Effect) -> Estimate | None:
    return effect.noise if isinstance(effect, Verdict) else None


def _rows(effects: Sequence[Effect], basis: VerdictBasis) -> Iterator[Datum]:
    """A row for each effect and its noise, and one for each pair or trial, in units of the axis."""
    metric = effects[0].metric
    factor, none = (100.0, 0.0) if is_share(metric) else (1.0, 1.0)
    for each in effects:
        both = ((title(each.metric), each.estimate), (_SAME, _noise(each)))
        for name, estimate in both:
            if estimate is not None:
                text, interval = short(each.metric, estimate)
                finite = estimate.estimable and math.isfinite(estimate.high)
                low = estimate.low if is_share(metric) else max(estimate.low, 1 / _RATIO_MAX)
                ends = {"low": low, "high": estimate.high} if finite else {}
                numbers = {"value": estimate.value, **ends}
                yield {
                    "y": name,
                    "noise": name == _SAME,
                    "text": text,
                    "texts": (name, text, interval),
                    **{at: factor * number for at, number in numbers.items()},
                }
        yield from (dot for dot in _dots(each, basis) if abs(dot["trial"]) < _RATIO_MAX)
    yield {"none": none}
    if (delta := _delta(effects[0])) is not None:
        share = is_share(metric)
        yield {"from": -100 * delta if share else 1 / (1 + delta),
               "to": 100 * delta if share else 1 + delta}  # fmt: skip


_SAME = "A with itself"
_PLACES = ("value", "low", "high", "trial", "from", "to")


def _dots(effect: Effect, basis: VerdictBasis) -> Iterator[Datum]:
    """Each pair, or each trial over the mean of A."""
    name, metric = title(effect.metric), effect.metric
    for pair in basis.pairs:
        both = numbers((pair.a, pair.b), metric)
        if len(both) == 2 and not (pair.same and _noise(effect) is None):
            trial = _placed(metric, both[1] - both[0])
            row = _SAME if pair.same else name
            yield {"trial": trial, "y": row, "of_b": True, "texts": (row, f"{trial:.4g}", None)}
    of_a = numbers(basis.a, metric)
    middle = sum(of_a) / len(of_a) if of_a else 0.0
    for is_b, side in basis.trials if of_a and not basis.pairs else ():
        for value in numbers((side,), metric):
            trial = _placed(metric, value - middle)
            yield {"trial": trial, "y": name, "of_b": is_b, "texts": (name, f"{trial:.4g}", None)}


def _placed(metric: str, difference: float) -> float:
    """A difference of logarithms as a ratio; of shares in points."""
    return 100 * difference if is_share(metric) else math.exp(min(difference, 700))


def _by_trial(metric: str, names: tuple[str, str], basis: VerdictBasis) -> list[Datum]:
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
        {
            "x": n,
            "series": label,
            "value": (at := _placed(metric, value)),
            "texts": (str(n), label, number(metric, at / metrics.scale(metric))),
        }
        for n, label, side in every
        for value in numbers((side,), metric)
    ]


def _labels(names: tuple[str, str]) -> tuple[str, str]:
    return f"A: {shown(names[0])}", f"B: {shown(names[1])}"


def _over_trials(
    metric: str, names: tuple[str, str], basis: VerdictBasis, *, rows: Sequence[Datum]
) -> Figure:
    paired = bool(basis.pairs)
    what = "pair" if paired else "trial, in the order of time"
    pairs: dict[int, list[float]] = {}
    for row in rows if paired else ():
        pairs.setdefault(row["x"], []).append(row["value"])
    joined = [{"x": x, "low": min(of), "high": max(of)} for x, of in pairs.items() if len(of) == 2]
    return figure(
        f"{KEY}-trials",
        f"{capital(title(metric))} of each trial",
        "every trial that counts; "
        + ("lines join the two of a pair" if paired else "what drifts shows over all of them"),
        columns=(what.partition(",")[0], "of", header(metric)),
        data=[*rows, *joined],
        template="runs",
        x=amounts(what, format="d", zero=False, nice=False, padding=12, tickMinStep=1),
        y=of_metric(metric, zero=False, padding=10),
        **series(_labels(names)),
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
