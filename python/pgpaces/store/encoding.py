"""How values lie in a store: texts, moments, JSON, their version. Knows no database layer."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

HEAD = "0008"
# What reading values that are not as they were written raises: SQLAlchemy's conversions and ours.
UNREADABLE = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip
# Whoever has been silent for so long is dead.
_STALE = timedelta(seconds=15)
# Before a text that PostgreSQL or SQLite would refuse, and which is therefore kept as JSON.
_AS_JSON = "\x01json:"
_REFUSED = re.compile(r"[\0\ud800-\udfff]")
_STRING_OR_INFINITY = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')


def text(value: str) -> str:
    """A text as it is kept: as it is, unless it has NUL or halves of surrogate pairs in it."""
    if _REFUSED.search(value) or value.startswith(_AS_JSON):
        return _AS_JSON + json.dumps(value)
    return value


def read_text(value: str) -> str:
    """A text as it was."""
    if value.startswith(_AS_JSON):
        return str(json.loads(value.removeprefix(_AS_JSON)))
    return value


def json_text(value: Any) -> str:
    """JSON that PostgreSQL takes: ASCII; infinity as a number beyond all, which reads as infinity.

    What is no number at all is null.
    """
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        numbers = {"Infinity": "1e999", "-Infinity": "-1e999", "NaN": "null"}
        found = json.dumps(value)
        return _STRING_OR_INFINITY.sub(lambda part: numbers.get(part[0], part[0]), found)


def utc(value: datetime) -> datetime:
    """A moment in UTC; without a zone it is taken for one."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def silent(heartbeat: datetime) -> bool:
    """Whether who gave this sign of life last is dead.

    Either way: a clock that was set back leaves the heartbeat of a dead run in the future.
    """
    return abs(datetime.now(UTC) - heartbeat) > _STALE
