"""Whether stored runs changed their level, and since when: which runs, in words, its section."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.answer import Answer
from pgpaces.answers import differences
from pgpaces.answers import trend as rules
from pgpaces.answers.cells import sound
from pgpaces.answers.compare import METRICS, Metric
from pgpaces.answers.differences import Between, Varied
from pgpaces.answers.digest import Digest
from pgpaces.answers.trend import Change, Level, Run, Trend
from pgpaces.chart import Axis, Chart, Layer, Point
from pgpaces.errors import PlanError
from pgpaces.questions.compare import words as verdicts
from pgpaces.questions.compare.section import differing, named, number, short
from pgpaces.questions.compare.words import changed_by, size, title
from pgpaces.questions.sweep.lookup import answer_for
from pgpaces.report.escape import line
from pgpaces.report.numbers import interval, sparkline
from pgpaces.result import Estimate
from pgpaces.section import Figure, Headline, Section, Sentence, Table, TableCell
from pgpaces.store.store import Store

_WATCHED = tuple(name for name, metric in METRICS.items() if metric.scale == "ratio")


class Trended(Struct, frozen=True):
    """A series of runs and what it shows. unlike: in what they differ beside time.

    left_out: how many did not end or are not valid.
    """

    name: str
    metric: Metric
    digests: tuple[Digest, ...]
    unlike: tuple[Varied, ...]
    left_out: int
    trend: Trend


def trend(
    *names: str,
    metric: str = "rate",
    factors: Sequence[str] = (),
    anyway: bool = False,
    store: str | Path | None = None,
) -> Answer:
    """Says whether stored runs changed their level, and since when; the same as `pgpaces trend`.

    names: tags, workloads, experiments or runs; of one run, by default the newest, all those that
    differ from it in nothing but time. Its value is a `pgpaces.answers.trend.Trend`. Raises
    PlanError where they differ in more than time and `factors`.
    """
    opened = Store.existing(store)
    found = trended(opened, names, metric, factors)
    if found.unlike and not anyway:
        raise refusal(found)
    return answer_for(opened, section(found))


def trended(store: Store, names: Sequence[str], metric: str, factors: Sequence[str]) -> Trended:
    """The trend of stored runs in the order of time. Raises PlanError.

    names: tags, workloads, experiments and runs; of one run, or of none, which is the newest one,
    those that differ from it in nothing but time. factors: what may differ too.
    """
    for name in factors:
        differences.check_factor(name)
    if metric not in _WATCHED:
        raise PlanError(
            f"{metric} has no trend: changes are ratios", f"one of {', '.join(_WATCHED)}"
        )
    ids = list(dict.fromkeys(id_ for name in names or ("last",) for id_ in _ids(store, name)))
    digests = _like(store, ids[0], factors) if len(ids) == 1 else store.digests(ids)
    digests.sort(key=lambda digest: digest.trial.started_at)
    kept = tuple(digest for digest in digests if sound(digest))
    newest = (kept or digests)[-1]
    called = ", ".join(names) or newest.trial.workload.name
    return Trended(
        called,
        METRICS[metric],
        kept,
        differences.among(kept, factors),
        len(digests) - len(kept),
        rules.trend([_run(digest, metric) for digest in kept]),
    )


def _ids(store: Store, name: str) -> list[str]:
    """The runs that a name means."""
    tagged = store.trials(tag=name)
    found = tagged or [row for row in store.trials() if row.workload == name]
    if found:
        return [row.id for row in found if row.damage is None]
    id_ = store.find_any(name)
    return [row.id for row in store.trials(experiment=id_)] or [id_]


def _like(store: Store, id_: str, factors: Sequence[str]) -> list[Digest]:
    """The runs that differ from one in nothing but time; itself too."""
    (model,) = store.digests([id_])
    workload = model.trial.workload.name
    able = [row.id for row in store.trials() if row.damage is None and row.workload == workload]
    alike = (each for each in store.digests(able) if each.trial.id != id_)
    return [model, *(each for each in alike if not differences.between([model], [each], factors))]


def _run(digest: Digest, metric: str) -> Run:
    summary = digest.summary
    found = summary.rate if metric == "rate" else summary.latency.estimate(metric)
    name = called(digest.trial.id, digest.trial.started_at)
    return Run(name, Estimate.alone(float("inf"), 0) if found is None else found)


def section(found: Trended) -> Section:
    """The trend as a section."""
    metric = found.metric.name
    runs = tuple(Timed(d.trial.id, d.trial.started_at, _run(d, metric)) for d in found.digests)
    notes = differing(unlike(found.unlike))
    if found.left_out:
        text = f"Left out: {found.left_out} not brought to an end, or not valid."
        notes = (Sentence(text, "warning"), *notes)
    series = RunSeries(found.name, runs, tuple(_beside(found, runs)), notes)
    return of_series(found.trend, found.metric, series)


def _beside(found: Trended, runs: Sequence[Timed]) -> Iterator[tuple[str, tuple[Between, ...]]]:
    """What else was another one on the two sides of each change."""
    places = {each.run.name: place for place, each in enumerate(runs)}
    starts = [0, *(places[change.first] for change in found.trend.changes), len(runs)]
    parts = [found.digests[low:high] for low, high in pairwise(starts)]
    for change, (old, new) in zip(found.trend.changes, pairwise(parts), strict=True):
        if beside := differences.between(old, new):
            yield change.first, beside


def refusal(found: Trended) -> PlanError:
    """That there is no telling, as they differ in more than time."""
    main, *listed = unlike(found.unlike)
    lines = "".join(f"\n  {line(each.text)}" for each in listed)
    return PlanError(
        f"{main.text}{lines}",
        "name fewer runs, what may differ with --factor, or tell it with --anyway",
    )


# --- the section ----------------------------------------------------------------------------------


KEY = "trend"
_HEIGHT = 230
_CHANGED_SHOWN = 4


class Timed(Struct, frozen=True):
    """A run of the series: its id, when it began, and its number under its name."""

    id: str
    at: datetime
    run: Run


class RunSeries(Struct, frozen=True):
    """Runs in the order of time. beside: what else was not the same before and behind a change,

    by the change's first run. notes: what else is to be said.
    """

    name: str
    runs: tuple[Timed, ...]
    beside: tuple[tuple[str, tuple[Between, ...]], ...] = ()
    notes: tuple[Sentence, ...] = ()


def called(id_: str, at: datetime) -> str:
    """A run in a sentence: the end of its id, and when it began here."""
    return f"{id_[-8:]} of {at.astimezone():%Y-%m-%d %H:%M}"


def of_series(found: Trend, metric: Metric, series: RunSeries) -> Section:
    """The section of a series of runs."""
    return Section(
        key=KEY,
        title=f"{verdicts.title(metric).capitalize()} over time: {series.name}",
        sentences=(*sentences(found, metric), *_changed(series), *series.notes),
        headline=_headline(found, metric),
        facts=tuple(_facts(found, metric, series)),
        tables=(_table(found, metric, series),) if found.levels else (),
        figures=(_figure(found, metric, series),) if _known(series) else (),
        value=found,
        trials=tuple(each.id for each in series.runs),
    )


def _headline(found: Trend, metric: Metric) -> Headline:
    """Whether the newest level is another one, and since when."""
    first = sentences(found, metric)[0].text
    if found.needed:
        return Headline("UNKNOWN", "unknown", first)
    if not found.changes:
        return Headline("NO CHANGE", "meets", first)
    worse = first.endswith(": worse.")
    return Headline("WORSE" if worse else "BETTER", "misses" if worse else "meets", first)


def _facts(found: Trend, metric: Metric, series: RunSeries) -> Iterator[tuple[str, str]]:
    values = [each.run.estimate.value for each in _known(series)]
    if len(values) > 1:
        ends = f"{number(metric, min(values))} to {number(metric, max(values))}"
        yield "runs", f"{sparkline(values)}  {named(metric)}, {ends}"
    for level in found.levels[-_CHANGED_SHOWN:]:
        value, ends = _said(metric, level.value)
        yield "levels", f"{value} ({ends}) in {level.runs} runs from {level.first}"


def _changed(series: RunSeries) -> Iterator[Sentence]:
    """What else was another one since a change."""
    for first, beside in series.beside:
        told = [
            f"{each.name} ({', '.join(each.a) or '-'}, then {', '.join(each.b) or '-'})"
            for each in beside[:_CHANGED_SHOWN]
        ]
        more = len(beside) - len(told)
        listed = ", ".join([*told, *([f"and {more} more"] if more else [])])
        yield Sentence(f"Since {first} this is another one too: {listed}.")


def _table(found: Trend, metric: Metric, series: RunSeries) -> Table:
    changes: dict[str, Change] = {change.first: change for change in found.changes}
    runs = {each.run.name: each for each in series.runs}

    def when(name: str) -> TableCell:
        return TableCell(f"{runs[name].at.astimezone():%Y-%m-%d %H:%M}", runs[name].id[-8:])

    def row(level: Level) -> tuple[TableCell, ...]:
        change = changes.get(level.first)
        return (
            when(level.first),
            when(level.last),
            TableCell(str(level.runs)),
            TableCell(*_said(metric, level.value)),
            TableCell("-") if change is None else TableCell(*short(metric, change.ratio)),
            TableCell("-" if change is None else f"{change.p:.2g}"),
        )

    columns = ("from", "to", "runs", named(metric), "change", "p")
    rows = tuple(row(level) for level in found.levels)
    note = "Geometric means of the runs of a level, with 95 % intervals."
    return Table(f"{KEY}-levels", "Levels", columns, 2, rows, note, spare=("p",))


def _said(metric: Metric, found: Estimate) -> tuple[str, str]:
    form = partial(number, metric)
    return form(found.value), interval(found, form)


def _known(series: RunSeries) -> list[Timed]:
    """The runs with a number."""
    return [each for each in series.runs if 0 < each.run.estimate.value < math.inf]


def _figure(found: Trend, metric: Metric, series: RunSeries) -> Figure:
    rows = tuple(
        (
            f"{each.at.astimezone():%Y-%m-%d %H:%M:%S}",
            each.id[-8:],
            *_said(metric, each.run.estimate),
        )
        for each in series.runs
    )
    lines = "; broken lines are changes, wide ones levels with their intervals"
    return Figure(
        f"{KEY}-runs",
        f"{verdicts.title(metric).capitalize()} of each run",
        f"runs with their own 95 % intervals where there are any{lines if found.levels else ''}",
        ("begun", "run", named(metric), "95 % interval"),
        rows,
        (_chart(found, metric, series),),
    )


def _chart(found: Trend, metric: Metric, series: RunSeries) -> Chart:
    places = {each.run.name: _moment(each.at) for each in series.runs}
    points = tuple(_point(each) for each in _known(series))
    levels = tuple(
        Point(places[level.first], level.value.value, end=places[level.last],
              low=level.value.low, high=level.value.high)
        for level in found.levels
    )  # fmt: skip
    means = tuple(replace(level, low=None, high=None) for level in levels)
    changes = tuple(
        Point(places[each.first], text=short(metric, each.ratio)[0]) for each in found.changes
    )
    form = "%m-%d %H:%M" if _span(series) < timedelta(days=3) else "%Y-%m-%d"
    return Chart(
        Axis(scale="time", format=form),
        Axis(named(metric), room=8, nice=True),
        (
            Layer("point", points, "line0", size=36, opacity=0.9),
            Layer("rule", tuple(p for p in points if p.low is not None), "line0", opacity=0.55),
            Layer("rect", levels, "line1", opacity=0.18),
            Layer("rule", means, "line1", size=2),
            Layer("rule", changes, "alarm", size=1, dash=(5, 4)),
            Layer("text", changes, "alarm", edge="top", align="right", dx=-4),
        ),
        height=_HEIGHT,
    )


def _span(series: RunSeries) -> timedelta:
    return series.runs[-1].at - series.runs[0].at


def _point(each: Timed) -> Point:
    found, at = each.run.estimate, _moment(each.at)
    known = found.estimable and math.isfinite(found.high) and found.low > 0
    low, high = (found.low, found.high) if known else (None, None)
    return Point(at, found.value, low=low, high=high)


def _moment(at: datetime) -> str:
    """A time as it is here, wherever the chart is drawn."""
    return f"{at.astimezone():%Y-%m-%dT%H:%M:%S}"


# --- in words -------------------------------------------------------------------------------------


_SHOWN, _VALUES_SHOWN = 8, 4


def sentences(found: Trend, metric: Metric) -> tuple[Sentence, ...]:
    """Where runs changed their level."""
    if found.needed:
        runs = f"{found.runs} run shows" if found.runs == 1 else f"{found.runs} runs show"
        text = f"{runs} no trend: it takes {found.needed}."
        return (Sentence(text, "main"), *_left_out(found))
    if not found.changes:
        text = f"No change of level was found in the {title(metric)} of {found.runs} runs."
        said = [Sentence(text, "main")]
    else:
        said = [_change(each, metric) for each in reversed(found.changes)]
    if found.spread is not None:
        said.append(Sentence(f"Runs of one level are {size(metric, found.spread)} apart (sd)."))
    return (*said, *_left_out(found))


def _change(found: Change, metric: Metric) -> Sentence:
    way = "better" if (found.ratio.value > 1) == (metric.better == "higher") else "worse"
    than = changed_by(metric, found.ratio, f"up to {found.before}")
    text = f"Since {found.first} the {title(metric)} is {than}: {way}."
    return Sentence(text, "main")


def unlike(found: Sequence[Varied]) -> tuple[Sentence, ...]:
    """In what runs of a series differ beside time."""
    if not found:
        return ()
    listed = [Sentence(f"{each.name}: {_ran(each.values)}.") for each in found[:_SHOWN]]
    if len(found) > _SHOWN:
        listed.append(Sentence(f"And {len(found) - _SHOWN} more."))
    main = "The runs differ in more than time, so what makes a change could not be told."
    return (Sentence(main, "main"), *listed)


def _ran(values: Sequence[tuple[str, int]]) -> str:
    shown = [f"{value or '-'} in {count}" for value, count in values[:_VALUES_SHOWN]]
    more = len(values) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more else [])])


def _left_out(found: Trend) -> Iterable[Sentence]:
    if found.left_out:
        names = ", ".join(found.left_out[:_SHOWN])
        yield Sentence(f"Left out, as their number is none: {names}.", "warning")
