"""The charts of a whole experiment: metrics of cells over the main factor, statements, verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row, sound, trial_estimate
from pgpaces.analysis.crossing import Line
from pgpaces.answers import bulk
from pgpaces.answers.numbers import Measure, with_names
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import factor_name, levels_alone, levels_text
from pgpaces.core import metrics
from pgpaces.core.messages import message
from pgpaces.show.charts import SERIES_MAX, Datum, Encoding, names, of_metric, series
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, capital, estimate_texts, ms
from pgpaces.show.section import Figure, figure
from pgpaces.show.style import WIDTH
from pgpaces.spec.design import Factor

PANELS_MAX, _STATEMENT_PANELS_MAX = 6, 4
# Factors whose levels have charts side by side rather than lines of one chart.
_SIDE = ("server", "target", "variant")
_LOG_FROM = 20
# The distance between the lines at a level, and of all of them, in pixels.
_SHIFT, _SHIFTS = 8.0, 40.0
_HEAT_ROWS_MAX = 40
_WIDE_FROM = 7


class Panel(Struct, frozen=True):
    """The lines of one chart. name: the levels they share. legend: the factor of the lines."""

    name: str
    lines: tuple[Line, ...]
    legend: str


def panels(page: Page) -> tuple[tuple[Panel, ...], int]:
    """The lines as charts side by side, and the number of charts left out.

    The legend has the levels of one factor; each combination of the others is a chart of its own.
    Servers, targets and variants are charts, else the factor with the fewest levels is.
    """
    main = along(page.factors)
    others = [factor for factor in page.factors if factor != main]
    legend = _legend(others)
    groups: dict[tuple[tuple[str, str], ...], list[Line]] = {}
    for line in crossing.lines(page.rows, main.name) if main else page.lines:
        rest = tuple(pair for pair in line.levels if pair[0] != legend)
        groups.setdefault(rest, []).append(line)
    parts = [
        Panel(levels_text(rest, " and "), tuple(group[at : at + SERIES_MAX]), legend)
        for rest, group in groups.items()
        for at in range(0, len(group), SERIES_MAX)
    ]
    return tuple(parts[:PANELS_MAX]), max(0, len(parts) - PANELS_MAX)


def along(factors: Sequence[Factor]) -> Factor | None:
    """The factor along the axis: the main one; if all levels are names, that of most levels."""
    main = crossing.main_factor(factors)
    return main or max(factors, key=lambda each: len(each.levels), default=None)


def _legend(others: Sequence[Factor]) -> str:
    if not others:
        return ""
    side = [factor for name in _SIDE for factor in others if factor.name == name]
    panel = side[0] if side else min(others, key=lambda factor: len(factor.levels))
    rest = [factor for factor in others if factor != panel] or [panel]
    able = [factor for factor in rest if len(factor.levels) <= SERIES_MAX] or rest
    return max(able, key=lambda factor: len(factor.levels)).name


def line_label(line: Line, panel: Panel) -> str:
    return shown(levels_alone(pair for pair in line.levels if pair[0] == panel.legend)) or "all"


class MainAxis(Struct, frozen=True):
    """The axis of the main factor: its levels in equal steps. joined: they are numbers."""

    factor: Factor | None
    title: str
    joined: bool

    def label(self, row: Row) -> str:
        return (shown(crossing.shown_level(row, self.factor.name)) if self.factor else "") or "all"

    def encoding(self, rows: Iterable[Row]) -> Encoding:
        def place(row: Row) -> float:
            level = crossing.level_of(row, self.factor.name) if self.factor else ""
            return (crossing.quantity(level) or 0.0) if self.joined else 0.0

        labels = dict.fromkeys(self.label(row) for row in sorted(rows, key=place))
        return names(self.title, list(labels))


def axis_of(page: Page) -> MainAxis:
    factor = along(page.factors)
    title = shown(factor_name(factor.name)) if factor else ""
    return MainAxis(factor, title, page.main is not None)


def upright(
    metric: str, every: Sequence[Sequence[Datum]], *, end: float = math.inf
) -> tuple[Encoding, tuple[tuple[Datum, ...], ...]]:
    """The vertical axis of charts side by side, and their rows within it.

    What is above every measured time is at its top. end: the largest number of the axis.
    """
    names = ("value", "low", "high", "trial", "limit")
    ends = [row[name] for rows in every for row in rows for name in names if name in row]
    finite = [each for each in ends if math.isfinite(each)] or [1.0]
    top = (1.0 if len(finite) == len(ends) else 1.1) * max(finite)
    least = min((each for each in finite if each > 0), default=top)
    log = metrics.metric(metric).format == "ms" and top > _LOG_FROM * least
    domain = [0.9 * least, 1.15 * top] if log else [0.0, min(end, 1.04 * top) or 1.0]
    axis = of_metric(metric, log=log, domain=domain, clamp=True, short=True)
    return axis, tuple(tuple(_within(row, top) for row in rows) for rows in every)


def _within(row: Datum, top: float) -> Datum:
    if row.get("value") == math.inf:
        without = {name: each for name, each in row.items() if name not in ("low", "high")}
        return {**without, "value": top, "above": "above"}
    return {**row, "high": min(row["high"], top)} if "high" in row else row


def _measures(page: Page) -> Iterator[Measure]:
    """The metrics that have charts; the first shows the answer."""
    work = page.work
    transactions: tuple[str, ...] = ("missed", "p95", "throughput")
    if work is not None:
        yield from (each for key in bulk.CHARTS for each in work.numbers if each.key == key)
        transactions = () if work.only else transactions[:2]
    elif not page.limits:
        transactions = transactions[::-1]
    ns = {digest.trial.plan.limit_ns for digest in page.digests}
    limit_ns = ns.pop() if len(ns) == 1 else None
    limit = (limit_ns / 1e6, message("chart-limit")) if limit_ns else None
    allowed = 100 * page.missed_max
    bounds = {"missed": (allowed, message("chart-allowed", percent=allowed)), "p95": limit}
    for name in transactions:
        yield Measure(name, partial(trial_estimate, name=name), bounds.get(name))


def overview(page: Page) -> Iterator[Figure]:
    if len(page.rows) < 2:
        return
    axis, every = axis_of(page), panels(page)[0]
    for measure in _measures(page):
        # A chart of nothing but zeros is left out.
        if any(each and each.value for each in (row.estimate(measure.key) for row in page.rows)):
            yield from _over(page, axis, every, measure=measure)
    missed = any(row.missed and row.missed.value for row in page.rows)
    if page.work is None and page.limits and missed and page.main and len(page.lines) > 1:
        yield _heat_map(page, page.main)


def _over(
    page: Page, axis: MainAxis, every: Sequence[Panel], *, measure: Measure
) -> Iterator[Figure]:
    key, limit = measure.key, measure.bound[1] if measure.bound else ""
    anchor, metric = key.replace("_", "-"), capital(metrics.title(key))
    end = 100.0 if metrics.is_share(key) else math.inf
    y, contents = upright(key, [list(_rows(axis, each, measure)) for each in every], end=end)
    for number, (panel, data) in enumerate(zip(every, contents, strict=True)):
        where = f", {shown(panel.name)}" if panel.name else ""
        legend = shown(factor_name(panel.legend)) if panel.legend else ""
        estimates = [row.estimate(key) for line in panel.lines for row in line.rows]
        bare = not any(each.estimable for each in estimates if each is not None)
        marks = message("chart-dots-alone" if bare else "chart-dots")
        names = (axis.title, legend or "cell", metrics.header(key))
        yield figure(
            f"{anchor}-{number + 1}" if number else anchor,
            message("chart-by-factor", metric=metric, factor=f"{axis.title}{where}"),
            f"{metrics.metric(key).about} {marks}",
            columns=(*names, "95% interval", "trials", "valid"),
            data=data,
            template="factor",
            group=anchor if len(every) > 1 else "",
            x=axis.encoding(page.rows),
            y=y,
            **series([line_label(line, panel) for line in panel.lines], legend, limit=limit),
            joined=axis.joined,
            limit=limit,
            above=any("above" in row for row in data),
        )


def _rows(axis: MainAxis, panel: Panel, measure: Measure) -> Iterator[Datum]:
    """A row for each cell and each trial. shift: of the line, in pixels."""
    count = len(panel.lines)
    for number, line in enumerate(panel.lines):
        shift = (number - (count - 1) / 2) * min(_SHIFT, _SHIFTS / count)
        for row in line.rows:
            own = axis.label(row), line_label(line, panel)
            place = {"x": axis.label(row), "series": own[1], "shift": shift}
            estimate = row.estimate(measure.key)
            valid = "yes" if row.sound else "no" if row.trials else NOT_KNOWN
            texts = *estimate_texts(estimate, measure.form), str(len(row.trials)), valid
            numbers = measure.numbers(estimate)
            yield {**place, **numbers, "valid": row.sound, "texts": (*own, *texts)}
            for digest in row.every:
                found = measure.of_trial(digest)
                if found is not None and math.isfinite(found.value):
                    yield {
                        **place,
                        "trial": found.value * measure.scale,
                        "valid": digest in row.trials and sound(digest),
                        "texts": (*own, measure.form(found.value), None, "1"),
                    }
    if measure.bound is not None:
        yield {"limit": measure.bound[0], "series": measure.bound[1]}


def _heat_map(page: Page, main: Factor) -> Figure:
    """The missed share of every cell as a map of two factors, shaded by its verdict."""
    allowed, lines = page.missed_max, page.lines[:_HEAT_ROWS_MAX]
    left = len(page.lines) - len(lines)
    data: list[Datum] = []
    for line in lines:
        label = shown(levels_alone(line.levels))
        for row in line.rows:
            verdict, value = (
                crossing.verdict(row, allowed),
                row.missed.value if row.missed else None,
            )
            far = value is not None and not allowed / 10 <= value <= 4 * allowed
            shades = {"pass": 1 - far, "unknown": 2 + ((value or 0) > allowed), "fail": 4 + far}
            level, text = shown(crossing.level_of(row, main.name)), metrics.number("missed", value)
            place = {"x": level, "y": label, "text": text, "valid": row.sound}
            shade = None if value is None else shades[verdict]
            data.append({**place, "shade": shade, "texts": (level, label, text, verdict)})
    title, levels = shown(factor_name(main.name)), [shown(level) for level in main.levels]
    aside = shown(", ".join(factor_name(each.name) for each in page.factors if each != main))
    return figure(
        "heat-map",
        message("title-map"),
        message(
            "chart-map",
            percent=100 * allowed,
            left=message("chart-map-left", left=left) if left else "",
        ),
        columns=(title, aside, metrics.header("missed"), "verdict"),
        data=data,
        template="heat-map",
        above=aside,
        x=names(title, levels),
        y=names("", list(dict.fromkeys(row["y"] for row in data)), down=True),
        width=2 * WIDTH if len(levels) > _WIDE_FROM else WIDTH,
    )


def statements(page: Page) -> Iterator[Figure]:
    """The mean times of the busiest statements over the main factor, by its lines."""
    if len(page.rows) < 2:
        return
    named = [(each, name) for each, name in with_names(page.statements) if each.mean]
    lines = [line for panel in panels(page)[0] for line in panel.lines][:_STATEMENT_PANELS_MAX]
    axis, measure = axis_of(page), Measure("mean", lambda _: None)
    groups, used = [], []
    for line in lines:
        own = [(each, name) for each, name in named if each.row in line.rows]
        spent: dict[str, float] = {}
        for each, name in own:
            spent[name] = spent.get(name, 0.0) + (each.mean.value if each.mean else 0.0)
        busiest = sorted(spent, key=lambda name: -spent[name])[:SERIES_MAX]
        chosen = [(each, shown(name)) for each, name in own if name in busiest]
        used.append([each.row for each, _ in chosen])
        groups.append([
            {
                "x": axis.label(each.row),
                "series": name,
                "valid": each.row.sound,
                **measure.numbers(each.mean),
                "texts": (axis.label(each.row), name, *estimate_texts(each.mean, ms)),
            }
            for each, name in chosen
        ])  # fmt: skip
    y, contents = upright("mean", groups)
    for number, (line, rows, data) in enumerate(zip(lines, used, contents, strict=True)):
        name = levels_text(line.levels, " and ")
        if data:
            yield figure(
                f"statements-{number + 1}" if number else "statements",
                message("chart-statements", of=f", {shown(name)}" if name else ""),
                message("chart-statements-by-line"),
                columns=(axis.title, "statement", metrics.header("mean"), "95% interval"),
                data=data,
                template="factor",
                x=axis.encoding(rows),
                y=y,
                **series(list(dict.fromkeys(row["series"] for row in data))),
                joined=axis.joined,
            )
