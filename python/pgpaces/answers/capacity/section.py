"""The capacity of each cell of a search as a section: words, tables, charts and values.

Values in, a section out. The charts are in charts.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from pgpaces.analysis.across import share
from pgpaces.analysis.capacity import value, words
from pgpaces.analysis.capacity.answer import Load
from pgpaces.analysis.capacity.trials import ROLES, CellSearch, objections, whole
from pgpaces.analysis.capacity.value import Capacities, Holds, Most, Worth
from pgpaces.analysis.goal import Limit
from pgpaces.analysis.sequential import role
from pgpaces.answers.capacity import charts as capacity_charts
from pgpaces.answers.sweep import facts
from pgpaces.answers.sweep.axes import along
from pgpaces.answers.trials import cell_name, factor_name, levels_text
from pgpaces.core import causes
from pgpaces.core.findings import Finding, finding, length
from pgpaces.core.messages import message
from pgpaces.core.metrics import header, number
from pgpaces.show.numbers import (
    NOT_KNOWN,
    STARTED,
    estimate_cell,
    metric_cell,
    moment,
    or_dash,
    percent,
    rate,
)
from pgpaces.show.screen import bounds
from pgpaces.show.section import Headline, Mark, Section, Sentence, Table, TableCell, Weight
from pgpaces.spec.design import Cell as DesignCell
from pgpaces.spec.design import Factor, level_text

KEY = "capacity"
# The columns that a narrow terminal omits, in this order.
_SPARE = ("warnings", "limit", "trials", "users")
_CELLS_MAX, _GROUPS_MAX, _RIVALS_MAX = 6, 6, 3
_FOR = {"preflight": "saturating"}
_BIG = ((1e9, " billion"), (1e6, " million"))


def section(
    searches: Sequence[CellSearch], limits: Mapping[str, Limit | None], stopped: str = ""
) -> Section:
    """The capacity of each cell. limits: the limiting resource, by the key of the cell.

    stopped: why the last loads of a search that is over could not be run.
    """
    answer = value.of(searches, limits)
    factors = varied([each.cell for each in searches])
    alone = 1 if len(searches) == 1 else 0
    return Section(
        key=KEY,
        title="Capacity",
        sentences=tuple(_sentences(searches, answer, factors, stopped=stopped)),
        headline=_headline(searches, answer, factors),
        note=_rule(searches),
        facts=(
            *(
                ("soak", text)
                for each in searches[:alone]
                if not each.goal.quick
                for text in words.soaked(each.capacity)
            ),
            *(fact for each in answer.cells[:alone] for fact in _limit(each)),
            *(fact for each in answer.cells[:alone] for fact in _worth(each)),
        ),
        tables=tuple(_tables(searches, answer, factors)),
        tables_first=True,
        figures=tuple(capacity_charts.figures(searches, answer, factors)),
        value=answer,
        trials=tuple(digest.trial.id for each in searches for digest in each.digests),
    )


def _headline(
    searches: Sequence[CellSearch], answer: Capacities, factors: Sequence[Factor]
) -> Headline:
    """The highest load that passes, in a line; for several cells, the best one."""
    capacities = [each.capacity for each in searches]
    fails = all(each.fails is not None and each.passes is None for each in capacities)
    mark: Mark = "fail" if fails else ""
    if len(searches) == 1:
        [only] = answer.cells
        if only.goal.quick and (ci := bounds(only.estimate)) is not None:
            about = {
                "unit": only.load,
                "load": only.estimate.value if only.estimate else 0.0,
                "ci": ci,
            }
            return Headline("CAPACITY", mark, message("capacity-about", **about))
        return Headline("CAPACITY", mark, words.answer(capacities[0]))
    if answer.most is None:
        return Headline("CAPACITY", mark or "unknown", message("capacity-none"))
    by_key = {each.cell.key: each for each in searches}
    return Headline("CAPACITY", "", _most(answer.most, by_key, factors))


def varied(cells: Sequence[DesignCell]) -> tuple[Factor, ...]:
    """The factors in which the cells differ, with their levels in order."""
    levels: dict[str, list[str]] = {}
    for cell in cells:
        for name, level in cell.levels:
            levels.setdefault(name, []).append(level)
    distinct = ((name, tuple(dict.fromkeys(own))) for name, own in levels.items())
    return tuple(Factor(name, own) for name, own in distinct if len(own) > 1)


def _sentences(
    searches: Sequence[CellSearch], answer: Capacities, factors: Sequence[Factor], *, stopped: str
) -> Iterator[Sentence]:
    if not any(each.digests for each in searches):
        yield Sentence(message("sweep-not-run"), "main")
        return
    yield Sentence(_headline(searches, answer, factors).text, "main")
    running = sum(not each.ended for each in searches)
    if running and stopped:
        yield Sentence(str(finding("search-stopped", error=stopped)), "warning")
    elif running:
        yield Sentence(str(finding("search-running", cells=running)), "warning")
    yield from _groups(answer.cells, {each.cell.key: each for each in searches}, factors)
    for each in searches[:_CELLS_MAX]:
        capacity, where = each.capacity, name(each.cell, factors) if factors else ""
        texts = (words.answer(capacity),) if factors else ()
        weight: Weight = "warning" if capacity.soak_failed else "plain"
        soaked = () if each.goal.quick else words.soaked(capacity)
        for text in (*texts, *(f"soak: {text}" for text in soaked)):
            told = message("in-cell", cell=where, text=text) if where else text
            yield Sentence(told, "main" if capacity.can_hold and not where else weight)
    yield from _doubts(searches, factors)
    for holds in answer.cells if len(answer.cells) == 1 else ():
        facts = (*_limit(holds), *_worth(holds))
        yield from (Sentence(f"{name}: {text}") for name, text in facts)
        yield from (Sentence(text) for text in words.outlook(searches[0].capacity))
    yield Sentence(_rule(searches))


def _doubts(searches: Sequence[CellSearch], factors: Sequence[Factor]) -> Iterator[Sentence]:
    """The findings of the searches, each once, with the cells that have it."""
    doubts: dict[str, tuple[Finding, list[str]]] = {}
    for each in searches:
        for found in words.doubts(each.capacity):
            doubts.setdefault(str(found), (found, []))[1].append(name(each.cell, factors))
    for found, cells in doubts.values():
        about = "" if len(cells) == len(searches) else "; ".join(cells)
        yield Sentence(str(replace(found, about=about)), "warning")


def name(cell: DesignCell, factors: Sequence[Factor]) -> str:
    """The name of a cell: its levels of the factors."""
    names = {factor.name for factor in factors}
    return cell_name(DesignCell(tuple(pair for pair in cell.levels if pair[0] in names)))


def _most(most: Most, searches: Mapping[str, CellSearch], factors: Sequence[Factor]) -> str:
    """The cell that passes at the highest load, and whether that is certain."""
    best = searches[most.cell]
    of, size = name(best.cell, factors), value.size(best.capacity)
    assert size is not None
    load = words.load(size, best.goal)
    if most.certain:
        return message("highest-certain", cell=of, load=load)
    rivals = [name(searches[key].cell, factors) for key in most.rivals]
    listed = rivals if len(rivals) <= _RIVALS_MAX else [*rivals[:_RIVALS_MAX], "…"]
    return message("highest-unknown", cell=of, load=load, rivals=listed)


def _groups(
    cells: Sequence[Holds], searches: Mapping[str, CellSearch], factors: Sequence[Factor]
) -> Iterator[Sentence]:
    """With several factors: the best level of the main one, for each combination of the others."""
    main = along(factors)
    if main is None or len(factors) < 2:
        return
    groups: dict[tuple[tuple[str, str], ...], list[Holds]] = {}
    others = [factor.name for factor in factors if factor != main]
    for each in cells:
        at = tuple((other, each.levels[other]) for other in others if other in each.levels)
        groups.setdefault(at, []).append(each)
    for at, group in list(groups.items())[:_GROUPS_MAX]:
        most = value.most(group)
        if most is None:
            continue
        where = levels_text(at)
        text = _most(most, {each.cell: searches[each.cell] for each in group}, [main])
        yield Sentence(message("in-cell", cell=where, text=text))


def _rule(searches: Sequence[CellSearch]) -> str:
    """What it means that a load passes."""
    digests = [digest for each in searches for digest, _ in each.trials]
    limits = list(dict.fromkeys(x for digest in digests for x in facts.limits_of(digest.trial)))
    values = {"missed_percent": 100 * searches[0].goal.missed_max, "limits": limits or None}
    return message("capacity-rule-quick" if searches[0].goal.quick else "capacity-rule", **values)


def _limit(holds: Holds) -> Iterator[tuple[str, str]]:
    limit = holds.limit
    if limit is not None:
        evidence = [causes.observed(each) for each in limit.evidence[:1]]
        told = "limited-by-seen" if evidence else "limited-by"
        values = {"cause": causes.title(limit.key), "share": limit.share.value}
        yield "limited by", message(told, evidence=evidence, **values)


def _worth(holds: Holds) -> Iterator[tuple[str, str]]:
    """The highest load that passes, in other units."""
    worth = holds.worth
    if worth is None:
        return
    values = {"load": _load(worth.load, holds), "rate": worth.rate, "day": many(worth.per_day)}
    if worth.think_s is not None and worth.response_s is not None:
        pause, wait = 1e3 * worth.think_s, 1e3 * worth.response_s
        yield "equivalent", message("worth-users", pause_ms=pause, wait_ms=wait, **values)
    elif holds.load == "rate":
        yield "equivalent", message("worth-rate", day=values["day"])
    else:
        yield "equivalent", message("worth", **values)
    if worth.queries_per_day not in (None, worth.per_day):
        yield "queries", message("worth-queries", queries=many(worth.queries_per_day or 0))
    if worth.month is None or worth.year is None:
        return
    costs = {name: rate(getattr(worth, name) or 0) for name in ("month", "year", "per_million")}
    yield "costs", message("worth-costs", currency=worth.currency, **costs)
    if worth.per_user:
        per_user = rate(worth.per_user)
        yield "per user", message("worth-per-user", currency=worth.currency, per_user=per_user)


def many(count: float) -> str:
    """`14.5 million`, `950,000`."""
    size, unit = next(((size, unit) for size, unit in _BIG if count >= size), (1.0, ""))
    return f"{rate(count / size)}{unit}"


def _load(load: float, holds: Holds) -> str:
    if holds.load == "rate":
        return f"{rate(load)}/s"
    return f"{load:.0f} {holds.load if load != 1 else holds.load.removesuffix('s')}"


def _tables(
    searches: Sequence[CellSearch], answer: Capacities, factors: Sequence[Factor]
) -> Iterator[Table]:
    yield replace(_cells(answer, factors), brief=len(searches) > 1)
    worths = [(each, each.worth) for each in answer.cells if each.worth is not None]
    if len(answer.cells) > 1 and worths:
        yield _worths(worths, factors)
    if any(each.loads for each in answer.cells):
        yield replace(_loads(answer, factors), brief=len(searches) == 1)
    if any(each.digests for each in searches):
        yield _trials(searches, factors)


def _labels(levels: Mapping[str, str], factors: Sequence[Factor]) -> list[TableCell]:
    return [TableCell(level_text(levels.get(factor.name, NOT_KNOWN))) for factor in factors] or [
        TableCell("the one cell")
    ]


def _names(factors: Sequence[Factor]) -> tuple[str, ...]:
    return tuple(factor_name(factor.name) for factor in factors) or ("cell",)


def _own(levels: Mapping[str, str], factors: Sequence[Factor]) -> list[TableCell]:
    return _labels(levels, factors) if factors else []


def _cells(answer: Capacities, factors: Sequence[Factor]) -> Table:
    first = answer.cells[0]
    limit = ("limit",) if any(each.limit for each in answer.cells) else ()
    columns = (
        *_names(factors), f"passes up to, {first.unit}", f"fails from, {first.unit}", "estimate",
        "soak", *limit, "trials", "warnings",
    )  # fmt: skip
    rows = []
    for each in answer.cells:
        bounds = [
            TableCell(NOT_KNOWN if end is None else _number(end, each))
            for end in (each.passes, each.fails)
        ]
        others = [estimate_cell(each.estimate, rate), _soak(each)]
        others += (
            [TableCell(causes.title(each.limit.key) if each.limit else NOT_KNOWN)] if limit else []
        )
        trials = TableCell(str(each.trials), f"{len(each.invalid)} invalid" if each.invalid else "")
        rows.append(
            (
                *_labels(each.levels, factors),
                *bounds,
                *others,
                trials,
                TableCell(", ".join(each.flags) or NOT_KNOWN),
            )
        )
    note = message("capacity-table")
    labels = max(1, len(factors))
    return Table(f"{KEY}-cells", "Pass and fail", columns, labels, tuple(rows), note, spare=_SPARE)


def _number(load: float, holds: Holds) -> str:
    return rate(load) if holds.load == "rate" else f"{load:.0f}"


def _soak(holds: Holds) -> TableCell:
    soak = holds.soak
    if soak is None:
        return TableCell("not run" if holds.goal.soak_s and holds.passes else NOT_KNOWN)
    failed: Mark = "fail" if soak.low > holds.goal.missed_max else "unknown"
    mark: Mark = "pass" if soak.passed else failed
    return TableCell(mark, f"{_number(soak.load, holds)}, {length(soak.seconds)}", mark)


def _worths(worths: Sequence[tuple[Holds, Worth]], factors: Sequence[Factor]) -> Table:
    currency = worths[0][1].currency
    every = (
        ("1/s", [rate(worth.rate) for _, worth in worths]),
        ("users", [or_dash(worth.users, lambda n: f"{n:.0f}") for _, worth in worths]),
        ("transactions a day", [many(worth.per_day) for _, worth in worths]),
        ("queries a day", [or_dash(worth.queries_per_day, many) for _, worth in worths]),
        (f"{currency} a month", [or_dash(worth.month, rate) for _, worth in worths]),
        (f"{currency} per million", [or_dash(worth.per_million, rate) for _, worth in worths]),
        (f"{currency} per user", [or_dash(worth.per_user, rate) for _, worth in worths]),
    )
    shown = [(title, texts) for title, texts in every if any(text != NOT_KNOWN for text in texts)]
    rows = tuple(
        (*_labels(holds.levels, factors), *(TableCell(texts[at]) for _, texts in shown))
        for at, (holds, _) in enumerate(worths)
    )
    columns = (*_names(factors), *(title for title, _ in shown))
    note, labels = message("at-highest-pass"), max(1, len(factors))
    return Table(f"{KEY}-worth", "Equivalent", columns, labels, rows, note, spare=_SPARE)


def _loads(answer: Capacities, factors: Sequence[Factor]) -> Table:
    """Each load that had long trials, by these trials alone; of a quick search each load."""
    first = answer.cells[0]
    names = _names(factors) if factors else ()
    columns = (*names, first.load, header("missed"), "trials", "verdict")
    rows = tuple(
        (*_own(each.levels, factors), *_of_load(load, each))
        for each in answer.cells
        for load in each.loads
    )
    note = message("loads-by-curve" if first.goal.quick else "loads-by-own-trials")
    labels, folded = len(factors) + 1, len(answer.cells) > 1
    return Table(f"{KEY}-loads", "Loads", columns, labels, rows, note, folded, _SPARE)


def _of_load(load: Load, holds: Holds) -> Iterator[TableCell]:
    yield TableCell(_number(load.load, holds))
    ends = "" if holds.goal.quick else f"{percent(load.low)}–{percent(load.high)}"
    yield TableCell(percent(load.share), ends)
    yield TableCell(str(load.trials))
    mark = load.verdict
    yield TableCell(mark, "", mark)


def _trials(searches: Sequence[CellSearch], factors: Sequence[Factor]) -> Table:
    unit = value.UNITS[searches[0].goal.load]
    columns = (
        *(_names(factors) if factors else ()), "run", "for", STARTED, f"load, {unit}",
        "seconds", *map(header, ("due", "missed", "p99")), "state",
    )  # fmt: skip
    every = [(digest, each) for each in searches for digest in each.digests]
    points = {digest.trial.id: point for each in searches for digest, point in each.trials}
    rows = []
    for digest, each in sorted(every, key=lambda pair: pair[0].trial.started_at):
        trial, summary, place = digest.trial, digest.summary, digest.trial.place
        levels = dict(place.levels) if place else {}
        kind = role(DesignCell(tuple(levels.items())))
        (missed, due), p99 = whole(digest), summary.latency.p99
        point = points.get(trial.id)
        counts = point.valid if point else not objections(trial, summary)
        state = "valid" if counts else "invalid"
        state = state if trial.state == "finished" else trial.state
        at = levels.get(each.goal.load, f"{trial.plan.clients} clients, no pause")
        rows.append(
            (
                *_own(dict(each.cell.levels), factors),
                TableCell(trial.id[-8:]),
                TableCell(_FOR.get(kind, kind)),
                TableCell(moment(trial.started_at)),
                TableCell(at.removesuffix("/s")),
                TableCell(f"{(trial.measured_ns or 0) / 1e9:.0f}"),
                TableCell(f"{due:,}"),
                metric_cell("missed", share([[(missed, due)]], summary.phi)),
                TableCell(number("p99", p99.value, "above") if p99 else NOT_KNOWN),
                TableCell(state, "", "" if counts else "invalid"),
            )
        )
    note = message("roles-of-trials", roles=list(ROLES.values()))
    labels = len(factors) + 3
    return Table(f"{KEY}-trials", "Every trial", columns, labels, tuple(rows), note, folded=True)
