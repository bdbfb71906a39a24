"""The charts of a search: capacity and its price by level, and the missed share by load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from pgpaces.analysis.capacity import value, words
from pgpaces.analysis.capacity.center import bracket, curve
from pgpaces.analysis.capacity.goal import TrialPoint
from pgpaces.analysis.capacity.trials import ROLES, CellSearch
from pgpaces.analysis.capacity.value import Capacities, Holds
from pgpaces.analysis.digest import Digest
from pgpaces.answers.sweep.axes import along
from pgpaces.answers.trials import cell_name, factor_name, levels_alone
from pgpaces.core.metrics import header
from pgpaces.show.charts import SERIES_MAX, Datum, amounts, names, series
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, estimate_texts, percent, rate
from pgpaces.show.section import Figure, figure
from pgpaces.spec.design import Cell, Factor, level_text

_KEY = "capacity"
_CELLS_MAX = 6
# Charts of at most this number of values have a text for each.
_NAMED_MAX = 8
# Short trials farther from the others than this factor are not drawn.
_FAR = 1.35
# Numbers that are closer together than this have an axis that does not begin at 0.
_NEAR = 0.7
_CLOSE: dict[str, Any] = {"zero": False, "padding": 20}
_NUMBERS = ("low", "value", "high", "over", "under")
# The distance between series at a level, in pixels.
_SHIFT = 12.0
# Of the axis of shares: multiples of the decade of the threshold.
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


def _by_level(answer: Capacities, factors: Sequence[Factor]) -> Iterator[Figure]:
    unit = answer.cells[0].unit
    if all(each.passes is None and each.fails is None for each in answer.cells):
        return
    about = (
        f"capacity of each cell, {unit}: bars go from the highest pass to the lowest fail, dots"
        " are estimates, a triangle is an unknown end"
    )
    columns = ("cell", "passes up to", "fails from", "estimate", "95% interval")
    main = along(factors)
    rows = [(each, _level(each)) for each in answer.cells]
    yield from _over(
        rows, factors, key=f"{_KEY}-by-level", about=about, columns=columns, axis=f"passes, {unit}",
        title=f"Capacity by {shown(factor_name(main.name)) if main else 'cell'}",
    )  # fmt: skip


def _prices(answer: Capacities, factors: Sequence[Factor]) -> Iterator[Figure]:
    """The cost of a million transactions, if known for two cells, in one currency."""
    priced = [(each, each.worth) for each in answer.cells if each.worth and each.worth.per_million]
    currencies = {worth.currency for _, worth in priced if worth}
    if len(priced) < 2 or len(currencies) > 1:
        return
    per = f"{currencies.pop()} per million"
    rows: list[tuple[Holds, Datum]] = []
    for each, worth in priced:
        if worth and worth.per_million:
            price, text = worth.per_million, rate(worth.per_million)
            texts = (_name(each), text)
            rows.append((each, {"value": price, "top": price, "text": text, "texts": texts}))
    about = f"{per} transactions at the highest load that passes, of a month's cost"
    yield from _over(
        rows, factors, key=f"{_KEY}-price", about=about, columns=("cell", per),
        axis=per, title="What a million transactions cost",
    )  # fmt: skip


def _name(holds: Holds) -> str:
    return cell_name(Cell(tuple(holds.levels.items())))


def _level(holds: Holds) -> Datum:
    """The row of a cell. top: the place of its text. over, under: the known end of an open bar."""
    low, high = holds.passes, holds.fails
    text, ends = estimate_texts(holds.estimate, rate)
    at = holds.estimate.value if holds.estimate else None
    if at is not None and ((low or 0.0) > at or (high is not None and high < at)):
        at = None
    passes, fails = (NOT_KNOWN if each is None else rate(each) for each in (low, high))
    row: Datum = {"texts": (_name(holds), passes, fails, text, ends)}
    if low is not None and high is not None:
        row |= {"low": low, "high": high, "text": f"{rate(low)}–{rate(high)}"}
    elif low is not None:
        row |= {"over": max(low, at or low), "text": f"over {rate(low)}"}
    elif high is not None:
        row |= {"under": min(high, at or high), "text": f"under {rate(high)}"}
    known = [each for each in (low, at, high) if each is not None]
    return row | ({} if at is None else {"value": at}) | ({"top": max(known)} if known else {})


def _over(
    cells: Sequence[tuple[Holds, Datum]],
    factors: Sequence[Factor],
    *,
    axis: str,
    key: str,
    **more: Any,
) -> Iterator[Figure]:
    """Charts over the main factor; its table is in the first one, and the others are series."""
    main = along(factors)
    if main is None:
        return
    others = [factor for factor in factors if factor != main]
    rows: dict[str, list[Datum]] = {}
    for holds, row in cells:
        own = {each.name: holds.levels.get(each.name, NOT_KNOWN) for each in factors}
        name = shown(levels_alone((each.name, own[each.name]) for each in others)) or "all"
        place = {"x": shown(level_text(own[main.name])), "series": name, "valid": True}
        rows.setdefault(name, []).append({**row, **place})
    legend = shown(factor_name(others[0].name)) if len(others) == 1 else ""
    for start in range(0, len(rows), SERIES_MAX):
        part = list(rows)[start : start + SERIES_MAX]
        drawn = [
            {**row, "shift": _SHIFT * (number - (len(part) - 1) / 2)}
            for number, name in enumerate(part)
            for row in rows[name]
        ]
        ends = [row[name] for row in drawn for name in _NUMBERS if name in row] or [0.0, 1.0]
        yield figure(
            key if not start else f"{key}-{start // SERIES_MAX + 1}",
            data=drawn,
            template="factor",
            x=names(shown(factor_name(main.name)), [shown(level_text(e)) for e in main.levels]),
            # From 0, unless the values are too close together to tell them apart.
            y=amounts(
                shown(axis),
                **({"domainMax": 1.1 * max(ends)} if min(ends) < _NEAR * max(ends) else _CLOSE),
            ),
            **series(part, legend),
            thick=7,
            open=True,
            named=len(drawn) <= _NAMED_MAX,
            **more,
        )


def _trials(search: CellSearch, number: int, factors: Sequence[Factor]) -> Figure:
    """The missed share at each load. number: of the cell; 0 for the only one."""
    names = {factor.name for factor in factors}
    levels = tuple(pair for pair in search.cell.levels if pair[0] in names)
    where = f", {cell_name(Cell(levels))}" if levels else ""
    every = [(digest, point) for digest, point in search.trials if point.possible]
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
    rows, encodings = _drawn(search, near)
    return figure(
        f"{_KEY}-trials" + (f"-{number}" if number else ""),
        f"Missed at each load{where}",
        f"each dot is a trial, a hollow one is invalid{legend}{more}",
        columns=("run", "for", "load", header("missed"), "valid"),
        data=[*(_trial(digest, point, near) for digest, point in every), *rows],
        template="capacity",
        **encodings,
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


def _trial(digest: Digest, point: TrialPoint, near: Sequence[TrialPoint]) -> Datum:
    """The row of a trial, with a place in the chart if it is near the others."""
    missed = percent(point.share) if point.due else NOT_KNOWN
    name, valid = ROLES[point.role], "yes" if point.valid else "no"
    return {
        "series": name,
        "valid": point.valid,
        "texts": (digest.trial.id[-8:], name, f"{point.load:.6g}", missed, valid),
        **({"x": point.load, "value": 100 * point.share} if point in near else {}),
    }


def _drawn(search: CellSearch, points: Sequence[TrialPoint]) -> tuple[list[Datum], dict[str, Any]]:
    """The rows of the curve with its band, the threshold, and the bounds; and the encodings."""
    goal, theta = search.goal, 100 * search.goal.missed_max
    limit = f"may miss: {theta:.4g}%"
    ends = (("pass", search.capacity.passes, -1), ("fail", search.capacity.fails, 1))
    bounds = {name: words.safe(end, goal, turn) for name, end, turn in ends if end is not None}
    loads = [*(point.load for point in points), *bounds.values()] or [goal.start]
    rows: list[Datum] = [
        {"x": at.load, "curve": 100 * at.share, "low": 100 * at.low, "high": 100 * at.high}
        for at in curve([point for _, point in search.trials], goal)
        if min(loads) <= at.load <= max(loads)
    ]
    rows.append({"limit": theta, "series": limit})
    for side, load in bounds.items():
        rows.append({"bound": load, "side": side, "text": f"{side} {rate(load)}"})
    top = min(100.0, max([4 * theta, *(140 * point.share for point in points)]))
    scale = 10.0 ** math.floor(math.log10(theta))
    steps = (float(f"{tick * scale:.3g}") for tick in _TICKS)
    ticks = [0.0, *(tick for tick in steps if theta / 10 <= tick <= top)]
    roles = [role for role in ROLES if any(point.role == role for point in points)]
    colors = [_COLORS[role] for role in roles]
    return rows, {
        "x": amounts(f"load, {value.UNITS[goal.load]}", zero=False, nice=False, padding=20),
        # Linear up to a tenth of the threshold, so that 0 has a place.
        "y": amounts("missed, % of due", values=ticks, type="symlog", constant=theta / 10,
                     domain=[0, top], clamp=True, nice=False),
        **series([ROLES[role] for role in roles], "trial", limit=limit, colors=colors),
    }  # fmt: skip


_COLORS = {"coarse": "muted", "fine": "line0", "soak": "line1"}
