"""The results of a command in words and as columns: seconds, rows, input and WAL.

Values in, unescaped texts out. The charts are in bars.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

from msgspec import Struct

from pgpaces.answers import bulk
from pgpaces.answers.bulk import Bulk
from pgpaces.answers.cells import Row
from pgpaces.answers.digest import Digest
from pgpaces.questions.trials import cell_name
from pgpaces.report.numbers import interval, rate, seconds
from pgpaces.result import Estimate, Trial
from pgpaces.units import size_text


def span(value: float) -> str:
    """A duration with three digits: `22.1 s`, `674 ms`, or in hours and minutes."""
    if value >= 5400:
        minutes = round(value / 60)
        return f"{minutes // 60} h {minutes % 60} min"
    return (
        f"{value:,.0f} s" if value >= 1000 else f"{value:.3g} s" if value >= 1 else seconds(value)
    )


def rows_of(value: float) -> str:
    """A number of rows."""
    return f"{value:,.0f} row{'' if round(value) == 1 else 's'}"


def of_bytes(value: float) -> str:
    """Bytes for each row or byte."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def sentence(command: Bulk) -> str:
    """The result of a command in one trial, in one sentence."""
    if not command.counts.due:
        return "no execution has ended"
    took = _took(command)
    if not command.whole:
        lost = command.counts.due - command.done
        only = f"; {command.done} succeeded, {took}" if command.done else ""
        ends = _ends(command)
        of = (
            f"{lost} of {command.counts.due} executions"
            if command.counts.due > 1
            else "the command"
        )
        return f"{of} {ends}{only}"
    parts = ", ".join(_speeds(command))
    return f"{_loaded(command)} {took}" + (f": {parts}" if parts else "")


def _ends(command: Bulk) -> str:
    counts = command.counts
    how = f" ({', '.join(command.failures)})" if command.failures else ""
    cut = "was ended before its end" if counts.unfinished else ""
    return " or ".join(filter(None, (f"failed{how}" if counts.failed else "", cut)))


def _loaded(command: Bulk) -> str:
    if not command.rows or not command.clean:
        return "ran" if command.done == 1 else f"ran {command.done} times"
    each = command.rows / command.runs
    return f"loaded {rows_of(each)}" + (f" {command.done} times" if command.done > 1 else "")


def _took(command: Bulk) -> str:
    if command.seconds is None:
        return ""
    ends = interval(command.seconds, span, " to ") if command.seconds.estimable else ""
    each = " each" if command.done > 1 else ""
    return f"in {span(command.seconds.value)}{each}" + (f" ({ends})" if ends else "")


def _speeds(command: Bulk) -> Iterator[str]:
    values = {name: bulk.number(command, name) for name in bulk.NUMBERS}
    if (rows := values["rows_s"]) and rows.value:
        yield f"{rate(rows.value)} rows/s"
    if each := values["input_s"]:
        yield f"{size_text(each.value)}/s of input"
    if wal := values["wal_s"]:
        yield f"WAL {size_text(wal.value)}/s{_wal_of(values)}"


def _wal_of(values: dict[str, Estimate | None]) -> str:
    if by_byte := values["wal_byte"]:
        return f" ({of_bytes(by_byte.value)} B of WAL per byte of input)"
    by_row = values["wal_row"]
    return f" ({of_bytes(by_row.value)} B of WAL per row)" if by_row else ""


def lines(trial: Trial, command: Bulk) -> Iterator[str]:
    """The other measurements of a command in a trial, as lines."""
    if command.main:
        yield f"{trial.workload.scripts[0].text}, {load_text(trial)}"
    if each := bulk.number(command, "us_row"):
        yield f"a row took {of_bytes(each.value)} us on average"
    if command.before_bytes is not None and command.after_bytes is not None:
        after = size_text(command.after_bytes)
        yield f"database: {size_text(command.before_bytes)} before, {after} after"
    if command.cpu_s is not None and command.spent_s:
        share = 100 * command.cpu_s / command.spent_s
        yield f"the command itself used {span(command.cpu_s)} of CPU ({share:.0f} % of one)"
    if command.broken and command.whole:
        yield "an execution did not complete, so rows and WAL of the others are unknown"
    if command.shared:
        yield "rows and WAL include other sessions that wrote meanwhile, not the command alone"


def load_text(trial: Trial) -> str:
    """How often the command was run."""
    plan = trial.plan
    if (times := plan.transactions) is not None:
        return "once" if times == 1 else f"{times} times, one after the other"
    return f"again and again for {span((plan.duration_ns or 0) / 1e9)}"


class BulkColumn(Struct, frozen=True):
    """A number of cells: its key, its name in tables and on axes, its meaning, its format."""

    key: str
    name: str
    about: str
    scale: float
    form: str

    def text(self, value: float) -> str:
        """A value in the column's unit."""
        return rate(value * self.scale) if self.form == "rate" else f"{value * self.scale:.3g}"


COLUMNS = (
    BulkColumn("seconds", "seconds", "from the start of the command to its end", 1, ""),
    BulkColumn("rows_s", "rows/s", "rows loaded per second", 1, "rate"),
    BulkColumn("input_s", "input MB/s", "bytes read from files per second", 1e-6, ""),
    BulkColumn("wal_s", "WAL MB/s", "write-ahead log that the server wrote meanwhile", 1e-6, ""),
    BulkColumn("us_row", "us a row", "seconds over rows, so that sizes compare", 1, ""),
    BulkColumn("wal_row", "WAL B a row", "write-ahead log over rows", 1, ""),
    BulkColumn(
        "wal_byte", "WAL B a byte of input", "write-ahead log over bytes that were read", 1, ""
    ),
)


def columns(rows: Iterable[Row]) -> tuple[BulkColumn, ...]:
    """The columns of which any cell has a number."""
    keys = {name for row in rows for name in row.bulk}
    return tuple(column for column in COLUMNS if column.key in keys)


def sentences(rows: Sequence[Row]) -> Iterator[tuple[str, bool]]:
    """Sentences about the cells, the most important first, each with whether it is a main one."""
    able = [row for row in rows if row.bulk]
    main = _compared(able)
    if main is None:
        yield "No execution succeeded in any trial.", True
    elif len(able) == 1:
        yield f"{_did(able[0])}.", True
    else:
        ranked = sorted(able, key=lambda row: row.bulk[main.key].value)
        best, worst = ranked[0], ranked[-1]
        yield f"Fastest: {cell_name(best.cell)}. {_did(best)}.", True
        yield _worst(best, worst, main), True
        if main.key == "us_row":
            yield "Cells are compared by the time per row, as they loaded different sizes.", False
    lost, due, why = failed(rows)
    if lost:
        yield f"{lost} of {due} executions did not succeed. First failure: {why}", True


def _compared(rows: Sequence[Row]) -> BulkColumn | None:
    """The column to compare cells by: seconds, or us a row where they loaded different numbers."""
    common = {each.key: each for each in COLUMNS if rows and all(each.key in r.bulk for r in rows)}
    seconds, us_row = common.get("seconds"), common.get("us_row")
    if us_row is None or seconds is None:
        return seconds
    loads = [row.bulk["seconds"].value / row.bulk["us_row"].value for row in rows]
    return us_row if max(loads) > 1.02 * min(loads) else seconds


def _worst(best: Row, worst: Row, column: BulkColumn) -> str:
    """How much longer the slowest took than the fastest."""
    fast, slow = best.bulk[column.key], worst.bulk[column.key]
    times = slow.value / fast.value if fast.value else math.inf
    each = " for a row" if column.key == "us_row" else ""
    text = f"Slowest: {cell_name(worst.cell)}, {times:.3g} times as long{each}"
    if not (fast.estimable and slow.estimable):
        return f"{text}; with one execution of each, the spread between executions is unknown."
    if fast.high >= slow.low:
        return f"{text}; but their intervals overlap, so the difference may be noise."
    return f"{text} ({slow.low / fast.high:.3g} to {slow.high / fast.low:.3g})."


def _did(row: Row) -> str:
    """`22.1 s (21.8 to 22.4), 108,597 rows/s, 18.3 MB/s of input, WAL 41.2 MB/s`."""

    def text(key: str, form: Callable[[float], str], unit: str) -> str:
        each = row.bulk[key]
        ends = interval(each, form, " to ") if each.estimable else ""
        return f"{form(each.value)}{unit}" + (f" ({ends})" if ends else "")

    parts = [text("seconds", span, "")]
    if "rows_s" in row.bulk and row.bulk["rows_s"].value:
        parts.append(text("rows_s", rate, " rows/s"))
    if "input_s" in row.bulk:
        parts.append(f"{size_text(row.bulk['input_s'].value)}/s of input")
    if "wal_s" in row.bulk:
        parts.append(f"WAL {size_text(row.bulk['wal_s'].value)}/s")
    return "It took " + ", ".join(parts)


def about_commands(rows: Sequence[Row]) -> bool:
    """Whether each trial is about a command."""
    trials = [digest.trial for row in rows for digest in row.trials]
    return bool(trials) and all(bulk.about_command(trial) for trial in trials)


def nothing_else(rows: Sequence[Row]) -> bool:
    """Whether the trials have neither queries in addition to the command nor a latency limit."""
    trials = [digest.trial for row in rows for digest in row.trials]
    limited = any(trial.plan.limit_ns or trial.plan.limits for trial in trials)
    return all(bulk.alone(trial) for trial in trials) and not limited


def of_digest(digest: Digest) -> Bulk | None:
    """The result of the command of a trial."""
    return bulk.of(digest.trial, digest.summary)


def median_s(row: Row) -> float | None:
    """The median of the trials' medians, seconds."""
    medians = [each.median_s for d in row.trials if (each := of_digest(d)) and each.median_s]
    return median(medians) if medians else None


def failed(rows: Iterable[Row]) -> tuple[int, int, str]:
    """The number of executions that did not succeed, of how many, and the first failure."""
    lost = due = 0
    first = ""
    for row in rows:
        for digest in row.trials:
            command = of_digest(digest)
            if command is None:
                continue
            due += command.counts.due
            lost += command.counts.due - command.done
            for state, text in digest.summary.messages.items():
                first = first or f"{state}: {text.splitlines()[-1] if text else 'no message'}"
    return lost, due, first
