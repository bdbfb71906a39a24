"""Durations, rates and sizes as typed, and as numbers. Knows nothing of loads."""

from __future__ import annotations

import re

from pgpaces.core.errors import PlanError

SECOND_NS = 1_000_000_000
# The largest count, and the largest seed that the store can hold.
COUNT_MAX, SEED_MAX = 2**31 - 1, 2**63 - 1
RATE_MAX = 1e7
RATE_MIN = 1e-6
RATES = "from 0.000001/s to 10000000/s"
_UNITS_NS = {
    "us": 1_000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "min": 60 * SECOND_NS,
    "h": 3600 * SECOND_NS,
    "d": 86_400 * SECOND_NS,
}
_RATE_UNITS_S = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZES = {"kB": 2**10, "MB": 2**20, "GB": 2**30}
_DURATION_MAX_NS = 366 * 86_400 * SECOND_NS
NUMBER = r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)"


def digits(text: str) -> int | None:
    """The number of a text of at most 20 ASCII digits; None for other texts."""
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def whole(value: object, what: str, low: int, *, high: int = COUNT_MAX) -> int:
    """The value, if it is an integer from `low` to `high`. Raises PlanError otherwise."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    shown = str(value) if not isinstance(value, int) or abs(value) < 10**30 else "a huge number"
    raise PlanError("not-an-integer", what=what, value=shown, low=low, high=high)


def duration_ns(
    text: str, what: str = "duration", *, zero: bool = False, bare: str | None = None
) -> int:
    """Nanoseconds of `500ms`, `1.5s`, `10min`, `2h`; more than 0 unless `zero`.

    bare: the unit of a number without one. Raises PlanError for other texts, and for durations
    over a year.
    """
    match = re.fullmatch(rf"\s*{NUMBER}\s*(us|ms|s|min|h|d)?\s*", text)
    unit = (match[2] or bare) if match else None
    if zero and text.strip() == "0":
        return 0
    if not match or unit is None:
        raise PlanError("not-a-duration", what=what, value=text, bare=bare)
    value = float(match[1]) * _UNITS_NS[unit]
    if not value <= _DURATION_MAX_NS or round(value) < (0 if zero else 1):
        raise PlanError("duration-out-of-range", what=what, value=text)
    return round(value)


def duration_text(ns: float) -> str:
    """A duration as one types it, exactly: `500ms`, `1.5s`, `90s`, `10min`."""
    for unit, size in reversed(_UNITS_NS.items()):
        if ns >= size and (size <= SECOND_NS or ns % size == 0):
            return f"{ns / size:.15g}{unit}"
    return f"{ns / 1000:.15g}us" if ns else "0s"


def duration_words(ns: float) -> str:
    """The same as one reads it: `500 ms`."""
    return re.sub(r"(?<=[0-9])(?=[a-z])", " ", duration_text(ns))


def rate_per_s(text: str, what: str = "rate") -> float:
    """Transactions a second of `1/s`, `30/min`, `1000/h`, or a bare number a second.

    Raises PlanError for other texts, and for rates outside 1e-6 to 1e7 a second.
    """
    match = re.fullmatch(rf"\s*{NUMBER}\s*(?:/\s*(s|min|h|d))?\s*", text)
    if not match:
        raise PlanError("several-rates" if "," in text else "not-a-rate", what=what, value=text)
    value = float(match[1]) / _RATE_UNITS_S[match[2] or "s"]
    if not RATE_MIN <= value <= RATE_MAX:
        raise PlanError("rate-out-of-range", what=what, value=text, range=RATES)
    return value


def size_bytes(text: str, what: str = "size") -> int:
    """Bytes of `64MB`, `1GB`, as PostgreSQL counts them: 1 MB is 1024 kB. Raises PlanError."""
    match = re.fullmatch(rf"\s*{NUMBER}\s*(kB|MB|GB)\s*", text)
    if not match:
        raise PlanError("not-a-size", what=what, value=text)
    value = float(match[1]) * _SIZES[match[2]]
    if not 1 <= value < 2**50:
        raise PlanError("out-of-range", what=what, value=text, range="from 1 byte to 1048576GB")
    return round(value)


def significant(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits, as .3g has three, but never an exponent."""
    text = f"{value:.{digits}g}"
    return f"{float(text):.12f}".rstrip("0").rstrip(".") if "e-" in text else text


def exact(value: float) -> str:
    """The shortest text that reads back as the same number."""
    short = f"{value:g}"
    return short if float(short) == value else str(value)


def rate_text(per_s: float) -> str:
    """A rate with three significant digits, from 1000 on an integer, and no exponent."""
    return f"{per_s:,.0f}" if per_s >= 999.5 else significant(per_s)


def ms_text(value: float) -> str:
    """Milliseconds with three significant digits, from 100 on an integer, without the unit."""
    return f"{value:,.0f}" if value >= 99.95 else significant(value)


def percent_text(share: float) -> str:
    """A share as a percentage without its sign: one place, or 2 digits that count below 0.1."""
    value = 100 * share
    # A smaller number is the rounding error of a difference of shares.
    if value < 0.095 and abs(value) > 1e-9:
        return significant(value, 2)
    return f"{value:.1f}"


def size_text(size: float) -> str:
    """Bytes in decimal units, the units of disks and networks: `18.3 MB`."""
    return _in_units(size, 1000, ("B", "kB", "MB", "GB", "TB"), digits=3)


def memory_text(size: float) -> str:
    """Bytes in the units of memory, files and tables: `17.45 MiB`."""
    return _in_units(size, 1024, ("B", "KiB", "MiB", "GiB", "TiB"), digits=4)


def _in_units(size: float, step: int, units: tuple[str, ...], *, digits: int) -> str:
    for unit in units[:-1]:
        if abs(float(f"{size:.{digits}g}")) < step:
            return f"{size:.{digits}g} {unit}"
        size /= step
    return f"{size:.{digits}g} {units[-1]}"
