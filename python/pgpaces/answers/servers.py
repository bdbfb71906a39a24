"""Observations of servers during a trial, as lines and as tables. Texts are unescaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pgpaces.analysis import waits
from pgpaces.core.messages import Message, message, said
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


def lines(trial: Trial) -> Iterator[Message]:
    """What stands out on each node of a trial."""
    for observed in trial.observed:
        node = observed.node or "primary"
        if waits.observations(observed.waits) >= _SESSIONS_MIN:
            top = waits.top_events(observed.waits, most=5)
            means = {_event(name): f"{mean:.2g}" for name, mean, _ in top}
            yield said("observed-sessions", node=node, means=means)
        if observed.blocked:
            first = observed.blocked[0]
            yield said(
                "observed-blocked",
                node=node,
                pairs=len(observed.blocked),
                waiting=first.waiting,
                event=first.event,
                blocking=first.blocking,
                statement=first.statement,
                samples=first.samples,
            )
        grew = [one for one in observed.grown if _growth(one) >= _GREW_MIN_BYTES][:_LINES_MAX]
        for one in grew:
            sizes = {"before_bytes": one.before_bytes, "after_bytes": one.after_bytes}
            yield said("observed-growth", node=node, relation=one.name, **sizes)
        if executed := observed.executed:
            total = sum(one.total_ms for one in executed) or 1.0
            yield said(
                "observed-statements",
                node=node,
                share=sum(one.total_ms for one in executed if one.load) / total,
                statement=executed[0].text,
                most=executed[0].total_ms / total,
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
        for one in waits.top_events(observed.waits, who, _EVENTS_MAX)
    ]
    note = message("table-waits", samples=observed.waits.looks)
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
    note = message("table-growth")
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
    note = message("table-statements")
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
    note = message("table-counters")
    return table("moved", f"Counters{of}", columns, items=every, note=note)


def _amount(value: float, unit: str) -> str:
    return memory_text(value) if unit == "B" else f"{value:,.0f} {unit}".strip()
