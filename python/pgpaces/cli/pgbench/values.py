"""Option values as pgbench reads them: like C's strtol, atof and scanf. Errors in its words."""

from __future__ import annotations

import math
import os
import re
import time

INT_MAX = 2**31 - 1
_UINT64_MAX = 2**64 - 1
_INT64_MAX = 2**63 - 1

# White space and numbers of C's isspace, strtol and atof.
_SPACE = " \t\n\v\f\r"
_INTEGER = re.compile(r"[ \t-\r]*([+-]?[0-9]+)")
_REAL = re.compile(
    r"[ \t-\r]*([+-]?(?:0x[0-9a-f]+\.?[0-9a-f]*(?:p[+-]?[0-9]+)?"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?))",
    re.I,
)

# A line of a message: error, detail, hint, warning, info (the program's name before it), or plain
# (nothing before it).
Line = tuple[str, str]


class PgbenchError(Exception):
    """An error that ends the program; `lines`: its messages in pgbench's words."""

    exit_code = 1

    def __init__(self, message: str, *more: Line, level: str = "error") -> None:
        super().__init__(message)
        self.lines: tuple[Line, ...] = ((level, message), *more)


class OptionError(PgbenchError):
    """An error in the command line."""


def whole(text: str, name: str, low: int, *, high: int = INT_MAX) -> int:
    """An integer in a range, with white space around it; an empty text is 0."""
    match = _INTEGER.match(text)
    if text[match.end() if match else 0 :].strip(_SPACE):
        raise OptionError(f'invalid value "{text}" for option {name}')
    value = _integer(match[1]) if match else 0
    if not low <= value <= high:
        raise OptionError(f"{name} must be in range {low}..{high}")
    return value


def _integer(text: str) -> int:
    value = int(text.lstrip("+-").lstrip("0")[:21] or "0")  # Python refuses thousands of digits
    return -value if text.startswith("-") else value


def real(text: str) -> float:
    """The number at the start of a text, as by atof; 0 if there is none.

    Infinity and NaN are 0 too: pgbench accepts them, and then measures nonsense.
    """
    match = _REAL.match(text)
    if not match:
        return 0.0
    try:
        value = float.fromhex(match[1]) if "x" in match[1].lower() else float(match[1])
    except OverflowError:
        return 0.0
    return value if math.isfinite(value) else 0.0


def weighted(text: str) -> tuple[str, int]:
    """NAME[@WEIGHT]: the name and the weight."""
    name, at, digits = text.rpartition("@")
    if not at:
        return text, 1
    match = _INTEGER.fullmatch(digits)
    if not match or abs(weight := _integer(match[1])) > _INT64_MAX:
        raise OptionError(f"invalid weight specification: @{digits}")
    if not 0 <= weight <= INT_MAX:
        raise OptionError(f"weight specification out of range (0 .. {INT_MAX}): {weight}")
    return name, weight


def random_seed(text: str) -> int:
    """A random seed: a number as scanf reads an unsigned one, `time` or `rand`."""
    if text == "time":
        return time.time_ns() // 1000
    if text == "rand":
        return int.from_bytes(os.urandom(8), "little")
    match = _INTEGER.fullmatch(text)
    if not match:
        expected = 'Expecting an unsigned integer, "time" or "rand".'
        raise OptionError(f'unrecognized random seed option "{text}"', ("detail", expected))
    value = _integer(match[1])
    return _UINT64_MAX if abs(value) > _UINT64_MAX else value % 2**64


def narrowed(text: str) -> int:
    """The integer at the start of a text, as by atoi; 0 if there is none."""
    match = _INTEGER.match(text)
    value = max(-_INT64_MAX - 1, min(_INT64_MAX, _integer(match[1]))) if match else 0
    return (value + 2**31) % 2**32 - 2**31
