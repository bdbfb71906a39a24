"""What charts share: figures, axes, groups of lines and their legends, as Vega-Lite wants them.

Each figure has a table of the numbers that it shows, for who cannot or does not want to see it.
Texts of others get into a specification as data only, never as an expression.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pgpaces.answers import crossing
from pgpaces.answers.cells import Row
from pgpaces.answers.crossing import Line
from pgpaces.design import Factor
from pgpaces.questions.sweep import words
from pgpaces.questions.sweep.page import Page
from pgpaces.report.escape import line as shown
from pgpaces.report.look import NUMBER, SHAPES, WIDTH, Look

LINES_MAX = len(SHAPES)
PANELS_MAX = 6
# What has charts side by side rather than lines in one.
_SIDE = ("server", "target", "variant")
LOG_FROM = 20
# Letters that fit side by side below a chart.
_NAMES_MAX = (WIDTH - 80) // 8


@dataclass(frozen=True, slots=True)
class Panel:
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
        Panel(words.line_name(Line(rest, ())), tuple(group[at : at + LINES_MAX]), legend)
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
    able = [factor for factor in rest if len(factor.levels) <= LINES_MAX] or rest
    return max(able, key=lambda factor: len(factor.levels)).name


def _steps(lines: Sequence[Line]) -> range:
    return range(0, len(lines), LINES_MAX)


def line_label(line: Line, panel: Panel) -> str:
    """What the legend calls a line: its level of the factor that is the legend's title."""
    return shown(dict(line.levels).get(panel.legend, "")) or "all"


@dataclass(frozen=True, slots=True)
class Axis:
    """The horizontal axis: the main factor. step: between numbers; 0 where levels are names."""

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

    def encoding(self, rows: Iterable[Row]) -> dict[str, Any]:
        """As Vega-Lite wants it."""
        if not self.step:
            levels = list(dict.fromkeys(str(self.place(row)) for row in rows))
            # Names that would touch each other stand aslant: none is left out.
            level = sum(map(len, levels)) <= _NAMES_MAX and len(levels) < 6
            axis: dict[str, Any] = {
                "title": self.title,
                "labelAngle": 0 if level else -40,
                "labelOverlap": False,
            }
            return {"field": "x", "type": "nominal", "sort": levels, "axis": axis}
        places = sorted({float(self.place(row)) for row in rows})
        low, high = places[0], places[-1]
        room = self.step / 2 if not self.log else 0.0
        domain = [low * 0.93, high * 1.07] if self.log else [low - room, high + room]
        scale: dict[str, Any] = {
            "type": "log" if self.log else "linear",
            "domain": domain,
            "nice": False,
        }
        if not self.log:
            scale["zero"] = False
        axis = {"title": self.title, "values": places, "format": NUMBER}
        return {"field": "x", "type": "quantitative", "scale": scale, "axis": axis}


def axis_of(page: Page) -> Axis:
    """The axis of all charts over the main factor."""
    if page.main is None:
        factor = _along(page)
        title = shown(words.factor_name(factor.name)) if factor else ""
        return Axis(factor, title, 1.0, 0.0, False)
    name, levels = page.main.name, page.main.levels
    unit, suffix = _unit(levels)
    places = sorted((crossing.quantity(level) or 0.0) / unit for level in levels)
    log = places[0] > 0 and places[-1] / places[0] >= LOG_FROM
    pairs = list(itertools.pairwise(places))
    step = min(b / a for a, b in pairs) - 1 if log else min(b - a for a, b in pairs)
    title = f"{shown(words.factor_name(name))}{suffix}"
    room = 1.0 if log else (places[-1] - places[0]) * 0.2
    return Axis(page.main, title, unit, min(step, room), log)


def _unit(levels: Sequence[str]) -> tuple[float, str]:
    """What the axis counts in: the unit of the first level that has one."""
    for level in levels:
        unit = level.lstrip("+-0123456789.eE ").replace(" ", "") or level.lstrip("+-0123456789. ")
        if unit.startswith("/"):
            return 1.0, ", 1/s"
        if unit and (size := crossing.quantity(f"1{unit}")):
            return size, f", {unit}"
    return 1.0, ""


def legend_height(names: Sequence[str]) -> int:
    """What a legend at the bottom takes, so that plots stay equally high."""
    return 0 if len(names) < 2 else 34 + 16 * math.ceil(len(names) / legend_columns(names))


def legend_columns(names: Sequence[str]) -> int:
    """As many columns as fit."""
    longest = max((len(name) for name in names), default=0)
    return max(1, min(len(names), 4, (WIDTH - 60) // (40 + 7 * longest)))


def line_encoding(names: Sequence[str], panel: Panel, look: Look) -> dict[str, Any]:
    """Colour and shape of lines, with one legend for both."""
    title = shown(words.factor_name(panel.legend)) if panel.legend else None
    legend = {"title": title, "columns": legend_columns(names)} if len(names) > 1 else None
    found = {}
    for channel, values in (("color", look.lines), ("shape", SHAPES)):
        scale = {"domain": list(names), "range": list(values[: len(names)])}
        found[channel] = {"field": "line", "type": "nominal", "scale": scale, "legend": legend}
    return found
