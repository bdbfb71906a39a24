"""The charts of a search: capacity and its price by level, and the missed share by load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pgpaces.analysis.capacity import value, words
from pgpaces.analysis.capacity.center import bracket, curve
from pgpaces.analysis.capacity.goal import TrialPoint
from pgpaces.analysis.capacity.rule import Drawn
from pgpaces.analysis.capacity.trials import ROLES, CellSearch
from pgpaces.analysis.capacity.value import Capacities, Holds
from pgpaces.answers.sweep.axes import along, axis_of_names
from pgpaces.answers.trials import cell_name, factor_name, levels_alone
from pgpaces.core.metrics import header
from pgpaces.show.chart import (
    SERIES_MAX,
    Axis,
    Chart,
    Layer,
    Point,
    Series,
    bound,
    number_at,
    series,
)
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, estimate_texts, percent, rate
from pgpaces.show.section import Figure
from pgpaces.spec.design import Cell, Factor, level_text

_KEY = "capacity"
_HEIGHT = 230
_CELLS_MAX = 6
# Charts of at most this number of values have a text for each.
_NAMED_MAX = 8
# Short trials farther from the others than this factor are not drawn.
_FAR = 1.35
# A label above the threshold reaches up to this multiple of it.
_LABEL_HIGH = 2.5
_TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


def figures(
    searches: Sequence[CellSearch], answer: Capacities, factors: Sequence[Factor]
) -> Iterator[Figure]:
    """For several cells, capacity and price by level; then the trials of each cell."""
    if len(searches) > 1:
        yield from _by_level(answer, factors)
        yield from _prices(answer, factors)
    for number, each in enumerate(searches[:_CELLS_MAX], 1):
        if any(point.possible for _, point in each.trials):
            yield _trials(each, number if len(searches) > 1 else 0, factors)


def _values(level: Point) -> list[float]:
    """The numbers of a cell: its dot and its ends, as far as they are known."""
    return [number_at(each) for each in (level.low, level.y, level.high) if each is not None]


def _by_level(answer: Capacities, factors: Sequence[Factor]) -> Iterator[Figure]:
    unit = answer.cells[0].unit
    if all(each.passes is None and each.fails is None for each in answer.cells):
        return
    about = (
        f"capacity of each cell, {unit}: bars go from the highest pass to the lowest fail, dots"
        " are estimates, a triangle is an unknown end"
    )
    rows = tuple((_name(each), *_row(each)) for each in answer.cells)
    levels = [(each, _level_of(each)) for each in answer.cells]
    columns = ("cell", "passes up to", "fails from", "estimate", "95% interval")
    for part, chart in enumerate(_charts(levels, factors, f"passes, {unit}"), 1):
        key, title = f"{_KEY}-by-level{_part(part)}", f"Capacity by {chart.x.title}"
        yield Figure(key, title, about, columns, rows, (chart,))


def _prices(answer: Capacities, factors: Sequence[Factor]) -> Iterator[Figure]:
    """The cost of a million transactions, if known for two cells, in one currency."""
    priced = [(each, each.worth) for each in answer.cells if each.worth and each.worth.per_million]
    currencies = {worth.currency for _, worth in priced if worth}
    if len(priced) < 2 or len(currencies) > 1:
        return
    currency = currencies.pop()
    levels = [
        (each, Point(y=worth.per_million, text=rate(worth.per_million)))
        for each, worth in priced
        if worth and worth.per_million
    ]
    rows = tuple((_name(each), level.text) for each, level in levels)
    title, per = "What a million transactions cost", f"{currency} per million"
    about = (
        f"{currency} for a million transactions at the highest load that passes, of a month's cost"
    )
    for part, chart in enumerate(_charts(levels, factors, per), 1):
        key = f"{_KEY}-price{_part(part)}"
        yield Figure(key, title, about, ("cell", per), rows, (chart,))


def _part(number: int) -> str:
    return f"-{number}" if number > 1 else ""


def _name(holds: Holds) -> str:
    return cell_name(Cell(tuple(holds.levels.items())))


def _row(holds: Holds) -> Iterator[str]:
    yield from (NOT_KNOWN if end is None else rate(end) for end in (holds.passes, holds.fails))
    yield from estimate_texts(holds.estimate, rate)


def _level_of(holds: Holds) -> Point:
    """A cell, in no place yet. y: the dot; low, high: None for an open end."""
    low, high = holds.passes, holds.fails
    at = holds.estimate.value if holds.estimate else None
    if at is not None and ((low or 0.0) > at or (high is not None and high < at)):
        at = None
    if low is not None and high is not None:
        text = f"{rate(low)}–{rate(high)}"
    else:
        text = f"over {rate(low)}" if low is not None else f"under {rate(high)}" if high else ""
    return Point(y=at, low=low, high=high, text=text)


def _charts(
    cells: Sequence[tuple[Holds, Point]], factors: Sequence[Factor], axis: str
) -> Iterator[Chart]:
    main = along(factors)
    if main is None:
        return
    others = [factor for factor in factors if factor != main]
    every: dict[str, list[Point]] = {}
    for holds, level in cells:
        own = {each.name: holds.levels.get(each.name, NOT_KNOWN) for each in factors}
        name = shown(levels_alone((each.name, own[each.name]) for each in others)) or "all"
        placed = replace(level, x=shown(level_text(own[main.name])), series=name)
        every.setdefault(name, []).append(placed)
    legend = shown(factor_name(others[0].name)) if len(others) == 1 else ""
    names, order = list(every), [shown(level_text(level)) for level in main.levels]
    x = axis_of_names(shown(factor_name(main.name)), order, 9)
    for start in range(0, len(names), SERIES_MAX):
        part = names[start : start + SERIES_MAX]
        levels = [one for name in part for one in every[name]]
        y = _from_zero(shown(axis), levels)
        yield Chart(x, y, tuple(_layers(levels)), series(part), legend, height=_HEIGHT)


def _layers(levels: Sequence[Point]) -> Iterator[Layer]:
    """Intervals, estimates, and triangles at open ends."""
    whole = [one for one in levels if one.low is not None and one.high is not None]
    yield Layer("rule", tuple(replace(one, y=None) for one in whole), size=7, opacity=0.4)
    yield Layer("point", tuple(Point(one.x, one.y, series=one.series) for one in levels
                               if one.y is not None))  # fmt: skip
    lows = [one for one in levels if one.low is not None and one.high is None]
    highs = [one for one in levels if one.high is not None and one.low is None]
    for shape, open_levels in (("triangle-up", lows), ("triangle-down", highs)):
        points = tuple(Point(one.x, _values(one)[-1 if one.low is None else 0], series=one.series)
                       for one in open_levels)  # fmt: skip
        yield Layer("point", points, shape=shape, size=90)
    if len(levels) <= _NAMED_MAX:
        bounded = [one for one in levels if _values(one)]
        above = tuple(replace(one, y=max(_values(one))) for one in bounded)
        yield Layer("text", above, "ink", dy=-11)


def _from_zero(title: str, levels: Sequence[Point]) -> Axis:
    """An axis from 0, unless the values are too close together to tell them apart."""
    ends = [end for one in levels for end in _values(one)]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    if low < 0.7 * high:
        return Axis(title, ends=(0.0, 1.1 * high), zero=True)
    room = max(0.25 * (high - low), 0.02 * high)
    return Axis(title, ends=(low - room, high + 1.6 * room))


def _trials(search: CellSearch, number: int, factors: Sequence[Factor]) -> Figure:
    """The missed share at each load. number: of the cell; 0 for the only one."""
    names = {factor.name for factor in factors}
    levels = tuple(pair for pair in search.cell.levels if pair[0] in names)
    where = f", {cell_name(Cell(levels))}" if levels else ""
    every = [(digest, point) for digest, point in search.trials if point.possible]
    rows = tuple(
        (
            digest.trial.id[-8:],
            ROLES[point.role],
            f"{point.load:.6g}",
            percent(point.share) if point.due else NOT_KNOWN,
            "yes" if point.valid else "no",
        )
        for digest, point in every
    )
    points = [point for _, point in every if point.due]
    near = _near(points, search)
    left = len(points) - len(near)
    more = f"; {left} more at loads far away are in the table" if left else ""
    which, quick = ("all", ", and in a quick search by 15%") if search.goal.quick else ("long", "")
    legend = "" if not curve(points, search.goal) else (
        f"; the curve is the mean share that {which} trials tell: where its band's upper edge"
        " crosses the threshold is the highest pass, where the lower one does is the lowest fail,"
        f" or further out if a load's own trials say otherwise{quick}"
    )  # fmt: skip
    return Figure(
        f"{_KEY}-trials" + (f"-{number}" if number else ""),
        f"Missed at each load{where}",
        f"each dot is a trial, a hollow one is invalid{legend}{more}",
        ("run", "for", "load", header("missed"), "valid"),
        rows,
        (_chart(search, near),),
    )


def _near(points: Sequence[TrialPoint], search: CellSearch) -> list[TrialPoint]:
    """The points that are drawn: all long trials, and short ones at similar loads."""
    long = [point.load for point in points if point.role != "coarse"]
    if not long:
        long = [end for end in bracket(points, search.goal) if end is not None]
    if not long:
        return list(points)
    low, high = min(long) / _FAR, max(long) * _FAR
    return [point for point in points if low <= point.load <= high]


def _chart(search: CellSearch, points: Sequence[TrialPoint]) -> Chart:
    goal, capacity = search.goal, search.capacity
    theta = 100 * goal.missed_max
    band = curve([point for _, point in search.trials], goal)
    bounds = [
        (name, words.safe(end, goal, turn))
        for name, end, turn in (("pass", capacity.passes, -1), ("fail", capacity.fails, 1))
        if end is not None
    ]
    loads = [*(point.load for point in points), *(end for _, end in bounds)] or [goal.start]
    room = 0.06 * (max(loads) - min(loads)) or 0.1 * loads[0]
    ends = (min(loads) - room, max(loads) + room)
    top = min(100.0, max([4 * theta, *(140 * point.share for point in points)]))
    scale = 10.0 ** math.floor(math.log10(theta))
    every = {tick * factor for tick in _TICKS for factor in (scale, 10 * scale)}
    shown = (float(f"{tick:.3g}") for tick in every if theta / 10 <= tick <= 100)
    ticks = (0.0, *sorted(tick for tick in shown if tick <= top))
    roles = [role for role in ROLES if any(point.role == role for point in points)]
    # The label of the threshold's line is at the side at which no trial lies on it.
    near = [each.load for each in points if theta <= 100 * each.share <= _LABEL_HIGH * theta]
    left, right = min(near, default=ends[1]) - ends[0], ends[1] - max(near, default=ends[0])
    return Chart(
        Axis(f"load, {value.UNITS[goal.load]}", ends=ends, ticks=6),
        # Linear up to a tenth of the threshold, so that 0 has a place.
        Axis("missed, % of due", scale="symlog", constant=theta / 10, ends=(0.0, top), ticks=ticks),
        (
            *_curve(band, ends, top),
            Layer("point", tuple(_trial(point) for point in points), size=46),
            *bound(theta, f"may miss: {theta:.4g}%", "left" if left >= right else "right"),
            *(layer for name, load in bounds for layer in _bound(name, load)),
        ),
        tuple(Series(ROLES[role], *_ROLE_STYLES[role]) for role in roles),
        "trial",
        height=_HEIGHT + 20,
    )


_ROLE_STYLES = {
    "coarse": ("muted", "circle"),
    "fine": ("line0", "square"),
    "soak": ("line1", "diamond"),
}


def _trial(point: TrialPoint) -> Point:
    return Point(point.load, 100 * point.share, series=ROLES[point.role], filled=point.valid)


def _curve(band: Sequence[Drawn], ends: tuple[float, float], top: float) -> Iterator[Layer]:
    """The part of the curve and its band within the axes."""
    points = [
        Point(at.load, 100 * at.share, low=100 * at.low, high=min(top, 100 * at.high))
        for at in band
        if ends[0] <= at.load <= ends[1]
    ]
    area = tuple(point for point in points if (point.low or 0.0) <= top)
    yield Layer("area", area, "line0", opacity=0.16)
    line = tuple(Point(at.x, at.y) for at in points if isinstance(at.y, float) and at.y <= top)
    yield Layer("line", line, "line0", size=1.6)


def _bound(name: str, load: float) -> Iterator[Layer]:
    """The highest pass or the lowest fail as a line, labeled at the top."""
    at = (Point(load, text=f"{name} {rate(load)}"),)
    yield Layer("rule", at, "ink", size=1.2)
    if name == "pass":
        yield Layer("text", at, "ink", edge="top", align="right", dx=-4)
    else:
        yield Layer("text", at, "ink", edge="top", align="left", dx=4)
