"""The record of a second: the outcomes that became known in it, each number declared once.

A declaration specifies how a number is merged over loads, whether it is stored, and its range. The
columns of the store, reading and writing them, merging, and copying from the engine follow from it.
A new number needs a line here, an upgrade of the store, and its measurement. Knows no store and no
engine.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from pgpaces.core.findings import Finding, Notes
from pgpaces.core.times import Times, merge

Merge = Callable[[Sequence[Any]], Any]
Part = TypeVar("Part", "Tally", "StatementTally")
Record = TypeVar("Record", "Interval", "Tally", "StatementTally")


class FieldRule(Struct, frozen=True):
    """The properties of a field of the record.

    merge: combines the values of several loads in one second. stored: it has a column. small: it
    fits into 32 bits. key: part of the key within a second.
    """

    merge: Merge | None = None
    stored: bool = True
    small: bool = False
    key: bool = False


def _joined(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(chain.from_iterable(parts))


def _counted(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return dict(sum((Counter(part) for part in parts), Counter()))


def _once(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    notes = Notes()
    notes.add(*chain.from_iterable(parts))
    return tuple(notes)


Count = Annotated[int, Meta(ge=0)]
_Key = Annotated[Count, FieldRule(small=True, key=True)]
_SignedKey = Annotated[int, FieldRule(small=True, key=True)]
_Number = Annotated[Count, FieldRule(sum)]
_SmallNumber = Annotated[Count, FieldRule(sum, small=True)]
_Largest = Annotated[Count, FieldRule(max)]
_Times = Annotated[Times, FieldRule(merge)]
_Texts = tuple[tuple[str, str], ...]
_ByThread = Annotated[tuple[Count, ...], FieldRule()]


class Tally(Struct, frozen=True):
    """Outcomes that became known in one second, of one script's transactions of one due second.

    due = on_time + late + skipped + sum(failed) + unfinished, summed over all tallies of a due
    second and script, when the trial is over. failed: by SQLSTATE. retried: the number, of those
    that succeeded or failed, with more than one try. retries: tries after the first, of all.
    """

    due_second: _SignedKey
    script: _Key
    due: _Number = 0
    on_time: _Number = 0
    late: _Number = 0
    skipped: _Number = 0
    failed: Annotated[Mapping[str, Count], FieldRule(_counted)] = field(default_factory=dict)
    unfinished: _Number = 0
    latency: _Times = Times()
    lag: _Times = Times()
    service: _Times = Times()
    retried: _Number = 0
    retries: _Number = 0


class StatementTally(Struct, frozen=True):
    """Times of one command of a script that ended in one second.

    failed: failures that ended their transaction. retries: failures followed by another try.
    """

    script: _Key
    command: _Key
    failed: _Number = 0
    times: _Times = Times()
    retries: _Number = 0


class Missed(Struct, frozen=True, array_like=True):
    """A transaction that was not on time. Times in ns from the start of the measured part.

    pid: the server's process that ran it; 0: unknown. outcome: late, skipped, failed, unfinished.
    """

    due_ns: int
    sent_ns: int
    done_ns: int
    script: int
    pid: int
    outcome: str
    sqlstate: str = "00000"


class Interval(Struct, frozen=True):
    """The record of one second; second 0 begins the measured part.

    cpu_ns: CPU time of each worker thread. dispatch: lag of transactions whose client was idle
    when they were due. in_flight_ns: integral of transactions in flight. ended_ns: its end.
    pending_ns: integral of due and unfinished transactions; negative for what ended in the second
    before and is known now. waited_ns: time from due to end of those that ended. Both 0 in a closed
    load.
    connect_ns: time to connect and disconnect, if every transaction has its own connection.
    aborted: the thread of each client that gave up. lines: level (error, warning, info, or plain
    for one without prefix) and text of lines to print immediately, in pgbench's words.
    outages: clients that got a lost connection back. outage_ns_max: the longest of these outages,
    and of those that last when the run ends. down: clients without a connection at its end.
    some_down_ns, all_down_ns: how long at least one client was without a connection, and all were.
    missed: of a load that traces them; not stored.
    """

    second: _SignedKey
    tallies: tuple[Tally, ...] = ()
    statements: tuple[StatementTally, ...] = ()
    messages: Annotated[_Texts, FieldRule(_joined)] = ()
    cpu_ns: _ByThread = ()
    dispatch: _Times = Times()
    in_flight_ns: _Number = 0
    pending_ns: Annotated[int, FieldRule(sum)] = 0
    waited_ns: _Number = 0
    ended_ns: Annotated[int, FieldRule(max)] = 0
    connects: _SmallNumber = 0
    disconnects: _SmallNumber = 0
    notes: Annotated[tuple[Finding, ...], FieldRule(_once, stored=False)] = ()
    connect_ns: _Number = 0
    aborted: _ByThread = ()
    lines: Annotated[_Texts, FieldRule(_joined, stored=False)] = ()
    outages: _SmallNumber = 0
    outage_ns_max: _Largest = 0
    down: _SmallNumber = 0
    some_down_ns: _Largest = 0
    all_down_ns: Annotated[Count, FieldRule(min)] = 0
    missed: tuple[Missed, ...] = ()


class Declared(Struct, frozen=True):
    name: str
    type: Any
    rule: FieldRule

    @property
    def is_times(self) -> bool:
        """Whether it is a distribution, which has several columns in the store."""
        return self.type is Times


@functools.cache
def declared(kind: type[Any]) -> tuple[Declared, ...]:
    hints = get_type_hints(kind, include_extras=True).items()
    annotated = {name: get_args(hint) for name, hint in hints if get_origin(hint) is Annotated}
    return tuple(Declared(name, type_, rule) for name, (type_, *_, rule) in annotated.items())


TIMES = Times.__struct_fields__


def _copied(one: Declared, value: Any) -> Any:
    if one.is_times:
        return Times(*(getattr(value, name) for name in TIMES))
    if one.type is int:
        return value
    return dict(value) if get_origin(one.type) is Mapping else tuple(value)


def copied(kind: type[Record], source: Any) -> Record:
    """A record of this class from an object whose attributes have the same names."""
    values = {one.name: _copied(one, getattr(source, one.name)) for one in declared(kind)}
    if issubclass(kind, Interval):
        values["tallies"] = tuple(copied(Tally, each) for each in source.tallies)
        values["statements"] = tuple(copied(StatementTally, each) for each in source.statements)
    return kind(**values)


def row(record: Interval | Tally | StatementTally) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for one in declared(type(record)):
        value = getattr(record, one.name)
        if one.is_times:
            values |= {f"{one.name}_{name}": getattr(value, name) for name in TIMES}
        elif one.rule.stored:
            values[one.name] = _plain(value)
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


def of_row(kind: type[Struct], row: Mapping[Any, Any]) -> dict[str, Any]:
    """The values of a row's record, without its parts, as msgspec converts them."""
    values: dict[str, Any] = {}
    for one in declared(kind):
        if one.is_times:
            values[one.name] = {name: row[f"{one.name}_{name}"] for name in TIMES}
        elif one.rule.stored:
            values[one.name] = row[one.name]
    return values


class Offset(Struct, frozen=True):
    """The offset of the numbers of a load's scripts and threads among those of all."""

    script: int
    thread: int


def merged(parts: Sequence[tuple[Offset, Interval]], threads: int, *, everyone: bool) -> Interval:
    """One second of several loads. threads: of all of them. Loads may have scripts in common.

    down: clients of all of them; all_down_ns: no client had a connection. everyone: every load is
    among the parts; if some have ended, an outage of the others is not one of all.
    """
    intervals = [part for _, part in parts]
    values = _merged(intervals)
    cpu_ns = [0] * threads
    for offset, part in parts:
        cpu_ns[offset.thread : offset.thread + len(part.cpu_ns)] = part.cpu_ns
    return Interval(
        **values | ({} if everyone else {"all_down_ns": 0}),
        second=intervals[0].second,
        tallies=_moved((offset, part.tallies) for offset, part in parts),
        statements=_moved((offset, part.statements) for offset, part in parts),
        cpu_ns=tuple(cpu_ns),
        aborted=tuple(at.thread + number for at, part in parts for number in part.aborted),
        missed=tuple(
            replace(each, script=each.script + at.script)
            for at, part in parts
            for each in part.missed
        ),
    )


def _moved(parts: Iterable[tuple[Offset, Sequence[Part]]]) -> tuple[Part, ...]:
    """The tallies of all, with the numbers of scripts among those of all; equal keys are one."""
    return summed(
        replace(tally, script=tally.script + offset.script)
        for offset, tallies in parts
        for tally in tallies
    )


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum of tallies of any due seconds and scripts, as one of second 0 and script 0."""
    parts = tuple(tallies)
    return replace(_sum(parts), due_second=0, script=0) if parts else Tally(0, 0)


def summed(tallies: Iterable[Part]) -> tuple[Part, ...]:
    """The same counts with one tally for each key, in the order of their first ones."""
    by_key: dict[tuple[int, ...], list[Part]] = {}
    for tally in tallies:
        key = tuple(getattr(tally, each.name) for each in declared(type(tally)) if each.rule.key)
        by_key.setdefault(key, []).append(tally)
    return tuple(_sum(own) for own in by_key.values())


def _merged(parts: Sequence[Interval] | Sequence[Part]) -> dict[str, Any]:
    return {
        one.name: one.rule.merge([getattr(part, one.name) for part in parts])
        for one in declared(type(parts[0]))
        if one.rule.merge is not None
    }


def _sum(tallies: Sequence[Part]) -> Part:
    return tallies[0] if len(tallies) == 1 else replace(tallies[0], **_merged(tallies))
