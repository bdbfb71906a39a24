"""Changes of level in a series of stored runs: which runs, and the section."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from itertools import chain, pairwise
from pathlib import Path

from msgspec import Struct

from pgpaces.analysis import differences
from pgpaces.analysis import trend as rules
from pgpaces.analysis.cells import sound, trial_estimate
from pgpaces.analysis.compare import direction, metric_of
from pgpaces.analysis.differences import Difference
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.trend import Change, Run, Trend
from pgpaces.answers.answer import Answer
from pgpaces.answers.compare import is_planned, listed
from pgpaces.answers.sweep.lookup import answer_for
from pgpaces.core.errors import PlanError, similar
from pgpaces.core.findings import Finding, finding
from pgpaces.core.messages import Message, message, said
from pgpaces.core.metrics import FOLLOWED, axis, header, number, shown, title
from pgpaces.show import effect_text
from pgpaces.show.charts import Datum, amounts
from pgpaces.show.number_text import NOT_KNOWN, STARTED, capital, metric_cell, moment, sparkline
from pgpaces.show.screen import Screen
from pgpaces.show.section import Figure, Headline, Mark, Next, Number, Section, Values, figure
from pgpaces.spec.result import Estimate
from pgpaces.store.store import Store


class TimedRun(Run, frozen=True):
    id: str
    at: datetime


class RunSeries(Struct, frozen=True):
    """Runs in the order of time, and their trend. unlike: what differs in it other than time.

    confounders: what else differs between the levels around each change, by its first run.
    left_out: the number of runs that did not complete or are not valid.
    """

    name: str
    metric: str
    runs: tuple[TimedRun, ...]
    trend: Trend
    unlike: tuple[Difference, ...] = ()
    confounders: tuple[tuple[str, tuple[Difference, ...]], ...] = ()
    left_out: int = 0

    def run(self, name: str) -> TimedRun:
        return next(each for each in self.runs if each.name == name)

    def id(self, name: str) -> str:
        return self.run(name).id[-8:]

    @property
    def measured(self) -> list[TimedRun]:
        return [each for each in self.runs if 0 < each.estimate.value < math.inf]


def trend(
    *names: str,
    metric: str = "",
    factors: Sequence[str] = (),
    anyway: bool = False,
    store: str | Path | None = None,
) -> Answer:
    """Says whether stored runs changed their level, and since when; the same as `pgpaces trend`.

    names: tags, workloads, experiments or runs; of one run, by default the newest, all those that
    differ from it in nothing but time. metric: empty for the p95 of loads with a planned rate or
    pace, else the throughput. Its value is a `pgpaces.analysis.trend.Trend`. Raises PlanError if
    they differ in more than time and `factors`.
    """
    for name in factors:
        differences.check_factor(name)
    if metric and metric not in FOLLOWED:
        what, near = "the metric of a trend", similar(metric, FOLLOWED)
        raise PlanError("not-a-choice", what=what, value=metric, choices=[*FOLLOWED], near=near)
    with closing(Store.existing(store)) as opened:
        ids = list(dict.fromkeys(id_ for name in names or ("last",) for id_ in _ids(opened, name)))
        digests = _like(opened, ids[0], factors) if len(ids) == 1 else opened.digests(ids)
    digests.sort(key=lambda digest: digest.trial.started_at)
    valid = [digest for digest in digests if sound(digest)]
    others = differences.differ([[each] for each in valid], factors)
    if others and not anyway:
        raise PlanError("runs-differ", differences=listed(unlike(others)))
    metric = metric or metric_of(planned=is_planned(digests))
    runs = tuple(_run(digest, metric) for digest in valid)
    trend = rules.trend(runs)
    firsts, names_of = [change.first for change in trend.changes], [run.name for run in runs]
    starts = [0, *map(names_of.index, firsts), len(runs)]
    levels = pairwise([valid[low:high] for low, high in pairwise(starts)])
    series = RunSeries(
        name=", ".join(names) or (valid or digests)[-1].trial.workload.name,
        metric=metric,
        runs=runs,
        trend=trend,
        unlike=others,
        confounders=tuple(zip(firsts, map(differences.differ, levels), strict=True)),
        left_out=len(digests) - len(valid),
    )
    return answer_for(opened, section(series))


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
    return [model, *(each for each in alike if not differences.differ([[model], [each]], factors))]


def _run(digest: Digest, metric: str) -> TimedRun:
    id_, at = digest.trial.id, digest.trial.started_at
    name = message("trend-run", run=id_[-8:], at=moment(at, _MINUTES))
    estimate = trial_estimate(digest, metric) or Estimate.alone(math.inf, 0)
    return TimedRun(name, estimate, id_, at)


KEY = "trend"
_MINUTES = "%Y-%m-%d %H:%M"
_LEVELS_SHOWN = 4
SCREEN = Screen(
    first=("runs", "levels"),
    details=("metric", "spread", "changes", "also new", "differs", "left out"),
)


def section(series: RunSeries) -> Section:
    trend, metric = series.trend, series.metric
    steps = [Next(f"pgpaces show {each.id[-8:]}", "next-newest") for each in series.runs[-1:]]
    if trend.needed:
        few = message("trend-few", count=trend.runs, needed=trend.needed)
        top = Headline("UNKNOWN", "unknown", few)
    elif not trend.changes:
        same = message("trend-same", metric=title(metric), count=trend.runs)
        top = Headline("SAME", "pass", same)
    else:
        last = trend.changes[-1]
        way = direction(metric, higher=last.ratio.value > 1)
        mark: Mark = "pass" if way == "better" else "fail"
        top = Headline(way.upper(), mark, str(_change(series, last)))
        both = f"{series.id(last.before)} {series.id(last.first)}"
        steps = [Next(f"pgpaces report {both} -o change.html", "next-change")]
    rows = [Number({"run": each.id}, metric, each.estimate) for each in series.runs]
    rows += [Number({"from": series.run(e.first).id}, metric, e.value) for e in trend.levels]
    return SCREEN.section(
        top,
        _values(series),
        key=KEY,
        title=message("trend-title", metric=capital(title(metric)), name=series.name),
        findings=[*_findings(series)],
        main=f"{top.word}: {top.text}",
        steps=steps,
        figures=(_figure(series),) if series.measured else (),
        rows=tuple(rows),
        value=trend,
        trials=tuple(each.id for each in series.runs),
    )


def _change(series: RunSeries, change: Change) -> Message:
    effect = effect_text.with_ends(series.metric, change.ratio)
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
    numbers = [each.estimate.value for each in series.measured]
    if len(numbers) > 1:
        ends = {"least": number(metric, min(numbers)), "most": shown(metric, max(numbers))}
        yield "runs", said("trend-runs", line=sparkline(numbers), **ends)
    for level in trend.levels[-_LEVELS_SHOWN:]:
        mean, run = shown(metric, level.value.value), series.run(level.first)
        ends_of_mean = metric_cell(metric, level.value).ends
        at = {"at": moment(run.at, _MINUTES), "run": run.id[-8:], "count": level.runs}
        yield "levels", said("trend-level", value=mean, ends=ends_of_mean, **at)
    if trend.spread is not None:
        yield (
            "spread",
            said("trend-spread", spread=effect_text.without_direction(metric, trend.spread)),
        )
    yield "metric", said("trend-metric", metric=axis(metric))
    yield from (("changes", _change(series, each)) for each in reversed(trend.changes))
    for first, confounders in series.confounders:
        for each in confounders:
            a, b = (values or NOT_KNOWN for values in each.values)
            new = {"run": series.id(first), "name": each.name, "a": a, "b": b}
            yield "also new", said("trend-confounder", **new)
    yield from (("differs", each) for each in unlike(series.unlike))
    yield from (("left out", said("trend-left-out", run=name)) for name in trend.left_out)


def unlike(factors: Sequence[Difference]) -> list[Message]:
    """In what the runs differ other than time: each value, and in how many runs."""
    found = []
    for each in factors:
        counts = Counter(chain.from_iterable(each.values))
        seen = [f"{value or NOT_KNOWN} ({count})" for value, count in counts.items()]
        found.append(said("runs-vary", name=each.name, seen=seen))
    return found


def _figure(series: RunSeries) -> Figure:
    """A point for each run, a band for each level, and a line for each change."""
    metric, rows, trend = series.metric, list[Datum](), series.trend
    # Without their zone, so that moments are drawn as they are, wherever that is.
    places = {each.name: moment(each.at, "%Y-%m-%dT%H:%M:%S") for each in series.runs}
    for each in series.runs:
        value = each.estimate
        cell = metric_cell(metric, value, "above")
        row: Datum = {"texts": (moment(each.at), each.id[-8:], cell.text, cell.ends)}
        if each in series.measured:
            row |= {"x": places[each.name], "value": value.value}
            if value.estimable and math.isfinite(value.high) and value.low > 0:
                row |= {"low": value.low, "high": value.high}
        rows.append(row)
    for level in trend.levels:
        mean = {"from": level.value.low, "mean": level.value.value, "to": level.value.high}
        rows.append({"x": places[level.first], "end": places[level.last], **mean})
    for change in trend.changes:
        effect = effect_text.texts(metric, change.ratio)[0]
        rows.append({"change": places[change.first], "text": effect})
    span = series.runs[-1].at - series.runs[0].at
    form = "%m-%d %H:%M" if span < timedelta(days=3) else "%Y-%m-%d"
    return figure(
        f"{KEY}-runs",
        message("chart-runs", metric=capital(title(metric))),
        message("chart-runs-with-levels" if trend.levels else "chart-runs-alone"),
        columns=(STARTED, "run", header(metric), "95% interval"),
        data=rows,
        template="runs",
        x={"type": "temporal", "axis": {"title": STARTED, "format": form, "tickCount": 5}},
        y=amounts(axis(metric), zero=False, padding=8),
    )
