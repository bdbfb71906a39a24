"""What more load would do: along which factor, for which lines, how far; in words, its section."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pgpaces.answer import Answer
from pgpaces.answers import crossing
from pgpaces.answers.crossing import Line
from pgpaces.answers.forecast import (
    HOLDOUT_MAX,
    LOADS_MIN,
    REACH,
    TRIALS_MIN,
    Forecast,
    Reading,
)
from pgpaces.answers.forecasts import LineForecast, forecast_lines
from pgpaces.chart import Axis, Chart, Layer, Point
from pgpaces.design import Factor
from pgpaces.errors import PlanError
from pgpaces.questions.compare.lookup import named
from pgpaces.questions.sweep import words
from pgpaces.questions.sweep.page import Page
from pgpaces.report.escape import line as shown
from pgpaces.report.numbers import interval, percent, rate
from pgpaces.result import Estimate
from pgpaces.section import Figure, Headline, Section, Sentence, Table, TableCell
from pgpaces.store.store import Store

LOADS = ("users", "clients")
# Under a rate, throughput is the rate until it is not.
_RATES = ("rate", "rate_per_client")
_LINES_MAX = 12


def forecast(
    *names: str, chosen: str = "", to: float | None = None, store: str | Path | None = None
) -> Answer:
    """Says what more clients or users would do; the same as `pgpaces forecast`.

    names: experiments or runs, by default the newest experiment. chosen: the lines that are meant,
    `"FACTOR=LEVEL,..."`. Its value is a tuple of `pgpaces.answers.forecasts.LineForecast`, one for
    each line. Raises PlanError where there are no trials to ask it of; a refusal by the rules is
    an answer.
    """
    from pgpaces.questions.sweep import lookup

    opened = Store.existing(store)
    page = lookup.gathered(opened, names or (opened.find_experiment("last"),))
    section = of_page(forecasts(page, chosen, to), page, to)
    return Answer(section, lambda: lookup.fronted(page, section))


def forecasts(page: Page, chosen: str = "", to: float | None = None) -> tuple[LineForecast, ...]:
    """A forecast for each line of a page. Raises PlanError where there is nothing to ask it of.

    chosen: `FACTOR=LEVEL,...` of the lines that are meant. to: how far, at most 1.5 times as far as
    was tried.
    """
    factor = _factor(page)
    lines = _chosen(page, factor, chosen)
    if len(lines) > _LINES_MAX:
        raise PlanError(
            f"{len(lines)} lines are too many for a forecast each", "choose with --in FACTOR=LEVEL"
        )
    found = forecast_lines(lines, factor.name, () if to is None else (to,))
    for each in found:
        if to is not None and not 0 < to <= each.found.reach:
            raise PlanError(
                f"{to:g} {each.unit} cannot be told: {each.tried:g} were tried at most",
                f"up to {each.found.reach:g}, {REACH:g} times as many; or try more of them",
            )
    return found


def of_page(found: Sequence[LineForecast], page: Page, to: float | None = None) -> Section:
    """The forecasts as a section."""
    ids = tuple(digest.trial.id for digest in page.digests)
    return section(found, ids, to)


def added(page: Page) -> Page:
    """The page with its forecast, where it allows one; else as it is.

    Loads that were chosen about the one that holds tell little of how throughput grows.
    """
    if page.about.chosen:
        return page
    try:
        factor = _factor(page)
    except PlanError:
        return page
    lines = [line for line in crossing.lines(page.rows, factor.name) if _enough(line)]
    found = [
        each for each in forecast_lines(lines[:_LINES_MAX], factor.name) if not each.found.refusal
    ]
    if not found:
        return page
    return replace(page, sections=(*page.sections, of_page(found, page)))


def _enough(line: Line) -> bool:
    """Whether a forecast is worth trying."""
    able = [row for row in line.rows if len(row.trials) >= TRIALS_MIN and row.sound]
    return len(able) >= LOADS_MIN


def _factor(page: Page) -> Factor:
    """The factor that is the load: users or clients that wait for their answers."""
    known = {factor.name: factor for factor in page.factors}
    able = [known[name] for name in LOADS if name in known and crossing.numeric(known[name])]
    models = {digest.trial.plan.model for digest in page.digests}
    if "open" in models or (not able and any(name in known for name in _RATES)):
        raise PlanError(
            "under a rate, throughput is the rate until it is not: no law carries that further",
            "try numbers of clients without one (--think-time 0), or users with a pace; how much it"
            " holds is what pgpaces capacity says",
        )
    if not able:
        raise PlanError(
            "there are no trials with several numbers of clients or users",
            f"pgpaces sweep WORKLOAD --clients 1,2,3,4,6,8 --trials {TRIALS_MIN}",
        )
    return max(able, key=lambda factor: len(factor.levels))


def _chosen(page: Page, factor: Factor, text: str) -> list[Line]:
    """The lines that have these levels, all of them where none are named."""
    lines = crossing.lines(page.rows, factor.name)
    if not text:
        return list(lines)
    wanted = named(text)
    known: dict[str, dict[str, None]] = {}
    for line in lines:
        for name, level in line.levels:
            known.setdefault(name, {})[level] = None
    _check(wanted, known)
    return [line for line in lines if wanted.items() <= dict(line.levels).items()]


def _check(wanted: Mapping[str, str], known: Mapping[str, Mapping[str, None]]) -> None:
    for name, level in wanted.items():
        if level not in known.get(name, {}):
            every = "; ".join(f"{n}: {', '.join(own)}" for n, own in known.items())
            raise PlanError(f"no line has {name}={level}", f"there is {every or 'one line alone'}")


# --- the section ----------------------------------------------------------------------------------


KEY = "forecast"
_HEIGHT = 230


def section(
    every: Sequence[LineForecast], trials: tuple[str, ...], to: float | None = None
) -> Section:
    """The section of forecasts; trials: their ids. to: a load that is read off each."""
    unit = every[0].unit if every else ""
    return Section(
        key=KEY,
        title=f"With more {unit}",
        sentences=tuple(_said(every, to)),
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
    """What is said of the first line, or of the load that was asked for."""
    said = [each.text for each in _said(every, to) if each.weight == "main"]
    known = any(not each.found.refusal for each in every)
    if not said:
        return None
    return Headline("FORECAST" if known else "UNKNOWN", "" if known else "unknown", said[0])


def _facts(every: Sequence[LineForecast]) -> Iterator[tuple[str, str]]:
    for each in every:
        name = name_of(each) or "throughput"
        for load, had, law, ends, _ in _readings(each, None):
            told = f", by the law {law}" + (f" (95% CI {ends})" if law != "-" else "")
            seen = f"{had}/s" if had != "-" else "not tried"
            unit = each.unit.removesuffix("s") if load == "1" else each.unit
            yield name, f"{load} {unit}: {seen}{told if law != '-' else ''}"


def name_of(found: LineForecast) -> str:
    """What tells a line from the others; nothing of the only one."""
    return words.line_name(Line(found.levels, ()))


def _said(every: Sequence[LineForecast], to: float | None) -> Iterator[Sentence]:
    """Of one line everything; of several what is most important, the table has the rest."""
    for each in every:
        told = [*sentences(each.found, each.unit), *_left_out(each)]
        if to is not None:
            told = [*reading(each.found, to, each.unit), *told]
        name, several = name_of(each), len(every) > 1
        for sentence in told:
            if sentence.weight == "plain":
                yield from () if several else (sentence,)
            else:
                yield replace(sentence, text=f"{name}: {sentence.text}") if name else sentence


def _left_out(each: LineForecast) -> Iterator[Sentence]:
    if each.left_out:
        text = f"Left out: {each.left_out} not brought to an end, or not valid."
        yield Sentence(text, "warning")


# --- the table ------------------------------------------------------------------------------------


def _tables(every: Sequence[LineForecast]) -> tuple[Table, ...]:
    columns = ("line", "peak at", "1/s there", "farthest", "1/s at it", "hold-out %", "at most")
    note = (
        "The farthest is 1.5 times the most that was tried. Hold-out: how wrong a fit without the"
        " last two loads is there. At most: whatever the law, 1/s at the farthest."
    )
    rows = tuple(_row(each) for each in every)
    found = [Table(f"{KEY}-lines", "How far it grows", columns, 1, rows, note)]
    fitted = tuple(_parameters(each) for each in every if each.found.usl)
    if fitted:
        names = ("line", "one does, 1/s", "contention", "coherency")
        found.append(Table(f"{KEY}-law", "The law", names, 1, fitted))
    return tuple(found)


def _row(each: LineForecast) -> tuple[TableCell, ...]:
    found = each.found
    far = found.curve[-1].rate if found.curve else None
    return (
        TableCell(name_of(each) or "all"),
        _estimate(found.peak, lambda load: f"{load:,.3g}"),
        _estimate(found.peak_rate, rate),
        TableCell(f"{found.reach:,.4g}"),
        _estimate(far, rate),
        TableCell("-" if found.holdout is None else percent(found.holdout)),
        TableCell("-" if found.bounds is None else rate(found.bounds.at(found.reach))),
    )


def _parameters(each: LineForecast) -> tuple[TableCell, ...]:
    found = each.found
    return (
        TableCell(name_of(each) or "all"),
        _estimate(found.g, rate),
        _estimate(found.a, lambda share: f"{share:.3g}"),
        _estimate(found.b, lambda share: f"{share:.3g}"),
    )


def _estimate(found: Estimate | None, form: Any) -> TableCell:
    return TableCell("-") if found is None else TableCell(form(found.value), interval(found, form))


# --- the chart ------------------------------------------------------------------------------------


def _figure(each: LineForecast, number: int, to: float | None) -> Figure:
    name = name_of(each)
    found = each.found
    if found.curve:
        about = (
            "dots are trials, the line is the law fitted to them with its 95 % band, broken beyond"
            " what was tried"
        )
    else:
        about = "dots are trials; there is no curve"
    bounds = "; the grey line is the most that is possible" if found.bounds else ""
    return Figure(
        f"{KEY}-{number}",
        f"Throughput by {each.unit}{f', {shown(name)}' if name else ''}",
        f"{about}{bounds}",
        (each.unit, "trials, 1/s", "the law, 1/s", "95 % interval", "at most, 1/s"),
        tuple(_readings(each, to)),
        (_chart(each, to),),
        KEY,
    )


def _readings(each: LineForecast, to: float | None) -> Iterator[tuple[str, ...]]:
    """The loads that were tried, the one that was asked for, and the farthest."""
    found = each.found
    tried: dict[float, list[float]] = {}
    for point in each.points:
        tried.setdefault(point.load, []).append(point.rate)
    law: dict[float, Reading] = {reading.load: reading for reading in found.curve}
    wanted = {*tried, *([found.curve[-1].load] if found.curve else []), *([to] if to else [])}
    for load in sorted(wanted):
        had, told = tried.get(load), law.get(load)
        yield (
            f"{load:,.4g}",
            "-" if had is None else rate(math.fsum(had) / len(had)),
            "-" if told is None else rate(told.rate.value),
            "-" if told is None else interval(told.rate, rate),
            "-" if found.bounds is None else rate(found.bounds.at(load)),
        )


def _chart(each: LineForecast, to: float | None) -> Chart:
    end = max(each.tried, to) if to else each.found.reach if each.found.curve else each.tried
    dots = tuple(Point(point.load, point.rate) for point in each.points)
    readings = [reading for reading in each.found.curve if reading.load <= end]
    top = 1.15 * max([p.rate for p in each.points] + [r.rate.high for r in readings] + [1e-9])
    # A broken line begins where the whole one ends.
    tried = [reading for reading in readings if reading.tried]
    beyond = [*tried[-1:], *(reading for reading in readings if not reading.tried)]
    return Chart(
        Axis(each.unit, ends=(0.0, end)),
        Axis("throughput, 1/s", ends=(0.0, top)),
        (
            Layer("point", dots, "ink", size=26, opacity=0.75),
            Layer("area", tuple(map(_of_law, readings)), "line0", opacity=0.16),
            Layer("line", tuple(map(_of_law, tried)), "line0", size=2),
            Layer("line", tuple(map(_of_law, beyond)), "line0", size=2, dash=(6, 4)),
            Layer("line", tuple(_bound(each, end, top)), "muted", size=1.6),
            *_peak(each, end),
        ),
        height=_HEIGHT,
    )


def _of_law(reading: Reading) -> Point:
    found = reading.rate
    return Point(reading.load, found.value, low=found.low, high=found.high)


def _bound(each: LineForecast, end: float, top: float) -> Iterator[Point]:
    """The bounds as far as they are on the chart: a line from nothing, then level."""
    bounds = each.found.bounds
    if bounds is None:
        return
    most = math.inf if bounds.most is None else bounds.most
    bend = min(end, min(most, top) / bounds.each)
    for load in (0.0, bend, *([end] if most < top else [])):
        yield Point(load, bounds.at(load))


def _peak(each: LineForecast, end: float) -> Iterator[Layer]:
    """The peak with its interval along the axis."""
    peak, most = each.found.peak, each.found.peak_rate
    if peak is None or most is None or peak.value > end:
        return
    at = (Point(peak.value, most.value, low=peak.low, high=min(end, peak.high), text="peak"),)
    yield Layer("rule", at, "alarm", along="x")
    yield Layer("point", at, "alarm", size=60)
    yield Layer("text", at, "alarm", dy=-10)


# --- in words -------------------------------------------------------------------------------------


def sentences(found: Forecast, unit: str = "users") -> tuple[Sentence, ...]:
    """A forecast, or why there is none; its bounds hold either way."""
    return (*_curve(found, unit), *_bounds(found, unit))


def _curve(found: Forecast, unit: str) -> Iterable[Sentence]:
    match found.refusal:
        case "few loads":
            yield Sentence(
                f"No forecast from {found.loads} loads: it takes {LOADS_MIN}, with {TRIALS_MIN}"
                " trials of each.",
                "main",
            )
        case "few trials":
            yield Sentence(
                f"No forecast: a load has only {found.trials} of {TRIALS_MIN} trials.", "main"
            )
        case "nothing done":
            yield Sentence("No forecast: at one load nothing got done at all.", "main")
        case "hold-out":
            yield Sentence(
                "No forecast: a fit without the last two loads is wrong by"
                f" {percent(found.holdout or 0)} % there, and {percent(HOLDOUT_MAX)} % is the most."
                " Something else limits it at high loads, or more loads near these are needed.",
                "main",
            )
        case _:
            yield from _at_peak(found, unit)
            yield from _params(found)


def _at_peak(found: Forecast, unit: str) -> Iterable[Sentence]:
    reach = f"{found.reach:,.4g} {unit}"
    last: Reading = found.curve[-1]
    if found.peak is not None and found.peak_rate is not None:
        ends = interval(found.peak, lambda n: f"{n:,.3g}", " to ")
        at = f"{found.peak.value:,.3g} {unit} ({ends})"
        most = f"{rate(found.peak_rate.value)}/s ({interval(found.peak_rate, rate, ' to ')})"
        yield Sentence(f"Throughput peaks at {at} with {most}; more {unit} get less done.", "main")
    elif found.peak_beyond:
        yield Sentence(f"No peak up to {reach}: it lies beyond what can be said.", "main")
    else:
        yield Sentence(f"No peak identifiable: none is to be seen up to {reach}.", "main")
    ends = interval(last.rate, rate, " to ")
    yield Sentence(
        f"At {reach}, {REACH:g} times the most that was tried: {rate(last.rate.value)}/s ({ends});"
        " nothing is said beyond."
    )


def reading(found: Forecast, load: float, unit: str) -> tuple[Sentence, ...]:
    """What a forecast says at one load; nothing without a curve."""
    for each in found.curve:
        if each.load == load:
            ends = interval(each.rate, rate, " to ")
            how = "within what was tried" if each.tried else "beyond what was tried"
            text = f"At {load:,.4g} {unit}, {how}: {rate(each.rate.value)}/s ({ends})."
            return (Sentence(text, "main"),)
    return ()


def _params(found: Forecast) -> Iterable[Sentence]:
    if found.a is None or found.b is None:
        return
    a, b = (interval(each, lambda x: f"{x:.3g}", " to ") for each in (found.a, found.b))
    yield Sentence(
        f"Contention {found.a.value:.3g} ({a}), coherency {found.b.value:.3g} ({b}); a fit without"
        f" the last two loads is wrong by {percent(found.holdout or 0)} % there."
    )


def _bounds(found: Forecast, unit: str) -> Iterable[Sentence]:
    if found.bounds is None:
        return
    each = f"{rate(found.bounds.each)}/s times the number of {unit}"
    if found.bounds.most is None:
        yield Sentence(f"Whatever the model: at most {each}; no resource was watched.")
    else:
        yield Sentence(
            f"Whatever the model: at most {each}, and at most {rate(found.bounds.most)}/s, where"
            f" {found.bounds.limit} is full."
        )
    above = [r.load for r in found.curve if not r.tried and r.rate.value > r.bound]
    if above:
        yield Sentence(
            f"From about {above[0]:,.3g} {unit} on the curve is above that: believe the bound"
            " there.",
            "warning",
        )
