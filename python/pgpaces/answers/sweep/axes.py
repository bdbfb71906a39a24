"""The common parts of the charts of an experiment: the main axis, and groups of lines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row
from pgpaces.analysis.crossing import Line
from pgpaces.answers.sweep import words
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import factor_name, levels_alone
from pgpaces.show.chart import LABELED_WIDTH, SERIES_MAX, Axis
from pgpaces.show.escape import line as shown
from pgpaces.spec.design import Factor

PANELS_MAX = 6
# Factors whose levels have charts side by side rather than lines of one chart.
_SIDE = ("server", "target", "variant")
LOG_FROM = 20
# The number of characters that fit below a chart.
_NAMES_MAX = LABELED_WIDTH // 8
_TICKS_MAX = 7


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
    """The axis of the main factor. step: between numbers; 0 if the levels are names."""

    factor: Factor | None
    title: str
    unit: float
    step: float
    log: bool

    def place(self, row: Row) -> float | str:
        factor = self.factor.name if self.factor else ""
        if not self.step:
            return shown(crossing.shown_level(row, factor)) or "all"
        return (crossing.quantity(crossing.level_of(row, factor)) or 0.0) / self.unit

    def aside(self, row: Row, part: float) -> float | str:
        """The place with an offset, so that lines do not overlap; part: -0.5 to 0.5 of a step."""
        place = self.place(row)
        if isinstance(place, str):
            return place
        return place * (1 + self.step * part) if self.log else place + self.step * part

    def axis(self, rows: Iterable[Row]) -> Axis:
        if not self.step:
            return axis_of_names(self.title, dict.fromkeys(str(self.place(row)) for row in rows), 6)
        places = sorted({float(self.place(row)) for row in rows})
        low, high, room = places[0], places[-1], self.step / 2
        if self.log:
            return Axis(
                self.title, scale="log", ends=(low * 0.93, high * 1.07), ticks=tuple(places)
            )
        return Axis(self.title, ends=(low - room, high + room), ticks=tuple(places))


def axis_of_names(title: str, names: Iterable[str], most: int) -> Axis:
    """A nominal axis; labels that would touch, or `most` of them and more, are rotated."""
    labels = tuple(names)
    return Axis(title, labels, aslant=sum(map(len, labels)) > _NAMES_MAX or len(labels) >= most)


def axis_of(page: Page) -> MainAxis:
    if page.main is None:
        factor = along(page.factors)
        title = shown(factor_name(factor.name)) if factor else ""
        return MainAxis(factor, title, 1.0, 0.0, False)
    name, levels = page.main.name, page.main.levels
    unit, suffix = _unit(levels)
    places = sorted((crossing.quantity(level) or 0.0) / unit for level in levels)
    log = places[0] > 0 and places[-1] / places[0] >= LOG_FROM
    pairs = list(itertools.pairwise(places))
    step = min(b / a for a, b in pairs) - 1 if log else min(b - a for a, b in pairs)
    title = f"{shown(factor_name(name))}{suffix}"
    room = 1.0 if log else (places[-1] - places[0]) * 0.2
    return MainAxis(page.main, title, unit, min(step, room), log)


def _unit(levels: Sequence[str]) -> tuple[float, str]:
    """The unit of the axis, as a quantity and a suffix: that of the first level that has one."""
    for level in levels:
        unit = level.lstrip("+-0123456789.eE ").replace(" ", "") or level.lstrip("+-0123456789. ")
        if unit.startswith("/"):
            return 1.0, ", 1/s"
        if unit and (size := crossing.quantity(f"1{unit}")):
            return size, f", {unit}"
    return 1.0, ""


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """The ticks of a logarithmic axis: 1, 2 and 5 times powers of ten, or fewer."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        every = [step * 10.0**power for power in powers for step in steps]
        ticks = tuple(value for value in every if low <= value <= high)
        if len(ticks) <= _TICKS_MAX:
            break
    return ticks
