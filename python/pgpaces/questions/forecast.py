"""Forecasts of throughput under more load: their factor and lines, their sentences and section."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from pgpaces.answer import Answer
from pgpaces.answers import crossing
from pgpaces.answers.crossing import Line
from pgpaces.answers.forecast import HOLDOUT_MAX, LOADS_MIN, REACH, TRIALS_MIN, Forecast, Reading
from pgpaces.answers.forecasts import LineForecast, forecast_lines
from pgpaces.chart import Axis, Chart, Layer, Point
from pgpaces.design import Factor, level_text
from pgpaces.errors import PlanError
from pgpaces.questions.again import more_trials
from pgpaces.questions.compare.lookup import named
from pgpaces.questions.sweep import lookup, words
from pgpaces.questions.sweep.page import Page
from pgpaces.questions.trials import levels_listed
from pgpaces.report.escape import line as shown
from pgpaces.report.numbers import NOT_KNOWN, estimate_cell, estimate_texts, in_words, percent, rate
from pgpaces.result import Estimate
from pgpaces.section import Column, Figure, Headline, Section, Sentence, Table, table
from pgpaces.store.store import Store

LOADS = ("users", "clients")
# With a planned rate, throughput equals the rate up to the capacity.
_RATES = ("rate", "rate_per_client")
_LINES_MAX = 12
# Enough levels for a forecast.
_LOADS = "1,2,3,4,6,8"


def forecast(
    *names: str, chosen: str = "", to: float | None = None, store: str | Path | None = None
) -> Answer:
    """Forecasts the throughput of more clients or users; the same as `pgpaces forecast`.

    names: experiments or runs, by default the newest experiment. chosen: selects lines,
    `"FACTOR=LEVEL,..."`. The value is a tuple of `pgpaces.answers.forecasts.LineForecast`, one for
    each line. Raises PlanError where no trials fit; a refusal by the rules is an answer.
    """
    with closing(Store.existing(store)) as opened:
        page = lookup.gathered(opened, names or (opened.find_experiment("last"),))
    every = forecasts(page, chosen, to)
    section = replace(of_page(every, page, to), next=(_next_step(every, page),))
    return Answer(section, lambda: lookup.fronted(page, section))


def _next_step(every: Sequence[LineForecast], page: Page) -> str:
    """The sweep with enough loads and trials where they were too few, else the report."""
    more = ""
    if any(each.fit.refusal in ("few loads", "few trials") for each in every):
        more = more_trials(page.about.rerun, TRIALS_MIN, **{_factor(page).name: _LOADS})
    return more or f"pgpaces report {page.about.id[-8:]} -o report.html".replace("  ", " ")


def forecasts(page: Page, chosen: str = "", to: float | None = None) -> tuple[LineForecast, ...]:
    """A forecast for each line of a page. Raises PlanError where no trials fit.

    chosen: selects lines, `FACTOR=LEVEL,...`. to: a load, at most 1.5 times the highest measured.
    """
    factor = _factor(page)
    lines = _chosen(page, factor, chosen)
    if len(lines) > _LINES_MAX:
        raise PlanError(
            f"{len(lines)} lines are too many for a forecast each",
            "choose with --where FACTOR=LEVEL",
        )
    every = forecast_lines(lines, factor.name, () if to is None else (to,))
    for each in every:
        if to is not None and not 0 < to <= each.fit.reach:
            raise PlanError(
                f"{to:g} {each.unit} are too many to forecast: at most {each.largest:g} measured",
                f"up to {each.fit.reach:g}, {REACH:g} times as many; or measure with more",
            )
    return every


def of_page(every: Sequence[LineForecast], page: Page, to: float | None = None) -> Section:
    """The forecasts of a page as a section."""
    return section(every, tuple(digest.trial.id for digest in page.digests), to)


def added(page: Page) -> Page:
    """The page with its forecast where it allows one, else unchanged.

    The loads of a search lie near the capacity and say little about how throughput grows.
    """
    if page.about.chosen:
        return page
    try:
        factor = _factor(page)
    except PlanError:
        return page
    lines = [line for line in crossing.lines(page.rows, factor.name) if _enough(line)]
    every = [
        each for each in forecast_lines(lines[:_LINES_MAX], factor.name) if not each.fit.refusal
    ]
    if not every:
        return page
    return replace(page, sections=(*page.sections, of_page(every, page)))


def _enough(line: Line) -> bool:
    """Whether a line has enough loads with enough valid trials for a fit."""
    able = [row for row in line.rows if len(row.trials) >= TRIALS_MIN and row.sound]
    return len(able) >= LOADS_MIN


def _factor(page: Page) -> Factor:
    """The factor that is the load: users or clients that wait for their answers."""
    factors = {factor.name: factor for factor in page.factors}
    able = [factors[name] for name in LOADS if name in factors and crossing.numeric(factors[name])]
    models = {digest.trial.plan.model for digest in page.digests}
    if "open" in models or (not able and any(name in factors for name in _RATES)):
        raise PlanError(
            "with a planned rate, throughput equals the rate up to the capacity: no law fits that",
            "measure several numbers of clients without a rate (--think-time 0), or users with a"
            " pace; pgpaces capacity finds the highest rate that meets a limit",
        )
    if not able:
        raise PlanError(
            "there are no trials with several numbers of clients or users",
            f"pgpaces sweep WORKLOAD --clients {_LOADS} --trials {TRIALS_MIN}",
        )
    return max(able, key=lambda factor: len(factor.levels))


def _chosen(page: Page, factor: Factor, text: str) -> list[Line]:
    """The lines with the levels of a text, all lines where it is empty. Raises PlanError."""
    lines = crossing.lines(page.rows, factor.name)
    if not text:
        return list(lines)
    levels = named(text)
    present: dict[str, dict[str, None]] = {}
    for line in lines:
        for name, level in line.levels:
            present.setdefault(name, {})[level] = None
    for name, level in levels.items():
        if level not in present.get(name, {}):
            every = levels_listed(present) or "only one line"
            raise PlanError(f"no line has {name}={level_text(level)}", f"there is {every}")
    return [line for line in lines if levels.items() <= dict(line.levels).items()]


# --- the section ----------------------------------------------------------------------------------


KEY = "forecast"
_HEIGHT = 230


def section(
    every: Sequence[LineForecast], trials: tuple[str, ...], to: float | None = None
) -> Section:
    """The section of forecasts. trials: their ids. to: a load at which each is evaluated."""
    unit = every[0].unit if every else ""
    return Section(
        key=KEY,
        title=f"With more {unit}",
        sentences=tuple(_sentences(every, to)),
        headline=_headline(every, to),
        facts=tuple(_facts(every)),
        tables=_tables(every),
        figures=tuple(
            _figure(each, number, to) for number, each in enumerate(every, 1) if each.points
        ),
        value=tuple(every),
        trials=trials,
    )


def _headline(every: Sequence[LineForecast], to: float | None) -> Headline | None:
    """The first main sentence: of the first line, or of the requested load."""
    text = next((each.text for each in _sentences(every, to) if each.weight == "main"), None)
    if text is None:
        return None
    refused = all(each.fit.refusal for each in every)
    return Headline("UNKNOWN" if refused else "FORECAST", "unknown" if refused else "", text)


def _facts(every: Sequence[LineForecast]) -> Iterator[tuple[str, str]]:
    for each in every:
        name = name_of(each) or "throughput"
        for load, mean, law, ends, _ in _readings(each, None):
            fitted = f", by the law {law} (95% CI {ends})" if law != NOT_KNOWN else ""
            measured = f"{mean}/s" if mean != NOT_KNOWN else "not measured"
            unit = each.unit.removesuffix("s") if load == "1" else each.unit
            yield name, f"{load} {unit}: {measured}{fitted}"


def name_of(line_forecast: LineForecast) -> str:
    """The levels that distinguish a line from the others; empty for the only one."""
    return words.line_name(Line(line_forecast.levels, ()))


def _sentences(every: Sequence[LineForecast], to: float | None) -> Iterator[Sentence]:
    """All sentences of one line; of several lines no plain ones, which are in the table."""
    for each in every:
        at_load = () if to is None else reading(each.fit, to, each.unit)
        name, several = name_of(each), len(every) > 1
        for sentence in (*at_load, *sentences(each.fit, each.unit), *_left_out(each)):
            if sentence.weight == "plain":
                yield from () if several else (sentence,)
            else:
                yield replace(sentence, text=f"{name}: {sentence.text}") if name else sentence


def _left_out(each: LineForecast) -> Iterator[Sentence]:
    if each.left_out:
        yield Sentence(f"Left out: {each.left_out} unfinished or not valid.", "warning")


# --- the table ------------------------------------------------------------------------------------


def _tables(every: Sequence[LineForecast]) -> tuple[Table, ...]:
    name: Column[LineForecast] = ("line", lambda each: name_of(each) or "all")
    columns: list[Column[LineForecast]] = [
        name,
        ("peak at", lambda each: estimate_cell(each.fit.peak, rate)),
        ("1/s there", lambda each: estimate_cell(each.fit.peak_rate, rate)),
        ("farthest", lambda each: f"{each.fit.reach:,.4g}"),
        ("1/s at it", lambda each: estimate_cell(_farthest(each.fit), rate)),
        ("hold-out %", lambda each: "-" if each.fit.holdout is None else percent(each.fit.holdout)),
        ("at most", lambda each: _at_most(each.fit, each.fit.reach)),
    ]
    note = (
        "The farthest load is 1.5 times the highest measured one. Hold-out: the error of a fit"
        " without the last two loads at these. At most: the bound at the farthest, with any law."
    )
    lines = table(f"{KEY}-lines", "How throughput grows", columns, every, note=note)
    law: list[Column[LineForecast]] = [
        name,
        ("one does, 1/s", lambda each: estimate_cell(each.fit.g, rate)),
        ("contention", lambda each: estimate_cell(each.fit.a, lambda share: f"{share:.3g}")),
        ("coherency", lambda each: estimate_cell(each.fit.b, lambda share: f"{share:.3g}")),
    ]
    fitted = [each for each in every if each.fit.usl]
    return (lines, table(f"{KEY}-law", "The law", law, fitted)) if fitted else (lines,)


def _farthest(fit: Forecast) -> Estimate | None:
    return fit.curve[-1].rate if fit.curve else None


def _at_most(fit: Forecast, load: float) -> str:
    return "-" if fit.bounds is None else rate(fit.bounds.at(load))


# --- the chart ------------------------------------------------------------------------------------


def _figure(each: LineForecast, number: int, to: float | None) -> Figure:
    name = name_of(each)
    if each.fit.curve:
        about = (
            "dots are trials, the line is the law fitted to them with its 95% band, broken beyond"
            " the highest measured load"
        )
    else:
        about = "dots are trials; there is no curve"
    bounds = "; the gray line is the upper bound" if each.fit.bounds else ""
    return Figure(
        f"{KEY}-{number}",
        f"Throughput by {each.unit}{f', {shown(name)}' if name else ''}",
        f"{about}{bounds}",
        (each.unit, "trials, 1/s", "the law, 1/s", "95% interval", "at most, 1/s"),
        tuple(_readings(each, to)),
        (_chart(each, to),),
        KEY,
    )


def _readings(each: LineForecast, to: float | None) -> Iterator[tuple[str, ...]]:
    """The loads that were measured, the requested one, and the farthest."""
    fit = each.fit
    measured: dict[float, list[float]] = {}
    for point in each.points:
        measured.setdefault(point.load, []).append(point.rate)
    law: dict[float, Reading] = {reading.load: reading for reading in fit.curve}
    loads = {*measured, *(reading.load for reading in fit.curve[-1:]), *([to] if to else [])}
    for load in sorted(loads):
        rates, fitted = measured.get(load), law.get(load)
        yield (
            f"{load:,.4g}",
            NOT_KNOWN if rates is None else rate(math.fsum(rates) / len(rates)),
            *estimate_texts(None if fitted is None else fitted.rate, rate),
            _at_most(fit, load),
        )


def _chart(each: LineForecast, to: float | None) -> Chart:
    end = max(each.largest, to) if to else each.fit.reach if each.fit.curve else each.largest
    dots = tuple(Point(point.load, point.rate) for point in each.points)
    readings = [reading for reading in each.fit.curve if reading.load <= end]
    top = 1.15 * max([p.rate for p in each.points] + [r.rate.high for r in readings] + [1e-9])
    # The broken line begins where the solid one ends.
    within = [reading for reading in readings if reading.within]
    beyond = [*within[-1:], *(reading for reading in readings if not reading.within)]
    return Chart(
        Axis(each.unit, ends=(0.0, end)),
        Axis("throughput, 1/s", ends=(0.0, top)),
        (
            Layer("point", dots, "ink", size=26, opacity=0.75),
            Layer("area", tuple(map(_of_law, readings)), "line0", opacity=0.16),
            Layer("line", tuple(map(_of_law, within)), "line0", size=2),
            Layer("line", tuple(map(_of_law, beyond)), "line0", size=2, dash=(6, 4)),
            Layer("line", tuple(_bound(each, end, top)), "muted", size=1.6),
            *_peak(each, end),
        ),
        height=_HEIGHT,
    )


def _of_law(reading: Reading) -> Point:
    fitted = reading.rate
    return Point(reading.load, fitted.value, low=fitted.low, high=fitted.high)


def _bound(each: LineForecast, end: float, top: float) -> Iterator[Point]:
    """The bounds within the chart: a line from the origin, then a level one."""
    bounds = each.fit.bounds
    if bounds is None:
        return
    most = math.inf if bounds.most is None else bounds.most
    bend = min(end, min(most, top) / bounds.each)
    for load in (0.0, bend, *([end] if most < top else [])):
        yield Point(load, bounds.at(load))


def _peak(each: LineForecast, end: float) -> Iterator[Layer]:
    """The peak with its interval along the axis."""
    peak, most = each.fit.peak, each.fit.peak_rate
    if peak is None or most is None or peak.value > end:
        return
    at = (Point(peak.value, most.value, low=peak.low, high=min(end, peak.high), text="peak"),)
    yield Layer("rule", at, "alarm", along="x")
    yield Layer("point", at, "alarm", size=60)
    yield Layer("text", at, "alarm", dy=-10)


# --- in words -------------------------------------------------------------------------------------


def sentences(fit: Forecast, unit: str = "users") -> tuple[Sentence, ...]:
    """A forecast, or why there is none; and the bounds, which need no fit."""
    return (*_curve(fit, unit), *_bounds(fit, unit))


def _curve(fit: Forecast, unit: str) -> Iterable[Sentence]:
    match fit.refusal:
        case "few loads":
            yield Sentence(
                f"No forecast from {fit.loads} loads: {LOADS_MIN} are required, with {TRIALS_MIN}"
                " trials of each.",
                "main",
            )
        case "few trials":
            yield Sentence(
                f"No forecast: a load has only {fit.trials} of {TRIALS_MIN} trials. Run the sweep"
                f" again with --trials {TRIALS_MIN}.",
                "main",
            )
        case "nothing done":
            yield Sentence("No forecast: at one load no transaction completed.", "main")
        case "hold-out":
            yield Sentence(
                "No forecast: a fit without the last two loads mispredicts them by"
                f" {percent(fit.holdout or 0)}% (tolerance {percent(HOLDOUT_MAX)}%). Another"
                " bottleneck may set in at high loads, or more loads near these are needed.",
                "main",
            )
        case _:
            yield from _at_peak(fit, unit)
            yield from _params(fit)


def _at_peak(fit: Forecast, unit: str) -> Iterable[Sentence]:
    reach = f"{fit.reach:,.4g} {unit}"
    last: Reading = fit.curve[-1]
    if fit.peak is not None and fit.peak_rate is not None:
        at = in_words(fit.peak, rate, f" {unit}")
        most = in_words(fit.peak_rate, rate, "/s")
        text = f"Throughput peaks at {at} with {most}; more {unit} complete less."
    elif fit.falls:
        text = f"Throughput falls from the lowest measured load on: more {unit} complete less."
    elif fit.peak_beyond:
        text = f"No peak up to {reach}: it lies beyond the range of the forecast."
    else:
        text = f"No peak identifiable up to {reach}."
    yield Sentence(text, "main")
    yield Sentence(
        f"At {reach}, {REACH:g} times the highest measured load: {in_words(last.rate, rate, '/s')};"
        " there is no forecast beyond."
    )


def reading(fit: Forecast, load: float, unit: str) -> tuple[Sentence, ...]:
    """The throughput that a forecast gives at one load; nothing without a curve."""
    for each in fit.curve:
        if each.load == load:
            how = "within" if each.within else "beyond"
            measured = in_words(each.rate, rate, "/s")
            text = f"At {load:,.4g} {unit}, {how} the measured loads: {measured}."
            return (Sentence(text, "main"),)
    return ()


def _params(fit: Forecast) -> Iterable[Sentence]:
    if fit.a is None or fit.b is None:
        return
    a, b = (in_words(each, lambda x: f"{x:.3g}", "") for each in (fit.a, fit.b))
    yield Sentence(
        f"Contention {a}, coherency {b}; a fit without the last two loads is wrong by"
        f" {percent(fit.holdout or 0)}% there."
    )


def _bounds(fit: Forecast, unit: str) -> Iterable[Sentence]:
    if fit.bounds is None:
        return
    each = f"{rate(fit.bounds.each)}/s times the number of {unit}"
    if fit.bounds.most is None:
        yield Sentence(f"With any model: at most {each}; no resource was monitored.")
    else:
        yield Sentence(
            f"With any model: at most {each}, and at most {rate(fit.bounds.most)}/s, where"
            f" {fit.bounds.limit} is exhausted."
        )
    above = [r.load for r in fit.curve if not r.within and r.rate.value > r.bound]
    if above:
        yield Sentence(
            f"From about {rate(above[0])} {unit} on the curve exceeds this bound: use the bound"
            " there.",
            "warning",
        )
