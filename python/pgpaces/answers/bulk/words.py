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
from pgpaces.core.messages import Message, said
from pgpaces.core.units import size_text
from pgpaces.show.numbers import in_words, rate, seconds
from pgpaces.show.screen import bounds
from pgpaces.show.section import Sentence
from pgpaces.spec.result import Estimate, Trial


def span(value: float) -> str:
    """A duration with three digits: `22.1 s`, `674 ms`, or in hours and minutes."""
    if value >= 5400:
        minutes = round(value / 60)
        return f"{minutes // 60} h {minutes % 60} min"
    return (
        f"{value:,.0f} s" if value >= 1000 else f"{value:.3g} s" if value >= 1 else seconds(value)
    )


def result(command: Bulk) -> Message:
    """How the executions of a command went, in one sentence."""
    counts, each = command.counts, command.seconds
    if not counts.due:
        return said("command-not-ended")
    if not command.whole:
        lost = counts.due - command.done
        ends = [*command.failures, *(("not ended",) if counts.unfinished else ())]
        return said("command-lost", lost=lost, due=counts.due, ends=ends or ["failed"])
    values = {
        "done": command.done,
        "each_s": each.value if each else None,
        "ci": bounds(each),
    }
    speed = bulk.number(command, "rows_s")
    if command.rows and command.clean and speed and speed.value:
        rows = command.rows / command.runs
        return said("command-loaded", rows=rows, rows_s=speed.value, **values)
    return said("command-ran", **values)


def speeds(command: Bulk) -> Iterator[tuple[str, Message]]:
    """Input and WAL per second."""
    found = {name: bulk.number(command, name) for name in bulk.NUMBERS}
    known = {name: each.value for name, each in found.items() if each is not None}
    if "input_s" in known:
        yield "input", said("command-input", speed=known["input_s"])
    if "wal_s" in known and "wal_byte" in known:
        of = {"speed": known["wal_s"], "each": known["wal_byte"]}
        yield "WAL", said("command-wal-byte", **of)
    elif "wal_s" in known:
        yield "WAL", said("command-wal-row", speed=known["wal_s"], each=known.get("wal_row"))


def lines(trial: Trial, command: Bulk) -> Iterator[Message]:
    if command.main:
        yield said("command-text", text=trial.workload.scripts[0].text)
    if each := bulk.number(command, "us_row"):
        yield said("command-row", us=each.value)
    if command.before_bytes is not None and command.after_bytes is not None:
        sizes = {"before": command.before_bytes, "after": command.after_bytes}
        yield said("command-database", **sizes)
    if command.cpu_s is not None and command.spent_s:
        percent = 100 * command.cpu_s / command.spent_s
        yield said("command-cpu", cpu_s=command.cpu_s, cpu_percent=percent)
    if command.broken and command.whole:
        yield said("command-broken")
    if command.shared:
        yield said("command-shared")


def load(trial: Trial) -> Message:
    """How often the command ran."""
    plan = trial.plan
    if (times := plan.transactions) is not None:
        return said("command-times", times=times)
    return said("command-repeated", planned_s=(plan.duration_ns or 0) / 1e9)


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
