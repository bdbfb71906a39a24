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
from pgpaces.analysis.digest import Digest
from pgpaces.answers.compare import words as verdicts
from pgpaces.core import metrics
from pgpaces.core.findings import finding
from pgpaces.core.metrics import axis, header, is_share, number, title
from pgpaces.show.charts import Datum, amounts, names, of_metric, series
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import (
    NOT_KNOWN,
    capital,
    interval_line,
    metric_cell,
    plural,
)
from pgpaces.show.section import (
    Column,
    Figure,
    Headline,
    Mark,
    Section,
    Sentence,
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
# Beyond this range a ratio is drawn on a logarithmic axis.
_LINEAR = (0.5, 2.0)
# Larger ratios are in the table only.
_RATIO_MAX = 1e4


class VerdictBasis(Struct, frozen=True):
    """The trials of a verdict: pairs, or trials in chronological order, with True for those of B.

    ids: of all trials. left_out: the number of trials that did not finish or are not valid. notes:
    further sentences. running: more trials follow.
    """

    pairs: tuple[Pair, ...] = ()
    trials: tuple[tuple[bool, Side], ...] = ()
    ids: tuple[str, ...] = ()
    left_out: int = 0
    notes: tuple[Sentence, ...] = ()
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


def section(verdict: Verdict, a: str, b: str, *, basis: VerdictBasis) -> Section:
    effects: tuple[Effect, ...] = (verdict, *verdict.secondary)
    main, *said = verdicts.comparison(verdict, a, b, running=basis.running)
    left_out = finding("trials-left-out", count=basis.left_out)
    return Section(
        key=KEY,
        title=f"{b} vs. {a}",
        sentences=(
            main,
            *basis.notes,
            *said,
            *((Sentence(str(left_out), "warning"),) if basis.left_out else ()),
        ),
        headline=Headline(
            verdict.outcome.upper(),
            _MARKS[verdict.outcome],
            f"{b} vs. {a}, {_count(verdict, basis)}",
        ),
        facts=tuple(_facts(effects, basis)),
        tables=(_table(effects, (a, b), basis),) if basis.a or basis.b else (),
        figures=tuple(_figures(effects, (a, b), basis)),
        value=verdict,
        trials=basis.ids,
    )


def _count(verdict: Verdict, basis: VerdictBasis) -> str:
    """The trials of the verdict: `8 pairs`; `2 trials of A, none of B` where a side has none."""
    a, b = len(basis.a), len(basis.b)
    if verdict.basis not in ("trials", "apart") or bool(a) == bool(b):
        return verdicts.count(verdict.pairs, verdict.basis)
    return f"{plural(a or b, 'valid trial')} of {'A' if a else 'B'}, none of {'B' if a else 'A'}"


def _facts(effects: Sequence[Effect], basis: VerdictBasis) -> Iterator[tuple[str, str]]:
    """Each metric: values of A and B, and the effect; the first with its interval drawn."""
    for each in effects:
        a, b = (compare.own(sides, each.metric) for sides in (basis.a, basis.b))
        values = ""
        if a is not None and b is not None:
            values = f"{number(each.metric, a.value)} → {metrics.shown(each.metric, b.value)}   "
        if each.estimate is None:
            yield title(each.metric), f"{values}no estimate of the difference"
            continue
        value, ends = short(each.metric, each.estimate)
        ci = f"   95% CI {ends}" if each.estimate.estimable else ""
        yield title(each.metric), f"{values}{value}{ci}"
        if each is effects[0] and (drawn := _drawn(each.metric, each.estimate)):
            yield "", drawn


def _drawn(metric: str, estimate: Estimate) -> str:
    if is_share(metric) or estimate.low <= 0:
        return interval_line(estimate, 0.0, lambda value: _signed(metric, estimate, value))
    # On a logarithmic axis one half and twice are equally far from no difference.
    value, low, high = (math.log(each) for each in (estimate.value, estimate.low, estimate.high))
    logs = replace(estimate, value=value, low=low, high=high)
    return interval_line(logs, 0.0, lambda value: _signed(metric, estimate, math.exp(value)))


def _table(effects: Sequence[Effect], names: tuple[str, str], basis: VerdictBasis) -> Table:
    note = (
        f"A is {names[0]}, B is {names[1]}. Values are means over trials, geometric ones but for"
        " shares, with 95% intervals."
    )
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
    return table(
        f"{KEY}-metrics", "By metric", columns, items=effects, note=note, spare=("p", "B is")
    )


def short(metric: str, estimate: Estimate) -> tuple[str, str]:
    """An effect and its interval in few characters: `+17.4%` and `+16.2 to +18.5`."""
    value, low, high = (
        _signed(metric, estimate, end) for end in (estimate.value, estimate.low, estimate.high)
    )
    unit = " points" if is_share(metric) else " times" if _in_times(metric, estimate) else "%"
    return f"{value}{unit}", f"{low} to {high}" if estimate.estimable else NOT_KNOWN


def _in_times(metric: str, estimate: Estimate) -> bool:
    high = estimate.high if estimate.estimable else estimate.value
    return not is_share(metric) and max(estimate.value, high) >= _LINEAR[1]


def _signed(metric: str, estimate: Estimate, value: float) -> str:
    if is_share(metric):
        return f"{100 * value:+.2f}"
    return f"{value:.3g}" if _in_times(metric, estimate) else f"{100 * (value - 1):+.3g}"


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
        both = compare.numbers((pair.a, pair.b), metric)
        if len(both) == 2 and not (pair.same and _noise(effect) is None):
            trial = _placed(metric, both[1] - both[0])
            row = _SAME if pair.same else name
            yield {"trial": trial, "y": row, "of_b": True, "texts": (row, f"{trial:.4g}", None)}
    of_a = compare.numbers(basis.a, metric)
    middle = sum(of_a) / len(of_a) if of_a else 0.0
    for is_b, side in basis.trials if of_a and not basis.pairs else ():
        for value in compare.numbers((side,), metric):
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
        for value in compare.numbers((side,), metric)
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


def planned(metric: str, digests: Sequence[Digest]) -> tuple[Sentence, ...]:
    if metric != "throughput" or not is_planned(digests):
        return ()
    return (Sentence(str(finding("throughput-is-planned")), "warning"),)


def differing(sentences: Sequence[Sentence]) -> tuple[Sentence, ...]:
    """A warning that A and B differ otherwise, and how; sentences: those of verdicts.refused."""
    if not sentences:
        return ()
    first, *others = (each.text for each in sentences)
    return Sentence(first, "warning"), Sentence(" ".join(others))
