"""The capacity of each cell of a search: its screen, values, tables, and chart of trials."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from pgpaces.analysis.capacity.answer import Capacities, Capacity, highest
from pgpaces.analysis.capacity.curve import UNITS, LoadVerdict, load_text
from pgpaces.analysis.capacity.search import CellSearch
from pgpaces.analysis.goal import Limit
from pgpaces.answers.trials import cell_name, level_cells, limits_of
from pgpaces.core import causes
from pgpaces.core.findings import Finding, finding, length
from pgpaces.core.messages import message, said
from pgpaces.core.metrics import axis, header
from pgpaces.show.charts import Datum, amounts, series
from pgpaces.show.number_text import NOT_KNOWN, estimate_cell, or_dash, percent, rate
from pgpaces.show.screen import Cells, Screen, bounds, table_of
from pgpaces.show.section import Figure, Headline, Number, Section, Table, TableCell, Values, figure
from pgpaces.spec.design import Cell, Factor
from pgpaces.spec.result import Estimate

KEY = "capacity"
SCREEN = Screen(first=("soak", "limited by", "equivalent"), details=("range", "estimate"))
# The columns that a narrow terminal omits, in this order.
_SPARE = ("limit", "trials")
# Loads on the first screen.
_LOADS_MAX = 4
_SOAKS = {"pass": "soak-pass", "fail": "soak-fail", "unknown": "soak-unknown"}
# Cells with a chart.
_CELLS_MAX = 6
# Short trials farther from the others than this factor are not drawn.
_FAR = 1.35
# The top of the axis of shares, in thresholds: trials with more are drawn there.
_TOP = 4
_DAY_S = 86_400


def section(
    searches: Sequence[CellSearch], limits: Mapping[str, Limit | None], stopped: str = ""
) -> Section:
    """The capacity of each cell. limits: the limiting resource, by the key of the cell.

    stopped: why the last loads of a search that is over could not be run.
    """
    cells = tuple(each.answer(limits.get(each.cell.key)) for each in searches)
    answer = Capacities(cells, highest(cells))
    levels = dict.fromkeys(pair for cell in cells for pair in cell.levels.items())
    names = [name for name, _ in levels]
    every = {name: tuple(own for of, own in levels if of == name) for name in names}
    factors = [Factor(name, own) for name, own in every.items() if len(own) > 1]
    begun = any(each.trials for each in searches)
    plans = (digest.trial.plan for each in searches for digest, _ in each.trials)
    limited = list(dict.fromkeys(each for plan in plans for each in limits_of(plan)))
    allowed = 100 * cells[0].goal.missed_max
    drawn = [*zip(searches, cells, strict=True)][:_CELLS_MAX]
    return SCREEN.section(
        _headline(answer, factors)
        if begun
        else Headline("CAPACITY", "unknown", message("sweep-not-run")),
        values_of(cells[0]) if len(cells) == 1 else (),
        key=KEY,
        title="Capacity",
        findings=[*_findings(cells, factors, stopped=stopped)] if begun else (),
        note=message("capacity-rule", missed_percent=allowed, limits=limited or None),
        tables=tuple(_tables(cells, factors)),
        facts_first=0,
        figures=tuple(
            _chart(search, cell, factors, number=number if len(cells) > 1 else 0)
            for number, (search, cell) in enumerate(drawn, 1)
            if search.trials
        ),
        rows=tuple(_numbers(answer)),
        value=answer,
        trials=tuple(run for cell in cells for run in cell.runs),
    )


def _numbers(answer: Capacities) -> Iterator[Number]:
    """The capacity of each cell: the load that passes, the one that fails, and the estimate."""
    for cell in answer.cells:
        own = cell.levels or {"cell": cell.cell}
        for of, load in {"passes": cell.passes, "fails": cell.fails}.items():
            if load is not None:
                yield Number({**own, "of": of}, "capacity", Estimate.alone(load, cell.trials))
        if cell.estimate is not None:
            yield Number({**own, "of": "estimate"}, "capacity", cell.estimate)


def _headline(answer: Capacities, factors: Sequence[Factor]) -> Headline:
    """The highest load that passes; of several cells that of the best one, if it is certain."""
    first, *others = answer.cells
    fails = all(each.fails is not None and each.passes is None for each in answer.cells)
    if (most := answer.most) is not None:
        [best] = [each for each in answer.cells if each.cell == most.cell]
        name = "highest-certain" if most.certain else "highest-unknown"
        load = load_text(best.passes or 0.0, best.load)
        return Headline("CAPACITY", "", message(name, cell=_label(best, factors), load=load))
    if others:
        return Headline("CAPACITY", "fail" if fails else "unknown", message("capacity-none"))
    text = first.bounds
    if first.goal.quick and first.estimate and (ci := bounds(first.estimate)):
        load = first.number(first.estimate.value)
        text = said("capacity-about", unit=first.load, load=load, ci=ci)
    return Headline("CAPACITY", "fail" if fails else "", str(text))


def values_of(capacity: Capacity) -> Values:
    soak, limit, other = capacity.soak, capacity.limit, capacity.equivalents
    ci = bounds(capacity.estimate)
    if capacity.goal.quick and ci is not None:
        yield "range", capacity.bounds
    elif capacity.estimate is not None:
        yield "estimate", said("capacity-estimate", load=capacity.estimate.value, ci=ci)
    if soak is not None:
        values = {"load": load_text(soak.load, capacity.load), "soak_s": capacity.goal.soak_s}
        yield "soak", said(_SOAKS[soak.verdict], missed=soak.share, **values)
    elif capacity.passes is not None and capacity.goal.soak_s:
        yield "soak", said("soak-missing")
    if limit is not None:
        evidence = [causes.observed(each) for each in limit.evidence[:1]]
        seen = {"cause": causes.title(limit.key), "share": limit.share.value, "evidence": evidence}
        yield "limited by", said("limited-by-seen" if evidence else "limited-by", **seen)
    if other is not None:
        count = other.rate * _DAY_S
        day = f"{rate(count / 1e6)} million" if count >= 1e6 else rate(count)
        month = {"currency": other.currency, "month": other.month}
        cost = "" if other.month is None else said("equivalent-cost", **month)
        name = "equivalent-rate" if capacity.load == "rate" else "equivalent"
        yield "equivalent", said(name, rate=other.rate, day=day, cost=cost)


def _findings(
    cells: Sequence[Capacity], factors: Sequence[Factor], *, stopped: str
) -> Iterator[Finding]:
    """Whether the search goes on; then the findings of all cells, each once, with its cells."""
    if running := sum(not each.ended for each in cells):
        going = finding("search-running", cells=running)
        yield finding("search-stopped", error=stopped) if stopped else going
    found: dict[str, tuple[Finding, list[str]]] = {}
    for cell in cells:
        for each in cell.findings:
            found.setdefault(str(each), (each, []))[1].append(_label(cell, factors))
    for each, names in found.values():
        yield replace(each, about="" if len(names) == len(cells) else "; ".join(names))


def _tables(cells: Sequence[Capacity], factors: Sequence[Factor]) -> Iterator[Table]:
    near: list[LoadVerdict] = []
    if len(cells) > 1:
        rows = (_of_cell(each, factors) for each in cells)
        note = message("capacity-table")
        yield table_of(
            "title-capacity-cells", rows, labels=len(factors), note=note, brief=True, spare=_SPARE
        )
    elif near := _near_threshold(cells[0]):
        rows = (_of_load(load, cells[0], factors) for load in near)
        note = message("loads-by-own-trials")
        yield table_of("title-capacity-loads", rows, note=note, brief=True, spare=_SPARE)
    every = [_of_load(load, each, factors) for each in cells for load in each.loads]
    if len(every) > len(near):
        yield table_of(
            "title-capacity-all-loads", every, labels=len(factors) + 1, folded=True, spare=_SPARE
        )


def _near_threshold(capacity: Capacity) -> list[LoadVerdict]:
    """The loads of the first screen: the highest pass, the lowest fail, and the nearest ones."""
    loads = capacity.loads
    kept = [each for each in loads if each.verdict == "pass"][-1:]
    kept += [each for each in loads if each.verdict == "fail"][:1]
    middle = capacity.estimate.value if capacity.estimate else capacity.passes or capacity.fails
    near = sorted(loads, key=lambda each: abs(math.log(each.load / (middle or each.load))))
    kept += [each for each in near if each not in kept]
    return [each for each in loads if each in kept[:_LOADS_MAX]]


def _of_cell(capacity: Capacity, factors: Sequence[Factor]) -> Cells:
    soak = capacity.soak
    yield from level_cells(factors, capacity.levels.items())
    at = f"{rate(soak.load)}, {length(capacity.goal.soak_s)}" if soak else ""
    yield f"passes up to, {capacity.unit}", or_dash(capacity.passes, rate)
    yield f"fails from, {capacity.unit}", or_dash(capacity.fails, rate)
    yield "estimate", estimate_cell(capacity.estimate, rate)
    yield "soak", TableCell(soak.verdict, at, soak.verdict) if soak else NOT_KNOWN
    yield "limit", causes.title(capacity.limit.key) if capacity.limit else NOT_KNOWN


def _of_load(load: LoadVerdict, capacity: Capacity, factors: Sequence[Factor]) -> Cells:
    """A load by its own trials alone: the long ones; in a quick search all."""
    yield from level_cells(factors, capacity.levels.items())
    yield capacity.load, rate(load.load)
    ends = f"{percent(load.low)}–{percent(load.high)}"
    yield header("missed"), TableCell(percent(load.share), ends)
    yield "trials", str(load.trials)
    yield "verdict", TableCell(load.verdict, "", load.verdict)


def _label(capacity: Capacity, factors: Sequence[Factor]) -> str:
    own = capacity.levels
    return cell_name(Cell(tuple((f.name, own[f.name]) for f in factors if f.name in own)))


def _chart(
    search: CellSearch, capacity: Capacity, factors: Sequence[Factor], *, number: int
) -> Figure:
    """The missed share of each trial by its load. Short trials far from the others are left out."""
    theta = 100 * capacity.goal.missed_max
    long = [point.load for _, point in search.trials if point.role != "short"]
    low, high = (min(long) / _FAR, max(long) * _FAR) if long else (0.0, math.inf)
    limit, trials = message("chart-may-miss", percent=theta), message("chart-trial")
    rows: list[Datum] = [{"limit": theta, "series": limit}]
    for side, load in (("pass", capacity.passes), ("fail", capacity.fails)):
        if load is not None:
            rows.append({"bound": load, "side": side, "text": f"{side} {rate(load)}"})
    left = 0
    for digest, point in search.trials:
        missed = percent(point.share) if point.due else NOT_KNOWN
        run, valid = digest.trial.id[-8:], "yes" if point.valid else "no"
        texts = (run, f"{point.load:.6g}", missed, valid)
        row: Datum = {"series": trials, "valid": point.valid, "texts": texts}
        if point.due and low <= point.load <= high:
            row |= {"x": point.load, "value": 100 * point.share}
        elif point.due:
            left += 1
        rows.append(row)
    return figure(
        f"{KEY}-trials" + (f"-{number}" if number else ""),
        message("chart-missed-at-load", of=f", {_label(capacity, factors)}" if factors else ""),
        message("chart-trials-dots", left=left),
        columns=("run", "load", header("missed"), "valid"),
        data=rows,
        template="capacity",
        x=amounts(f"load, {UNITS[capacity.load]}", zero=False, nice=False, padding=60),
        y=amounts(axis("missed"), domain=[0, min(100.0, _TOP * theta)], clamp=True, nice=False),
        **series([trials], limit=limit),
    )
