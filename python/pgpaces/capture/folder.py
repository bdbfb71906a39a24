"""A workload made from statements: its folder, and what the terminal shows of it."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pgpaces.capture import catalog
from pgpaces.capture.catalog import Captured, Entry
from pgpaces.capture.guess import ValueSource
from pgpaces.core.errors import WorkloadError
from pgpaces.core.messages import message
from pgpaces.core.units import RATE_MAX, RATE_MIN
from pgpaces.show import escape
from pgpaces.show.terminal import cell, grid
from pgpaces.spec.target import without_secrets

if TYPE_CHECKING:
    from rich.console import RenderableType

TOML = "workload.toml"
# Of a table on a terminal.
_ROWS_MAX = 20


def name_for(database: str) -> str:
    return "from-" + (re.sub(r"[^A-Za-z0-9_.-]+", "_", database).strip("._") or "database")


def check(folder: Path) -> None:
    """Raises WorkloadError where the folder is not empty, or cannot be a workload."""
    try:
        in_use = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise WorkloadError("cannot-write", path=str(folder), why=error.strerror) from None
    if in_use:
        raise WorkloadError("folder-not-empty", path=str(folder))
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", folder.resolve().name):
        raise WorkloadError("bad-workload-name", workload=folder.name)


def comments(entry: Entry, sources: Mapping[int, ValueSource]) -> str:
    """The comments above a script: its calls and time, and the sources of its values."""
    mean = entry.total_ms / entry.calls if entry.calls else 0.0
    lines = [message("script-calls", calls=entry.calls, mean_ms=mean)]
    for number, source in sorted(sources.items()):
        lines.append(": ".join(filter(None, (f"p{number}", source.use, source.how))))
    return "".join(f"-- {escape.line(line)}\n" for line in lines)


def write(workload: Captured, privacy: str) -> None:
    """Writes all files of the folder or none. Raises WorkloadError where it cannot.

    privacy: what the files contain of the database, in words.
    """
    texts = {f"{each.name}.sql": each.script for each in workload.scripts}
    texts[TOML] = _toml(workload, privacy)
    folder = workload.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The files may contain data of the database: other users must not read them.
        folder.chmod(0o700)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    except BaseException as error:
        for name in texts:
            with contextlib.suppress(OSError):
                (folder / name).unlink()
        if not isinstance(error, OSError):
            raise
        raise WorkloadError("cannot-write", path=str(folder), why=error.strerror) from None


def _toml(workload: Captured, privacy: str) -> str:
    about = message("workload-of-statements", database=escape.line(workload.server.database))
    writes = str(any(each.writes for each in workload.scripts)).lower()
    description = json.dumps(about, ensure_ascii=False)
    lines = [message("statements-toml", description=description, writes=writes, privacy=privacy)]
    for each in workload.scripts:
        lines += ["", "[[scripts]]", f'file = "{each.name}.sql"', f"weight = {each.weight}"]
    if workload.rate is not None and RATE_MIN <= workload.rate <= RATE_MAX:
        lines += ["", message("statements-toml-load", rate=workload.rate)]
    return "\n".join(lines) + "\n"


def captured(workload: Captured) -> list[RenderableType]:
    """The scripts, the excluded statements, and the share of calls and time that is covered."""
    taken = grid("taken", ["calls %", "time %", "values"])
    for each in workload.scripts[:_ROWS_MAX]:
        taken.add_row(
            cell(f"{each.name}: {' '.join(each.entry.text.split())}"),
            f"{catalog.share(each.entry.calls, workload.calls):.1f}",
            f"{catalog.share(each.entry.total_ms, workload.total_ms):.1f}",
            ", ".join(f"{count} {kind}" for kind, count in each.sources.items()),
        )
    parts: list[RenderableType] = [taken]
    rest = len(workload.scripts) - _ROWS_MAX
    if rest > 0:
        parts.append(message("more-scripts", count=rest))
    if workload.excluded:
        left_out = grid("left out", ["statements", "calls %", "time %"])
        for reason, count, calls, total_ms in catalog.by_reason(workload.excluded)[:_ROWS_MAX]:
            left_out.add_row(
                cell(reason),
                str(count),
                f"{catalog.share(calls, workload.calls):.1f}",
                f"{catalog.share(total_ms, workload.total_ms):.1f}",
            )
        parts += ["", left_out]
    parts += ["", *catalog.summary(workload)]
    if nested := workload.server.nested[0]:
        parts.append(message("calls-in-functions", calls=nested))
    return parts


def command_for(workload: Captured, target: str) -> str:
    """The command that runs the workload on a copy of its database."""
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    folder, database = str(workload.folder), workload.server.database
    words = ["pgpaces", "run", folder if "/" in folder else f"./{folder}"]
    try:
        keywords = {word: str(value) for word, value in conninfo_to_dict(target).items()}
        public = without_secrets(keywords) or {"dbname": database}
        dsn = target if public == keywords else make_conninfo(**public)
    except Error:  # the name of a database, or a form that only the engine reads
        # A name alone would mean a database of the managed server.
        dsn = make_conninfo(dbname=database) if re.fullmatch(r"[\w.-]+", target) else "DSN"
    # By its DSN, pg_dump copies it to a managed server: also while sessions use the database.
    return shlex.join([*words, "--from-database", dsn])
