"""A workload made from a database's statements, in words and tables for a terminal."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from pgpaces.capture import selection
from pgpaces.capture.catalog import Captured
from pgpaces.plan import without_secrets
from pgpaces.report.grid import cell, table

if TYPE_CHECKING:
    from rich.console import RenderableType

# More rows are in the folder's README.md.
_ROWS_MAX = 20


def coverage(found: Captured) -> str:
    """What share of the calls and of the time is covered."""
    calls = selection.share(sum(each.entry.calls for each in found.taken), found.calls)
    time = selection.share(sum(each.entry.total_ms for each in found.taken), found.total_ms)
    return f"{calls:.1f} % of the calls and {time:.1f} % of the time are covered."


def captured(found: Captured) -> list[RenderableType]:
    """What was taken and what was left out."""
    parts: list[RenderableType] = [_taken(found)]
    rest = len(found.taken) - _ROWS_MAX
    if rest > 0:
        parts.append(f"and {rest} more, see README.md")
    if found.left:
        parts += ["", _left(found)]
    parts += ["", coverage(found), selection.pace(found.rate, found.seen.seconds)]
    if found.seen.nested[0]:
        parts.append(f"Not counted apart: {found.seen.nested[0]} calls within functions.")
    return parts


def _taken(found: Captured) -> RenderableType:
    made = table("taken", ["calls %", "time %", "values"])
    for each in found.taken[:_ROWS_MAX]:
        made.add_row(
            cell(f"{each.name}: {' '.join(each.entry.text.split())}"),
            f"{selection.share(each.entry.calls, found.calls):.1f}",
            f"{selection.share(each.entry.total_ms, found.total_ms):.1f}",
            ", ".join(f"{count} {kind}" for kind, count in each.sources.items()),
        )
    return made


def _left(found: Captured) -> RenderableType:
    made = table("left out", ["statements", "calls %", "time %"])
    for reason, count, calls, total_ms in selection.by_reason(found.left)[:_ROWS_MAX]:
        made.add_row(
            cell(reason),
            str(count),
            f"{selection.share(calls, found.calls):.1f}",
            f"{selection.share(total_ms, found.total_ms):.1f}",
        )
    return made


def command(found: Captured, target: str) -> str:
    """How to run it: on a copy of the database."""
    folder = str(found.folder)
    words = ["pgpaces", "run", folder if "/" in folder else f"./{folder}"]
    words += ["--target", _shown(target), "--from-database", found.seen.database]
    return shlex.join(words)


def _shown(target: str) -> str:
    """A connection string without its password."""
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        given = {word: str(value) for word, value in conninfo_to_dict(target).items()}
    except Error:  # the name of a database, or something that only our own resolver reads
        return target if re.fullmatch(r"[\w.-]+", target) else "DSN"
    kept = without_secrets(given)
    return target if kept == given else make_conninfo(**kept)
