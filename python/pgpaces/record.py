"""The record of a second: what became known in it, each number declared once.

A declaration says how a number is merged over loads, whether the store keeps it and what it may be.
From it follow the columns of the store, reading and writing them, merging, the copy of what the
engine tells, and validation of what was read. A new number is a line here, a migration, and what
measures it. Knows no store and no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.times import Times, merge

Merge = Callable[[Sequence[Any]], Any]
Part = TypeVar("Part", "Tally", "StatementTally")
Record = TypeVar("Record", "Interval", "Tally", "StatementTally")


class FieldRule(Struct, frozen=True):
    """How a field of the record is handled.

    merge: its values in several loads of one second, as one. stored: the store keeps it. small: it
    fits into 32 bits. signed: it may be negative. key: it tells records of one second apart.
    """

    merge: Merge | None = None
    stored: bool = True
    small: bool = False
    signed: bool = False
    key: bool = False


def _joined(found: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(each for part in found for each in part)


def _once(found: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(_joined(found)))


_Key = Annotated[int, FieldRule(small=True, key=True)]
_SignedKey = Annotated[int, FieldRule(small=True, signed=True, key=True)]
_Number = Annotated[int, FieldRule(sum)]
_SmallNumber = Annotated[int, FieldRule(sum, small=True)]
_Largest = Annotated[int, FieldRule(max)]
_Times = Annotated[Times, FieldRule(merge)]
_Texts = tuple[tuple[str, str], ...]
_ByThread = Annotated[tuple[int, ...], FieldRule()]


class Tally(Struct, frozen=True):
    """What became known in one second about one script's transactions of one due second.

    due = on_time + late + skipped + sum(failed) + unfinished, summed over all tallies of a due
    second and script, when the trial is over. failed: by SQLSTATE. retried: how many, of those that
    succeeded or failed, were tried more than once. retries: tries after the first, of all.
    """

    due_second: _SignedKey
    script: _Key
    due: _Number = 0
    on_time: _Number = 0
    late: _Number = 0
    skipped: _Number = 0
    failed: Annotated[Mapping[str, int], FieldRule()] = field(default_factory=dict)
    unfinished: _Number = 0
    latency: _Times = Times()
    lag: _Times = Times()
    service: _Times = Times()
    retried: _Number = 0
    retries: _Number = 0


class StatementTally(Struct, frozen=True):
    """Times of one command of a script that ended in one second.

    failed: failures that ended their transaction. retries: failures after which it was tried again.
    """

    script: _Key
    command: _Key
    failed: _Number = 0
    times: _Times = Times()
    retries: _Number = 0


class Interval(Struct, frozen=True):
    """What became known in one second; second 0 begins the measured part.

    cpu_ns: CPU time of each worker thread. dispatch: lag of transactions whose client was idle
    when they were due. in_flight_ns: integral of transactions in flight. ended_ns: its end.
    pending_ns: integral of what is due and not done; waited_ns: for how long what ended had been
    due; both 0 in a closed load.
    connect_ns: what connecting and disconnecting took, where every transaction has a connection of
    its own. aborted: the thread of each client that gave up. lines: level (error, warning, info, or
    plain for what wants no prefix) and text of what is to be told at once, in pgbench's words.
    outages: clients that got a lost connection back. outage_ns_max: the longest of these outages,
    and of those that last when the run ends. down: clients without a connection at its end.
    some_down_ns, all_down_ns: for how long of it one client at least was without, and all were.
    """

    second: _SignedKey
    tallies: tuple[Tally, ...] = ()
    statements: tuple[StatementTally, ...] = ()
    messages: Annotated[_Texts, FieldRule(_joined)] = ()
    cpu_ns: _ByThread = ()
    dispatch: _Times = Times()
    in_flight_ns: _Number = 0
    pending_ns: _Number = 0
    waited_ns: _Number = 0
    ended_ns: Annotated[int, FieldRule(max, signed=True)] = 0
    connects: _SmallNumber = 0
    disconnects: _SmallNumber = 0
    notes: Annotated[tuple[str, ...], FieldRule(_once, stored=False)] = ()
    connect_ns: _Number = 0
    aborted: _ByThread = ()
    lines: Annotated[_Texts, FieldRule(_joined, stored=False)] = ()
    outages: _SmallNumber = 0
    outage_ns_max: _Largest = 0
    down: _SmallNumber = 0
    some_down_ns: _Largest = 0
    all_down_ns: Annotated[int, FieldRule(min)] = 0


class Declared(Struct, frozen=True):
    """A field with its type and what is declared of it."""

    name: str
    type: Any
    rule: FieldRule

    @property
    def is_times(self) -> bool:
        """Whether it is a distribution, which the store keeps in several columns."""
        return self.type is Times


def _declared(kind: type[Any]) -> Iterator[Declared]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Annotated:
            yield Declared(name, get_args(hint)[0], get_args(hint)[1])


_DECLARED: Mapping[Any, tuple[Declared, ...]] = {
    kind: tuple(_declared(kind)) for kind in (Interval, Tally, StatementTally)
}


def declared(kind: type[Any]) -> tuple[Declared, ...]:
    """The numbers of a class of the record, in order."""
    return _DECLARED[kind]


# --- copying: from the engine, to rows and back -------------------------------------------------

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
    """What the store keeps of a record, by column."""
    found: dict[str, Any] = {}
    for one in declared(type(record)):
        value = getattr(record, one.name)
        if one.is_times:
            found |= {f"{one.name}_{name}": getattr(value, name) for name in TIMES}
        elif one.rule.stored:
            found[one.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


def of_row(kind: type[Record], found: Mapping[Any, Any]) -> Record:
    """The record of a row, without its parts."""
    values: dict[str, Any] = {}
    for one in declared(kind):
        if one.is_times:
            values[one.name] = Times(*(found[f"{one.name}_{name}"] for name in TIMES))
        elif one.rule.stored:
            values[one.name] = _frozen(found[one.name])
    return kind(**values)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


# --- merging ------------------------------------------------------------------------------------


class Offset(Struct, frozen=True):
    """Where the numbers of a load's scripts and threads begin among those of all."""

    script: int
    thread: int


def merged(parts: Sequence[tuple[Offset, Interval]], threads: int, *, everyone: bool) -> Interval:
    """One second of several loads. threads: of all of them.

    down: clients of all of them; all_down_ns: every one of them had none. everyone: every load is
    among the parts; where some have ended, what is left of the others is no outage of all.
    """
    found = [part for _, part in parts]
    values = {
        one.name: one.rule.merge([getattr(part, one.name) for part in found])
        for one in declared(Interval)
        if one.rule.merge is not None
    }
    cpu_ns = [0] * threads
    for offset, part in parts:
        cpu_ns[offset.thread : offset.thread + len(part.cpu_ns)] = part.cpu_ns
    return Interval(
        **values | ({} if everyone else {"all_down_ns": 0}),
        second=found[0].second,
        tallies=_moved((offset, part.tallies) for offset, part in parts),
        statements=_moved((offset, part.statements) for offset, part in parts),
        cpu_ns=tuple(cpu_ns),
        aborted=tuple(at.thread + number for at, part in parts for number in part.aborted),
    )


def _moved(parts: Iterable[tuple[Offset, Sequence[Part]]]) -> tuple[Part, ...]:
    def each() -> Iterator[Part]:
        for offset, tallies in parts:
            yield from (replace(tally, script=tally.script + offset.script) for tally in tallies)

    return tuple(each())
