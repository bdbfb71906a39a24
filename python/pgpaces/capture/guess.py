"""Values for a parameter, from what it is used for and the statistics of that column. Pure.

What is guessed says from where. Each parameter is guessed by itself: values that belong together
do so by chance only, but for the two ends of a range.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.capture.catalog import CatalogColumn, Type
from pgpaces.capture.uses import Role, Use

# Of the values that pg_stats lists, so many at most are written; of numbers, which take less room.
CHOICES_MAX = 50
NUMBERS_MAX = 200
_WEIGHTS = 10_000
# Integers that lie closer than this are drawn from their range, else from those that are listed.
_DENSE = 0.5
# How far a distribution may be from even, as the largest difference of its cumulative shares.
_EVEN = 0.05
_BINS = 10
# Values of a sample are alike in frequency, if the most common one is not so many times the rarest.
_LIKE = 2.0
_FRESH = 1_000_000_000
_INTEGERS = {"smallint": 2**15 - 1, "integer": 2**31 - 1, "bigint": 2**63 - 1}
_DECIMALS = ("numeric", "real", "double precision")
_PREFIX = 3
_NUMBER = Type("integer", "N")
_ROLES = tuple(Role)
_INTEGER = re.compile(r"-?\d{1,18}")
_DECIMAL = re.compile(r"-?\d{1,12}(?:\.\d+)?(?:e[+-]?\d{1,2})?")
# Where nothing is known: a value that its type takes.
_BY_TYPE = {
    "uuid": "'00000000-0000-0000-0000-000000000000'",
    "json": "'{}'",
    "jsonb": "'{}'",
    "bytea": "''",
    "xml": "'<a/>'",
    "date": "'2020-01-01'",
    "time without time zone": "'12:00'",
    "time with time zone": "'12:00+00'",
    "tsvector": "''",
    "tsquery": "'a'",
}
_BY_CATEGORY = {
    "N": "1", "B": "true", "S": "'a'", "D": "'2020-01-01'", "T": "'1 day'", "A": "'{}'",
    "I": "'127.0.0.1'", "V": "'0'", "X": "'1'",
}  # fmt: skip


class SourceKind(StrEnum):
    """Where values are from, the best first."""

    LOG = "from the log"
    STATISTICS = "by statistics"
    NEW = "new"
    ASSUMED = "assumed"
    UNKNOWN = "unknown"


class ValueSource(Struct, frozen=True):
    """Values of a parameter. why: from where, in words, for a comment.

    One of these has them. steps: expressions of the script language, each with its weight. choices:
    literals of SQL, each with its weight. sql: what stands in the parameter's place.
    follows: the parameter whose choice this one's goes with, place by place. leans: the one whose
    number is in its expression.
    """

    kind: SourceKind
    why: str
    steps: tuple[tuple[int, str], ...] = ()
    choices: tuple[tuple[int, str], ...] = ()
    sql: str = ""
    follows: int | None = None
    leans: int | None = None


class Parameter(Struct, frozen=True):
    """A parameter: what it is used for, its type as the server has it, or None.

    literal: only a literal can stand there. values: those of the database may be written.
    """

    uses: Sequence[Use] = ()
    type: Type | None = None
    literal: bool = False
    values: bool = True


def quoted(value: str) -> str:
    """A text as a literal, in which a script finds no variable."""
    if not re.search(r"\\|[\x00-\x1f\x7f]|:(?:[\w{]|[^\x00-\x7f])", value):
        return "'" + value.replace("'", "''") + "'"
    text = value.replace("\\", "\\\\").replace("'", "\\'").replace(":", "\\x3a")
    return "E'" + re.sub(r"[\x00-\x1f\x7f]", lambda c: f"\\x{ord(c[0]):02x}", text) + "'"


def source(asked: Parameter) -> ValueSource:
    """Values for a parameter."""
    use = _best(asked.uses)
    if use is not None and use.role in (Role.LIMIT, Role.OFFSET):
        value = "10" if use.role is Role.LIMIT else "0"
        return ValueSource(
            SourceKind.ASSUMED, f"{use.role}: not known, {value} is assumed", sql=value
        )
    if use is not None and use.role is Role.AMOUNT:
        what = use.column.label if use.column is not None else "others"
        counted = asked if asked.type is not None else replace(asked, type=_NUMBER)
        return replace(
            _unknown(counted, f"{use.role} {what}: how much is not known"), kind=SourceKind.ASSUMED
        )
    if use is None or use.column is None:
        return _unknown(asked, "nothing tells what it is for")
    if use.role is Role.INSERT and use.column.unique:
        return _fresh(asked, use.column)
    why = _why(use)
    if not use.column.known:
        return _unknown(asked, f"{why}, of which no statistics can be seen")
    by_column = _by_column(asked, use, use.column)
    return by_column or _unknown(asked, f"{why}, whose values are not listed")


def sources(asked: Mapping[int, Parameter]) -> dict[int, ValueSource]:
    """Values for all parameters of a statement: of a range both ends, or each by itself."""
    found = {number: source(each) for number, each in asked.items()}
    alone = [number for number, one in found.items() if not _stands(one, found)]
    for number in alone:
        uses = [replace(use, partner=None) for use in asked[number].uses]
        found[number] = source(replace(asked[number], uses=uses))
    return found


def _stands(one: ValueSource, others: Mapping[int, ValueSource]) -> bool:
    """Whether what it goes with, the other end of its range, has values of that kind."""
    if one.leans is not None:
        return one.leans in others and bool(others[one.leans].steps)
    return one.follows is None or (one.follows in others and bool(others[one.follows].choices))


def _best(uses: Sequence[Use]) -> Use | None:
    """What says most: a column whose statistics are known, and a range with both ends."""

    def rank(use: Use) -> tuple[bool, bool, bool, int]:
        known = use.column is not None and use.column.known
        new = use.role is Role.INSERT and use.column is not None and use.column.unique
        return (not new, not known, use.partner is None, _ROLES.index(use.role))

    return min(uses, key=rank, default=None)


def _why(use: Use) -> str:
    label = use.column.label if use.column else ""
    text = f"{use.role} {label}"
    return f"{text} in the function {use.within}" if use.within else text


def _unknown(asked: Parameter, why: str) -> ValueSource:
    kind = asked.type or Type("text", "S")
    sql = _BY_TYPE.get(kind.name, _BY_CATEGORY.get(kind.category, "NULL"))
    if asked.literal:
        sql = sql if sql.startswith("'") else "'1'"
    return ValueSource(SourceKind.UNKNOWN, f"{why}; put something better here", sql=sql)


def _fresh(asked: Parameter, column: CatalogColumn) -> ValueSource:
    """Values that are not there yet, for a key."""
    why = f"inserted into the key {column.label}: new values"
    largest = _INTEGERS.get(column.type.name)
    numbers = _integers(column)
    if largest is not None and not asked.literal:
        low = max(numbers, default=0) + 1
        high = min(largest, low + _FRESH)
        if low < high:
            text = f"{why}, drawn beyond the largest; they may meet by chance"
            return ValueSource(SourceKind.NEW, text, steps=((1, f"random({low}, {high})"),))
    if column.type.name == "uuid":
        return ValueSource(SourceKind.NEW, why, sql="gen_random_uuid()")
    if column.type.category == "S":
        return ValueSource(SourceKind.NEW, why, sql="md5(random()::text)")
    return _unknown(asked, f"inserted into the key {column.label}: no new values are known")


def _by_column(asked: Parameter, use: Use, column: CatalogColumn) -> ValueSource | None:
    """By the statistics of a column; None where they say nothing."""
    why = _why(use)
    # A variable stands bare, so it must be one where a number is expected.
    bare = not asked.literal and (asked.type is None or asked.type.category in "NB")
    found: ValueSource | None = None
    if use.role is Role.ELEMENTS:
        found = _elements(asked, column, why)
    elif use.role is Role.PATTERN:
        found = _patterns(column, why)
    else:
        if use.partner is not None and use.role in (Role.LOWER, Role.UPPER):
            found = _range_end(use, column, why, bare)
        if found is None and bare:
            found = _numbers(column, why, asked.values, use.role is not Role.EQUAL)
        if found is None and (items := _items(column)):
            found = ValueSource(
                SourceKind.STATISTICS, _listed(column, why, len(items)), choices=items
            )
        if found is not None and use.role in (Role.INSERT, Role.SET):
            found = _with_nulls(found, column)
    return None if found is not None and found.choices and not asked.values else found


def _listed(column: CatalogColumn, why: str, count: int) -> str:
    return f"{why}: {count} values that pg_stats lists, as often as they are there"


def _with_nulls(found: ValueSource, column: CatalogColumn) -> ValueSource:
    share = round(column.null_share * _WEIGHTS)
    if not share or share >= _WEIGHTS:
        return found
    have = found.steps or found.choices
    scaled = [(weight * (_WEIGHTS - share), value) for weight, value in have]
    nulls = sum(weight for weight, _ in have) * share
    null = ((nulls, "null"),) if found.steps else ((nulls, "NULL"),)
    every = _small([*scaled, *null])
    return replace(found, steps=every) if found.steps else replace(found, choices=every)


def _small(items: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """Weights that add up to about _WEIGHTS, none of them zero."""
    total = sum(weight for weight, _ in items)
    return tuple((max(1, round(weight * _WEIGHTS / total)), value) for weight, value in items)


def _spread(values: Sequence[str], most: int) -> list[str]:
    """As many as that, evenly from all."""
    if len(values) <= most:
        return list(values)
    return [values[place * (len(values) - 1) // (most - 1)] for place in range(most)]


def _items(column: CatalogColumn, plain: bool = False) -> tuple[tuple[int, str], ...]:
    """Values that are listed, with weights: common ones by frequency, the others alike."""
    most = NUMBERS_MAX if plain else CHOICES_MAX
    pairs = list(zip(column.common, column.frequencies, strict=False))
    pairs = pairs[: most // 2 if column.bounds else most]
    common = [(round(share * _WEIGHTS), value) for value, share in pairs]
    others = _spread(column.bounds, most - len(common))
    rest = max(0.0, 1 - column.null_share - sum(column.frequencies))
    each = round(rest * _WEIGHTS / len(others)) if others else 0
    every = [*common, *((each, value) for value in others)]
    write = (lambda value: value) if plain else quoted
    return _small([(max(1, weight), write(value)) for weight, value in every]) if every else ()


def _integers(column: CatalogColumn) -> list[int]:
    """Those listed, where all of them are integers."""
    every = [*column.common, *column.bounds]
    return [int(value) for value in every] if all(map(_INTEGER.fullmatch, every)) else []


def _distinct(column: CatalogColumn) -> float:
    return column.distinct if column.distinct >= 0 else -column.distinct * max(column.rows, 1.0)


def _numbers(
    column: CatalogColumn, why: str, values: bool, any_between: bool
) -> ValueSource | None:
    """Expressions for a column of numbers or of true and false."""
    if column.type.category == "B":
        yes = dict(zip(column.common, column.frequencies, strict=False)).get("t", 0.0)
        share = round(yes * 100)
        text = f"{why}: true as often as it is there, {share} %"
        return ValueSource(SourceKind.STATISTICS, text, steps=((1, f"random(1, 100) <= {share}"),))
    if column.type.name in _INTEGERS:
        return _whole(column, why, values)
    if column.type.name.split("(")[0] in _DECIMALS and any_between:
        return _decimals(column, why)
    return None


def _whole(column: CatalogColumn, why: str, values: bool) -> ValueSource | None:
    numbers = _integers(column)
    if not numbers:
        return None
    low, high = min(numbers), max(numbers)
    if low == high:
        return ValueSource(
            SourceKind.STATISTICS, f"{why}: there is one value", steps=((1, str(low)),)
        )
    dense = _distinct(column) / (high - low + 1) >= _DENSE
    if not values or (dense and _alike(column)):
        text = f"{why}: evenly from its range"
        return ValueSource(SourceKind.STATISTICS, text, steps=((1, f"random({low}, {high})"),))
    if dense and column.bounds:
        return _binned(column, why)
    items = _items(column, plain=True)
    return ValueSource(SourceKind.STATISTICS, _listed(column, why, len(items)), steps=items)


def _alike(column: CatalogColumn) -> bool:
    """Whether each value is about as likely as another."""
    bounds = [int(value) for value in column.bounds]
    if bounds and not column.common:
        return _even(bounds)
    shares = column.frequencies
    return not bounds and bool(shares) and max(shares) < _LIKE * min(shares)


def _even(bounds: Sequence[int]) -> bool:
    """Whether bounds of equal shares lie as those of an even distribution."""
    low, high, last = min(bounds), max(bounds), len(bounds) - 1
    if last < 2 or low == high:
        return last < 2
    ordered = sorted(bounds)
    return all(
        abs((value - low) / (high - low) - place / last) <= _EVEN
        for place, value in enumerate(ordered)
    )


def _binned(column: CatalogColumn, why: str) -> ValueSource:
    """Common values by frequency, the rest by the histogram."""
    pairs = list(zip(column.common, column.frequencies, strict=False))[: CHOICES_MAX - _BINS]
    common = [(round(share * _WEIGHTS), str(int(value))) for value, share in pairs]
    bounds = [int(value) for value in column.bounds]
    if len(bounds) < 2 or _even(bounds):
        bins = [(bounds[0], bounds[-1])]
    else:
        ends = [int(value) for value in _spread(column.bounds, min(_BINS + 1, len(bounds)))]
        bins = list(itertools.pairwise(ends))
    rest = max(0.0, 1 - column.null_share - sum(column.frequencies))
    each = rest * _WEIGHTS / len(bins)
    steps = [*common, *((round(each), f"random({low}, {high})") for low, high in bins)]
    text = f"{why}: common values as often as they are there, the others by the histogram"
    return ValueSource(
        SourceKind.STATISTICS,
        text,
        steps=_small([(max(1, weight), step) for weight, step in steps]),
    )


def _decimals(column: CatalogColumn, why: str) -> ValueSource | None:
    every = [*column.common, *column.bounds]
    if not every or not all(map(_DECIMAL.fullmatch, every)):
        return None
    low, high = min(map(float, every)), max(map(float, every))
    text = f"{why}: evenly from its range, in hundredths"
    step = f"double(random({round(low * 100)}, {round(high * 100)})) / 100"
    return ValueSource(SourceKind.STATISTICS, text, steps=((1, step),))


def _range_end(use: Use, column: CatalogColumn, why: str, bare: bool) -> ValueSource | None:
    """One end of a range whose other end is a parameter as well."""
    width = "a hundredth of its range wide, which is assumed"
    numbers = _integers(column)
    if bare and column.type.name in _INTEGERS and numbers and min(numbers) < max(numbers):
        low, high = min(numbers), max(numbers)
        if use.role is Role.LOWER:
            return ValueSource(
                SourceKind.ASSUMED, f"{why}, {width}", steps=((1, f"random({low}, {high})"),)
            )
        step = f":p{use.partner} + {max(1, (high - low) // 100)}"
        return ValueSource(
            SourceKind.ASSUMED, f"{why}, {width}", steps=((1, step),), leans=use.partner
        )
    bounds = _spread(column.bounds, CHOICES_MAX + 1)
    if len(bounds) < 2:
        return None
    ends = bounds[:-1] if use.role is Role.LOWER else bounds[1:]
    choices = tuple((1, quoted(value)) for value in ends)
    follows = use.partner if use.role is Role.UPPER else None
    text = f"{why}: a bin of the histogram, which is assumed"
    return ValueSource(SourceKind.ASSUMED, text, choices=choices, follows=follows)


def _patterns(column: CatalogColumn, why: str) -> ValueSource | None:
    values = [value for value in [*column.common, *column.bounds] if value]
    begins = dict.fromkeys(re.sub(r"([\\%_])", r"\\\1", value[:_PREFIX]) for value in values)
    if not begins:
        return None
    choices = tuple((1, quoted(f"{begin}%")) for begin in _spread(list(begins), CHOICES_MAX))
    text = f"{why}: beginnings of values that pg_stats lists, which is assumed"
    return ValueSource(SourceKind.ASSUMED, text, choices=choices)


def _elements(asked: Parameter, column: CatalogColumn, why: str) -> ValueSource | None:
    """Arrays of some values: how long they are is not known."""
    items = [value for _, value in _items(column, plain=True)]
    if not items or (asked.type is not None and asked.type.category != "A"):
        return None
    rows = [items[place : place + 3] for place in range(0, len(items), 3)]
    choices = tuple((1, quoted("{" + ",".join(map(_element, row)) + "}")) for row in rows)
    return ValueSource(
        SourceKind.ASSUMED, f"{why}: up to 3 values, which is assumed", choices=choices
    )


def _element(value: str) -> str:
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
