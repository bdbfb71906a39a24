"""Observations of servers during a trial, as lines and as tables. Texts are unescaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pgpaces.analysis import waits
from pgpaces.core.messages import Message, message, said
from pgpaces.core.metrics import header
from pgpaces.core.units import memory_text
from pgpaces.show.numbers import NOT_KNOWN, ms, or_dash, percent
from pgpaces.show.section import Column, Table, table
from pgpaces.spec.result import Blocked, Executed, Grown, Moved, Observed, Trial, fields

T = TypeVar("T")

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
        for pair in observed.blocked[:1]:
            seen = fields(pair, "waiting", "event", "blocking", "statement", "samples")
            yield said("observed-blocked", node=node, pairs=len(observed.blocked), **seen)
        grew = [one for one in observed.grown if _growth(one) >= _GREW_MIN_BYTES]
        for one in grew[:_LINES_MAX]:
            sizes = fields(one, "before_bytes", "after_bytes")
            yield said("observed-growth", node=node, relation=one.name, **sizes)
        if shares := _shares(observed):
            share = sum(share for one, share in shares if one.load)
            first, most = shares[0]
            yield said(
                "observed-statements", node=node, share=share, statement=first.text, most=most
            )


def _shares(observed: Observed) -> list[tuple[Executed, float]]:
    """The statements, each with its share of the time of all of them."""
    total = sum(one.total_ms for one in observed.executed) or 1.0
    return [(one, one.total_ms / total) for one in observed.executed]


def _event(name: str) -> str:
    return _CPU if name == waits.CPU else name


def _growth(grown: Grown) -> int:
    return grown.after_bytes - grown.before_bytes


def _dead(one: Grown) -> str:
    if one.dead_before is None or one.dead_after is None:
        return NOT_KNOWN
    return f"{one.dead_before:,} to {one.dead_after:,}"


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
    return tuple(each for observed in every for each in _tables(observed) if each.rows)


def _tables(observed: Observed) -> Iterator[Table]:
    def of_node(key: str, columns: Sequence[Column[T]], items: Iterable[T], **more: Any) -> Table:
        title = message(f"title-{key}")
        if observed.node:
            title = message("title-of-node", title=title, node=observed.node)
        return table(key, title, columns, items=items, folded=True, **more)

    means = [(who, *one) for who in ("load", "others")
             for one in waits.top_events(observed.waits, who, _EVENTS_MAX)]  # fmt: skip
    looks = message("table-waits", samples=observed.waits.looks)
    yield of_node("waits", _WAITS, means, labels=2, note=looks)
    yield of_node("blocked", _BLOCKED, observed.blocked[:_ROWS_MAX], labels=4)
    changed = (o for o in observed.grown[:_ROWS_MAX] if _growth(o) or o.dead_before != o.dead_after)
    yield of_node("grown", _GROWN, changed, labels=2, note=message("table-growth"))
    note = message("table-statements")
    yield of_node("executed", _EXECUTED, _shares(observed), labels=2, note=note)
    moved = (one for one in observed.moved if one.value)
    yield of_node("moved", _MOVED, moved, note=message("table-counters"))
