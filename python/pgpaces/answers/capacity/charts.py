"""The charts of a search: capacity and its price by level, and the missed share by load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pgpaces.analysis.capacity.answer import Capacity, safely_rounded
from pgpaces.analysis.capacity.curve import ROLES, UNITS, TrialPoint, bracket, drawn_curve
from pgpaces.analysis.capacity.search import CellSearch
from pgpaces.answers.sweep.axes import along
from pgpaces.answers.trials import cell_name, factor_name, levels_alone
from pgpaces.core.messages import message
from pgpaces.core.metrics import axis, header
from pgpaces.show.charts import SERIES_MAX, Datum, amounts, names, series
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, estimate_texts, or_dash, percent, rate
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
_COLORS = {"short": "muted", "long": "line0", "soak": "line1"}


def figures(
    searches: Sequence[CellSearch], cells: Sequence[Capacity], factors: Sequence[Factor]
) -> Iterator[Figure]:
    """For several cells, capacity and price by level; then the trials of each cell."""
    several, main = len(searches) > 1, along(factors)
    if several and any(each.passes is not None or each.fails is not None for each in cells):
        unit, of = f"passes, {cells[0].unit}", shown(factor_name(main.name)) if main else ""
        yield from _over(
            [(each, _bar(each, factors)) for each in cells],
            factors,
            key=f"{_KEY}-by-level",
            title=f"Capacity by {of}",
            about=message("chart-by-level", unit=unit),
            columns=("cell", "passes up to", "fails from", "estimate", "95% interval"),
            unit=unit,
        )
    priced = [(each, each.equivalents) for each in cells if each.equivalents]
    prices = [(each, own.per_million) for each, own in priced if own.per_million]
    currencies = {own.currency for _, own in priced if own.per_million}
    if several and len(prices) > 1 and len(currencies) == 1:
        unit = f"{currencies.pop()} per million"
        rows: list[tuple[Capacity, Datum]] = []
        for each, price in prices:
            texts = cell_label(each.levels, factors), rate(price)
            rows.append((each, {"value": price, "top": price, "text": texts[1], "texts": texts}))
        yield from _over(
            rows,
            factors,
            key=f"{_KEY}-price",
            title="What a million transactions cost",
            about=message("chart-price", unit=unit),
            columns=("cell", unit),
            unit=unit,
        )
    for number, search in enumerate(searches[:_CELLS_MAX], 1):
        if any(point.possible for _, point in search.trials):
            yield _trials(search, number if several else 0, factors)


def cell_label(levels: Mapping[str, str], factors: Sequence[Factor]) -> str:
    return cell_name(Cell(tuple((f.name, levels[f.name]) for f in factors if f.name in levels)))


def _bar(capacity: Capacity, factors: Sequence[Factor]) -> Datum:
    """The row of a cell. top: the place of its text. over, under: the known end of an open bar."""
    low, high = capacity.passes, capacity.fails
    at = capacity.estimate.value if capacity.estimate else None
    if at is not None and ((low or 0.0) > at or (high is not None and high < at)):
        at = None
    ends = [or_dash(each, rate) for each in (low, high)]
    texts = cell_label(capacity.levels, factors), *ends, *estimate_texts(capacity.estimate, rate)
    row: Datum = {"texts": texts}
    if low is not None and high is not None:
        row |= {"low": low, "high": high, "text": f"{ends[0]}–{ends[1]}"}
    elif low is not None:
        row |= {"over": max(low, at or low), "text": f"over {ends[0]}"}
    elif high is not None:
        row |= {"under": min(high, at or high), "text": f"under {ends[1]}"}
    known = [each for each in (low, at, high) if each is not None]
    return row | ({} if at is None else {"value": at}) | ({"top": max(known)} if known else {})


def _over(
    cells: Sequence[tuple[Capacity, Datum]],
    factors: Sequence[Factor],
    *,
    key: str,
    unit: str,
    **texts: Any,
) -> Iterator[Figure]:
    """Charts over the main factor; its table is in the first one, and the others are series."""
    main = along(factors)
    if main is None:
        return
    others = [factor for factor in factors if factor != main]
    rows: dict[str, list[Datum]] = {}
    for capacity, row in cells:
        own = {each.name: capacity.levels.get(each.name, NOT_KNOWN) for each in factors}
        name = shown(levels_alone((each.name, own[each.name]) for each in others)) or "all"
        place = {"x": shown(level_text(own[main.name])), "series": name, "valid": True}
        rows.setdefault(name, []).append({**row, **place})
    legend = shown(factor_name(others[0].name)) if len(others) == 1 else ""
    name = shown(factor_name(main.name))
    for start in range(0, len(rows), SERIES_MAX):
        part = list(rows)[start : start + SERIES_MAX]
        drawn = [
            {**row, "shift": _SHIFT * (number - (len(part) - 1) / 2)}
            for number, each in enumerate(part)
            for row in rows[each]
        ]
        ends = [row[each] for row in drawn for each in _NUMBERS if each in row] or [0.0, 1.0]
        # From 0, unless the values are too close together to tell them apart.
        near = {"domainMax": 1.1 * max(ends)} if min(ends) < _NEAR * max(ends) else _CLOSE
        yield figure(
            f"{key}-{start // SERIES_MAX + 1}" if start else key,
            data=drawn,
            template="factor",
            x=names(name, [shown(level_text(each)) for each in main.levels]),
            y=amounts(shown(unit), **near),
            **texts,
            **series(part, legend),
            thick=7,
            open=True,
            named=len(drawn) <= _NAMED_MAX,
        )


def _trials(search: CellSearch, number: int, factors: Sequence[Factor]) -> Figure:
    """The missed share at each load. number: of the cell; 0 for the only one."""
    goal, theta = search.goal, 100 * search.goal.missed_max
    every = [(digest, point) for digest, point in search.trials if point.possible]
    points = [point for _, point in every if point.due]
    near = _near(points, search)
    limit = f"may miss: {theta:.4g}%"
    rows: list[Datum] = [
        {
            "series": point.role,
            "valid": point.valid,
            "texts": (
                digest.trial.id[-8:],
                point.role,
                f"{point.load:.6g}",
                percent(point.share) if point.due else NOT_KNOWN,
                "yes" if point.valid else "no",
            ),
            **({"x": point.load, "value": 100 * point.share} if point in near else {}),
        }
        for digest, point in every
    ]
    ends = {"pass": (search.capacity.passes, -1), "fail": (search.capacity.fails, 1)}
    bounds = {side: safely_rounded(end, goal.whole, turn) for side, (end, turn) in ends.items()}
    known = {side: end for side, end in bounds.items() if end is not None}
    loads = [*(point.load for point in near), *known.values()] or [goal.start]
    drawn = drawn_curve([point for _, point in search.trials], goal)
    rows += [
        {"x": at.load, "curve": 100 * at.share, "low": 100 * at.low, "high": 100 * at.high}
        for at in drawn
        if min(loads) <= at.load <= max(loads)
    ]
    rows.append({"limit": theta, "series": limit})
    rows += [
        {"bound": load, "side": side, "text": f"{side} {rate(load)}"}
        for side, load in known.items()
    ]
    top = min(100.0, max([4 * theta, *(140 * point.share for point in near)]))
    scale = 10.0 ** math.floor(math.log10(theta))
    steps = (float(f"{tick * scale:.3g}") for tick in _TICKS)
    ticks = [0.0, *(tick for tick in steps if theta / 10 <= tick <= top)]
    roles = [role for role in ROLES if any(point.role == role for point in near)]
    where = f", {cell_label(dict(search.cell.levels), factors)}" if factors else ""
    about = message("chart-trials-dots", left=len(points) - len(near))
    if drawn:
        about = message("chart-trials-quick" if goal.quick else "chart-trials-long", dots=about)
    return figure(
        f"{_KEY}-trials" + (f"-{number}" if number else ""),
        f"Missed at each load{where}",
        about,
        columns=("run", "for", "load", header("missed"), "valid"),
        data=rows,
        template="capacity",
        x=amounts(f"load, {UNITS[goal.load]}", zero=False, nice=False, padding=20),
        # Linear up to a tenth of the threshold, so that 0 has a place.
        y=amounts(
            axis("missed"),
            values=ticks,
            type="symlog",
            constant=theta / 10,
            domain=[0, top],
            clamp=True,
            nice=False,
        ),
        **series(
            roles,
            "trial",
            limit=limit,
            colors=[_COLORS[role] for role in roles],
        ),
    )


def _near(points: Sequence[TrialPoint], search: CellSearch) -> list[TrialPoint]:
    """The points that are drawn: all long trials, and short ones at similar loads."""
    long = [point.load for point in points if point.role != "short"]
    long = long or [end for end in bracket(points, search.goal) if end is not None]
    if not long:
        return list(points)
    low, high = min(long) / _FAR, max(long) * _FAR
    return [point for point in points if low <= point.load <= high]
