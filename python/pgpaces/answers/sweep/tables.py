"""The tables of a report: texts with their intervals, the same for every form of output.

Texts are unescaped; the code that renders them escapes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from pgpaces.analysis import crossing, validity
from pgpaces.analysis.cells import Row, sound, trial_estimate
from pgpaces.analysis.differences import Difference
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.parts import Part, StatementPlan
from pgpaces.answers import bulk
from pgpaces.answers.numbers import Measure, with_names
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import cell_name, factor_name
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
from pgpaces.spec.result import Estimate

T = TypeVar("T")
# A statement or a background workload, and its name.
Named = tuple[Part, str]
# A trial in its cell.
Placed = tuple[Row, Digest]
_CELLS_NAMED = 4
FAILURES_SHOWN = 20
# The columns that a narrow terminal omits, in this order.
_SPARE = (
    *map(header, ("sd", "skipped", "unfinished", "failed", "late")),
    "trials",
    *map(header, ("throughput", "mean", "p95", "p99")),
)


def above(page: Page) -> str:
    return f"> {page.limit}" if page.limit else "∞"


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
        note=message(
            "table-cells-auto"
            if page.about.chosen
            else "table-cells-alone"
            if one
            else "table-cells"
        ),
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
        yield "verdict", lambda row: verdict(page, row)


def _of_work(page: Page, work: bulk.CellsWork) -> Iterator[Column[Row]]:
    yield from (_metric(page, number.key) for number in work.numbers)
    if page.limits:
        yield from (_metric(page, "late"), _metric(page, "missed"))
        yield "verdict", lambda row: verdict(page, row)
    elif any(row.counts.failed + row.counts.unfinished for row in page.rows):
        yield _metric(page, "missed")
    if not work.only:
        yield _metric(page, "p95")


def brief(page: Page) -> Table:
    """The cells on the first screen."""
    if page.work is not None:
        return replace(cells(page), brief=True)
    levels = _of_rows(page)

    def failed(row: Row) -> TableCell:
        return replace(metric_cell("failed", row.estimate("failed")), ends="")

    columns: list[Column[Row]] = [
        *levels,
        _metric(page, "missed" if page.limits else "throughput"),
        (header("p95"), lambda row: quantile(row.estimate("p95"), above(page))),
        ("verdict", lambda row: verdict(page, row)) if page.limits else (header("failed"), failed),
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


def trials(page: Page) -> Table:
    """Every trial; `pgpaces report RUN` has the rest of it."""

    def metric(key: str, of_trial: Callable[[Digest], Estimate | None]) -> Column[Placed]:
        return column(key, lambda each: of_trial(each[1]), above(page))

    names = ("throughput", "mean", "missed", "p99")
    measures = page.work.numbers if page.work else [
        Measure(name, partial(trial_estimate, name=name)) for name in names
    ]  # fmt: skip
    levels: list[Column[Placed]] = _levels(page, lambda each: each[0])
    columns: list[Column[Placed]] = [
        ("run", lambda each: each[1].trial.id[-8:]),
        *levels,
        ("trial", lambda each: _block(each[1])),
        (STARTED, lambda each: moment(each[1].trial.started_at)),
        ("due", lambda each: f"{each[1].summary.counts.due:,}"),
        *(metric(each.key, each.of_trial) for each in measures),
        ("state", _state),
    ]
    every = ((row, digest) for row in page.rows for digest in row.every)
    title = message("title-trials")
    return table("trials", title, columns, items=every, labels=2 + len(levels))


def _block(digest: Digest) -> str:
    place = digest.trial.place
    if place is None:
        return NOT_KNOWN
    attempt = f", attempt {place.attempt}" if place.attempt > 1 else ""
    return f"{place.block}{attempt}" + (
        f" on {place.levels['target']}" if "target" in place.levels else ""
    )


def _state(each: Placed) -> TableCell:
    row, digest = each
    valid = "valid" if digest.summary.validity.state == "valid" else "invalid"
    state = digest.trial.state if digest.trial.state != "finished" else valid
    text = state if digest in row.trials else f"{state}, not counted"
    return TableCell(text, "", "" if sound(digest) else "invalid")


def statements(page: Page) -> Table:
    title = message("title-statements")
    return _parts(page, "statement", title, named=list(with_names(page.statements)))


def background(page: Page) -> Table:
    named = [(each, each.script) for each in page.background]
    return _parts(page, "background", message("title-background"), named=named)


def _parts(page: Page, key: str, title: str, *, named: Sequence[Named]) -> Table:
    """Statements or background workloads, cell by cell."""

    def count(name: str) -> Column[Named]:
        return name, lambda each: f"{each[0].counts[name]:,}"

    def metric(name: str) -> Column[Named]:
        return column(name, lambda each: each[0].estimates[name], "∞")

    first: Part = named[0][0]
    levels: list[Column[Named]] = _levels(page, lambda each: each[0].row)
    counts = [name for name in first.counts if any(each.counts[name] for each, _ in named)]
    own: list[Column[Named]] = [(key, lambda each: each[1])]
    columns = [*own, *levels, *map(count, counts), *map(metric, first.estimates)]
    return table(key, title, columns, items=named, labels=1 + len(levels), spare=_SPARE)


def plan_name(each: StatementPlan) -> str:
    return f"{each.script}:{each.line}: {each.plan.summary}"


def plans(page: Page) -> Table:
    """How statements were executed."""

    def launched(each: StatementPlan) -> str:
        return str(each.plan.workers_launched) if each.plan.analyzed else "not executed"

    columns: list[Column[StatementPlan]] = [
        ("plan", plan_name),
        ("workers planned", lambda each: str(each.plan.workers_planned)),
        ("launched", launched),
        ("spilled", lambda each: memory_text(each.plan.spilled_bytes)),
        ("trials", lambda each: str(each.trials)),
        ("in", lambda each: _cells_text(page, each.cells)),
    ]
    return table("plans", message("title-plans"), columns, items=page.plans)


def failures(page: Page) -> Facts:
    """The reasons why trials never began, each with its first trial."""
    reasons: dict[str, list[str]] = {}
    for where, why in page.failures:
        reasons.setdefault(why, []).append(where)
    facts = [
        (names[0] + (f", and {len(names) - 1} more" if len(names) > 1 else ""), why)
        for why, names in reasons.items()
    ]
    left = len(facts) - FAILURES_SHOWN
    more = [(f"and {left} more reasons", "they are in the report as JSON")] if left > 0 else []
    return (*facts[:FAILURES_SHOWN], *more)


def differences(page: Page) -> Table:
    every = [
        (each, value, rows)
        for each in page.differences
        for value, rows in page.by_value(each).items()
    ]
    columns: list[Column[tuple[Difference, str, list[Row]]]] = [
        ("what", lambda each: each[0].name),
        ("value", lambda each: each[1]),
        ("in", lambda each: _cells_text(page, each[2])),
        ("differs", lambda each: f"{'within' if each[0].within else 'between'} cells"),
    ]
    return table("differences", message("title-differences"), columns, items=every, labels=3)


def _cells_text(page: Page, rows: Sequence[Row]) -> str:
    if len(rows) == len(page.rows):
        return "all cells"
    names = "; ".join(cell_name(row.cell) for row in rows[:_CELLS_NAMED])
    more = len(rows) - _CELLS_NAMED
    return f"{names}; {more} more" if more > 0 else names
