"""The tables of a report as texts with their intervals, the same for every form of it.

Texts are as others wrote them: whoever renders them escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from pgpaces.answers import crossing, outcome
from pgpaces.answers.cells import Row, sound, trial_share
from pgpaces.answers.digest import Digest
from pgpaces.answers.plans import CellPlan, StatementPlans
from pgpaces.questions import costs as money
from pgpaces.questions.bulk import words as bulk
from pgpaces.questions.sweep.page import Page
from pgpaces.questions.trials import cell_name, factor_name
from pgpaces.report.numbers import interval, milliseconds, percent, rate
from pgpaces.result import Estimate
from pgpaces.section import Table, TableCell
from pgpaces.units import memory_text, size_text

_CELLS_NAMED = 4
# Longer tables of what few look at are folded.
_OPEN_MAX = 12
FAILURES_SHOWN = 20
# Columns that go first where a terminal is narrow.
_SPARE = (
    *("input MB/s", "WAL MB/s", "WAL B a row", "WAL B a byte of input", "median s", "stddev ms"),
    *("skipped %", "unfinished %", "failed %", "late %", "trials", "TPS", "latency ms", "p95 ms"),
    "p99 ms",
)
_OF_TRIAL = ("executions", "succeeded", "seconds", "rows", "input", "WAL")


def above(page: Page) -> str:
    """How a time is shown that lies above every one that was seen."""
    return f"> {page.limit}" if page.limit else "none"


def _share(estimate: Estimate | None) -> TableCell:
    if estimate is None:
        return TableCell("-")
    return TableCell(percent(estimate.value), f"{percent(estimate.low)}-{percent(estimate.high)}")


def _number(estimate: Estimate | None, form: Callable[[float], str]) -> TableCell:
    if estimate is None:
        return TableCell("-")
    return TableCell(form(estimate.value), interval(estimate, form))


def cells(page: Page) -> Table:
    """The table that people know: a row for each cell."""
    if bulk.about_commands(page.rows):
        return _commands(page)
    names = tuple(factor_name(factor.name) for factor in page.factors)
    shares = ("late %", "skipped %") if page.limits else ()
    others = tuple(name for name in ("failed", "unfinished") if _any(page, name))
    columns = (
        *(names or ("cell",)),
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
    return _all_cells(page, columns, max(1, len(names)), rows)


def _all_cells(
    page: Page, columns: tuple[str, ...], labels: int, rows: tuple[tuple[TableCell, ...], ...]
) -> Table:
    one = any(len(row.trials) == 1 for row in page.rows)
    few = "; of one trial alone they do not know how much the next would differ" if one else ""
    return Table(
        "cells",
        "All cells",
        columns,
        labels,
        rows,
        f"Small figures are 95 % intervals across the trials of a cell{few}.",
        # Without a limit the answer is the cell that did most: its TPS is the last to go.
        spare=_SPARE if page.limits else (*(name for name in _SPARE if name != "TPS"), "TPS"),
        absent=tuple(at for at, row in enumerate(page.rows) if not row.trials),
    )


def brief(page: Page) -> Table:
    """A line for each cell: what it did, what missed, and whether it held."""
    if bulk.about_commands(page.rows):
        return replace(_commands(page), brief=True)
    names = tuple(factor_name(factor.name) for factor in page.factors) or ("cell",)
    last = ("missed %", "verdict") if page.limits else ("failed %",)
    columns = (*names, "tx/s", "p95 ms", *last)
    rows = []
    for row in page.rows:
        labels = [TableCell(crossing.level_of(row, f.name)) for f in page.factors] or [
            TableCell("the one cell")
        ]
        done = _number(row.rate, rate)
        p95 = _number(row.p95, lambda ms: milliseconds(ms, above(page)))
        if page.limits:
            done = replace(done, ends="")
            rest = [_share(row.missed), verdict(page, row)]
        else:
            rest = [replace(_share(row.estimate("failed")), ends="")]
        rows.append((*labels, done, replace(p95, ends=""), *rest))
    absent = tuple(at for at, row in enumerate(page.rows) if not row.trials)
    spare = ("p95 ms", "tx/s")
    made = tuple(rows)
    return Table(
        "brief", "Cells", columns, len(names), made, spare=spare, absent=absent, brief=True
    )


def _commands(page: Page) -> Table:
    """A row for each cell of what commands did."""
    names = tuple(factor_name(factor.name) for factor in page.factors) or ("cell",)
    numbers = bulk.columns(page.rows)
    lost = any(row.counts.failed + row.counts.unfinished for row in page.rows)
    late = ("late %", "missed %", "verdict") if page.limits else ("missed %",) if lost else ()
    if not bulk.nothing_else(page.rows):
        late = (*late, "p95 ms")
    columns = (*names, "trials", "median s", *(column.name for column in numbers), *late)
    rows = []
    for row in page.rows:
        labels = [TableCell(crossing.level_of(row, f.name)) for f in page.factors] or [
            TableCell("the one cell")
        ]
        middle = bulk.median_s(row)
        found = [_number(row.estimate(column.key), column.text) for column in numbers]
        shares = {"late %": row.late, "missed %": row.missed}
        others = {
            "verdict": verdict(page, row),
            "p95 ms": _number(row.p95, lambda ms: milliseconds(ms, above(page))),
        }
        rest = [_share(shares[name]) if name in shares else others[name] for name in late]
        shown = TableCell("-" if middle is None else f"{middle:.3g}")
        rows.append((*labels, _trials(row), shown, *found, *rest))
    return _all_cells(page, columns, len(names), tuple(rows))


def _any(page: Page, name: str) -> bool:
    return any(getattr(row.counts, name) for row in page.rows)


def _row(page: Page, row: Row, others: Sequence[str]) -> Iterator[TableCell]:
    def time(estimate: Estimate | None) -> TableCell:
        return _number(estimate, lambda ms: milliseconds(ms, above(page)))

    yield from [TableCell(crossing.level_of(row, f.name)) for f in page.factors] or [
        TableCell("the one cell")
    ]
    yield _trials(row)
    yield _number(row.rate, rate)
    yield time(row.mean)
    yield time(row.stddev)
    if page.limits:
        yield _share(row.late)
        yield _share(row.skipped)
    for name in others:
        yield _share(row.estimate(name))
    yield _share(row.missed)
    yield time(row.p95)
    yield time(row.p99)
    if page.limits:
        yield verdict(page, row)


def _trials(row: Row) -> TableCell:
    if not row.trials:
        return TableCell("0")
    left = f"of {len(row.trials) + len(row.left_out)}" if row.left_out else ""
    return TableCell(str(len(row.trials)), left, "" if row.sound else "not valid")


def verdict(page: Page, row: Row) -> TableCell:
    """Whether a cell held, in a word."""
    if not row.trials:
        return TableCell("not run", "", "unknown")
    if not row.sound:
        failed = outcome.no_trial(digest.summary for digest in row.every) is not None
        return TableCell("failed" if failed else "not valid", "", "not valid")
    said = crossing.verdict(row, page.missed_max)
    return TableCell(crossing.likely(row, page.missed_max) or said, "", said)


def trials(page: Page, rows: Iterable[Row]) -> Table:
    """Every trial of some cells, also those that do not count."""
    numbers: tuple[str, ...] = ("due", "TPS", "latency ms", "missed %", "p99 ms")
    if bulk.about_commands(page.rows):
        numbers = _OF_TRIAL
    columns = ("run", "trial", "started", *numbers, "state")
    shown = list(rows)
    found = tuple(
        _trial(page, digest, digest in row.trials) for row in shown for digest in row.every
    )
    of = f" of {cell_name(shown[0].cell)}" if len(shown) == 1 else ""
    return Table("trials", f"Trials{of}", columns, 2, found)


def _trial(page: Page, digest: Digest, counts: bool) -> tuple[TableCell, ...]:
    trial, summary, place = digest.trial, digest.summary, digest.trial.place
    block = "-" if place is None else str(place.block)
    if place and place.attempt > 1:
        block += f", attempt {place.attempt}"
    if place and "target" in place.levels:
        block += f" on {place.levels['target']}"
    valid = "valid" if summary.validity.state == "valid" else "not valid"
    state = trial.state if trial.state != "finished" else valid
    said = state if counts else f"{state}, not counted"
    numbers: Iterable[TableCell] = (
        TableCell(f"{summary.counts.due:,}"),
        _number(summary.rate, rate),
        _number(summary.latency.mean, lambda ms: milliseconds(ms, "-")),
        _share(trial_share(digest, "missed")),
        _number(summary.latency.p99, lambda ms: milliseconds(ms, above(page))),
    )
    if bulk.about_commands(page.rows):
        numbers = _executions(digest)
    return (
        TableCell(trial.id[-8:]),
        TableCell(block),
        TableCell(trial.started_at.strftime("%Y-%m-%d %H:%M:%S")),
        *numbers,
        TableCell(said, "", "" if sound(digest) else "not valid"),
    )


def _executions(digest: Digest) -> Iterator[TableCell]:
    """What the command of a trial did."""
    found = bulk.of_digest(digest)
    assert found is not None
    yield TableCell(str(found.counts.due))
    yield TableCell(str(found.done))
    yield _number(found.seconds, lambda value: f"{value:.3g}")
    yield TableCell("-" if found.rows is None else f"{found.rows:,.0f}")
    for value in (found.input_total, found.wal_bytes):
        yield TableCell("-" if value is None else size_text(value))


def statements(page: Page) -> Table:
    """What each statement took in each cell."""
    shown = [n for n in ("failed", "retries") if any(getattr(s, n) for s in page.statements)]
    names = tuple(factor_name(factor.name) for factor in page.factors)
    columns = ("statement", *names, "done", *shown, "mean ms", "p95 ms")
    rows = tuple(
        (
            TableCell(each.name),
            *(TableCell(crossing.level_of(each.row, factor.name)) for factor in page.factors),
            TableCell(f"{each.done:,}"),
            *(TableCell(f"{getattr(each, name):,}") for name in shown),
            _number(each.mean, lambda ms: milliseconds(ms, "-")),
            _number(each.p95, lambda ms: milliseconds(ms, "-")),
        )
        for each in page.statements
    )
    title = "Every statement in every cell"
    folded = len(rows) > _OPEN_MAX
    return Table("statements", title, columns, 1 + len(names), rows, folded=folded)


def ratios(page: Page) -> Table:
    """What each level makes of another one, over pairs of trials."""
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
            _number(each.rate, times),
            _number(each.latency, times),
        )
        for each in page.ratios
        if each.rate or each.latency
    )
    note = "The mean ratio over pairs of trials of one block, with its 95 % interval."
    return Table("ratios", "Against each other", columns, 2 + len(others), rows, note, spare=_SPARE)


def times(value: float) -> str:
    """A ratio: so many times."""
    return f"{value:.3f}" if value < 10 else f"{value:.3g}"


def beside(page: Page) -> Table:
    """What became of the workloads that ran beside the one that the cells are about."""
    names = tuple(factor_name(factor.name) for factor in page.factors)
    columns = ("workload", *names, "due", "TPS", "missed %", "mean ms", "p95 ms", "p99 ms")
    rows = tuple(
        (
            TableCell(each.name),
            *(TableCell(crossing.level_of(each.row, factor.name)) for factor in page.factors),
            TableCell(f"{each.due:,}"),
            _number(each.rate, rate),
            _share(each.missed),
            *(
                _number(time, lambda ms: milliseconds(ms, "none"))
                for time in (each.mean, each.p95, each.p99)
            ),
        )
        for each in page.background
    )
    return Table("beside", "At the same time", columns, 1 + len(names), rows, spare=_SPARE)


def plans(page: Page, plan: StatementPlans) -> tuple[Table, Table]:
    """How one statement was executed: cells with the same in a row, then every cell."""
    names = tuple(factor_name(factor.name) for factor in page.factors)
    columns = ("plan", "workers planned", "launched", "spilled", "trials")
    every = tuple(
        (
            *(
                [TableCell(crossing.level_of(seen.row, f.name)) for f in page.factors]
                or [TableCell("all")]
            ),
            *_plan_cells(plan, [seen]),
        )
        for seen in plan.plans
    )
    groups: dict[tuple[object, ...], list[CellPlan]] = {}
    for seen in plan.plans:
        one = seen.plan
        how = (one.shape, one.workers_planned, one.workers_launched, one.spilled_bytes > 0)
        groups.setdefault(how, []).append(seen)
    grouped = tuple(
        (TableCell(_named(page, [seen.row for seen in group])), *_plan_cells(plan, group))
        for group in groups.values()
    )
    title = f"Plans of {plan.script}:{plan.line}"
    return (
        Table("plans", title, ("cells", *columns), 1, grouped),
        Table(
            "plans-every",
            "Cell by cell",
            (*(names or ("cell",)), *columns),
            max(1, len(names)),
            every,
            folded=True,
        ),
    )


def _plan_cells(plan: StatementPlans, seen: Sequence[CellPlan]) -> Iterator[TableCell]:
    one = seen[0].plan
    sizes = [each.plan.spilled_bytes for each in seen]
    yield TableCell(plan.letter(one.shape))
    yield TableCell(str(one.workers_planned))
    yield TableCell(str(one.workers_launched) if one.analyzed else "not executed")
    least, most = (memory_text(each) for each in (min(sizes), max(sizes)))
    yield TableCell(most if least == most else f"{least} to {most}")
    yield TableCell(str(sum(each.trials for each in seen)))


def failures(page: Page) -> tuple[tuple[str, str], ...]:
    """Trials that never began, those with the same reason together; not more than a page takes."""
    reasons: dict[str, list[str]] = {}
    for where, why in page.failures:
        reasons.setdefault(why, []).append(where)
    found = [
        (names[0] + (f", and {len(names) - 1} more" if len(names) > 1 else ""), why)
        for why, names in reasons.items()
    ]
    left = len(found) - FAILURES_SHOWN
    more = ((f"and {left} more reasons", "they are in the report as JSON"),) if left > 0 else ()
    return (*found[:FAILURES_SHOWN], *more)


def costs(page: Page) -> Table:
    """What each machine costs, and what that buys at its largest cell."""
    columns = money.columns(page.costs)
    rows = tuple(
        (
            TableCell(one.name or "this machine"),
            TableCell(cell_name(one.row.cell), "" if one.held else "not known to meet it"),
            *(TableCell(*(column.show(one) or ("-",))) for column in columns),
        )
        for one in page.costs
    )
    titles = ("machine", "at", *(column.title for column in columns))
    note = (
        "At the cell with most users, else most transactions on time, that met the limit. A month"
        " has 730 hours, all of them at that load. What is written a day is what was written"
        " during the trials, extrapolated."
    )
    spare = ("a year", "users", "written a day")
    return Table("costs", "What it costs", titles, 2, rows, note, spare=spare)


def differences(page: Page) -> Table:
    """What was not the same in all cells and is no factor."""
    rows = tuple(
        (
            TableCell(each.name),
            TableCell(value),
            TableCell(_named(page, cells)),
            TableCell("within cells" if each.within else "between cells"),
        )
        for each in page.differences
        for value, cells in each.values
    )
    folded = len(rows) > _OPEN_MAX and not any(each.within for each in page.differences)
    title = f"{len(page.differences)} things that were not the same everywhere"
    names = ("what", "value", "in", "differs")
    return Table("differences", title, names, 3, rows, folded=folded)


def _named(page: Page, rows: Sequence[Row]) -> str:
    """Some cells by name, in as few words as do."""
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
