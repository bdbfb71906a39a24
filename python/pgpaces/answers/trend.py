"""Changes of level in a series of stored runs: which runs, and the section."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
from pgpaces.answers.compare.section import is_planned
from pgpaces.answers.compare.words import short
from pgpaces.answers.sweep.lookup import answer_for
from pgpaces.core.errors import PlanError, similar
from pgpaces.core.findings import Finding, finding
from pgpaces.core.messages import Message, message, said
from pgpaces.core.metrics import FOLLOWED, axis, header, number, shown, title
from pgpaces.show.charts import Datum, of_metric
from pgpaces.show.numbers import NOT_KNOWN, STARTED, capital, metric_cell, moment, sparkline
from pgpaces.show.screen import Screen
from pgpaces.show.section import Figure, Headline, Next, Section, Table, TableCell, Values, figure
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

    def run(self, name: str) -> Timed:
        return next(each for each in self.runs if each.run.name == name)

    def id(self, name: str) -> str:
        return self.run(name).id[-8:]


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
_LEVELS_SHOWN = 4
SCREEN = Screen(
    first=("runs", "levels"),
    details=("metric", "spread", "changes", "also new", "differs", "left out"),
)


def called(id_: str, at: datetime) -> str:
    """A run in a sentence: the end of its id, and its start."""
    return f"{id_[-8:]} of {moment(at, _MINUTES)} UTC"


def section(series: RunSeries) -> Section:
    top = _headline(series)
    return SCREEN.section(
        top,
        _values(series),
        key=KEY,
        title=message("trend-title", metric=capital(title(series.metric)), name=series.name),
        findings=[*_findings(series)],
        main=f"{top.word}: {top.text}",
        steps=[*_next_steps(series)],
        whole=True,
        tables=(_table(series),) if series.trend.levels else (),
        figures=(_figure(series),) if _measured(series) else (),
        value=series.trend,
        trials=tuple(each.id for each in series.runs),
    )


def _next_steps(series: RunSeries) -> Iterator[Next]:
    if series.trend.changes:
        change = series.trend.changes[-1]
        both = f"{series.id(change.before)} {series.id(change.first)}"
        yield Next(f"pgpaces report {both} -o change.html", "next-change")
    elif series.runs:
        yield Next(f"pgpaces show {series.runs[-1].id[-8:]}", "next-values")


def _headline(series: RunSeries) -> Headline:
    trend, metric = series.trend, series.metric
    if trend.needed:
        few = message("trend-few", count=trend.runs, needed=trend.needed)
        return Headline("UNKNOWN", "unknown", few)
    if not trend.changes:
        same = message("trend-same", metric=title(metric), count=trend.runs)
        return Headline("SAME", "pass", same)
    way = direction(metric, higher=trend.changes[-1].ratio.value > 1)
    text = str(_change(series, trend.changes[-1]))
    return Headline(way.upper(), "pass" if way == "better" else "fail", text)


def _change(series: RunSeries, change: Change) -> Message:
    effect = verdicts.with_ends(series.metric, change.ratio)
    return said("trend-changed", metric=series.metric, effect=effect, run=series.id(change.first))


def _findings(series: RunSeries) -> Iterator[Finding]:
    if series.unlike:
        yield finding("runs-differ-otherwise", factors=[each.name for each in series.unlike])
    if series.left_out:
        yield finding("trials-left-out", count=series.left_out)
    if left_out := series.trend.left_out:
        yield finding("runs-without-value", metric=title(series.metric), count=len(left_out))


def _values(series: RunSeries) -> Values:
    trend, metric = series.trend, series.metric
    values = [each.run.estimate.value for each in _measured(series)]
    if len(values) > 1:
        ends = {"least": number(metric, min(values)), "most": shown(metric, max(values))}
        yield "runs", said("trend-runs", line=sparkline(values), **ends)
    for level in trend.levels[-_LEVELS_SHOWN:]:
        cell, run = metric_cell(metric, level.value), series.run(level.first)
        at = {"at": moment(run.at, _MINUTES), "run": run.id[-8:], "count": level.runs}
        yield "levels", said("trend-level", value=cell.text, ends=cell.ends, **at)
    if trend.spread is not None:
        yield "spread", said("trend-spread", spread=verdicts.size(metric, trend.spread))
    yield "metric", said("trend-metric", metric=axis(metric))
    yield from (("changes", _change(series, each)) for each in reversed(trend.changes))
    for first, confounders in series.confounders:
        for each in confounders:
            sides = {"a": each.a or NOT_KNOWN, "b": each.b or NOT_KNOWN}
            yield (
                "also new",
                said("trend-confounder", run=series.id(first), name=each.name, **sides),
            )
    yield from (("differs", each) for each in unlike(series.unlike))
    yield from (("left out", said("trend-left-out", run=name)) for name in trend.left_out)


def unlike(factors: Sequence[Varied]) -> list[Message]:
    """In what the runs differ other than time: each value, and in how many runs."""
    counted = {each.name: [f"{v or NOT_KNOWN} ({n})" for v, n in each.values] for each in factors}
    return [said("runs-vary", name=name, seen=seen) for name, seen in counted.items()]


def _table(series: RunSeries) -> Table:
    trend, metric = series.trend, series.metric
    changes: dict[str, Change] = {change.first: change for change in trend.changes}

    def when(name: str) -> TableCell:
        return TableCell(moment(series.run(name).at, _MINUTES), series.id(name))

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
    title, note = message("title-levels"), message("table-levels")
    return Table(f"{KEY}-levels", title, columns, 2, rows, note, spare=("p",))


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
