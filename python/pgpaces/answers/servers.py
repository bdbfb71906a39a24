"""Observations of servers during a trial, as lines and as tables. Texts are unescaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pgpaces.analysis import waits
from pgpaces.core.metrics import header
from pgpaces.core.units import memory_text
from pgpaces.show.numbers import NOT_KNOWN, ms, or_dash, percent
from pgpaces.show.section import Column, Table, table
from pgpaces.spec.result import Blocked, Executed, Grown, Moved, Observed, Trial

_LINES_MAX = 3
_EVENTS_MAX = 12
_ROWS_MAX = 20
# Less growth over the whole trial is not reported as a line.
_GREW_MIN_BYTES = 1 << 16
# With fewer observations, shares mean nothing.
_SESSIONS_MIN = 10
_CPU = "CPU or run queue"


def lines(trial: Trial) -> Iterator[str]:
    for observed in trial.observed:
        where = f"{observed.node}: " if observed.node else ""
        yield from (f"{where}{text}" for text in _lines(observed))


def _lines(observed: Observed) -> Iterator[str]:
    top = waits.top(observed.waits, most=5)
    if waits.observations(observed.waits) >= _SESSIONS_MIN:
        means = ", ".join(
            f"{_event(name)} {mean:.2g} ({percent(share)}%)" for name, mean, share in top
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
    if executed := observed.executed:
        total = sum(one.total_ms for one in executed) or 1.0
        own = sum(one.total_ms for one in executed if one.load)
        yield (
            f"statements: {percent(own / total)}% of their time on the server was of the load's"
            f" role; most ({percent(executed[0].total_ms / total)}%) took: {executed[0].text}"
        )


def _event(name: str) -> str:
    return _CPU if name == waits.CPU else name


def _growth(grown: Grown) -> int:
    return grown.after_bytes - grown.before_bytes


def tables(every: Sequence[Observed]) -> tuple[Table, ...]:
    shown = []
    for observed in every:
        of = f" on {observed.node}" if observed.node else ""
        made = [make(observed, of) for make in (_waits, _blocked, _grown, _executed, _moved)]
        shown += [replace(each, folded=True) for each in made if each.rows]
    return tuple(shown)


def _waits(observed: Observed, of: str) -> Table:
    columns: list[Column[tuple[str, str, float, float]]] = [
        ("sessions of", lambda one: one[0]),
        ("waited for", lambda one: _event(one[1])),
        ("sessions, mean", lambda one: f"{one[2]:.3g}"),
        ("share %", lambda one: percent(one[3])),
    ]
    every = [
        (who, *one)
        for who in ("load", "others")
        for one in waits.top(observed.waits, who, _EVENTS_MAX)
    ]
    note = (
        f"Of sessions that executed something, in {observed.waits.looks:,} samples, ten a second. A"
        " session without a wait event is on a CPU, or waits for one."
    )
    return table(
        "waits", f"What sessions waited for{of}", columns, items=every, labels=2, note=note
    )


def _blocked(observed: Observed, of: str) -> Table:
    columns: list[Column[Blocked]] = [
        ("waiting", lambda one: one.waiting),
        ("for", lambda one: f"{one.event} {one.mode}".strip()),
        ("blocked by", lambda one: one.blocking or NOT_KNOWN),
        (
            "which did",
            lambda one: f"{one.state}: {one.statement}" if one.statement else one.state or "hidden",
        ),
        ("seen", lambda one: str(one.samples)),
        ("second", lambda one: f"{one.first_s} to {one.last_s}"),
    ]
    return table(
        "blocked", f"Who blocked whom{of}", columns, items=observed.blocked[:_ROWS_MAX], labels=4
    )


def _grown(observed: Observed, of: str) -> Table:
    columns: list[Column[Grown]] = [
        ("relation", lambda one: one.name),
        ("is", lambda one: one.kind),
        ("before", lambda one: memory_text(one.before_bytes)),
        ("after", lambda one: memory_text(one.after_bytes)),
        ("grew by", lambda one: _signed(_growth(one))),
        ("dead tuples", _dead),
    ]
    note = (
        "From the start of the load, with its warm-up, to its end, without unchanged relations;"
        " TOAST counts with its table."
    )
    changed = [
        one
        for one in observed.grown[:_ROWS_MAX]
        if _growth(one) or one.dead_before != one.dead_after
    ]
    return table("grown", f"What grew{of}", columns, items=changed, labels=2, note=note)


def _signed(growth: int) -> str:
    return f"{'-' if growth < 0 else '+'}{memory_text(abs(growth))}" if growth else "0"


def _dead(one: Grown) -> str:
    if one.dead_before is None or one.dead_after is None:
        return NOT_KNOWN
    return f"{one.dead_before:,} to {one.dead_after:,}"


def _executed(observed: Observed, of: str) -> Table:
    total = sum(one.total_ms for one in observed.executed) or 1.0
    columns: list[Column[Executed]] = [
        ("statement", lambda one: one.text),
        ("role", lambda one: "the load" if one.load else "others"),
        ("calls", lambda one: f"{one.calls:,}"),
        ("time %", lambda one: percent(one.total_ms / total)),
        (header("mean"), lambda one: ms(one.total_ms / one.calls)),
        ("rows", lambda one: f"{one.rows:,}"),
        ("blocks hit", lambda one: f"{one.blocks_hit:,}"),
        ("blocks read", lambda one: f"{one.blocks_read:,}"),
        ("WAL", lambda one: or_dash(one.wal_bytes, memory_text)),
    ]
    note = "By pg_stat_statements, from the start of the load, with its warm-up, to its end."
    return table(
        "executed",
        f"Statements on the server{of}",
        columns,
        items=observed.executed,
        labels=2,
        note=note,
    )


def _moved(observed: Observed, of: str) -> Table:
    columns: list[Column[Moved]] = [
        ("counter", lambda one: f"{one.source} {one.name.replace('_', ' ')}"),
        ("went up by", lambda one: _amount(one.value, one.unit)),
    ]
    every = [one for one in observed.moved if one.value]
    note = "From the start of the measured part to the end of the load, without unchanged counters."
    return table("moved", f"Counters{of}", columns, items=every, note=note)


def _amount(value: float, unit: str) -> str:
    return memory_text(value) if unit == "B" else f"{value:,.0f} {unit}".strip()
