"""Changes of level in a series of stored runs: which runs, the sentences, the section."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from pgpaces.analysis import differences
from pgpaces.analysis import trend as rules
from pgpaces.analysis.cells import sound
from pgpaces.analysis.compare import direction, metric_of
from pgpaces.analysis.differences import Between, Varied
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.trend import Change, Level, Run, Trend
from pgpaces.answers.answer import Answer
from pgpaces.answers.compare import words as verdicts
from pgpaces.answers.compare.section import differing, is_planned, short
from pgpaces.answers.compare.words import changed_by, size
from pgpaces.answers.sweep.lookup import answer_for
from pgpaces.core.errors import PlanError, similar
from pgpaces.core.metrics import FOLLOWED, axis, header, number, title
from pgpaces.show.charts import Datum, of_metric
from pgpaces.show.numbers import (
    NOT_KNOWN,
    STARTED,
    capital,
    metric_cell,
    moment,
    plural,
    sparkline,
)
from pgpaces.show.section import Figure, Headline, Section, Sentence, Table, TableCell, figure
from pgpaces.spec.result import Estimate
from pgpaces.store.store import Store


class Timed(Struct, frozen=True):
    id: str
    at: datetime
    run: Run


class RunSeries(Struct, frozen=True):
    """Runs in the order of time, and their trend. unlike: what differs in it other than time.

    confounders: what else differs between the levels around a change, by the change's first run.
    left_out: the number of runs that did not complete or are not valid.
    """

    name: str
    metric: str
    runs: tuple[Timed, ...]
    trend: Trend
    unlike: tuple[Varied, ...] = ()
    confounders: tuple[tuple[str, tuple[Between, ...]], ...] = ()
    left_out: int = 0


def trend(
    *names: str,
    metric: str = "",
    factors: Sequence[str] = (),
    anyway: bool = False,
    store: str | Path | None = None,
) -> Answer:
    """Says whether stored runs changed their level, and since when; the same as `pgpaces trend`.

    names: tags, workloads, experiments or runs; of one run, by default the newest, all those that
    differ from it in nothing but time. metric: empty for the p95 of loads with a planned rate, else
    the throughput. Its value is a `pgpaces.analysis.trend.Trend`. Raises PlanError if they
    differ in more than time and `factors`.
    """
    with closing(Store.existing(store)) as opened:
        series = series_of(opened, names, metric, factors=factors)
    if series.unlike and not anyway:
        raise PlanError("runs-differ", differences=verdicts.listed(unlike(series.unlike)))
    return answer_for(opened, section(series))


def series_of(
    store: Store, names: Sequence[str], metric: str, *, factors: Sequence[str]
) -> RunSeries:
    """The series of stored runs, and its trend. Raises PlanError.

    names: tags, workloads, experiments and runs; of one run, by default the newest, all those that
    differ from it in nothing but time. factors: what may differ as well.
    """
    for name in factors:
        differences.check_factor(name)
    if metric and metric not in FOLLOWED:
        what, near = "the metric of a trend", similar(metric, FOLLOWED)
        raise PlanError("not-a-choice", what=what, value=metric, choices=[*FOLLOWED], near=near)
    ids = list(dict.fromkeys(id_ for name in names or ("last",) for id_ in _ids(store, name)))
    digests = _like(store, ids[0], factors) if len(ids) == 1 else store.digests(ids)
    digests.sort(key=lambda digest: digest.trial.started_at)
    valid = tuple(digest for digest in digests if sound(digest))
    metric = metric or metric_of(planned=is_planned(digests))
    runs = tuple(Timed(d.trial.id, d.trial.started_at, _run(d, metric)) for d in valid)
    trend = rules.trend([each.run for each in runs])
    return RunSeries(
        ", ".join(names) or (valid or digests)[-1].trial.workload.name,
        metric,
        runs,
        trend,
        differences.among(valid, factors),
        tuple(_confounders(trend, valid, [each.run.name for each in runs])),
        len(digests) - len(valid),
    )


def _ids(store: Store, name: str) -> list[str]:
    rows = store.trials(tag=name) or [row for row in store.trials() if row.workload == name]
    if rows:
        return [row.id for row in rows if row.damage is None]
    id_ = store.find_any(name)
    return [row.id for row in store.trials(experiment=id_)] or [id_]


def _like(store: Store, id_: str, factors: Sequence[str]) -> list[Digest]:
    """The run and those that differ from it in nothing but time."""
    (model,) = store.digests([id_])
    workload = model.trial.workload.name
    able = [row.id for row in store.trials() if row.damage is None and row.workload == workload]
    alike = (each for each in store.digests(able) if each.trial.id != id_)
    return [model, *(each for each in alike if not differences.between([model], [each], factors))]


def _run(digest: Digest, metric: str) -> Run:
    summary = digest.summary
    estimate = summary.throughput if metric == "throughput" else summary.latency.estimate(metric)
    name = called(digest.trial.id, digest.trial.started_at)
    return Run(name, Estimate.alone(float("inf"), 0) if estimate is None else estimate)


def _confounders(
    trend: Trend, digests: Sequence[Digest], names: Sequence[str]
) -> Iterator[tuple[str, tuple[Between, ...]]]:
    """The first run of each change, with what else differs between the levels around it."""
    starts = [0, *(names.index(change.first) for change in trend.changes), len(names)]
    parts = [digests[low:high] for low, high in pairwise(starts)]
    for change, (old, new) in zip(trend.changes, pairwise(parts), strict=True):
        if confounders := differences.between(old, new):
            yield change.first, confounders


KEY = "trend"
_MINUTES = "%Y-%m-%d %H:%M"
_CHANGED_SHOWN = 4


def called(id_: str, at: datetime) -> str:
    """A run in a sentence: the end of its id, and its start."""
    return f"{id_[-8:]} of {moment(at, _MINUTES)} UTC"


def section(series: RunSeries) -> Section:
    trend, metric = series.trend, series.metric
    notes = differing(unlike(series.unlike))
    if series.left_out:
        text = f"Left out: {series.left_out} unfinished or invalid."
        notes = (Sentence(text, "warning"), *notes)
    return Section(
        key=KEY,
        title=f"{capital(title(metric))} over time: {series.name}",
        sentences=(*sentences(trend, metric), *_changed(series), *notes),
        headline=_headline(trend, metric),
        facts=tuple(_facts(series)),
        tables=(_table(series),) if trend.levels else (),
        figures=(_figure(series),) if _measured(series) else (),
        value=trend,
        trials=tuple(each.id for each in series.runs),
        next=tuple(_next_steps(series)),
    )


def _next_steps(series: RunSeries) -> Iterator[str]:
    if series.trend.changes:
        ids = {each.run.name: each.id[-8:] for each in series.runs}
        change = series.trend.changes[-1]
        yield f"pgpaces report {ids[change.before]} {ids[change.first]} -o change.html"
    elif series.runs:
        yield f"pgpaces show {series.runs[-1].id[-8:]}"


def _headline(trend: Trend, metric: str) -> Headline:
    first = sentences(trend, metric)[0].text
    if trend.needed:
        return Headline("UNKNOWN", "unknown", first)
    if not trend.changes:
        return Headline("SAME", "pass", first)
    way = direction(metric, higher=trend.changes[-1].ratio.value > 1)
    return Headline(way.upper(), "pass" if way == "better" else "fail", first)


def _facts(series: RunSeries) -> Iterator[tuple[str, str]]:
    metric = series.metric
    values = [each.run.estimate.value for each in _measured(series)]
    if len(values) > 1:
        ends = f"{number(metric, min(values))} to {number(metric, max(values))}"
        yield "runs", f"{sparkline(values)}  {axis(metric)}, {ends}"
    for level in series.trend.levels[-_CHANGED_SHOWN:]:
        cell = metric_cell(metric, level.value)
        yield "levels", f"{cell.text} ({cell.ends}) in {level.runs} runs from {level.first}"


def _changed(series: RunSeries) -> Iterator[Sentence]:
    for first, confounders in series.confounders:
        parts = [
            f"{each.name} ({', '.join(each.a) or NOT_KNOWN}, then {', '.join(each.b) or NOT_KNOWN})"
            for each in confounders[:_CHANGED_SHOWN]
        ]
        if more := len(confounders) - len(parts):
            parts.append(f"and {more} more")
        yield Sentence(f"Since {first} this differs as well: {', '.join(parts)}.")


def _table(series: RunSeries) -> Table:
    trend, metric = series.trend, series.metric
    changes: dict[str, Change] = {change.first: change for change in trend.changes}
    runs = {each.run.name: each for each in series.runs}

    def when(name: str) -> TableCell:
        return TableCell(moment(runs[name].at, _MINUTES), runs[name].id[-8:])

    def row(level: Level) -> tuple[TableCell, ...]:
        change = changes.get(level.first)
        return (
            when(level.first),
            when(level.last),
            TableCell(str(level.runs)),
            metric_cell(metric, level.value),
            TableCell(NOT_KNOWN) if change is None else TableCell(*short(metric, change.ratio)),
            TableCell(NOT_KNOWN if change is None else f"{change.p:.2g}"),
        )

    columns = ("from (UTC)", "to (UTC)", "runs", header(metric), "change", "p")
    rows = tuple(row(level) for level in trend.levels)
    note = "Geometric means of the runs of a level, with 95% intervals."
    return Table(f"{KEY}-levels", "Levels", columns, 2, rows, note, spare=("p",))


def _measured(series: RunSeries) -> list[Timed]:
    return [each for each in series.runs if 0 < each.run.estimate.value < math.inf]


def _figure(series: RunSeries) -> Figure:
    metric = series.metric
    lines = "; broken lines are changes, bands are levels with their intervals"
    more = lines if series.trend.levels else ""
    span = series.runs[-1].at - series.runs[0].at
    form = "%m-%d %H:%M" if span < timedelta(days=3) else "%Y-%m-%d"
    return figure(
        f"{KEY}-runs",
        f"{capital(title(metric))} of each run",
        f"runs with their own 95% intervals where they have one{more}",
        columns=(STARTED, "run", header(metric), "95% interval"),
        data=_rows(series),
        template="runs",
        x={"type": "temporal", "axis": {"title": STARTED, "format": form, "tickCount": 5}},
        y=of_metric(metric, zero=False, padding=8),
        levels=True,
    )


def _rows(series: RunSeries) -> Iterator[Datum]:
    """A row for each run, for each level, and for each change."""
    measured = {each.id for each in _measured(series)}
    for each in series.runs:
        value = each.run.estimate
        cell = metric_cell(series.metric, value, "above")
        row: Datum = {"texts": (moment(each.at), each.id[-8:], cell.text, cell.ends)}
        if each.id in measured:
            bounded = value.estimable and math.isfinite(value.high) and value.low > 0
            ends = {"low": value.low, "high": value.high} if bounded else {}
            row |= {"x": _moment(each.at), "value": value.value, **ends}
        yield row
    places = {each.run.name: _moment(each.at) for each in series.runs}
    for level in series.trend.levels:
        mean = {"from": level.value.low, "mean": level.value.value, "to": level.value.high}
        yield {"x": places[level.first], "end": places[level.last], **mean}
    for change in series.trend.changes:
        yield {"change": places[change.first], "text": short(series.metric, change.ratio)[0]}


def _moment(at: datetime) -> str:
    """A moment without its zone, so that it is drawn as it is, wherever that is."""
    return moment(at, "%Y-%m-%dT%H:%M:%S")


_SHOWN, _VALUES_SHOWN = 8, 4


def sentences(trend: Trend, metric: str) -> tuple[Sentence, ...]:
    if trend.needed:
        text = f"{plural(trend.runs, 'run')}: a trend requires {trend.needed}."
        return (Sentence(text, "main"), *_left_out(trend))
    texts = [_change(each, metric) for each in reversed(trend.changes)]
    if not texts:
        text = f"No change of level was found in the {title(metric)} of {trend.runs} runs."
        texts = [Sentence(text, "main")]
    if trend.spread is not None:
        text = f"Runs of one level differ by {size(metric, trend.spread)} (standard deviation)."
        texts.append(Sentence(text))
    return (*texts, *_left_out(trend))


def _change(change: Change, metric: str) -> Sentence:
    way = direction(metric, higher=change.ratio.value > 1)
    than = changed_by(metric, change.ratio, f"up to {change.before}")
    text = f"Since {change.first} the {title(metric)} is {than}: {way}."
    return Sentence(text, "main")


def unlike(factors: Sequence[Varied]) -> tuple[Sentence, ...]:
    main = "The runs differ in more than time, so the cause of a change would be ambiguous."
    return verdicts.first_of(main, [f"{each.name}: {_values(each.values)}." for each in factors])


def _values(values: Sequence[tuple[str, int]]) -> str:
    shown = [f"{value or NOT_KNOWN} in {count}" for value, count in values[:_VALUES_SHOWN]]
    more = len(values) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more else [])])


def _left_out(trend: Trend) -> Iterable[Sentence]:
    if trend.left_out:
        names = ", ".join(trend.left_out[:_SHOWN])
        yield Sentence(f"Left out, as they have no number: {names}.", "warning")
