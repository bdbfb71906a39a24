r"""A statement and values for its parameters, as a script.

Variables of the script language are numbers. So texts are literals in the statement, which is
written into the branches of an \if, once for each choice: the server has no additional work, and
pg_stat_statements counts the variants as the same statement.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from pgpaces.capture.catalog import Type
from pgpaces.capture.guess import CHOICES_MAX, NUMBERS_MAX, ValueSource
from pgpaces.capture.parser import Parsed, Spot

# Values in place of a list whose length PostgreSQL 18 does not store.
LISTED = 3
_BRANCH_BYTES_MAX = 64 * 1024
# Steps between the choices of consecutive rows, different for each parameter to decorrelate them.
_STRIDES = (1, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)

# Logged values of all parameters of a call by number, each tuple with its weight.
Tuples = Sequence[tuple[int, Mapping[int, str]]]


class WrittenScript(Struct, frozen=True):
    """The text of a script.

    probes: the statement of each branch, with a number for every variable, for the server to check.
    """

    text: str
    probes: tuple[str, ...]


def write(
    parsed: Parsed,
    sources: Mapping[int, ValueSource],
    tuples: Tuples = (),
    *,
    casts: Mapping[int, Type] | None = None,
) -> WrittenScript:
    """The script. casts: types that values must be cast to."""
    longer = {spot.number for spot in parsed.spots if spot.squashed}
    # By the name of the variable, after those that it depends on.
    every = {
        _name(number, copy): sources[number]
        for number in sorted(parsed.numbers, key=lambda n: (sources[n].depends_on is not None, n))
        for copy in range(LISTED if number in longer else 1)
    }
    rows = _rows(every, tuples, len(parsed.text))
    fixed = {name for _, row in rows for name in row}
    sets = [
        line
        for name, one in every.items()
        if name.partition("_")[0] not in fixed
        for line in _set(name, one)
    ]
    drawn: frozenset[str] = frozenset()
    if len(rows) > 1 and all(_is_number(value) for _, row in rows for value in row.values()):
        # One draw for all variables, and no branches.
        ends = list(itertools.accumulate(weight for weight, _ in rows))
        picked = [f"\\set pick random(1, {ends[-1]})"]
        for name in rows[0][1]:
            picked += _case(name, "pick", ends, values=[row[name] for _, row in rows])
        sets, rows, drawn = [*picked, *sets], [], frozenset(rows[0][1])
    statements, probes = [], []
    for _, row in rows or [(1, {})]:
        values = row | {name: f":{name}" for name in drawn}
        statements.append(_filled(parsed, every, values, casts=casts or {}, probe=False))
        values = row | dict.fromkeys(drawn, "1")
        probes.append(_filled(parsed, every, values, casts=casts or {}, probe=True))
    body = [f"{statements[0]}\n;"] if len(statements) == 1 else _branches(rows, statements)
    return WrittenScript("\n".join([*sets, *body]) + "\n", tuple(dict.fromkeys(probes)))


def _name(number: int, copy: int = 0) -> str:
    return f"p{number}" if not copy else f"p{number}_{copy + 1}"


def _set(name: str, source: ValueSource) -> list[str]:
    """The \\set commands of a source with expressions; none of another."""
    steps = source.steps
    if len(steps) <= 1:
        return [f"\\set {name} {step}" for _, step in steps]
    ends = list(itertools.accumulate(weight for weight, _ in steps))
    pick = f"{name}_pick"
    return [
        f"\\set {pick} random(1, {ends[-1]})",
        *_case(name, pick, ends, values=[v for _, v in steps]),
    ]


def _case(name: str, pick: str, ends: Sequence[int], *, values: Sequence[str]) -> Iterator[str]:
    """The lines that set a variable to the value at the first end that is not below `pick`."""
    yield f"\\set {name} case \\"
    for end, value in zip(ends[:-1], values[:-1], strict=True):
        yield f"  when :{pick} <= {end} then {value} \\"
    yield f"  else {values[-1]} end"


def _rows(
    every: Mapping[str, ValueSource], tuples: Tuples, size: int
) -> list[tuple[int, dict[str, str]]]:
    """Rows of choices: a weight, and a literal for each variable that needs one.

    A single variable has its choices. Those of several are combined by strides, so that each has
    its values in their shares and no two are correlated.
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
        places = [(1, _at(chosen, leading, k, count=most)) for k in range(most)]
    else:
        return []
    rows = []
    for weight, indexes in places:
        leaders = dict(zip(leading, indexes, strict=True))
        row = {name: chosen[name].choices[place][1] for name, place in leaders.items()}
        for name, source in chosen.items():
            if source.follows is not None:
                place = leaders.get(_name(source.follows), 0)
                row[name] = source.choices[min(place, len(source.choices) - 1)][1]
        rows.append((weight, row))
    return rows


def _at(
    chosen: Mapping[str, ValueSource], names: Sequence[str], k: int, *, count: int
) -> list[int]:
    """The index of each variable's choice in row k of count."""
    strides = [stride for stride in _STRIDES if math.gcd(stride, count) == 1]
    places = []
    for order, name in enumerate(names):
        choices = chosen[name].choices
        stride = strides[order % len(strides)]
        share = ((k * stride + order) % count + 0.5) / count
        ends = list(itertools.accumulate(weight for weight, _ in choices))
        places.append(next(i for i, end in enumerate(ends) if end >= share * ends[-1]))
    return places


def _is_number(value: str) -> bool:
    return value.lstrip("-").isascii() and value.lstrip("-").isdigit() and len(value) < 19


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
    *,
    casts: Mapping[int, Type],
    probe: bool,
) -> str:
    parts, at = [], 0
    for spot in parsed.spots:
        parts.append(parsed.text[at : spot.start].decode())
        values = _values(spot, every, row, probe=probe)
        cast = casts.get(spot.number)
        if cast is not None and spot.typed is None and not spot.squashed:
            values = [f"CAST({value} AS {cast.name})" for value in values]
        parts.append(_apart(parsed.text, spot, ", ".join(values)))
        at = spot.end
    return "".join([*parts, parsed.text[at:].decode()]).strip()


def _values(
    spot: Spot, every: Mapping[str, ValueSource], row: Mapping[str, str], *, probe: bool
) -> list[str]:
    """The values in place of one parameter; logged values of a list are one text."""
    names = [_name(spot.number, copy) for copy in range(LISTED if spot.squashed else 1)]
    if names[0] in row and names[-1] not in row:
        return [row[names[0]]]
    values = []
    for name in names:
        source = every[name]
        if name in row:
            values.append(row[name])
        elif source.sql or not probe:
            values.append(source.sql or f":{name}")
        else:
            values.append("true" if "<=" in source.steps[0][1] else "1")
    return values


def _apart(text: bytes, spot: Spot, value: str) -> str:
    """A value separated from what it would make another token with.

    That are the colons of a slice, `a[$1:$2]`, which would name a variable, and a minus before a
    negative number, which would begin a comment.
    """
    after = text[spot.end : spot.end + 2]
    left = " " if text[: spot.start].endswith((b":", b"-")) else ""
    right = " " if after[:1] == b":" and after != b"::" else ""
    return f"{left}{value}{right}"
