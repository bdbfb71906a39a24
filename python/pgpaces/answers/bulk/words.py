"""The results of a command in words and as columns: seconds, rows, input and WAL.

Values in, unescaped texts out. The charts are in bars.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from statistics import median

from pgpaces.analysis import bulk
from pgpaces.analysis.bulk import Bulk
from pgpaces.analysis.cells import Row
from pgpaces.analysis.digest import Digest
from pgpaces.answers.measure import Measure
from pgpaces.answers.trials import cell_name
from pgpaces.core.units import size_text
from pgpaces.show.numbers import in_words, rate, seconds
from pgpaces.show.section import Headline, Sentence
from pgpaces.spec.result import Estimate, Trial


def span(value: float) -> str:
    """A duration with three digits: `22.1 s`, `674 ms`, or in hours and minutes."""
    if value >= 5400:
        minutes = round(value / 60)
        return f"{minutes // 60} h {minutes % 60} min"
    return (
        f"{value:,.0f} s" if value >= 1000 else f"{value:.3g} s" if value >= 1 else seconds(value)
    )


def of_bytes(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def sentence(command: Bulk) -> str:
    if not command.counts.due:
        return "no execution has ended"
    each = " each" if command.done > 1 else ""
    took = f"in {in_words(command.seconds, span, each)}" if command.seconds else ""
    if not command.whole:
        lost = command.counts.due - command.done
        only = f"; {command.done} succeeded, {took}" if command.done else ""
        how = f" ({', '.join(command.failures)})" if command.failures else ""
        cut = "was ended before its end" if command.counts.unfinished else ""
        failure = f"failed{how}" if command.counts.failed else ""
        ends = " or ".join(filter(None, (failure, cut)))
        of = (
            f"{lost} of {command.counts.due} executions"
            if command.counts.due > 1
            else "the command"
        )
        return f"{of} {ends}{only}"
    times = f" {command.done} times" if command.done > 1 else ""
    did = f"ran{times}"
    if command.rows and command.clean:
        rows = command.rows / command.runs
        did = f"loaded {rows:,.0f} row{'' if round(rows) == 1 else 's'}{times}"
    parts = ", ".join(_speeds(command))
    return f"{did} {took}" + (f": {parts}" if parts else "")


def headline(command: Bulk) -> Headline | None:
    """The answer of a trial without a latency limit, if the command is its own workload."""
    if not command.main or not command.counts.due:
        return None
    lost = command.counts.failed or command.counts.unfinished
    return Headline("FAIL" if lost else "", "fail" if lost else "", sentence(command))


def _speeds(command: Bulk) -> Iterator[str]:
    values = {name: bulk.number(command, name) for name in bulk.NUMBERS}
    if (rows := values["rows_s"]) and rows.value:
        yield f"{rate(rows.value)} rows/s"
    if each := values["input_s"]:
        yield f"{size_text(each.value)}/s of input"
    if wal := values["wal_s"]:
        text = f"WAL {size_text(wal.value)}/s"
        if by_byte := values["wal_byte"]:
            text += f" ({of_bytes(by_byte.value)} B of WAL per byte of input)"
        elif by_row := values["wal_row"]:
            text += f" ({of_bytes(by_row.value)} B of WAL per row)"
        yield text


def lines(trial: Trial, command: Bulk) -> Iterator[str]:
    if command.main:
        yield f"{trial.workload.scripts[0].text}, {load_text(trial)}"
    if each := bulk.number(command, "us_row"):
        yield f"a row took {of_bytes(each.value)} us on average"
    if command.before_bytes is not None and command.after_bytes is not None:
        after = size_text(command.after_bytes)
        yield f"database: {size_text(command.before_bytes)} before, {after} after"
    if command.cpu_s is not None and command.spent_s:
        share = 100 * command.cpu_s / command.spent_s
        yield f"the command itself used {span(command.cpu_s)} of CPU ({share:.0f}% of one)"
    if command.broken and command.whole:
        yield "an execution did not complete, so rows and WAL of the others are unknown"
    if command.shared:
        yield "rows and WAL include other sessions that wrote meanwhile, not the command alone"


def load_text(trial: Trial) -> str:
    plan = trial.plan
    if (times := plan.transactions) is not None:
        return "once" if times == 1 else f"{times} times, one after the other"
    return f"again and again for {span((plan.duration_ns or 0) / 1e9)}"


def _of_trial(key: str, digest: Digest) -> Estimate | None:
    command = of_digest(digest)
    return None if command is None else bulk.number(command, key)


NUMBERS = tuple(Measure(key, partial(_of_trial, key)) for key in ("seconds", *bulk.NUMBERS))


def numbers(rows: Iterable[Row]) -> tuple[Measure, ...]:
    keys = {name for row in rows for name in row.more}
    return tuple(number for number in NUMBERS if number.key in keys)


def sentences(rows: Sequence[Row]) -> Iterator[Sentence]:
    """Sentences about the cells, the most important first."""
    able = [row for row in rows if row.more]
    sound = [row for row in able if row.sound]
    main = _compared(able)
    if main is None:
        yield Sentence("No execution succeeded in any trial.", "main")
    elif len(able) == 1:
        yield Sentence(f"{_did(able[0])}.", "main")
    elif len(sound) < 2:
        yield Sentence("Which is the fastest is unknown: not two have valid trials.", "main")
    else:
        ranked = sorted(sound, key=lambda row: row.more[main.key].value)
        best, worst = ranked[0], ranked[-1]
        yield Sentence(f"Fastest: {cell_name(best.cell)}. {_did(best)}.", "main")
        yield Sentence(_worst(best, worst, main), "main")
        if main.key == "us_row":
            yield Sentence(
                "Cells are compared by the time per row, as they loaded different sizes."
            )
    lost, due, why = failed(rows)
    if lost:
        text = f"{lost} of {due} executions did not succeed. First failure: {why}"
        yield Sentence(text, "main")


def _compared(rows: Sequence[Row]) -> Measure | None:
    """The column to compare cells by: seconds, or us a row where they loaded different numbers."""
    common = {each.key: each for each in NUMBERS if rows and all(each.key in r.more for r in rows)}
    seconds, us_row = common.get("seconds"), common.get("us_row")
    if us_row is None or seconds is None:
        return seconds
    loads = [row.more["seconds"].value / row.more["us_row"].value for row in rows]
    return us_row if max(loads) > 1.02 * min(loads) else seconds


def _worst(best: Row, worst: Row, column: Measure) -> str:
    fast, slow = best.more[column.key], worst.more[column.key]
    times = slow.value / fast.value if fast.value else math.inf
    each = " for a row" if column.key == "us_row" else ""
    text = f"Slowest: {cell_name(worst.cell)}, {times:.3g} times as long{each}"
    if not (fast.estimable and slow.estimable):
        return f"{text}; with one execution of each, the spread between executions is unknown."
    if fast.high >= slow.low:
        return f"{text}; but their intervals overlap, so the difference may be noise."
    if not fast.low:
        return f"{text} (over {slow.low / fast.high:.3g})."
    return f"{text} ({slow.low / fast.high:.3g} to {slow.high / fast.low:.3g})."


def _did(row: Row) -> str:
    """`22.1 s (21.8 to 22.4), 108,597 rows/s, 18.3 MB/s of input, WAL 41.2 MB/s`."""
    parts = [in_words(row.more["seconds"], span, "")]
    if "rows_s" in row.more and row.more["rows_s"].value:
        parts.append(in_words(row.more["rows_s"], rate, " rows/s"))
    if "input_s" in row.more:
        parts.append(f"{size_text(row.more['input_s'].value)}/s of input")
    if "wal_s" in row.more:
        parts.append(f"WAL {size_text(row.more['wal_s'].value)}/s")
    return "It took " + ", ".join(parts)


def of_digest(digest: Digest) -> Bulk | None:
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
