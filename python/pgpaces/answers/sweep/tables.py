"""The tables of a report: texts with their intervals, the same for every form of output.

Texts are unescaped; the code that renders them escapes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TypeVar

from msgspec.structs import replace

from pgpaces.analysis import crossing, validity
from pgpaces.analysis.cells import Row, sound
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.parts import BackgroundRow, CellPlan, StatementPlans, StatementRow
from pgpaces.answers import bulk
from pgpaces.answers.numbers import with_names
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import cell_name, factor_name, levels_text
from pgpaces.core.messages import message
from pgpaces.core.metrics import header
from pgpaces.core.units import memory_text
from pgpaces.show.numbers import (
    NOT_KNOWN,
    STARTED,
    column,
    metric_cell,
    moment,
    quantile,
)
from pgpaces.show.section import Column, Facts, Table, TableCell, table

T = TypeVar("T")
Named = tuple[StatementRow, str]
_CELLS_NAMED = 4
_OF_TRIAL = (
    *(("throughput", "throughput"), ("mean", "latency.mean")),
    *(("missed", "missed"), ("p99", "latency.p99")),
)
_OF_BACKGROUND = ("throughput", "missed", "mean", "p95", "p99")
# Longer tables of details are folded.
_OPEN_MAX = 12
FAILURES_SHOWN = 20
# The columns that a narrow terminal omits, in this order.
_SPARE = (
    *map(header, ("sd", "skipped", "unfinished", "failed", "late")),
    "trials",
    *map(header, ("throughput", "mean", "p95", "p99")),
)


def above(page: Page) -> str:
    return f"> {page.limit}" if page.limit else "none"


def _levels(page: Page, row: Callable[[T], Row]) -> list[Column[T]]:
    """A column for each factor."""

    def level(name: str) -> Callable[[T], str]:
        return lambda item: crossing.shown_level(row(item), name)

    return [(factor_name(each.name), level(each.name)) for each in page.factors]


def _of_rows(page: Page) -> list[Column[Row]]:
    """The same, of cells; of the only one its workload, because it has no levels."""
    names = ", ".join(dict.fromkeys(digest.trial.workload.name for digest in page.digests))
    return _levels(page, lambda row: row) or [("workload", lambda _: names or page.title)]


def _metric(page: Page, name: str) -> Column[Row]:
    return column(name, lambda row: row.estimate(name), above(page))


def _verdict(page: Page) -> Column[Row]:
    return "verdict", lambda row: verdict(page, row)


def cells(page: Page) -> Table:
    """Every number of every cell."""
    levels = _of_rows(page)
    columns = _of_transactions(page) if page.work is None else _of_work(page, page.work)
    spare, last = (*(bulk.SPARE if page.work else ()), *_SPARE), header("throughput")
    one = any(len(row.trials) == 1 for row in page.rows)
    return table(
        "cells",
        message("title-cells"),
        [*levels, ("trials", _trials), *columns],
        items=page.rows,
        labels=len(levels),
        note=message("table-cells-alone" if one else "table-cells"),
        # Without a limit the answer is the cell of the highest throughput, which is omitted last.
        spare=spare if page.limits else (*(name for name in spare if name != last), last),
        absent=_absent(page),
    )


def _absent(page: Page) -> tuple[int, ...]:
    return tuple(at for at, row in enumerate(page.rows) if not row.trials)


def _of_transactions(page: Page) -> Iterator[Column[Row]]:
    names = ["throughput", "mean", "sd", *(("late", "skipped") if page.limits else ())]
    names += [n for n in ("failed", "unfinished") if any(getattr(r.counts, n) for r in page.rows)]
    yield from (_metric(page, name) for name in (*names, "missed", "p95", "p99"))
    if page.limits:
        yield _verdict(page)


def _of_work(page: Page, work: bulk.CellsWork) -> Iterator[Column[Row]]:
    yield from (_metric(page, number.key) for number in work.numbers)
    lost = any(row.counts.failed + row.counts.unfinished for row in page.rows)
    if page.limits:
        yield from (_metric(page, "late"), _metric(page, "missed"), _verdict(page))
    elif lost:
        yield _metric(page, "missed")
    if not work.only:
        yield _metric(page, "p95")


def brief(page: Page) -> Table:
    """The cells on the first screen."""
    if page.work is not None:
        return replace(cells(page), brief=True)
    levels = _of_rows(page)
    failed: Column[Row] = (
        header("failed"),
        lambda row: replace(metric_cell("failed", row.estimate("failed")), ends=""),
    )
    columns: list[Column[Row]] = [
        *levels,
        _metric(page, "missed" if page.limits else "throughput"),
        (header("p95"), lambda row: quantile(row.p95, above(page))),
        _verdict(page) if page.limits else failed,
    ]
    return table(
        "brief", message("title-cells"), columns, items=page.rows, labels=len(levels),
        spare=(header("p95"),), absent=_absent(page), brief=True,
    )  # fmt: skip


def _trials(row: Row) -> TableCell:
    if not row.trials:
        return TableCell("0")
    left = f"of {len(row.trials) + len(row.left_out)}" if row.left_out else ""
    return TableCell(str(len(row.trials)), left, "" if row.sound else "invalid")


def verdict(page: Page, row: Row) -> TableCell:
    if not row.trials:
        return TableCell("not run", "", "unknown")
    if not row.sound:
        failed = validity.no_trial(row.every) is not None
        return TableCell("failed" if failed else row.defect, "", "invalid")
    mark = crossing.verdict(row, page.missed_max)
    return TableCell(mark, "", mark)


def trials(page: Page, rows: Iterable[Row]) -> Table:
    shown = list(rows)
    counted = {id(digest) for row in shown for digest in row.trials}
    numbers: Sequence[Column[Digest]] = [
        ("due", lambda digest: f"{digest.summary.counts.due:,}"),
        *(column(name, attrgetter(f"summary.{path}"), above(page)) for name, path in _OF_TRIAL),
    ]
    columns: list[Column[Digest]] = [
        ("run", lambda digest: digest.trial.id[-8:]),
        ("trial", _block),
        (STARTED, lambda digest: moment(digest.trial.started_at)),
        *(numbers if page.work is None else bulk.OF_TRIAL),
        ("state", lambda digest: _state(digest, id(digest) in counted)),
    ]
    every = (digest for row in shown for digest in row.every)
    return table("trials", message("title-trials"), columns, items=every, labels=2)


def _block(digest: Digest) -> str:
    place = digest.trial.place
    if place is None:
        return NOT_KNOWN
    attempt = f", attempt {place.attempt}" if place.attempt > 1 else ""
    return f"{place.block}{attempt}" + (
        f" on {place.levels['target']}" if "target" in place.levels else ""
    )


def _state(digest: Digest, counts: bool) -> TableCell:
    valid = "valid" if digest.summary.validity.state == "valid" else "invalid"
    state = digest.trial.state if digest.trial.state != "finished" else valid
    text = state if counts else f"{state}, not counted"
    return TableCell(text, "", "" if sound(digest) else "invalid")


def statements(page: Page) -> Table:
    def count(name: str) -> Column[Named]:
        return name, lambda each: f"{getattr(each[0], name):,}"

    levels: list[Column[Named]] = _levels(page, lambda each: each[0].row)
    shown = [n for n in ("failed", "retries") if any(getattr(s, n) for s in page.statements)]
    columns: list[Column[Named]] = [
        ("statement", lambda each: each[1]),
        *levels,
        *map(count, ("done", *shown)),
        column("mean", lambda each: each[0].mean),
        column("p95", lambda each: each[0].p95),
    ]
    return table(
        "statements",
        message("title-statements"),
        columns,
        items=with_names(page.statements),
        labels=1 + len(levels),
        folded=len(page.statements) > _OPEN_MAX,
    )


def background(page: Page) -> Table:
    levels: list[Column[BackgroundRow]] = _levels(page, lambda each: each.row)
    columns: list[Column[BackgroundRow]] = [
        ("workload", lambda each: each.name),
        *levels,
        ("due", lambda each: f"{each.due:,}"),
        *(column(name, attrgetter(name), "none") for name in _OF_BACKGROUND),
    ]
    title, labels = message("title-background"), 1 + len(levels)
    return table("background", title, columns, items=page.background, labels=labels, spare=_SPARE)


def plans(page: Page, plan: StatementPlans) -> Table:
    """How one statement was executed: a row for the cells of each plan."""
    groups: dict[tuple[object, ...], list[CellPlan]] = {}
    for each in plan.plans:
        one = each.plan
        how = (one.shape, one.workers_planned, one.workers_launched, one.spilled_bytes > 0)
        groups.setdefault(how, []).append(each)

    def launched(group: list[CellPlan]) -> str:
        first = group[0].plan
        return str(first.workers_launched) if first.analyzed else "not executed"

    def spilled(group: list[CellPlan]) -> str:
        sizes = sorted(each.plan.spilled_bytes for each in group)
        return " to ".join(dict.fromkeys(map(memory_text, (sizes[0], sizes[-1]))))

    columns: list[Column[list[CellPlan]]] = [
        ("cells", lambda group: _cells_text(page, [each.row for each in group])),
        ("plan", lambda group: plan.letter(group[0].plan.shape)),
        ("workers planned", lambda group: str(group[0].plan.workers_planned)),
        ("launched", launched),
        ("spilled", spilled),
        ("trials", lambda group: str(sum(each.trials for each in group))),
    ]
    return table("plans", f"{plan.script}:{plan.line}", columns, items=groups.values())


def failures(page: Page) -> Facts:
    reasons: dict[str, list[str]] = {}
    for where, why in page.failures:
        reasons.setdefault(why, []).append(where)
    groups = [
        (names[0] + (f", and {len(names) - 1} more" if len(names) > 1 else ""), why)
        for why, names in reasons.items()
    ]
    left = len(groups) - FAILURES_SHOWN
    more = ((f"and {left} more reasons", "they are in the report as JSON"),) if left > 0 else ()
    return (*groups[:FAILURES_SHOWN], *more)


def differences(page: Page) -> Table:
    every = [(each, value, cells) for each in page.differences for value, cells in each.values]
    rows = tuple(
        tuple(map(TableCell, (each.name, value, _cells_text(page, cells),
                              f"{'within' if each.within else 'between'} cells")))
        for each, value, cells in every
    )  # fmt: skip
    columns = ("what", "value", "in", "differs")
    return Table("differences", message("title-differences"), columns, 3, rows)


def _cells_text(page: Page, rows: Sequence[Row]) -> str:
    if len(rows) == len(page.rows):
        return "all cells"
    common = set.intersection(*(set(row.cell.levels) for row in rows))
    fitting = sum(common <= set(row.cell.levels) for row in page.rows)
    if common and fitting == len(rows):
        return levels_text(pair for pair in rows[0].cell.levels if pair in common)
    names = "; ".join(cell_name(row.cell) for row in rows[:_CELLS_NAMED])
    more = len(rows) - _CELLS_NAMED
    return f"{names}; {more} more" if more > 0 else names
