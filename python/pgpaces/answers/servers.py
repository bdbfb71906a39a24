"""Observations of servers during a trial, as lines and as tables. Texts are unescaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import asdict, replace

from pgpaces.analysis import waits
from pgpaces.core.messages import Message, message, said
from pgpaces.core.units import memory_text
from pgpaces.show.screen import table_of
from pgpaces.show.section import Table
from pgpaces.spec.result import Executed, Grown, Observed, Trial, fields

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
            events = waits.top_events(observed.waits, most=5)
            means = {_event(name): f"{mean:.2g}" for name, mean, _ in events}
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
            top, most = shares[0]
            yield said("observed-statements", node=node, share=share, statement=top.text, most=most)


def _shares(observed: Observed) -> list[tuple[Executed, float]]:
    """The statements, each with its share of the time of all of them."""
    total = sum(one.total_ms for one in observed.executed) or 1.0
    return [(one, one.total_ms / total) for one in observed.executed]


def _event(name: str) -> str:
    return _CPU if name == waits.CPU else name


def _growth(grown: Grown) -> int:
    return grown.after_bytes - grown.before_bytes


def tables(every: Sequence[Observed]) -> tuple[Table, ...]:
    shown = []
    for observed in every:
        for each in _tables(observed):
            node = {"title": each.title, "node": observed.node}
            title = message("title-of-node", **node) if observed.node else each.title
            shown += [replace(each, title=title, folded=True)] if each.rows else []
    return tuple(shown)


def _tables(observed: Observed) -> Iterator[Table]:
    waiting = [
        {"who": who, "event": _event(name), "mean": mean, "share": share}
        for who in ("load", "others")
        for name, mean, share in waits.top_events(observed.waits, who, _EVENTS_MAX)
    ]
    yield table_of("table-waits", waiting, labels=2, samples=observed.waits.looks)
    blocked = []
    for one in observed.blocked[:_ROWS_MAX]:
        did = ": ".join(filter(None, (one.state, one.statement))) or "hidden"
        blocked.append({**asdict(one), "by": one.blocking or None, "did": did})
    yield table_of("table-blocked", blocked, labels=4)
    grown = [
        {**asdict(one), "sign": "-" if _growth(one) < 0 else "+", "growth": abs(_growth(one))}
        for one in observed.grown[:_ROWS_MAX]
        if _growth(one) or one.dead_before != one.dead_after
    ]
    yield table_of("table-grown", grown, labels=2)
    executed = []
    for each, share in _shares(observed):
        more = {"role": "the load" if each.load else "others", "mean": each.total_ms / each.calls}
        executed.append({**asdict(each), **more, "share": share})
    yield table_of("table-executed", executed, labels=2)
    moved = []
    for counter in (counter for counter in observed.moved if counter.value):
        plain = f"{counter.value:,.0f} {counter.unit}".strip()
        increase = memory_text(counter.value) if counter.unit == "B" else plain
        name = counter.name.replace("_", " ")
        moved.append({"source": counter.source, "counter": name, "increase": increase})
    yield table_of("table-moved", moved)
