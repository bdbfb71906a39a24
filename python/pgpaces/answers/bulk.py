"""Commands that are timed: their results, and as the work of cells in place of transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgpaces.analysis import bulk
from pgpaces.analysis.bulk import Bulk
from pgpaces.analysis.cells import Row
from pgpaces.answers.trials import cell_name
from pgpaces.core.messages import Message, said
from pgpaces.core.metrics import header
from pgpaces.show.screen import bounds
from pgpaces.show.section import Values
from pgpaces.spec.result import Trial

# Messages for the numbers of a cell.
_SPEEDS = {
    "seconds": "bulk-seconds",
    "rows_s": "bulk-rows",
    "input_s": "bulk-input",
    "wal_s": "bulk-wal",
}
# Numbers with a chart.
CHARTS = ("rows_s", "seconds", "wal_row", "us_row")
# Columns that a narrow terminal omits first.
SPARE = tuple(map(header, ("input_s", "wal_s", "wal_row", "wal_byte", "us_row")))


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
        rows = command.rows / command.executions
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
    if command.size_before_bytes is not None and command.size_after_bytes is not None:
        sizes = {"before": command.size_before_bytes, "after": command.size_after_bytes}
        yield said("command-database", **sizes)
    if command.cpu_s is not None and command.spent_s:
        percent = 100 * command.cpu_s / command.spent_s
        yield said("command-cpu", cpu_s=command.cpu_s, cpu_percent=percent)
    if command.broken and command.whole:
        yield said("command-broken")
    if command.others_wrote:
        yield said("command-shared")


def load(trial: Trial) -> Message:
    """How often the command ran."""
    plan = trial.plan
    if (times := plan.transactions) is not None:
        return said("command-times", times=times)
    return said("command-repeated", planned_s=(plan.duration_ns or 0) / 1e9)


def of_cells(rows: Sequence[Row]) -> tuple[str, ...] | None:
    """The numbers of which any cell has one, if each trial is about a command; else None."""
    trials = [digest.trial for row in rows for digest in row.trials]
    if not trials or not all(trial.workload.about_command for trial in trials):
        return None
    known = {name for row in rows for name in row.estimates}
    return tuple(name for name in bulk.NAMES if name in known)


def values(rows: Sequence[Row]) -> Values:
    """What is known about the cells. The first value is the answer where there is no limit."""
    able = [row for row in rows if "seconds" in row.estimates]
    sound = [row for row in able if row.sound]
    if len(able) == 1:
        yield "took", said("bulk-took", took=_took(able[0]))
    elif len(sound) < 2:
        yield "fastest", said("bulk-fastest-unknown" if able else "bulk-none")
    else:
        # Cells that loaded different numbers of rows are compared by the time per row.
        loads = [
            row.estimates["seconds"].value / row.estimates["us_row"].value
            for row in able
            if "us_row" in row.estimates
        ]
        differ = len(loads) == len(able) and max(loads) > 1.02 * min(loads)
        key = "us_row" if differ else "seconds"
        best, *_, worst = sorted(sound, key=lambda row: row.estimates[key].value)
        yield "fastest", said("bulk-cell", cell=cell_name(best.cell), took=_took(best))
        yield "slowest", said("bulk-cell", cell=cell_name(worst.cell), took=_took(worst))
        if differ:
            yield "compared", said("bulk-by-row")
    digests = [digest for row in rows for digest in row.trials]
    commands = [c for each in digests if (c := bulk.of(each.trial, each.summary)) is not None]
    due = sum(command.counts.due for command in commands)
    if lost := due - sum(command.done for command in commands):
        errors = (one for digest in digests for one in digest.summary.messages.items())
        state, text = next(errors, ("unknown", ""))
        error = ": ".join([state, *text.splitlines()[-1:]])
        yield "failed", said("bulk-lost", lost=lost, due=due, error=error)


def _took(row: Row) -> list[Message]:
    """The seconds, and what is known of rows, input, and WAL per second."""
    known = {name: {"value": one.value, "ci": bounds(one)} for name, one in row.estimates.items()}
    shown = [name for name in _SPEEDS if name in known and known[name]["value"]]
    return [said(_SPEEDS[name], **known[name]) for name in shown]
