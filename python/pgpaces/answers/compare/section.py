"""B against A as a section: its values, findings, a table of metrics, and charts.

A verdict and its trials in, a section out; knows no store.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.compare import (
    PAIRS_MIN,
    Pair,
    Secondary,
    TrialValues,
    Verdict,
    numbers,
    own_estimate,
)
from pgpaces.analysis.differences import Between
from pgpaces.analysis.digest import Digest
from pgpaces.answers.compare.words import (
    difference_text,
    differing,
    effect_part,
    effect_texts,
    effect_with_ends,
)
from pgpaces.core import metrics
from pgpaces.core.findings import Finding, finding, needed
from pgpaces.core.messages import message, said
from pgpaces.core.metrics import axis, header, is_share, number, title
from pgpaces.show.charts import Datum, amounts, names, of_metric, series
from pgpaces.show.escape import line as escaped
from pgpaces.show.numbers import NOT_KNOWN, capital, interval_line, metric_cell
from pgpaces.show.screen import Screen
from pgpaces.show.section import (
    Column,
    Figure,
    Headline,
    Mark,
    Next,
    Number,
    Section,
    Table,
    TableCell,
    Values,
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
# The finding for each reason why a comparison has no verdict.
_REASONS = {
    "few": "too-few-to-compare",
    "nothing new": "new-run-unusable",
    "unbounded": "metric-without-value",
    "noise": "noise-hides-difference",
    "biased": "equal-sides-differ",
    "look": "ended-before-look",
    "apart": "trials-apart-in-time",
}
# Beyond this range a ratio is drawn on a logarithmic axis.
_LINEAR = (0.5, 2.0)
# Larger ratios are in the table only.
_RATIO_MAX = 1e4
_NOISE = "A with itself"


class VerdictBasis(Struct, frozen=True):
    """The trials of a verdict: pairs, or trials in chronological order, with True for those of B.

    ids: of all trials. findings: of the trials. differences: of A and B, other than the compared
    factors. running: more trials follow.
    """

    pairs: tuple[Pair, ...] = ()
    trials: tuple[tuple[bool, TrialValues], ...] = ()
    ids: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    differences: tuple[Between, ...] = ()
    running: bool = False

    @property
    def sides(self) -> tuple[tuple[TrialValues, ...], tuple[TrialValues, ...]]:
        """The trials of A and of B, without those of pairs of A with itself."""
        pairs = [(pair.a, pair.b) for pair in self.pairs if not pair.same]
        a, b = (
            (*(pair[at] for pair in pairs), *(side for is_b, side in self.trials if is_b == at))
            for at in (0, 1)
        )
        return a, b


def section(
    verdict: Verdict, a: str, b: str, *, basis: VerdictBasis, steps: Sequence[Next] = ()
) -> Section:
    effects: tuple[Effect, ...] = (verdict, *verdict.secondary)
    main, *others = (each.metric for each in effects)
    of_a, of_b = map(len, basis.sides)
    values = {"a": a, "b": b, "of_a": of_a, "of_b": of_b, "count": verdict.pairs}
    top = message(BASIS[verdict.basis][0], **values)
    effect = effect_with_ends(main, verdict.estimate)
    told = {"outcome": verdict.outcome, "metric": title(main), "effect": effect}
    return replace(SCREEN, first=(main, "", *others)).section(
        Headline(verdict.outcome.upper(), _MARKS[verdict.outcome], top),
        _values(verdict, effects, basis),
        key=KEY,
        title=message("comparison-title", a=a, b=b),
        findings=[*basis.findings, *findings(verdict, running=basis.running)],
        steps=steps,
        main=message("comparison", a=a, b=b, **told),
        whole=True,
        tables=(_table(effects, (a, b), basis),) if of_a or of_b else (),
        figures=tuple(_figures(effects, (a, b), basis)),
        rows=tuple(_numbers(effects, basis)),
        value=verdict,
        trials=basis.ids,
    )


def _numbers(effects: Sequence[Effect], basis: VerdictBasis) -> Iterator[Number]:
    """Each metric of A and of B, and the effect: B over A, or B less A of shares."""
    for each in effects:
        name = "difference" if metrics.is_share(each.metric) else "ratio"
        own = (own_estimate(sides, each.metric) for sides in basis.sides)
        of = zip(("a", "b", name), (*own, each.estimate), strict=True)
        yield from (Number({"of": key}, each.metric, one) for key, one in of if one is not None)


def _values(verdict: Verdict, effects: Sequence[Effect], basis: VerdictBasis) -> Values:
    """Each metric: values of A and B, and the effect, in columns; the first also drawn."""
    rows = []
    for each in effects:
        a, b = (own_estimate(sides, each.metric) for sides in basis.sides)
        of_a, of_b = a and number(each.metric, a.value), b and metrics.shown(each.metric, b.value)
        effect, ends = effect_texts(each.metric, each.estimate) if each.estimate else (None, None)
        known = ends if each.estimate and each.estimate.estimable else None
        rows.append((each.metric, message("comparison-sides", a=of_a, b=of_b), effect, known))
    widths = [max(len(row[at] or "") for row in rows) for at in (1, 2)]
    for metric, sides, effect, ends in rows:
        columns = {"sides": sides.ljust(widths[0]), "effect": effect and effect.ljust(widths[1])}
        yield metric, said("comparison-effect", ends=ends, **columns)
    if verdict.estimate is not None and (drawn := _drawn(verdict.metric, verdict.estimate)):
        yield "", said("comparison-drawn", line=drawn)
    yield "trials", said(BASIS[verdict.basis][1], count=verdict.pairs)
    if verdict.p is not None:
        yield "p", said("p-at-look", p=verdict.p, level=verdict.level)
    if (noise := effect_with_ends(verdict.metric, verdict.noise)) is not None:
        yield "A and A", said("noise-floor", noise=noise)
    yield from (("differs", each) for each in differing(basis.differences))


def _drawn(metric: str, estimate: Estimate) -> str:
    # On a logarithmic axis one half and twice are equally far from no difference.
    logs = not is_share(metric) and estimate.low > 0
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = map(math.log, ends) if logs else ends
    none = 0.0 if logs or is_share(metric) else 1.0

    def form(at: float) -> str:
        text, unit = effect_part(metric, estimate, math.exp(at) if logs else at)
        return text if at == none else f"{text}{unit}"

    return interval_line(replace(estimate, value=value, low=low, high=high), none, form)


def findings(verdict: Verdict, *, running: bool = False) -> Iterator[Finding]:
    """The reason why there is no verdict, what would decide, and what weakens the verdict."""
    metric, least, basis, why = verdict.metric, verdict.needed, verdict.basis, verdict.why
    values: dict[str, Any] = {
        "count": verdict.undefined if why == "unbounded" else verdict.pairs,
        "basis": basis,
        "needed": (least or PAIRS_MIN) if why == "few" else least,
        "metric": title(metric),
        "noise": effect_with_ends(metric, verdict.noise),
        "delta": difference_text(metric, verdict.delta),
    }
    if name := "next-look" if why == "look" and running else _REASONS.get(why, ""):
        yield Finding(name, needed(name, values))
    wide = why == "wide"
    if wide and basis == "runs":
        yield finding("more-runs-tell-more")
    elif wide and least is None:
        yield finding("too-wide-to-decide")
    elif wide:
        yield finding("more-pairs-decide", needed=max(PAIRS_MIN, least or 0, verdict.pairs + 1))
    if why not in ("few", "nothing new") and verdict.pairs < PAIRS_MIN and basis != "runs":
        yield finding("few-pairs", count=verdict.pairs, least=PAIRS_MIN)
    if wide and verdict.detectable is not None:
        smallest = difference_text(metric, verdict.detectable)
        yield finding("detectable-difference", smallest=smallest)


def findings_of_trials(
    metric: str, digests: Sequence[Digest], differences: Sequence[Between], *, left_out: int
) -> Iterator[Finding]:
    """What weakens a comparison of trials by this metric. left_out: how many do not count."""
    if differences:
        yield finding("sides-differ-otherwise", factors=[each.name for each in differences])
    if metric == "throughput" and is_planned(digests):
        yield finding("throughput-is-planned")
    if left_out:
        yield finding("trials-left-out", count=left_out)


def is_planned(digests: Sequence[Digest]) -> bool:
    """Whether the throughput of all is the plan's: by a rate, or by the pace of each user."""
    return all(each.trial.plan.load.model != "closed" for each in digests)


def _table(effects: Sequence[Effect], names: tuple[str, str], basis: VerdictBasis) -> Table:
    a, b = basis.sides
    columns: list[Column[Effect]] = [
        ("metric", lambda each: axis(each.metric)),
        ("A", lambda each: metric_cell(each.metric, own_estimate(a, each.metric))),
        ("B", lambda each: metric_cell(each.metric, own_estimate(b, each.metric))),
        (
            "B against A",
            lambda e: TableCell(*effect_texts(e.metric, e.estimate)) if e.estimate else NOT_KNOWN,
        ),
        ("p", lambda each: NOT_KNOWN if each.p is None else f"{each.p:.2g}"),
        ("B is", lambda each: TableCell(each.outcome, "", _MARKS[each.outcome])),
    ]
    note = message("table-comparison", a=names[0], b=names[1])
    name, spare = message("title-metrics"), ("p", "B is")
    return table(f"{KEY}-metrics", name, columns, items=effects, note=note, spare=spare)


def _figures(
    effects: Sequence[Effect], sides: tuple[str, str], basis: VerdictBasis
) -> Iterator[Figure]:
    for key, name, share in (("effect", "title-effect", False), ("shares", "title-shares", True)):
        group = [each for each in effects if is_share(each.metric) == share and _drawable(each)]
        if group:
            yield _effects_figure(f"{KEY}-{key}", message(name), group, basis=basis)
    if basis.pairs or basis.trials:
        yield from _trials_figure(effects[0].metric, sides, basis)


def _drawable(effect: Effect) -> bool:
    estimate = effect.estimate
    return estimate is not None and 1 / _RATIO_MAX < abs(estimate.value) + 1 < _RATIO_MAX


def _effects_figure(
    key: str, name: str, effects: Sequence[Effect], *, basis: VerdictBasis
) -> Figure:
    main = effects[0]
    share, delta = is_share(main.metric), main.delta if isinstance(main, Verdict) else None
    rows = [row for each in effects for row in _effect_rows(each, basis)]
    rows.append({"none": 0.0 if share else 1.0})
    about = message("chart-of-pairs" if basis.pairs else "chart-of-trials")
    if delta is not None:
        ends = (-100 * delta, 100 * delta) if share else (1 / (1 + delta), 1 + delta)
        rows.append({"from": ends[0], "to": ends[1]})
        about += " " + message("chart-delta", delta=difference_text(main.metric, delta))
    fields = ("value", "low", "high", "trial", "from", "to")
    places = [abs(row[name]) for row in rows for name in fields if name in row]
    log = not share and (min(places) < _LINEAR[0] or max(places) > _LINEAR[1])
    return figure(
        key,
        name,
        about,
        columns=("metric", "B against A", "95% interval"),
        data=rows,
        template="difference",
        x=amounts(name, log=log, zero=False, nice=False, padding=14, tickCount=5, grid=True),
        y=names("", list(dict.fromkeys(row["y"] for row in rows if "y" in row)), down=True),
    )


def _effect_rows(effect: Effect, basis: VerdictBasis) -> Iterator[Datum]:
    """A row for the effect and its noise, and one for each pair or trial, in units of the axis."""
    metric, name = effect.metric, title(effect.metric)
    noise = effect.noise if isinstance(effect, Verdict) else None
    factor = 100.0 if is_share(metric) else 1.0
    for label, estimate in ((name, effect.estimate), (_NOISE, noise)):
        if estimate is not None:
            text, interval = effect_texts(metric, estimate)
            places = {"value": estimate.value}
            if estimate.estimable and math.isfinite(estimate.high):
                low = estimate.low if is_share(metric) else max(estimate.low, 1 / _RATIO_MAX)
                places |= {"low": low, "high": estimate.high}
            yield {
                "y": label,
                "noise": label == _NOISE,
                "text": text,
                "texts": (label, text, interval),
                **{at: factor * place for at, place in places.items()},
            }
    of_a = numbers(basis.sides[0], metric)
    if basis.pairs:
        both = ((pair, numbers((pair.a, pair.b), metric)) for pair in basis.pairs)
        dots = [
            (_NOISE if pair.same else name, True, n[1] - n[0]) for pair, n in both if len(n) > 1
        ]
    else:
        values = [(is_b, n) for is_b, side in basis.trials for n in numbers((side,), metric)]
        dots = [(name, is_b, value - fmean(of_a)) for is_b, value in values if of_a]
    for label, is_b, difference in dots:
        trial = _on_axis(metric, difference)
        if abs(trial) < _RATIO_MAX and (label != _NOISE or noise is not None):
            yield {"trial": trial, "y": label, "of_b": is_b, "texts": (label, f"{trial:.4g}", None)}


def _on_axis(metric: str, difference: float) -> float:
    """A difference of logarithms as a ratio; of shares in points."""
    return 100 * difference if is_share(metric) else math.exp(min(difference, 700))


def _trials_figure(metric: str, sides: tuple[str, str], basis: VerdictBasis) -> Iterator[Figure]:
    """The values of all trials; none if no trial has one."""
    labels = [f"{of}: {escaped(name)}" for of, name in zip("AB", sides, strict=True)]
    every = [(n, is_b, of) for n, (is_b, of) in enumerate(basis.trials, 1)]
    for pair in basis.pairs:
        every += [(pair.number, False, pair.a), (pair.number, not pair.same, pair.b)]
    rows: list[Datum] = []
    pairs: dict[int, list[float]] = {}
    for n, is_b, side in every:
        for value in numbers((side,), metric):
            at = _on_axis(metric, value)
            texts = (str(n), labels[is_b], number(metric, at / metrics.scale(metric)))
            rows.append({"x": n, "series": labels[is_b], "value": at, "texts": texts})
            pairs.setdefault(n, []).append(at)
    if not rows:
        return
    rows += [{"x": n, "low": min(of), "high": max(of)} for n, of in pairs.items() if len(of) == 2]
    what = "pair" if basis.pairs else "trial"
    yield figure(
        f"{KEY}-trials",
        message("chart-trials", metric=capital(title(metric))),
        message("chart-trials-of-pairs" if basis.pairs else "chart-trials-alone"),
        columns=(what, "of", header(metric)),
        data=rows,
        template="runs",
        x=amounts(what, format="d", zero=False, nice=False, padding=12, tickMinStep=1),
        y=of_metric(metric, zero=False, padding=10),
        **series(labels),
    )
