"""The common parts of the charts of an experiment: the main axis, and groups of lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row
from pgpaces.analysis.crossing import Line
from pgpaces.answers.sweep import words
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import factor_name, levels_alone
from pgpaces.core import metrics
from pgpaces.show.charts import SERIES_MAX, Datum, Encoding, amounts, names, of_metric
from pgpaces.show.escape import line as shown
from pgpaces.spec.design import Factor

PANELS_MAX = 6
# Factors whose levels have charts side by side rather than lines of one chart.
_SIDE = ("server", "target", "variant")
LOG_FROM = 20


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
        Panel(words.line_name(Line(rest, ())), tuple(group[at : at + SERIES_MAX]), legend)
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
    """The axis of the main factor. unit: of its numbers; 0 if the levels are names."""

    factor: Factor | None
    title: str
    unit: float = 0.0
    log: bool = False

    def label(self, row: Row) -> str:
        return shown(crossing.shown_level(row, self.factor.name)) if self.factor else "all"

    def place(self, row: Row) -> float | str:
        if self.factor is None or not self.unit:
            return self.label(row) or "all"
        return (crossing.quantity(crossing.level_of(row, self.factor.name)) or 0.0) / self.unit

    def encoding(self, rows: Iterable[Row]) -> Encoding:
        places = list(dict.fromkeys(self.place(row) for row in rows))
        if not self.unit:
            return names(self.title, [str(place) for place in places])
        values = sorted(map(float, places))
        return amounts(self.title, log=self.log, values=values, zero=False, nice=False, padding=26)


def axis_of(page: Page) -> MainAxis:
    if page.main is None:
        factor = along(page.factors)
        return MainAxis(factor, shown(factor_name(factor.name)) if factor else "")
    name, levels = page.main.name, page.main.levels
    unit, suffix = _unit(levels)
    places = [(crossing.quantity(level) or 0.0) / unit for level in levels]
    log = min(places) > 0 and max(places) / min(places) >= LOG_FROM
    return MainAxis(page.main, f"{shown(factor_name(name))}{suffix}", unit, log)


def _unit(levels: Sequence[str]) -> tuple[float, str]:
    """The unit of the axis, as a quantity and a suffix: that of the first level that has one."""
    for level in levels:
        unit = level.lstrip("+-0123456789.eE ").replace(" ", "") or level.lstrip("+-0123456789. ")
        if unit.startswith("/"):
            return 1.0, ", 1/s"
        if unit and (size := crossing.quantity(f"1{unit}")):
            return size, f", {unit}"
    return 1.0, ""


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
    log = metrics.metric(metric).format == "ms" and top > LOG_FROM * least
    domain = [0.9 * least, 1.15 * top] if log else [0.0, min(end, 1.04 * top) or 1.0]
    axis = of_metric(metric, log=log, domain=domain, clamp=True)
    return axis, tuple(tuple(_within(row, top) for row in rows) for rows in every)


def _within(row: Datum, top: float) -> Datum:
    if row.get("value") == math.inf:
        without = {name: each for name, each in row.items() if name not in ("low", "high")}
        return {**without, "value": top, "above": "above"}
    return {**row, "high": min(row["high"], top)} if "high" in row else row
