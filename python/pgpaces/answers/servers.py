"""Observations of servers during a trial, as lines and as tables. Texts are unescaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

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


def _dead(one: Grown) -> str:
    if one.dead_before is None or one.dead_after is None:
        return NOT_KNOWN
    return f"{one.dead_before:,} to {one.dead_after:,}"


# A table: its key, its title, the number of label columns, columns, rows, and note.
_Listed = tuple[str, str, int, Sequence[Column[Any]], Sequence[Any], str]
_WAITS: tuple[Column[tuple[str, str, float, float]], ...] = (
    ("sessions of", lambda one: one[0]),
    ("waited for", lambda one: _event(one[1])),
    ("sessions, mean", lambda one: f"{one[2]:.3g}"),
    ("share %", lambda one: percent(one[3])),
)
_BLOCKED: tuple[Column[Blocked], ...] = (
    ("waiting", lambda one: one.waiting),
    ("for", lambda one: f"{one.event} {one.mode}".strip()),
    ("blocked by", lambda one: one.blocking or NOT_KNOWN),
    (
        "which did",
        lambda one: f"{one.state}: {one.statement}" if one.statement else one.state or "hidden",
    ),
    ("seen", lambda one: str(one.samples)),
    ("second", lambda one: f"{one.first_s} to {one.last_s}"),
)
_GROWN: tuple[Column[Grown], ...] = (
    ("relation", lambda one: one.name),
    ("is", lambda one: one.kind),
    ("before", lambda one: memory_text(one.before_bytes)),
    ("after", lambda one: memory_text(one.after_bytes)),
    ("grew by", lambda one: f"{'-' if _growth(one) < 0 else '+'}{memory_text(abs(_growth(one)))}"),
    ("dead tuples", _dead),
)
# Statements with their share of the time.
_EXECUTED: tuple[Column[tuple[Executed, float]], ...] = (
    ("statement", lambda one: one[0].text),
    ("role", lambda one: "the load" if one[0].load else "others"),
    ("calls", lambda one: f"{one[0].calls:,}"),
    ("time %", lambda one: percent(one[1])),
    (header("mean"), lambda one: ms(one[0].total_ms / one[0].calls)),
    ("rows", lambda one: f"{one[0].rows:,}"),
    ("blocks hit", lambda one: f"{one[0].blocks_hit:,}"),
    ("blocks read", lambda one: f"{one[0].blocks_read:,}"),
    ("WAL", lambda one: or_dash(one[0].wal_bytes, memory_text)),
)
_MOVED: tuple[Column[Moved], ...] = (
    ("counter", lambda one: f"{one.source} {one.name.replace('_', ' ')}"),
    (
        "went up by",
        lambda one: (
            memory_text(one.value) if one.unit == "B" else f"{one.value:,.0f} {one.unit}".strip()
        ),
    ),
)


def tables(every: Sequence[Observed]) -> tuple[Table, ...]:
    shown = []
    for observed in every:
        for key, title, labels, columns, rows, note in _tables(observed):
            node = {"title": title, "node": observed.node}
            whole = message("title-of-node", **node) if observed.node else title
            made = table(key, whole, columns, items=rows, labels=labels, note=note, folded=True)
            shown += [made] if rows else []
    return tuple(shown)


def _tables(observed: Observed) -> Iterator[_Listed]:
    means = [(who, *one) for who in ("load", "others")
             for one in waits.top_events(observed.waits, who, _EVENTS_MAX)]  # fmt: skip
    looks = message("table-waits", samples=observed.waits.looks)
    yield "waits", message("title-waits"), 2, _WAITS, means, looks
    yield "blocked", message("title-blocked"), 4, _BLOCKED, observed.blocked[:_ROWS_MAX], ""
    grown = [
        one
        for one in observed.grown[:_ROWS_MAX]
        if _growth(one) or one.dead_before != one.dead_after
    ]
    yield "grown", message("title-grown"), 2, _GROWN, grown, message("table-growth")
    total = sum(one.total_ms for one in observed.executed) or 1.0
    executed = [(one, one.total_ms / total) for one in observed.executed]
    note = message("table-statements")
    yield "executed", message("title-executed"), 2, _EXECUTED, executed, note
    moved = [one for one in observed.moved if one.value]
    yield "moved", message("title-moved"), 1, _MOVED, moved, message("table-counters")
