"""What charts of an experiment share: the axis of the main factor, and groups of lines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from pgpaces.answers import crossing
from pgpaces.answers.cells import Row
from pgpaces.answers.crossing import Line
from pgpaces.chart import LABELED_WIDTH, SERIES_MAX, Axis
from pgpaces.design import Factor
from pgpaces.questions.sweep import words
from pgpaces.questions.sweep.page import Page
from pgpaces.questions.trials import factor_name
from pgpaces.report.escape import line as shown

PANELS_MAX = 6
# What has charts side by side rather than lines in one.
_SIDE = ("server", "target", "variant")
LOG_FROM = 20
# Letters that fit side by side below a chart.
_NAMES_MAX = LABELED_WIDTH // 8
_TICKS_MAX = 7


class Panel(Struct, frozen=True):
    """Lines that share a chart. name: what they have in common and others have not."""

    name: str
    lines: tuple[Line, ...]
    legend: str


def panels(page: Page) -> tuple[tuple[Panel, ...], int]:
    """The lines as charts side by side, and how many charts were left out.

    The legend has the levels of one factor; of the others each combination has a chart of its own:
    what one compares by eye first (a server, a target, a variant), else what has fewest levels.
    """
    along = _along(page)
    others = [factor for factor in page.factors if factor != along]
    legend = _legend(others)
    groups: dict[tuple[tuple[str, str], ...], list[Line]] = {}
    for line in crossing.lines(page.rows, along.name) if along else page.lines:
        rest = tuple(pair for pair in line.levels if pair[0] != legend)
        groups.setdefault(rest, []).append(line)
    parts = [
        Panel(words.line_name(Line(rest, ())), tuple(group[at : at + SERIES_MAX]), legend)
        for rest, group in groups.items()
        for at in _steps(group)
    ]
    return tuple(parts[:PANELS_MAX]), max(0, len(parts) - PANELS_MAX)


def _along(page: Page) -> Factor | None:
    """The factor along the axis: the main one; without one (all are names) that of most levels."""
    return page.main or max(page.factors, key=lambda each: len(each.levels), default=None)


def _legend(others: Sequence[Factor]) -> str:
    """The factor whose levels are the lines of a chart."""
    if not others:
        return ""
    side = [factor for name in _SIDE for factor in others if factor.name == name]
    beside = side[0] if side else min(others, key=lambda factor: len(factor.levels))
    rest = [factor for factor in others if factor != beside] or [beside]
    able = [factor for factor in rest if len(factor.levels) <= SERIES_MAX] or rest
    return max(able, key=lambda factor: len(factor.levels)).name


def _steps(lines: Sequence[Line]) -> range:
    return range(0, len(lines), SERIES_MAX)


def line_label(line: Line, panel: Panel) -> str:
    """What the legend calls a line: its level of the factor that is the legend's title."""
    return shown(dict(line.levels).get(panel.legend, "")) or "all"


class MainAxis(Struct, frozen=True):
    """The axis of the main factor. step: between numbers; 0 where levels are names."""

    factor: Factor | None
    title: str
    unit: float
    step: float
    log: bool

    def place(self, row: Row) -> float | str:
        """Where a row stands."""
        level = crossing.level_of(row, self.factor.name) if self.factor else ""
        if not self.step:
            return shown(level) or "all"
        return (crossing.quantity(level) or 0.0) / self.unit

    def aside(self, row: Row, part: float) -> float | str:
        """The same, a little aside so that lines do not hide each other; part: -0.5 to 0.5."""
        place = self.place(row)
        if isinstance(place, str):
            return place
        return place * (1 + self.step * part) if self.log else place + self.step * part

    def axis(self, rows: Iterable[Row]) -> Axis:
        """The horizontal axis of a chart of these rows."""
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
    """An axis of names; those that would touch each other, or `most` of them, stand aslant."""
    found = tuple(names)
    return Axis(title, found, aslant=sum(map(len, found)) > _NAMES_MAX or len(found) >= most)


def axis_of(page: Page) -> MainAxis:
    """The axis of all charts over the main factor."""
    if page.main is None:
        factor = _along(page)
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
    """What the axis counts in: the unit of the first level that has one."""
    for level in levels:
        unit = level.lstrip("+-0123456789.eE ").replace(" ", "") or level.lstrip("+-0123456789. ")
        if unit.startswith("/"):
            return 1.0, ", 1/s"
        if unit and (size := crossing.quantity(f"1{unit}")):
            return size, f", {unit}"
    return 1.0, ""


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Where a logarithmic axis has numbers: at 1, 2 and 5 times powers of ten, or fewer."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        every = [step * 10.0**power for power in powers for step in steps]
        found = tuple(value for value in every if low <= value <= high)
        if len(found) <= _TICKS_MAX:
            break
    return found
