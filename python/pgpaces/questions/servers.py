"""Observations of servers during a trial, as lines and as tables. Texts are unescaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pgpaces.answers import waits
from pgpaces.report.numbers import milliseconds, percent
from pgpaces.result import Executed, Grown, Observed, Trial
from pgpaces.section import Table, TableCell
from pgpaces.units import memory_text

_LINES_MAX = 3
_EVENTS_MAX = 12
_ROWS_MAX = 20
# Less growth over the whole trial is not reported as a line.
_GREW_MIN_BYTES = 1 << 16
# With fewer observations, shares mean nothing.
_SESSIONS_MIN = 10
_CPU = "CPU or run queue"


def lines(trial: Trial) -> Iterator[str]:
    """Wait events, blocking sessions, growth and the busiest statement, in a few lines."""
    for observed in trial.observed:
        where = f"{observed.node}: " if observed.node else ""
        yield from (f"{where}{text}" for text in _lines(observed))


def _lines(observed: Observed) -> Iterator[str]:
    top = waits.top(observed.waits, most=5)
    observations = sum(event.sessions for event in observed.waits.events if event.who == "load")
    if observations >= _SESSIONS_MIN:
        means = ", ".join(
            f"{_event(name)} {mean:.2g} ({percent(share)} %)" for name, mean, share in top
        )
        yield f"sessions of the load that executed something, on average: {means}"
    if observed.blocked:
        first, more = observed.blocked[0], len(observed.blocked) - 1
        statement = f" ({first.statement})" if first.statement else ""
        others = f"; {more} other pairs" if more else ""
        yield (
            f"blocked: {first.waiting} waited for {first.event} of"
            f" {first.blocking or 'a session'}{statement}, seen {first.samples} times{others}"
        )
    grew = [one for one in observed.grown if _growth(one) >= _GREW_MIN_BYTES][:_LINES_MAX]
    if grew:
        sizes = (
            f"{one.name} {memory_text(one.before_bytes)} to {memory_text(one.after_bytes)}"
            for one in grew
        )
        yield f"grew: {', '.join(sizes)}"
    if observed.executed:
        yield _busiest(observed.executed)


def _event(name: str) -> str:
    return _CPU if name == waits.CPU else name


def _growth(grown: Grown) -> int:
    return grown.after_bytes - grown.before_bytes


def _busiest(executed: Sequence[Executed]) -> str:
    total = sum(one.total_ms for one in executed) or 1.0
    own = sum(one.total_ms for one in executed if one.load)
    top = executed[0]
    return (
        f"statements: {percent(own / total)} % of their time on the server was of the load's role;"
        f" most ({percent(top.total_ms / total)} %) took: {top.text}"
    )


def tables(every: Sequence[Observed]) -> tuple[Table, ...]:
    """The observations of the servers of a trial, a table for each kind and server."""
    nonempty = (table for observed in every for table in _tables(observed) if table.rows)
    return tuple(replace(table, folded=True) for table in nonempty)


def _tables(observed: Observed) -> Iterator[Table]:
    of = f" on {observed.node}" if observed.node else ""
    yield _waits(observed, of)
    yield _blocked(observed, of)
    yield _grown(observed, of)
    yield _executed(observed, of)
    yield _moved(observed, of)


def _waits(observed: Observed, of: str) -> Table:
    rows = tuple(
        (
            TableCell(who),
            TableCell(_event(name)),
            TableCell(f"{mean:.3g}"),
            TableCell(percent(share)),
        )
        for who in ("load", "others")
        for name, mean, share in waits.top(observed.waits, who, _EVENTS_MAX)
    )
    columns = ("sessions of", "waited for", "sessions, mean", "share %")
    note = (
        f"Of sessions that executed something, in {observed.waits.looks:,} samples, ten a second. A"
        " session without a wait event is on a CPU, or waits for one."
    )
    return Table("waits", f"What sessions waited for{of}", columns, 2, rows, note)


def _blocked(observed: Observed, of: str) -> Table:
    rows = tuple(
        (
            TableCell(one.waiting),
            TableCell(f"{one.event} {one.mode}".strip()),
            TableCell(one.blocking or "-"),
            TableCell(f"{one.state}: {one.statement}" if one.statement else one.state or "hidden"),
            TableCell(str(one.samples)),
            TableCell(f"{one.first_s} to {one.last_s}"),
        )
        for one in observed.blocked[:_ROWS_MAX]
    )
    columns = ("waiting", "for", "blocked by", "which did", "seen", "second")
    return Table("blocked", f"Who blocked whom{of}", columns, 4, rows)


def _grown(observed: Observed, of: str) -> Table:
    rows = tuple(
        (
            TableCell(one.name),
            TableCell(one.kind),
            TableCell(memory_text(one.before_bytes)),
            TableCell(memory_text(one.after_bytes)),
            TableCell(_signed(_growth(one))),
            TableCell(_dead(one)),
        )
        for one in observed.grown[:_ROWS_MAX]
        if _growth(one) or one.dead_before != one.dead_after
    )
    columns = ("relation", "is", "before", "after", "grew by", "dead tuples")
    note = (
        "From the start of the load, with its warm-up, to its end, without unchanged relations;"
        " TOAST counts with its table."
    )
    return Table("grown", f"What grew{of}", columns, 2, rows, note)


def _signed(growth: int) -> str:
    return f"{'-' if growth < 0 else '+'}{memory_text(abs(growth))}" if growth else "0"


def _dead(one: Grown) -> str:
    if one.dead_before is None or one.dead_after is None:
        return "-"
    return f"{one.dead_before:,} to {one.dead_after:,}"


def _executed(observed: Observed, of: str) -> Table:
    total = sum(one.total_ms for one in observed.executed) or 1.0
    rows = tuple(
        (
            TableCell(one.text),
            TableCell("the load" if one.load else "others"),
            TableCell(f"{one.calls:,}"),
            TableCell(percent(one.total_ms / total)),
            TableCell(milliseconds(one.total_ms / one.calls, "-")),
            TableCell(f"{one.rows:,}"),
            TableCell(f"{one.blocks_hit:,}"),
            TableCell(f"{one.blocks_read:,}"),
            TableCell("-" if one.wal_bytes is None else memory_text(one.wal_bytes)),
        )
        for one in observed.executed
    )
    columns = (
        "statement", "role", "calls", "time %", "mean ms", "rows", "blocks hit", "blocks read",
        "WAL",
    )  # fmt: skip
    note = "By pg_stat_statements, from the start of the load, with its warm-up, to its end."
    return Table("executed", f"Statements on the server{of}", columns, 2, rows, note)


def _moved(observed: Observed, of: str) -> Table:
    rows = tuple(
        (
            TableCell(f"{one.source} {one.name.replace('_', ' ')}"),
            TableCell(_amount(one.value, one.unit)),
        )
        for one in observed.moved
        if one.value
    )
    note = "From the start of the measured part to the end of the load, without unchanged counters."
    return Table("moved", f"Counters{of}", ("counter", "went up by"), 1, rows, note)


def _amount(value: float, unit: str) -> str:
    return memory_text(value) if unit == "B" else f"{value:,.0f} {unit}".strip()
