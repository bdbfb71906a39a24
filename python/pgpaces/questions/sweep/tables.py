"""The tables of a report: texts with their intervals, the same for every form of output.

Texts are unescaped; the code that renders them escapes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from pgpaces.answers import crossing, outcome
from pgpaces.answers.cells import Row, sound, trial_share
from pgpaces.answers.digest import Digest
from pgpaces.answers.plans import CellPlan, StatementPlans
from pgpaces.questions.sweep.page import Page
from pgpaces.questions.trials import cell_name, factor_name
from pgpaces.questions.work import CellsWork
from pgpaces.report.numbers import estimate_cell, milliseconds, ms, rate, share_cell
from pgpaces.result import Estimate
from pgpaces.section import Table, TableCell
from pgpaces.units import memory_text

_CELLS_NAMED = 4
# Longer tables of details are folded.
_OPEN_MAX = 12
FAILURES_SHOWN = 20
# The columns that a narrow terminal omits, in this order.
_SPARE = (
    *("stddev ms", "skipped %", "unfinished %", "failed %", "late %", "trials", "TPS"),
    *("latency ms", "p95 ms", "p99 ms"),
)


def above(page: Page) -> str:
    """The text of a quantile above every measured time."""
    return f"> {page.limit}" if page.limit else "none"


def _time(page: Page, estimate: Estimate | None) -> TableCell:
    return estimate_cell(estimate, lambda value: milliseconds(value, above(page)))


def _names(page: Page) -> tuple[str, ...]:
    return tuple(factor_name(factor.name) for factor in page.factors)


def _levels(page: Page, row: Row, single: str = "the one cell") -> list[TableCell]:
    """The levels of a row; single: the label of the only row, which has no levels."""
    levels = [TableCell(crossing.level_of(row, factor.name)) for factor in page.factors]
    return levels or [TableCell(single)] if single else levels


def cells(page: Page) -> Table:
    """A row for each cell, with all numbers."""
    if page.work is not None:
        return _of_work(page, page.work)
    names = _names(page) or ("cell",)
    shares = ("late %", "skipped %") if page.limits else ()
    others = tuple(
        name
        for name in ("failed", "unfinished")
        if any(getattr(row.counts, name) for row in page.rows)
    )
    columns = (
        *names,
        "trials",
        "TPS",
        "latency ms",
        "stddev ms",
        *shares,
        *(f"{name} %" for name in others),
        "missed %",
        "p95 ms",
        "p99 ms",
        *(("verdict",) if page.limits else ()),
    )
    rows = tuple(tuple(_row(page, row, others)) for row in page.rows)
    return _all_cells(page, columns, len(names), rows)


def _all_cells(
    page: Page, columns: tuple[str, ...], labels: int, rows: tuple[tuple[TableCell, ...], ...]
) -> Table:
    one = any(len(row.trials) == 1 for row in page.rows)
    spare = (*page.work.spare, *_SPARE) if page.work else _SPARE
    few = "; of one trial alone they do not know how much the next would differ" if one else ""
    return Table(
        "cells",
        "All cells",
        columns,
        labels,
        rows,
        f"Small figures are 95 % intervals across the trials of a cell{few}.",
        # Without a limit the answer is the cell of the highest rate: TPS is omitted last.
        spare=spare if page.limits else (*(name for name in spare if name != "TPS"), "TPS"),
        absent=tuple(at for at, row in enumerate(page.rows) if not row.trials),
    )


def brief(page: Page) -> Table:
    """A line for each cell: rate, p95, missed share and verdict."""
    if page.work is not None:
        return replace(_of_work(page, page.work), brief=True)
    names = _names(page) or ("cell",)
    last = ("missed %", "verdict") if page.limits else ("failed %",)
    columns = (*names, "tx/s", "p95 ms", *last)
    rows = []
    for row in page.rows:
        done = estimate_cell(row.rate, rate)
        if page.limits:
            done = replace(done, ends="")
            rest = [share_cell(row.missed), verdict(page, row)]
        else:
            rest = [replace(share_cell(row.estimate("failed")), ends="")]
        rows.append((*_levels(page, row), done, replace(_time(page, row.p95), ends=""), *rest))
    absent = tuple(at for at, row in enumerate(page.rows) if not row.trials)
    spare = ("p95 ms", "tx/s")
    return Table(
        "brief", "Cells", columns, len(names), tuple(rows), spare=spare, absent=absent, brief=True
    )


def _of_work(page: Page, work: CellsWork) -> Table:
    """A row for each cell whose work is not transactions."""
    names = _names(page) or ("cell",)
    lost = any(row.counts.failed + row.counts.unfinished for row in page.rows)
    late = ("late %", "missed %", "verdict") if page.limits else ("missed %",) if lost else ()
    if not work.only:
        late = (*late, "p95 ms")
    own = (title for title, _ in work.of_cell)
    columns = (*names, "trials", *own, *(number.name for number in work.numbers), *late)
    rows = []
    for row in page.rows:
        others = [show(row) for _, show in work.of_cell]
        values = [estimate_cell(row.estimate(number.key), number.form) for number in work.numbers]
        last = {
            "late %": share_cell(row.late),
            "missed %": share_cell(row.missed),
            "verdict": verdict(page, row),
            "p95 ms": _time(page, row.p95),
        }
        rest = [last[name] for name in late]
        rows.append((*_levels(page, row), _trials(row), *others, *values, *rest))
    return _all_cells(page, columns, len(names), tuple(rows))


def _row(page: Page, row: Row, others: Sequence[str]) -> Iterator[TableCell]:
    yield from _levels(page, row)
    yield _trials(row)
    yield estimate_cell(row.rate, rate)
    yield _time(page, row.mean)
    yield _time(page, row.stddev)
    if page.limits:
        yield share_cell(row.late)
        yield share_cell(row.skipped)
    for name in others:
        yield share_cell(row.estimate(name))
    yield share_cell(row.missed)
    yield _time(page, row.p95)
    yield _time(page, row.p99)
    if page.limits:
        yield verdict(page, row)


def _trials(row: Row) -> TableCell:
    if not row.trials:
        return TableCell("0")
    left = f"of {len(row.trials) + len(row.left_out)}" if row.left_out else ""
    return TableCell(str(len(row.trials)), left, "" if row.sound else "not valid")


def verdict(page: Page, row: Row) -> TableCell:
    """The verdict on a cell, in a word."""
    if not row.trials:
        return TableCell("not run", "", "unknown")
    if not row.sound:
        failed = outcome.no_trial(digest.summary for digest in row.every) is not None
        return TableCell("failed" if failed else "not valid", "", "not valid")
    mark = crossing.verdict(row, page.missed_max)
    return TableCell(crossing.likely(row, page.missed_max) or mark, "", mark)


def trials(page: Page, rows: Iterable[Row]) -> Table:
    """Every trial of the cells, including those that do not count."""
    numbers: tuple[str, ...] = ("due", "TPS", "latency ms", "missed %", "p99 ms")
    if page.work is not None:
        numbers = tuple(title for title, _ in page.work.of_trial)
    columns = ("run", "trial", "started", *numbers, "state")
    shown = list(rows)
    table_rows = tuple(
        _trial(page, digest, digest in row.trials) for row in shown for digest in row.every
    )
    of = f" of {cell_name(shown[0].cell)}" if len(shown) == 1 else ""
    return Table("trials", f"Trials{of}", columns, 2, table_rows)


def _trial(page: Page, digest: Digest, counts: bool) -> tuple[TableCell, ...]:
    trial, summary, place = digest.trial, digest.summary, digest.trial.place
    block = "-" if place is None else str(place.block)
    if place and place.attempt > 1:
        block += f", attempt {place.attempt}"
    if place and "target" in place.levels:
        block += f" on {place.levels['target']}"
    valid = "valid" if summary.validity.state == "valid" else "not valid"
    state = trial.state if trial.state != "finished" else valid
    state = state if counts else f"{state}, not counted"
    numbers: Iterable[TableCell] = (
        TableCell(f"{summary.counts.due:,}"),
        estimate_cell(summary.rate, rate),
        estimate_cell(summary.latency.mean, ms),
        share_cell(trial_share(digest, "missed")),
        _time(page, summary.latency.p99),
    )
    if page.work is not None:
        numbers = (show(digest) for _, show in page.work.of_trial)
    return (
        TableCell(trial.id[-8:]),
        TableCell(block),
        TableCell(trial.started_at.strftime("%Y-%m-%d %H:%M:%S")),
        *numbers,
        TableCell(state, "", "" if sound(digest) else "not valid"),
    )


def statements(page: Page) -> Table:
    """The times of each statement in each cell."""
    shown = [n for n in ("failed", "retries") if any(getattr(s, n) for s in page.statements)]
    names = _names(page)
    columns = ("statement", *names, "done", *shown, "mean ms", "p95 ms")
    rows = tuple(
        (
            TableCell(each.name),
            *_levels(page, each.row, ""),
            TableCell(f"{each.done:,}"),
            *(TableCell(f"{getattr(each, name):,}") for name in shown),
            estimate_cell(each.mean, ms),
            estimate_cell(each.p95, ms),
        )
        for each in page.statements
    )
    title = "Every statement in every cell"
    folded = len(rows) > _OPEN_MAX
    return Table("statements", title, columns, 1 + len(names), rows, folded=folded)


def ratios(page: Page) -> Table:
    """The ratio of each level to another one, over pairs of trials."""
    others = [f for f in page.factors if any(f.name in dict(each.at) for each in page.ratios)]
    columns = (
        "level",
        "against",
        *(factor_name(factor.name) for factor in others),
        "pairs",
        "TPS, times",
        "mean latency, times",
    )
    rows = tuple(
        (
            TableCell(f"{factor_name(each.factor)} = {each.level}"),
            TableCell(each.base),
            *(TableCell(dict(each.at).get(factor.name, "-")) for factor in others),
            TableCell(str(max(e.n for e in (each.rate, each.latency) if e))),
            estimate_cell(each.rate, times),
            estimate_cell(each.latency, times),
        )
        for each in page.ratios
        if each.rate or each.latency
    )
    note = "The mean ratio over pairs of trials of one block, with its 95 % interval."
    return Table("ratios", "Against each other", columns, 2 + len(others), rows, note, spare=_SPARE)


def times(value: float) -> str:
    """A ratio with at least three digits."""
    return f"{value:.3f}" if value < 10 else f"{value:.3g}"


def background(page: Page) -> Table:
    """The numbers of the background workloads in each cell."""
    names = _names(page)
    columns = ("workload", *names, "due", "TPS", "missed %", "mean ms", "p95 ms", "p99 ms")
    rows = tuple(
        (
            TableCell(each.name),
            *_levels(page, each.row, ""),
            TableCell(f"{each.due:,}"),
            estimate_cell(each.rate, rate),
            share_cell(each.missed),
            *(
                estimate_cell(time, lambda value: milliseconds(value, "none"))
                for time in (each.mean, each.p95, each.p99)
            ),
        )
        for each in page.background
    )
    return Table("background", "At the same time", columns, 1 + len(names), rows, spare=_SPARE)


def plans(page: Page, plan: StatementPlans) -> tuple[Table, Table]:
    """How one statement was executed: a row for the cells of each plan, then one for each cell."""
    names = _names(page) or ("cell",)
    columns = ("plan", "workers planned", "launched", "spilled", "trials")
    every = tuple(
        (*_levels(page, execution.row, "all"), *_plan_cells(plan, [execution]))
        for execution in plan.plans
    )
    groups: dict[tuple[object, ...], list[CellPlan]] = {}
    for execution in plan.plans:
        one = execution.plan
        how = (one.shape, one.workers_planned, one.workers_launched, one.spilled_bytes > 0)
        groups.setdefault(how, []).append(execution)
    grouped = tuple(
        (TableCell(_cells_text(page, [each.row for each in group])), *_plan_cells(plan, group))
        for group in groups.values()
    )
    title = f"Plans of {plan.script}:{plan.line}"
    return (
        Table("plans", title, ("cells", *columns), 1, grouped),
        Table("plans-every", "Cell by cell", (*names, *columns), len(names), every, folded=True),
    )


def _plan_cells(plan: StatementPlans, executions: Sequence[CellPlan]) -> Iterator[TableCell]:
    one = executions[0].plan
    sizes = [each.plan.spilled_bytes for each in executions]
    yield TableCell(plan.letter(one.shape))
    yield TableCell(str(one.workers_planned))
    yield TableCell(str(one.workers_launched) if one.analyzed else "not executed")
    least, most = (memory_text(each) for each in (min(sizes), max(sizes)))
    yield TableCell(most if least == most else f"{least} to {most}")
    yield TableCell(str(sum(each.trials for each in executions)))


def failures(page: Page) -> tuple[tuple[str, str], ...]:
    """Trials that never began, grouped by reason; at most FAILURES_SHOWN groups."""
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
    """What was not the same in all cells, other than the factors."""
    rows = tuple(
        (
            TableCell(each.name),
            TableCell(value),
            TableCell(_cells_text(page, cells)),
            TableCell("within cells" if each.within else "between cells"),
        )
        for each in page.differences
        for value, cells in each.values
    )
    folded = len(rows) > _OPEN_MAX and not any(each.within for each in page.differences)
    title = f"{len(page.differences)} things that were not the same everywhere"
    names = ("what", "value", "in", "differs")
    return Table("differences", title, names, 3, rows, folded=folded)


def _cells_text(page: Page, rows: Sequence[Row]) -> str:
    """Several cells by name, in the fewest words."""
    if len(rows) == len(page.rows):
        return "all cells"
    common = set.intersection(*(set(row.cell.levels) for row in rows))
    fitting = sum(common <= set(row.cell.levels) for row in page.rows)
    if common and fitting == len(rows):
        pairs = [pair for pair in rows[0].cell.levels if pair in common]
        return ", ".join(f"{factor_name(name)} = {level}" for name, level in pairs)
    names = "; ".join(cell_name(row.cell) for row in rows[:_CELLS_NAMED])
    more = len(rows) - _CELLS_NAMED
    return f"{names}; {more} more" if more > 0 else names
