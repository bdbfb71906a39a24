"""The workload made from a database's statements, in words and tables for a terminal."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from pgpaces.capture import selection
from pgpaces.capture.catalog import Captured
from pgpaces.core.messages import message
from pgpaces.show.terminal import cell, grid
from pgpaces.spec.target import without_secrets

if TYPE_CHECKING:
    from rich.console import RenderableType

# More rows are in the folder's README.md.
_ROWS_MAX = 20


def captured(workload: Captured) -> list[RenderableType]:
    """The scripts, the excluded statements, and the share of calls and time that is covered."""
    taken = grid("taken", ["calls %", "time %", "values"])
    for each in workload.scripts[:_ROWS_MAX]:
        taken.add_row(
            cell(f"{each.name}: {' '.join(each.entry.text.split())}"),
            f"{selection.share(each.entry.calls, workload.calls):.1f}",
            f"{selection.share(each.entry.total_ms, workload.total_ms):.1f}",
            ", ".join(f"{count} {kind}" for kind, count in each.sources.items()),
        )
    parts: list[RenderableType] = [taken]
    rest = len(workload.scripts) - _ROWS_MAX
    if rest > 0:
        parts.append(message("more-scripts", count=rest))
    if workload.excluded:
        left_out = grid("left out", ["statements", "calls %", "time %"])
        for reason, count, calls, total_ms in selection.by_reason(workload.excluded)[:_ROWS_MAX]:
            left_out.add_row(
                cell(reason),
                str(count),
                f"{selection.share(calls, workload.calls):.1f}",
                f"{selection.share(total_ms, workload.total_ms):.1f}",
            )
        parts += ["", left_out]
    parts += ["", *selection.summary(workload)]
    if nested := workload.server.nested[0]:
        parts.append(message("calls-in-functions", calls=nested))
    return parts


def command(workload: Captured, target: str) -> str:
    folder = str(workload.folder)
    words = ["pgpaces", "run", folder if "/" in folder else f"./{folder}"]
    # By its DSN, pg_dump copies it to a managed server: also while sessions use the database.
    return shlex.join([*words, "--from-database", _shown(target, workload.server.database)])


def _shown(target: str, database: str) -> str:
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        keywords = {word: str(value) for word, value in conninfo_to_dict(target).items()}
    except Error:  # the name of a database, or a form that only the engine reads
        # A name alone would mean a database of the managed server.
        return make_conninfo(dbname=database) if re.fullmatch(r"[\w.-]+", target) else "DSN"
    public = without_secrets(keywords) or {"dbname": database}
    return target if public == keywords else make_conninfo(**public)
