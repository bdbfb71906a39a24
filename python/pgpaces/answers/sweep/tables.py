"""The tables of a report: texts with their intervals, the same for every form of output.

Texts are unescaped; the code that renders them escapes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from pgpaces.analysis import crossing, validity
from pgpaces.analysis.cells import Row, sound
from pgpaces.analysis.differences import Difference
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.parts import BackgroundRow, CellPlan, StatementPlans, StatementRow
from pgpaces.answers.bulk import work as bulk
from pgpaces.answers.bulk.words import median_s
from pgpaces.answers.measure import Measure
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import cell_name, factor_name, levels_text
from pgpaces.core.metrics import header
from pgpaces.core.units import memory_text
from pgpaces.show.numbers import (
    NOT_KNOWN,
    STARTED,
    column,
    metric_cell,
    moment,
    or_dash,
    quantile,
)
from pgpaces.show.section import Column, Table, TableCell, table

T = TypeVar("T")
_CELLS_NAMED = 4
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


def _levels(page: Page, row: Callable[[T], Row], single: str = "") -> list[Column[T]]:
    """A column for each factor; single: the label of the only row, which has no levels."""

    def level(name: str) -> Callable[[T], str]:
        return lambda item: crossing.shown_level(row(item), name)

    levels: list[Column[T]] = [(factor_name(f.name), level(f.name)) for f in page.factors]
    return levels or ([("cell", lambda _: single)] if single else [])


def cells(page: Page) -> Table:
    levels = _levels(page, lambda row: row, "the one cell")
    columns = _of_transactions(page) if page.work is None else _of_work(page, page.work)
    one = any(len(row.trials) == 1 for row in page.rows)
    spare = (*bulk.SPARE, *_SPARE) if page.work else _SPARE
    last = header("throughput")
    few = "; of one trial alone they do not know how much the next would differ" if one else ""
    return table(
        "cells",
        "All cells",
        [*levels, ("trials", _trials), *columns],
        items=page.rows,
        labels=len(levels),
        note=f"Small figures are 95% intervals across the trials of a cell{few}.",
        # Without a limit the answer is the cell of the highest throughput, which is omitted last.
        spare=spare if page.limits else (*(name for name in spare if name != last), last),
        absent=_absent(page),
    )


def _absent(page: Page) -> tuple[int, ...]:
    return tuple(at for at, row in enumerate(page.rows) if not row.trials)


def _metric(page: Page, name: str) -> Column[Row]:
    return column(name, lambda row: row.estimate(name), above(page))


def _verdict(page: Page) -> Column[Row]:
    return "verdict", lambda row: verdict(page, row)


def _of_transactions(page: Page) -> Iterator[Column[Row]]:
    names = ["throughput", "mean", "sd", *(("late", "skipped") if page.limits else ())]
    names += [n for n in ("failed", "unfinished") if any(getattr(r.counts, n) for r in page.rows)]
    yield from (_metric(page, name) for name in (*names, "missed", "p95", "p99"))
    if page.limits:
        yield _verdict(page)


def _of_work(page: Page, work: bulk.CellsWork) -> Iterator[Column[Row]]:
    yield "median s", lambda row: or_dash(median_s(row), "{:.3g}".format)
    yield from (_of_number(number) for number in work.numbers)
    lost = any(row.counts.failed + row.counts.unfinished for row in page.rows)
    if page.limits:
        yield from (_metric(page, "late"), _metric(page, "missed"), _verdict(page))
    elif lost:
        yield _metric(page, "missed")
    if not work.only:
        yield _metric(page, "p95")


def _of_number(number: Measure) -> Column[Row]:
    return column(number.key, lambda row: row.estimate(number.key))


def brief(page: Page) -> Table:
    if page.work is not None:
        return replace(cells(page), brief=True)
    levels = _levels(page, lambda row: row, "the one cell")

    def alone(name: str) -> Column[Row]:
        return header(name), lambda row: replace(metric_cell(name, row.estimate(name)), ends="")

    columns: list[Column[Row]] = [
        *levels,
        _metric(page, "missed" if page.limits else "throughput"),
        (header("p95"), lambda row: quantile(row.p95, above(page))),
        _verdict(page) if page.limits else alone("failed"),
    ]
    return table(
        "brief", "Cells", columns, items=page.rows, labels=len(levels),
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
        column("throughput", lambda digest: digest.summary.throughput),
        column("mean", lambda digest: digest.summary.latency.mean),
        column("missed", lambda digest: digest.summary.missed),
        column("p99", lambda digest: digest.summary.latency.p99, above(page)),
    ]
    columns: list[Column[Digest]] = [
        ("run", lambda digest: digest.trial.id[-8:]),
        ("trial", _block),
        (STARTED, lambda digest: moment(digest.trial.started_at)),
        *(numbers if page.work is None else bulk.OF_TRIAL),
        ("state", lambda digest: _state(digest, id(digest) in counted)),
    ]
    of = f" of {cell_name(shown[0].cell)}" if len(shown) == 1 else ""
    every = (digest for row in shown for digest in row.every)
    return table("trials", f"Trials{of}", columns, items=every, labels=2)


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
    levels: list[Column[StatementRow]] = _levels(page, lambda each: each.row)
    shown = [n for n in ("failed", "retries") if any(getattr(s, n) for s in page.statements)]
    columns: list[Column[StatementRow]] = [
        ("statement", lambda each: each.name),
        *levels,
        ("done", lambda each: f"{each.done:,}"),
        *((name, _count(name)) for name in shown),
        column("mean", lambda each: each.mean),
        column("p95", lambda each: each.p95),
    ]
    title, folded = "Every statement in every cell", len(page.statements) > _OPEN_MAX
    return table(
        "statements", title, columns, items=page.statements, labels=1 + len(levels), folded=folded
    )


def _count(name: str) -> Callable[[StatementRow], str]:
    return lambda each: f"{getattr(each, name):,}"


def background(page: Page) -> Table:
    levels: list[Column[BackgroundRow]] = _levels(page, lambda each: each.row)

    columns: list[Column[BackgroundRow]] = [
        ("workload", lambda each: each.name),
        *levels,
        ("due", lambda each: f"{each.due:,}"),
        column("throughput", lambda each: each.throughput),
        column("missed", lambda each: each.missed),
        column("mean", lambda each: each.mean, "none"),
        column("p95", lambda each: each.p95, "none"),
        column("p99", lambda each: each.p99, "none"),
    ]
    labels = 1 + len(levels)
    return table(
        "background",
        "At the same time",
        columns,
        items=page.background,
        labels=labels,
        spare=_SPARE,
    )


def plans(page: Page, plan: StatementPlans) -> Table:
    """How one statement was executed: a row for the cells of each plan."""
    groups: dict[tuple[object, ...], list[CellPlan]] = {}
    for execution in plan.plans:
        one = execution.plan
        how = (one.shape, one.workers_planned, one.workers_launched, one.spilled_bytes > 0)
        groups.setdefault(how, []).append(execution)
    columns: list[Column[list[CellPlan]]] = [
        ("cells", lambda each: _cells_text(page, [one.row for one in each])),
        ("plan", lambda each: plan.letter(each[0].plan.shape)),
        ("workers planned", lambda each: str(each[0].plan.workers_planned)),
        (
            "launched",
            lambda each: (
                str(each[0].plan.workers_launched) if each[0].plan.analyzed else "not executed"
            ),
        ),
        ("spilled", _spilled),
        ("trials", lambda each: str(sum(one.trials for one in each))),
    ]
    title = f"Plans of {plan.script}:{plan.line}"
    return table("plans", title, columns, items=groups.values())


def _spilled(executions: Sequence[CellPlan]) -> str:
    sizes = [each.plan.spilled_bytes for each in executions]
    least, most = (memory_text(each) for each in (min(sizes), max(sizes)))
    return most if least == most else f"{least} to {most}"


def failures(page: Page) -> tuple[tuple[str, str], ...]:
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
    columns: list[Column[tuple[Difference, str, Sequence[Row]]]] = [
        ("what", lambda each: each[0].name),
        ("value", lambda each: each[1]),
        ("in", lambda each: _cells_text(page, each[2])),
        ("differs", lambda each: "within cells" if each[0].within else "between cells"),
    ]
    every = [(each, value, cells) for each in page.differences for value, cells in each.values]
    folded = len(every) > _OPEN_MAX and not any(each.within for each in page.differences)
    title = f"{len(page.differences)} things that were not the same everywhere"
    return table("differences", title, columns, items=every, labels=3, folded=folded)


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
