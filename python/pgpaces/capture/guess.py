"""Values for a parameter, from its use and the statistics of its column.

Every guess states its source. Each parameter is guessed independently, except for the two ends of
a range: other values that belong together match only by chance.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.capture.catalog import CatalogColumn, SourceKind, Type
from pgpaces.capture.uses import Role, Use
from pgpaces.core.messages import message

# Most values of pg_stats that are written for a parameter; numbers take less room.
CHOICES_MAX = 50
NUMBERS_MAX = 200
_WEIGHTS = 10_000
# Integers denser than this are drawn from their range, others from the listed values.
_DENSE = 0.5
# The largest difference of cumulative shares at which a distribution counts as uniform.
_EVEN = 0.05
_BINS = 10
_FRESH = 1_000_000_000
_INTEGERS = {"smallint": 2**15 - 1, "integer": 2**31 - 1, "bigint": 2**63 - 1}
_PREFIX = 3
_NUMBER = Type("integer", "N")
_ROLES = tuple(Role)
_INTEGER = re.compile(r"-?\d{1,18}")
# Without any knowledge: a valid value of the type.
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
    "regconfig": "'simple'",
    "regclass": "'pg_class'",
    "regproc": "'now'",
    "regtype": "'integer'",
    "regnamespace": "'pg_catalog'",
}
# Of arguments that take only known words.
_BY_FUNCTION = {
    **dict.fromkeys(("date_trunc", "date_part", "extract"), "'day'"),
    **dict.fromkeys(("encode", "decode"), "'hex'"),
    **dict.fromkeys(("to_char", "to_date", "to_timestamp"), "'YYYY-MM-DD'"),
    "to_number": "'999999'",
    "timezone": "'UTC'",
}
_BY_CATEGORY = {
    "N": "1", "B": "true", "S": "'a'", "D": "'2020-01-01'", "T": "'1 day'", "A": "'{}'",
    "I": "'127.0.0.1'", "V": "'0'", "X": "'1'",
}  # fmt: skip


class ValueSource(Struct, frozen=True):
    """Values of a parameter. how: how they are chosen; if MISSING, the function that needs one.

    One of these is set. steps: expressions of the script language, each with its weight. choices:
    SQL literals, each with its weight. sql: text in the parameter's place.
    follows: the parameter whose choice this one's goes with, index by index. depends_on: the
    parameter whose variable is in its expression. use: the use of the parameter, in words.
    """

    kind: SourceKind
    how: str
    steps: tuple[tuple[int, str], ...] = ()
    choices: tuple[tuple[int, str], ...] = ()
    sql: str = ""
    follows: int | None = None
    depends_on: int | None = None
    use: str = ""


class Parameter(Struct, frozen=True):
    """A parameter: its uses, and its type according to the server, or None.

    literal: only a literal is allowed there. values: values of the database may be written.
    """

    uses: Sequence[Use] = ()
    type: Type | None = None
    literal: bool = False
    values: bool = True


def quoted(value: str) -> str:
    """A text as a literal that contains no variable of a script."""
    if not re.search(r"\\|[\x00-\x1f\x7f]|:(?:[\w{]|[^\x00-\x7f])", value):
        return "'" + value.replace("'", "''") + "'"
    text = value.replace("\\", "\\\\").replace("'", "\\'").replace(":", "\\x3a")
    return "E'" + re.sub(r"[\x00-\x1f\x7f]", lambda c: f"\\x{ord(c[0]):02x}", text) + "'"


def source(parameter: Parameter) -> ValueSource:
    use = _best(parameter.uses)
    if use is None:
        return _unknown(parameter, message("use-unknown"))
    label = use.column.label if use.column else use.within or None
    shown = message(use.role, place=label)
    if use.within and use.column:
        shown = message("used-in-function", use=shown, function=use.within)
    return replace(_source(parameter, use), use=shown)


def _source(parameter: Parameter, use: Use) -> ValueSource:
    if use.role in (Role.LIMIT, Role.OFFSET, Role.WORD, Role.NAME):
        return _by_place(use)
    if use.role is Role.AMOUNT:
        amount = parameter if parameter.type is not None else replace(parameter, type=_NUMBER)
        return replace(_unknown(amount, message("amount-unknown")), kind=SourceKind.ASSUMED)
    if use.column is None:
        return _unknown(parameter, message("use-unknown"))
    if use.role is Role.INSERT and use.column.unique:
        return _fresh(parameter, use.column)
    if not use.column.has_statistics:
        return _unknown(parameter, message("statistics-unseen"))
    by_column = _by_column(parameter, use, use.column)
    return by_column or _unknown(parameter, message("values-unlisted"))


def _by_place(use: Use) -> ValueSource:
    """A value for a place that allows only some, or none where nothing is likely to be right."""
    sql = {Role.LIMIT: "10", Role.OFFSET: "0"}.get(use.role) or _BY_FUNCTION.get(use.within)
    if sql is None:
        return ValueSource(SourceKind.MISSING, use.within)
    return ValueSource(SourceKind.ASSUMED, message("value-assumed", value=sql), sql=sql)


def sources(parameters: Mapping[int, Parameter]) -> dict[int, ValueSource]:
    """Values for all parameters of a statement: for both ends of a range, or for each alone."""
    every = {number: source(each) for number, each in parameters.items()}
    for number in [number for number, one in every.items() if not _complete(one, every)]:
        uses = [replace(use, partner=None) for use in parameters[number].uses]
        every[number] = source(replace(parameters[number], uses=uses))
    return every


def _complete(one: ValueSource, others: Mapping[int, ValueSource]) -> bool:
    """Whether the other end of its range, if it needs one, has values of the same kind."""
    if one.depends_on is not None:
        return one.depends_on in others and bool(others[one.depends_on].steps)
    return one.follows is None or (one.follows in others and bool(others[one.follows].choices))


def _best(uses: Sequence[Use]) -> Use | None:
    """The most informative use: of a column with statistics, and as one of two ends of a range."""

    def rank(use: Use) -> tuple[bool, bool, bool, int]:
        statistics = use.column is not None and use.column.has_statistics
        new = use.role is Role.INSERT and use.column is not None and use.column.unique
        return (not new, not statistics, use.partner is None, _ROLES.index(use.role))

    return min(uses, key=rank, default=None)


def _unknown(parameter: Parameter, how: str) -> ValueSource:
    kind = parameter.type or Type("text", "S")
    first = f"(enum_range(NULL::{kind.name}))[1]" if kind.category == "E" else "NULL"
    sql = _BY_TYPE.get(kind.name, _BY_CATEGORY.get(kind.category, first))
    if parameter.literal and not sql.startswith("'"):
        sql = "'1'"
    return ValueSource(SourceKind.UNKNOWN, how, sql=sql)


def _fresh(parameter: Parameter, column: CatalogColumn) -> ValueSource:
    largest = _INTEGERS.get(column.type.name)
    numbers = _integers(column)
    if largest is not None and not parameter.literal:
        low = max(numbers, default=0) + 1
        high = min(largest, low + _FRESH)
        if low < high:
            how = message("keys-above-largest")
            return ValueSource(SourceKind.NEW, how, steps=((1, f"random({low}, {high})"),))
    if column.type.name == "uuid":
        return ValueSource(SourceKind.NEW, message("keys-new"), sql="gen_random_uuid()")
    if column.type.category == "S":
        return ValueSource(SourceKind.NEW, message("keys-new"), sql="md5(random()::text)")
    return _unknown(parameter, message("keys-unknown"))


def _by_column(parameter: Parameter, use: Use, column: CatalogColumn) -> ValueSource | None:
    """Values by the statistics of a column; None where these have none."""
    # A variable is not quoted, so it can only replace a number or a boolean.
    bare = not parameter.literal and (parameter.type is None or parameter.type.category in "NB")
    values: ValueSource | None = None
    if use.role is Role.ELEMENTS:
        values = _elements(parameter, column)
    elif use.role is Role.PATTERN:
        values = _patterns(column)
    else:
        if use.partner is not None and use.role in (Role.LOWER, Role.UPPER):
            values = _range_end(use, column, bare=bare)
        if values is None and bare:
            values = _numbers(column, parameter.values)
        if values is None and (items := _items(column)):
            values = ValueSource(SourceKind.STATISTICS, _listed(items), choices=items)
        if values is not None and use.role in (Role.INSERT, Role.SET):
            values = _with_nulls(values, column)
    return None if values is not None and values.choices and not parameter.values else values


def _listed(items: Sequence[tuple[int, str]]) -> str:
    return message("values-listed", count=len(items))


def _with_nulls(values: ValueSource, column: CatalogColumn) -> ValueSource:
    share = round(column.null_share * _WEIGHTS)
    if not share or share >= _WEIGHTS:
        return values
    items = values.steps or values.choices
    scaled = [(weight * (_WEIGHTS - share), value) for weight, value in items]
    nulls = sum(weight for weight, _ in items) * share
    every = _small([*scaled, (nulls, "null" if values.steps else "NULL")])
    return replace(values, steps=every) if values.steps else replace(values, choices=every)


def _small(items: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """The items with weights scaled to a sum of about _WEIGHTS, none of them zero."""
    total = sum(weight for weight, _ in items)
    return tuple((max(1, round(weight * _WEIGHTS / total)), value) for weight, value in items)


def _spread(values: Sequence[str], most: int) -> list[str]:
    if len(values) <= most:
        return list(values)
    return [values[place * (len(values) - 1) // (most - 1)] for place in range(most)]


def _items(column: CatalogColumn, plain: bool = False) -> tuple[tuple[int, str], ...]:
    """Listed values with weights: common ones by frequency, the others equal."""
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
    every = [*column.common, *column.bounds]
    return [int(value) for value in every] if all(map(_INTEGER.fullmatch, every)) else []


def _numbers(column: CatalogColumn, values: bool) -> ValueSource | None:
    if column.type.category == "B":
        yes = dict(zip(column.common, column.frequencies, strict=False)).get("t", 0.0)
        # Frequencies are shares of all rows, and NULLs come on top.
        share = round(100 * min(1.0, yes / max(1 - column.null_share, yes, 1e-9)))
        how = message("boolean-share", share_percent=share)
        return ValueSource(SourceKind.STATISTICS, how, steps=((1, f"random(1, 100) <= {share}"),))
    if column.type.name in _INTEGERS:
        return _whole(column, values)
    return None


def _whole(column: CatalogColumn, values: bool) -> ValueSource | None:
    """Dense integers are drawn from the histogram, others from the listed values."""
    numbers = _integers(column)
    if not numbers:
        return None
    low, high = min(numbers), max(numbers)
    distinct = column.distinct if column.distinct >= 0 else -column.distinct * max(column.rows, 1.0)
    bounds = [int(value) for value in column.bounds]
    if values and (len(bounds) < 2 or distinct / (high - low + 1) < _DENSE):
        items = _items(column, plain=True)
        return ValueSource(SourceKind.STATISTICS, _listed(items), steps=items)
    if not values or (_even(bounds) and not column.common):
        how = message("range-uniform")
        return ValueSource(SourceKind.STATISTICS, how, steps=((1, f"random({low}, {high})"),))
    pairs = list(zip(column.common, column.frequencies, strict=False))[: CHOICES_MAX - _BINS]
    common = [(round(share * _WEIGHTS), str(int(value))) for value, share in pairs]
    ends = _spread(column.bounds, 2 if _even(bounds) else min(_BINS + 1, len(bounds)))
    bins = list(itertools.pairwise(map(int, ends)))
    rest = max(0.0, 1 - column.null_share - sum(column.frequencies))
    each = rest * _WEIGHTS / len(bins)
    steps = [*common, *((round(each), f"random({low}, {high})") for low, high in bins)]
    weighted = _small([(max(1, weight), step) for weight, step in steps])
    return ValueSource(SourceKind.STATISTICS, message("histogram-values"), steps=weighted)


def _even(bounds: Sequence[int]) -> bool:
    low, high, last = min(bounds), max(bounds), len(bounds) - 1
    if last < 2 or low == high:
        return last < 2
    ordered = sorted(bounds)
    return all(
        abs((value - low) / (high - low) - place / last) <= _EVEN
        for place, value in enumerate(ordered)
    )


def _range_end(use: Use, column: CatalogColumn, *, bare: bool) -> ValueSource | None:
    """One end of a range whose other end is a parameter, too."""
    numbers = _integers(column)
    if bare and column.type.name in _INTEGERS and numbers and min(numbers) < max(numbers):
        low, high = min(numbers), max(numbers)
        if use.role is Role.LOWER:
            step, depends_on = f"random({low}, {high})", None
        else:
            step, depends_on = f":p{use.partner} + {max(1, (high - low) // 100)}", use.partner
        how = message("range-width-assumed")
        return ValueSource(SourceKind.ASSUMED, how, steps=((1, step),), depends_on=depends_on)
    bounds = _spread(column.bounds, CHOICES_MAX + 1)
    if len(bounds) < 2:
        return None
    ends = bounds[:-1] if use.role is Role.LOWER else bounds[1:]
    choices = tuple((1, quoted(value)) for value in ends)
    follows = use.partner if use.role is Role.UPPER else None
    how = message("range-bin-assumed")
    return ValueSource(SourceKind.ASSUMED, how, choices=choices, follows=follows)


def _patterns(column: CatalogColumn) -> ValueSource | None:
    values = [value for value in [*column.common, *column.bounds] if value]
    prefixes = dict.fromkeys(re.sub(r"([\\%_])", r"\\\1", value[:_PREFIX]) for value in values)
    if not prefixes:
        return None
    choices = tuple((1, quoted(f"{prefix}%")) for prefix in _spread(list(prefixes), CHOICES_MAX))
    return ValueSource(SourceKind.ASSUMED, message("prefixes-assumed"), choices=choices)


def _elements(parameter: Parameter, column: CatalogColumn) -> ValueSource | None:
    """Arrays of up to three values: their real lengths are unknown."""
    items = [value for _, value in _items(column, plain=True)]
    if not items or (parameter.type is not None and parameter.type.category != "A"):
        return None
    escaped = [value.replace("\\", "\\\\").replace('"', '\\"') for value in items]
    elements = [f'"{value}"' for value in escaped]
    rows = [elements[place : place + 3] for place in range(0, len(elements), 3)]
    choices = tuple((1, quoted("{" + ",".join(row) + "}")) for row in rows)
    return ValueSource(SourceKind.ASSUMED, message("elements-assumed"), choices=choices)
