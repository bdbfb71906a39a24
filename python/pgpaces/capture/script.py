"""A statement and values for its parameters, as a script. Pure.

Variables of the script language hold numbers. So texts are written into the statement, which then
stands in the branches of an \\if, once for each choice: no work is added on the server, and the
statement is the same one for pg_stat_statements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from pgpaces.capture.catalog import Type
from pgpaces.capture.guess import CHOICES_MAX, NUMBERS_MAX, ValueSource
from pgpaces.capture.parser import Parsed, Spot

# What stands for the values of a list whose length PostgreSQL 18 does not keep.
LISTED = 3
_BRANCH_BYTES_MAX = 64 * 1024
# Steps between places of choices, so that those of two parameters do not go along.
_STRIDES = (1, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)

# What stands in place of parameters, all at once, by their number: real ones. With weights.
Tuples = Sequence[tuple[int, Mapping[int, str]]]


class WrittenScript(Struct, frozen=True):
    """A script: its comments and commands, and the statement as each branch sends it.

    probes: these statements with a number for every variable, for a server to look at.
    """

    text: str
    probes: tuple[str, ...]


def write(
    parsed: Parsed,
    sources: Mapping[int, ValueSource],
    tuples: Tuples = (),
    casts: Mapping[int, Type] | None = None,
) -> WrittenScript:
    """The script. casts: types that values are cast to, where they would not fit otherwise."""
    every = _slots(parsed, sources)
    rows = _rows(every, tuples, len(parsed.text))
    fixed = {name for _, row in rows for name in row}
    sets = [
        line
        for name, one in every.items()
        if name.partition("_")[0] not in fixed
        for line in _set(name, one)
    ]
    if len(rows) > 1 and all(_is_number(value) for _, row in rows for value in row.values()):
        sets = [*_sets_of(rows), *sets]
        rows = []
    statements, probes = [], []
    for _, row in rows or [(1, {})]:
        statements.append(_filled(parsed, every, row, casts or {}, probe=False))
        probes.append(_filled(parsed, every, row, casts or {}, probe=True))
    body = [f"{statements[0]}\n;"] if len(statements) == 1 else _branches(rows, statements)
    return WrittenScript("\n".join([*sets, *body]) + "\n", tuple(dict.fromkeys(probes)))


def _name(number: int, copy: int = 0) -> str:
    return f"p{number}" if not copy else f"p{number}_{copy + 1}"


def _slots(parsed: Parsed, sources: Mapping[int, ValueSource]) -> dict[str, ValueSource]:
    """Every place of a value, by the name of its variable. Those that follow come behind."""
    longer = {spot.number for spot in parsed.spots if spot.squashed}
    ordered = sorted(parsed.numbers, key=lambda number: (sources[number].leans is not None, number))
    return {
        _name(number, copy): sources[number]
        for number in ordered
        for copy in range(LISTED if number in longer else 1)
    }


def _set(name: str, source: ValueSource) -> list[str]:
    """The \\set commands of a source of expressions; none of another."""
    if not source.steps:
        return []
    if len(source.steps) == 1:
        return [f"\\set {name} {source.steps[0][1]}"]
    return _case(name, source.steps)


def _case(name: str, steps: Sequence[tuple[int, str]]) -> list[str]:
    ends = list(itertools.accumulate(weight for weight, _ in steps))
    lines = [f"\\set {name}_pick random(1, {ends[-1]})", f"\\set {name} case \\"]
    for end, (_, value) in zip(ends[:-1], steps[:-1], strict=True):
        lines.append(f"  when :{name}_pick <= {end} then {value} \\")
    return [*lines, f"  else {steps[-1][1]} end"]


def _rows(
    every: Mapping[str, ValueSource], tuples: Tuples, size: int
) -> list[tuple[int, dict[str, str]]]:
    """The choices together: a weight, and a literal for each place that needs one.

    Of a single place they are its own. Several are put together by strides, so that each has its
    values in their shares and no two go along.
    """
    most = max(2, min(CHOICES_MAX, _BRANCH_BYTES_MAX // max(1, size)))
    if tuples:
        numbers = all(_is_number(value) for _, row in tuples for value in row.values())
        return [
            (weight, {_name(number): value for number, value in row.items()})
            for weight, row in tuples[: NUMBERS_MAX if numbers else most]
        ]
    chosen = {name: source for name, source in every.items() if source.choices}
    leading = [name for name, source in chosen.items() if source.follows is None]
    if len(leading) == 1:
        count = min(most, len(chosen[leading[0]].choices))
        places = [(weight, [i]) for i, (weight, _) in enumerate(chosen[leading[0]].choices)][:count]
    elif leading:
        places = [(1, _at(chosen, leading, k, most)) for k in range(most)]
    else:
        return []
    rows = []
    for weight, found in places:
        of = dict(zip(leading, found, strict=True))
        row = {name: chosen[name].choices[place][1] for name, place in of.items()}
        for name, source in chosen.items():
            if source.follows is not None:
                place = of.get(_name(source.follows), 0)
                row[name] = source.choices[min(place, len(source.choices) - 1)][1]
        rows.append((weight, row))
    return rows


def _at(chosen: Mapping[str, ValueSource], names: Sequence[str], k: int, count: int) -> list[int]:
    """The place of each one's choice in row k of count."""
    strides = [stride for stride in _STRIDES if math.gcd(stride, count) == 1]
    found = []
    for order, name in enumerate(names):
        choices = chosen[name].choices
        stride = strides[order % len(strides)]
        share = ((k * stride + order) % count + 0.5) / count
        ends = list(itertools.accumulate(weight for weight, _ in choices))
        found.append(next(i for i, end in enumerate(ends) if end >= share * ends[-1]))
    return found


def _is_number(value: str) -> bool:
    return value.lstrip("-").isascii() and value.lstrip("-").isdigit() and len(value) < 19


def _sets_of(rows: Sequence[tuple[int, Mapping[str, str]]]) -> list[str]:
    """Tuples of numbers only: variables by one draw, and no branches."""
    ends = list(itertools.accumulate(weight for weight, _ in rows))
    lines = [f"\\set pick random(1, {ends[-1]})"]
    for name in rows[0][1]:
        lines.append(f"\\set {name} case \\")
        for end, (_, row) in zip(ends[:-1], rows[:-1], strict=True):
            lines.append(f"  when :pick <= {end} then {row[name]} \\")
        lines.append(f"  else {rows[-1][1][name]} end")
    return lines


def _branches(
    rows: Sequence[tuple[int, Mapping[str, str]]], statements: Sequence[str]
) -> list[str]:
    ends = list(itertools.accumulate(weight for weight, _ in rows))
    lines = [f"\\set pick random(1, {ends[-1]})"]
    for place, (end, statement) in enumerate(zip(ends, statements, strict=True)):
        word = "\\if" if place == 0 else "\\elif"
        last = place == len(rows) - 1
        lines += ["\\else" if last else f"{word} :pick <= {end}", f"{statement}\n;"]
    return [*lines, "\\endif"]


def _filled(
    parsed: Parsed,
    every: Mapping[str, ValueSource],
    row: Mapping[str, str],
    casts: Mapping[int, Type],
    *,
    probe: bool,
) -> str:
    """The statement with what stands for its parameters."""
    parts, at = [], 0
    for spot in parsed.spots:
        parts.append(parsed.text[at : spot.start].decode())
        values = _values(spot, every, row, probe)
        cast = casts.get(spot.number)
        if cast is not None and spot.typed is None and not spot.squashed:
            values = [f"CAST({value} AS {cast.name})" for value in values]
        parts.append(_apart(parsed.text, spot, ", ".join(values)))
        at = spot.end
    return "".join([*parts, parsed.text[at:].decode()]).strip()


def _values(
    spot: Spot, every: Mapping[str, ValueSource], row: Mapping[str, str], probe: bool
) -> list[str]:
    """What stands in one place; a list's real values are one text."""
    names = [_name(spot.number, copy) for copy in range(LISTED if spot.squashed else 1)]
    if names[0] in row and names[-1] not in row:
        return [row[names[0]]]
    return [_value(name, every[name], row, probe) for name in names]


def _value(name: str, source: ValueSource, row: Mapping[str, str], probe: bool) -> str:
    if name in row:
        return row[name]
    if source.sql:
        return source.sql
    if not probe:
        return f":{name}"
    return "true" if "<=" in source.steps[0][1] else "1"


def _apart(text: bytes, spot: Spot, value: str) -> str:
    """Colons of a slice, `a[$1:$2]`, are kept from colons of variables."""
    before = text[: spot.start][-2:]
    after = text[spot.end :][:2]
    front = " " if before[-1:] == b":" else ""
    behind = " " if after[:1] == b":" and after != b"::" else ""
    return f"{front}{value}{behind}"
