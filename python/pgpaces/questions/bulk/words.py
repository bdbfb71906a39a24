"""What a command did, in words and as a table: seconds, rows, input and WAL. Values in, texts out.

Its charts are in bars.py. Texts are as others wrote them: whoever renders them escapes.
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
    """How long something took, with three digits: `22.1 s`, `674 ms`, or in hours and minutes."""
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


def sentence(found: Bulk) -> str:
    """What a command did in one trial, the whole of it in one sentence."""
    if not found.counts.due:
        return "no execution has come to an end"
    took = _took(found)
    if not found.whole:
        lost = found.counts.due - found.done
        only = f"; {found.done} succeeded, {took}" if found.done else ""
        ends = _ends(found)
        of = f"{lost} of {found.counts.due} executions" if found.counts.due > 1 else "the command"
        return f"{of} {ends}{only}"
    parts = ", ".join(_speeds(found))
    return f"{_loaded(found)} {took}" + (f": {parts}" if parts else "")


def _ends(found: Bulk) -> str:
    counts = found.counts
    how = f" ({', '.join(found.failures)})" if found.failures else ""
    cut = "was ended before its end" if counts.unfinished else ""
    return " or ".join(filter(None, (f"failed{how}" if counts.failed else "", cut)))


def _loaded(found: Bulk) -> str:
    if not found.rows or not found.told:
        return "ran" if found.done == 1 else f"ran {found.done} times"
    each = found.rows / found.runs
    return f"loaded {rows_of(each)}" + (f" {found.done} times" if found.done > 1 else "")


def _took(found: Bulk) -> str:
    if found.seconds is None:
        return ""
    ends = interval(found.seconds, span, " to ") if found.seconds.estimable else ""
    each = " each" if found.done > 1 else ""
    return f"in {span(found.seconds.value)}{each}" + (f" ({ends})" if ends else "")


def _speeds(found: Bulk) -> Iterator[str]:
    values = {name: bulk.number(found, name) for name in bulk.NUMBERS}
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


def lines(trial: Trial, found: Bulk) -> Iterator[str]:
    """What else is known of a command in a trial, as lines."""
    if found.main:
        yield f"{trial.workload.scripts[0].text}, {load_text(trial)}"
    if each := bulk.number(found, "us_row"):
        yield f"a row took {of_bytes(each.value)} us on average"
    if found.before_bytes is not None and found.behind_bytes is not None:
        grown = f"{size_text(found.before_bytes)} before, {size_text(found.behind_bytes)} behind"
        yield f"database: {grown}"
    if found.cpu_s is not None and found.spent_s:
        share = 100 * found.cpu_s / found.spent_s
        yield f"the command itself used {span(found.cpu_s)} of CPU ({share:.0f} % of one)"
    if found.broken and found.whole:
        yield "one execution or more had no good end, so rows and WAL of the others are not known"
    if found.shared:
        yield "rows and WAL are of all that wrote meanwhile, not of the command alone"


def load_text(trial: Trial) -> str:
    """How often it was run."""
    plan = trial.plan
    if (times := plan.transactions) is not None:
        return "once" if times == 1 else f"{times} times, one after the other"
    return f"again and again for {span((plan.duration_ns or 0) / 1e9)}"


class BulkColumn(Struct, frozen=True):
    """A number of cells: its key, its name in tables and on axes, what it is, and how it reads."""

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
    BulkColumn("rows_s", "rows/s", "rows that were loaded, a second", 1, "rate"),
    BulkColumn("input_s", "input MB/s", "bytes of the files that were read, a second", 1e-6, ""),
    BulkColumn("wal_s", "WAL MB/s", "write-ahead log that the server wrote meanwhile", 1e-6, ""),
    BulkColumn("us_row", "us a row", "seconds over rows, so that sizes compare", 1, ""),
    BulkColumn("wal_row", "WAL B a row", "write-ahead log over rows", 1, ""),
    BulkColumn(
        "wal_byte", "WAL B a byte of input", "write-ahead log over bytes that were read", 1, ""
    ),
)


def columns(rows: Iterable[Row]) -> tuple[BulkColumn, ...]:
    """The columns of which any cell has a number."""
    known = {name for row in rows for name in row.bulk}
    return tuple(column for column in COLUMNS if column.key in known)


def sentences(rows: Sequence[Row]) -> Iterator[tuple[str, bool]]:
    """What the cells did, the most important first; and whether one tells it the boss."""
    able = [row for row in rows if row.bulk]
    main = _compared(able)
    if main is None:
        yield "No execution succeeded in any trial.", True
    elif len(able) == 1:
        yield f"{_did(able[0])}.", True
    else:
        best, worst = _ends_of(able, main)
        yield f"Fastest: {cell_name(best.cell)}. {_did(best)}.", True
        yield _worst(best, worst, main), True
        if main.key == "us_row":
            yield "Cells are compared by the time that a row took, so that sizes compare.", False
    lost, due, why = failed(rows)
    if lost:
        yield f"{lost} of {due} executions did not succeed. The first that failed: {why}", True


def _compared(rows: Sequence[Row]) -> BulkColumn | None:
    """What cells are compared by: seconds, or where they loaded different numbers of rows, us."""
    known = [column for column in COLUMNS if rows and all(column.key in row.bulk for row in rows)]
    found = {column.key: column for column in known}
    seconds, us_row = found.get("seconds"), found.get("us_row")
    if us_row is None or seconds is None:
        return seconds
    loads = [row.bulk["seconds"].value / row.bulk["us_row"].value for row in rows]
    return us_row if max(loads) > 1.02 * min(loads) else seconds


def _ends_of(rows: Sequence[Row], column: BulkColumn) -> tuple[Row, Row]:
    ranked = sorted(rows, key=lambda row: row.bulk[column.key].value)
    return ranked[0], ranked[-1]


def _worst(best: Row, worst: Row, column: BulkColumn) -> str:
    """How much longer the slowest took, where that can be told."""
    fast, slow = best.bulk[column.key], worst.bulk[column.key]
    times = slow.value / fast.value if fast.value else math.inf
    each = " for a row" if column.key == "us_row" else ""
    said = f"Slowest: {cell_name(worst.cell)}, {times:.3g} times as long{each}"
    if not (fast.estimable and slow.estimable):
        return f"{said}; with one execution of each it is not known how much the next would differ."
    if fast.high >= slow.low:
        return f"{said}; but their intervals overlap, so the two cannot be told apart."
    return f"{said} ({slow.low / fast.high:.3g} to {slow.high / fast.low:.3g})."


def _did(row: Row) -> str:
    """`22.1 s (21.8 to 22.4), 108,597 rows/s, 18.3 MB/s of input, WAL 41.2 MB/s`."""

    def told(key: str, form: Callable[[float], str], unit: str) -> str:
        each = row.bulk[key]
        ends = interval(each, form, " to ") if each.estimable else ""
        return f"{form(each.value)}{unit}" + (f" ({ends})" if ends else "")

    parts = [told("seconds", span, "")]
    if "rows_s" in row.bulk and row.bulk["rows_s"].value:
        parts.append(told("rows_s", rate, " rows/s"))
    if "input_s" in row.bulk:
        parts.append(f"{size_text(row.bulk['input_s'].value)}/s of input")
    if "wal_s" in row.bulk:
        parts.append(f"WAL {size_text(row.bulk['wal_s'].value)}/s")
    return "It took " + ", ".join(parts)


def about_commands(rows: Sequence[Row]) -> bool:
    """Whether all that was run is about a command."""
    ran = [digest.trial for row in rows for digest in row.trials]
    return bool(ran) and all(bulk.about_command(trial) for trial in ran)


def nothing_else(rows: Sequence[Row]) -> bool:
    """Whether that is all there is to say: no queries beside them, and no latency limit."""
    trials = [digest.trial for row in rows for digest in row.trials]
    limited = any(trial.plan.limit_ns or trial.plan.limits for trial in trials)
    return all(bulk.alone(trial) for trial in trials) and not limited


def of_digest(digest: Digest) -> Bulk | None:
    """What the command of a trial did."""
    return bulk.of(digest.trial, digest.summary)


def median_s(row: Row) -> float | None:
    """The middle one of the trials' medians, seconds."""
    found = [each.median_s for d in row.trials if (each := of_digest(d)) and each.median_s]
    return median(found) if found else None


def failed(rows: Iterable[Row]) -> tuple[int, int, str]:
    """How many executions had no good end, of how many, and what the first of them said."""
    lost = due = 0
    first = ""
    for row in rows:
        for digest in row.trials:
            found = of_digest(digest)
            if found is None:
                continue
            due += found.counts.due
            lost += found.counts.due - found.done
            for state, text in digest.summary.messages.items():
                first = first or f"{state}: {text.splitlines()[-1] if text else 'it said nothing'}"
    return lost, due, first
