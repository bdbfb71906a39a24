"""The encoding of values in a store: texts, timestamps, JSON."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

# Errors of reading damaged values.
UNREADABLE = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip
# A process without a heartbeat for this time is dead.
_STALE = timedelta(seconds=15)
# Prefix of a text that PostgreSQL or SQLite would reject, and which is stored as JSON.
_AS_JSON = "\x01json:"
_REFUSED = re.compile(r"[\0\ud800-\udfff]")
_STRING_OR_INFINITY = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')


def text(value: str) -> str:
    """The stored form of a text: JSON if it has NUL or halves of surrogate pairs."""
    if _REFUSED.search(value) or value.startswith(_AS_JSON):
        return _AS_JSON + json.dumps(value)
    return value


def read_text(value: str) -> str:
    if value.startswith(_AS_JSON):
        return str(json.loads(value.removeprefix(_AS_JSON)))
    return value


def json_text(value: Any) -> str:
    """JSON for PostgreSQL: ASCII; infinity as 1e999, which is read as infinity; NaN as null."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        numbers = {"Infinity": "1e999", "-Infinity": "-1e999", "NaN": "null"}
        document = json.dumps(value)
        return _STRING_OR_INFINITY.sub(lambda part: numbers.get(part[0], part[0]), document)


def utc(value: datetime) -> datetime:
    """A timestamp in UTC, which is also the default time zone."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def moment(value: Any) -> datetime:
    """The timestamp of a driver: PostgreSQL's has one, SQLite's has its text."""
    return utc(value if isinstance(value, datetime) else datetime.fromisoformat(value))


def silent(heartbeat: datetime) -> bool:
    """Whether the process of this last heartbeat is dead.

    In both directions: a clock that was set back leaves the heartbeat of a dead run in the future.
    """
    return abs(datetime.now(UTC) - heartbeat) > _STALE
