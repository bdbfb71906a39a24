"""The capacity of each cell of a search: its screen, values, tables, and chart of trials."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pgpaces.analysis.capacity.answer import (
    SOAK_MIN_S,
    Capacities,
    Capacity,
    Equivalents,
    LoadVerdict,
    highest,
    safely_rounded,
)
from pgpaces.analysis.capacity.curve import UNITS, TrialPoint, bracket, drawn_curve, load_text
from pgpaces.analysis.capacity.search import CellSearch
from pgpaces.analysis.goal import Limit, Verdict
from pgpaces.answers.trials import cell_name, factor_name, limits_of
from pgpaces.core import causes
from pgpaces.core.findings import Finding, finding, length, needed
from pgpaces.core.messages import message, said
from pgpaces.core.metrics import axis, header
from pgpaces.show.charts import Datum, amounts, series
from pgpaces.show.numbers import NOT_KNOWN, estimate_cell, or_dash, percent, rate
from pgpaces.show.screen import Screen, bounds
from pgpaces.show.section import (
    Figure,
    Headline,
    Number,
    Section,
    Table,
    TableCell,
    Values,
    figure,
)
from pgpaces.spec.design import Cell, Factor, level_text
from pgpaces.spec.result import Estimate

KEY = "capacity"
SCREEN = Screen(
    first=("soak", "limited by", "equivalent"),
    details=("range", "estimate", "queries", "costs", "per user", "more trials"),
)
# The columns that a narrow terminal omits, in this order.
_SPARE = ("warnings", "limit", "trials", "users")
_RIVALS_MAX = 3
# Loads on the first screen.
_LOADS_MAX = 4
# More long trials than these are not worth their time.
_MORE_MAX = 100
_SOAKS: Mapping[Verdict, str] = {
    "pass": "soak-pass",
    "fail": "soak-fail",
    "unknown": "soak-unknown",
}
_CELLS_MAX = 6
# Short trials farther from the others than this factor are not drawn.
_FAR = 1.35
# Of the axis of shares: multiples of the decade of the threshold.
_TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_BIG = ((1e9, " billion"), (1e6, " million"))


def section(
    searches: Sequence[CellSearch], limits: Mapping[str, Limit | None], stopped: str = ""
) -> Section:
    """The capacity of each cell. limits: the limiting resource, by the key of the cell.

    stopped: why the last loads of a search that is over could not be run.
    """
    cells = tuple(each.answer(limits.get(each.cell.key)) for each in searches)
    answer = Capacities(cells, highest(cells))
    factors = varied([each.cell for each in searches])
    begun = any(each.digests for each in searches)
    values = values_of(cells[0]) if len(searches) == 1 else ()
    head = _headline(answer, factors)
    plans = (digest.trial.plan for each in searches for digest, _ in each.trials)
    limited = list(dict.fromkeys(each for plan in plans for each in limits_of(plan)))
    # The number of a cell in its chart; 0 for the only one.
    numbered = [*enumerate(searches[:_CELLS_MAX], 1)] if len(searches) > 1 else [(0, searches[0])]
    return SCREEN.section(
        head,
        values,
        key=KEY,
        title="Capacity",
        findings=[*_findings(searches, cells, factors, stopped=stopped)] if begun else (),
        main=head.text if begun else message("sweep-not-run"),
        whole=True,
        note=message(
            "capacity-rule",
            missed_percent=100 * searches[0].goal.missed_max,
            limits=limited or None,
        ),
        tables=tuple(_tables(searches, cells, factors)),
        tables_first=True,
        figures=tuple(
            _trials(search, number, factors)
            for number, search in numbered
            if any(point.possible for _, point in search.trials)
        ),
        rows=tuple(_numbers(answer)),
        value=answer,
        trials=tuple(digest.trial.id for each in searches for digest in each.digests),
    )


def _numbers(answer: Capacities) -> Iterator[Number]:
    """The capacity of each cell: the load that passes, the one that fails, and the estimate."""
    for cell in answer.cells:
        own = cell.levels or {"cell": cell.cell}
        ends = {"passes": cell.passes, "fails": cell.fails}
        for of, load in ends.items():
            if load is not None:
                yield Number({**own, "of": of}, "capacity", Estimate.alone(load, cell.trials))
        if cell.estimate is not None:
            yield Number({**own, "of": "estimate"}, "capacity", cell.estimate)


def varied(cells: Sequence[Cell]) -> tuple[Factor, ...]:
    """The factors in which the cells differ, with their levels in order."""
    levels: dict[str, list[str]] = {}
    for cell in cells:
        for name, level in cell.levels:
            levels.setdefault(name, []).append(level)
    distinct = ((name, tuple(dict.fromkeys(own))) for name, own in levels.items())
    return tuple(Factor(name, own) for name, own in distinct if len(own) > 1)


def _headline(answer: Capacities, factors: Sequence[Factor]) -> Headline:
    """The highest load that passes; of several cells that of the best one, if it is certain."""
    first, *others = answer.cells
    fails = all(each.fails is not None and each.passes is None for each in answer.cells)
    if (most := answer.most) is not None:
        names = {each.cell: _label(each.levels, factors) for each in answer.cells}
        [best] = [each for each in answer.cells if each.cell == most.cell]
        rivals = [*map(names.__getitem__, most.rivals[:_RIVALS_MAX])]
        values = {
            "cell": names[most.cell],
            "load": load_text(best.passes or 0.0, best.load),
            "rivals": [*rivals, *(["…"] if len(most.rivals) > _RIVALS_MAX else [])],
        }
        name = "highest-certain" if most.certain else "highest-unknown"
        return Headline("CAPACITY", "", message(name, **values))
    if others:
        return Headline("CAPACITY", "fail" if fails else "unknown", message("capacity-none"))
    text = first.bounds
    if first.goal.quick and first.estimate and (ci := bounds(first.estimate)):
        text = said("capacity-about", unit=first.load, load=first.estimate.value, ci=ci)
    return Headline("CAPACITY", "fail" if fails else "", str(text))


def values_of(capacity: Capacity) -> Values:
    goal, soak = capacity.goal, capacity.soak
    ci = bounds(capacity.estimate)
    if goal.quick and ci is not None:
        yield "range", capacity.bounds
    elif capacity.estimate is not None:
        yield "estimate", said("capacity-estimate", load=capacity.estimate.value, ci=ci)
    if soak is not None:
        verdict = capacity.soak_verdict or "unknown"
        short = verdict == "pass" and goal.soak_s < SOAK_MIN_S
        name, load = "soak-short" if short else _SOAKS[verdict], load_text(soak.load, capacity.load)
        yield "soak", said(name, load=load, soak_s=soak.seconds, missed=soak.share)
    elif capacity.passes is not None and goal.soak_s:
        yield "soak", said("soak-missing")
    if (limit := capacity.limit) is not None:
        evidence = [causes.observed(each) for each in limit.evidence[:1]]
        seen = {"cause": causes.title(limit.key), "share": limit.share.value, "evidence": evidence}
        yield "limited by", said("limited-by-seen" if evidence else "limited-by", **seen)
    if capacity.more:
        name = "more-trials-useful" if capacity.more <= _MORE_MAX else "more-trials-useless"
        yield "more trials", said(name, more=capacity.more)
    if capacity.equivalents is not None:
        yield from _equivalents(capacity.equivalents, capacity)


def _equivalents(other: Equivalents, capacity: Capacity) -> Values:
    money = {"currency": other.currency, "month": other.month, "year": other.year}
    priced = other.month is not None
    values = {
        "load": load_text(other.load, capacity.load),
        "rate": other.rate,
        "day": many(other.per_day),
        "cost": said("equivalent-cost", **money) if priced else "",
    }
    if other.think_s is not None and other.response_s is not None:
        pause, wait = 1e3 * other.think_s, 1e3 * other.response_s
        yield "equivalent", said("equivalent-thinking", pause_ms=pause, wait_ms=wait, **values)
    else:
        name = "equivalent-rate" if capacity.load == "rate" else "equivalent"
        yield "equivalent", said(name, **values)
    if other.queries_per_day not in (None, other.per_day):
        yield "queries", said("equivalent-queries", queries=many(other.queries_per_day or 0))
    if priced:
        yield "costs", said("equivalent-costs", per_million=other.per_million, **money)
    if other.per_user:
        yield "per user", said("equivalent-per-user", per_user=other.per_user, **money)


def many(count: float) -> str:
    """`14.5 million`, `950,000`."""
    size, unit = next(((size, unit) for size, unit in _BIG if count >= size), (1.0, ""))
    return f"{rate(count / size)}{unit}"


def findings_of(capacity: Capacity) -> list[Finding]:
    goal = capacity.goal
    values = {
        "load": load_text(goal.highest, capacity.load),
        "lowest": load_text(goal.lowest, capacity.load),
        "speed_percent": 100 * (capacity.speed_spread or 0),
        "invalid": len(capacity.invalid),
        "trials": capacity.trials,
        "reasons": sorted(set(capacity.invalid)),
    }
    return [Finding(flag, needed(flag, values)) for flag in capacity.flags]


def _findings(
    searches: Sequence[CellSearch],
    cells: Sequence[Capacity],
    factors: Sequence[Factor],
    *,
    stopped: str,
) -> Iterator[Finding]:
    """Whether the search goes on; then the findings of all cells, each once, with its cells."""
    if running := sum(not each.ended for each in searches):
        going = finding("search-running", cells=running)
        yield finding("search-stopped", error=stopped) if stopped else going
    found: dict[str, tuple[Finding, list[str]]] = {}
    for cell in cells:
        for each in findings_of(cell):
            names = found.setdefault(str(each), (each, []))[1]
            names.append(_label(cell.levels, factors))
    for each, names in found.values():
        yield replace(each, about="" if len(names) == len(cells) else "; ".join(names))


# The levels of a row, and its cells by their columns.
Row = tuple[Mapping[str, str], dict[str, TableCell | str]]


def _tables(
    searches: Sequence[CellSearch], cells: Sequence[Capacity], factors: Sequence[Factor]
) -> Iterator[Table]:
    several, quick = len(cells) > 1, cells[0].goal.quick
    if several:
        note, rows = message("capacity-table"), [*map(_of_cell, cells)]
        yield _table("cells", "title-pass-and-fail", factors, rows=rows, brief=True, note=note)
    if several and (priced := [(each, each.equivalents) for each in cells if each.equivalents]):
        note, rows = message("at-highest-pass"), [_of_equivalents(*pair) for pair in priced]
        yield _table("equivalents", "title-equivalent", factors, rows=rows, note=note)
    note = message("loads-by-curve" if quick else "loads-by-own-trials")
    loads = [_of_load(load, each) for each in cells for load in each.loads]
    near = [] if several else [_of_load(load, cells[0]) for load in _near_threshold(cells[0])]
    if near:
        yield _table("loads", "title-near", factors, rows=near, labels=1, brief=True, note=note)
    if len(loads) > len(near):
        yield _table("all-loads", "title-loads-tried", factors, rows=loads, labels=1, folded=True)


def _near_threshold(capacity: Capacity) -> list[LoadVerdict]:
    """The loads of the first screen: the highest pass, the lowest fail, and the nearest ones."""
    loads = capacity.loads
    kept = [each for each in loads if each.verdict == "pass"][-1:]
    kept += [each for each in loads if each.verdict == "fail"][:1]
    middle = capacity.estimate.value if capacity.estimate else capacity.passes or capacity.fails
    near = sorted(loads, key=lambda each: abs(math.log(each.load / (middle or each.load))))
    kept += [each for each in near if each not in kept]
    return [each for each in loads if each in kept[:_LOADS_MAX]]


def _table(
    key: str,
    title: str,
    factors: Sequence[Factor],
    *,
    rows: Sequence[Row],
    labels: int = 0,
    **more: Any,
) -> Table:
    """A table with a column for each factor, and without columns of which nothing is known.

    title: the name of a message.
    """
    cells: list[dict[str, TableCell]] = []
    for levels, row in rows:
        at = {factor_name(f.name): level_text(levels.get(f.name, NOT_KNOWN)) for f in factors}
        texts = {**at, **row}.items()
        cells.append({n: TableCell(each) if isinstance(each, str) else each for n, each in texts})
    known = [name for name in cells[0] if any(row[name].text != NOT_KNOWN for row in cells)]
    return Table(
        f"{KEY}-{key}",
        message(title),
        tuple(known),
        max(1, len(factors) + labels),
        tuple(tuple(row[name] for name in known) for row in cells),
        spare=_SPARE,
        **more,
    )


def _of_cell(capacity: Capacity) -> Row:
    soak, verdict, invalid = capacity.soak, capacity.soak_verdict, len(capacity.invalid)
    at = f"{rate(soak.load)}, {length(soak.seconds)}" if soak else ""
    return capacity.levels, {
        f"passes up to, {capacity.unit}": or_dash(capacity.passes, rate),
        f"fails from, {capacity.unit}": or_dash(capacity.fails, rate),
        "estimate": estimate_cell(capacity.estimate, rate),
        "soak": TableCell(verdict, at, verdict) if verdict else NOT_KNOWN,
        "limit": causes.title(capacity.limit.key) if capacity.limit else NOT_KNOWN,
        "trials": TableCell(str(capacity.trials), f"{invalid} invalid" if invalid else ""),
        "warnings": ", ".join(capacity.flags) or NOT_KNOWN,
    }


def _of_equivalents(capacity: Capacity, other: Equivalents) -> Row:
    return capacity.levels, {
        "1/s": rate(other.rate),
        "users": or_dash(other.users, "{:.0f}".format),
        "transactions a day": many(other.per_day),
        "queries a day": or_dash(other.queries_per_day, many),
        "a month": or_dash(other.month, lambda cost: f"{rate(cost)} {other.currency}"),
        "per million": or_dash(other.per_million, rate),
        "per user": or_dash(other.per_user, rate),
    }


def _of_load(load: LoadVerdict, capacity: Capacity) -> Row:
    """A load that had long trials, by these trials alone; of a quick search each load."""
    ends = "" if capacity.goal.quick else f"{percent(load.low)}–{percent(load.high)}"
    return capacity.levels, {
        capacity.load: rate(load.load),
        header("missed"): TableCell(percent(load.share), ends),
        "trials": str(load.trials),
        "verdict": TableCell(load.verdict, "", load.verdict),
    }


def _label(levels: Mapping[str, str], factors: Sequence[Factor]) -> str:
    return cell_name(Cell(tuple((f.name, levels[f.name]) for f in factors if f.name in levels)))


def _trials(search: CellSearch, number: int, factors: Sequence[Factor]) -> Figure:
    """The missed share at each load."""
    goal, theta = search.goal, 100 * search.goal.missed_max
    every = [(digest, point) for digest, point in search.trials if point.possible]
    points = [point for _, point in every if point.due]
    near = _near(points, search)
    limit, trials = message("chart-may-miss", percent=theta), message("chart-trial")
    rows: list[Datum] = [
        {
            "series": trials,
            "valid": point.valid,
            "texts": (
                digest.trial.id[-8:],
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
    about = message("chart-trials-dots", left=len(points) - len(near))
    if drawn:
        about = message("chart-trials-quick" if goal.quick else "chart-trials-long", dots=about)
    where = f", {_label(dict(search.cell.levels), factors)}" if factors else ""
    return figure(
        f"{KEY}-trials" + (f"-{number}" if number else ""),
        message("chart-missed-at-load", of=where),
        about,
        columns=("run", "load", header("missed"), "valid"),
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
        **series([trials], limit=limit),
    )


def _near(points: Sequence[TrialPoint], search: CellSearch) -> list[TrialPoint]:
    """The points that are drawn: all long trials, and short ones at similar loads."""
    long = [point.load for point in points if point.role != "short"]
    long = long or [end for end in bracket(points, search.goal) if end is not None]
    if not long:
        return list(points)
    low, high = min(long) / _FAR, max(long) * _FAR
    return [point for point in points if low <= point.load <= high]
