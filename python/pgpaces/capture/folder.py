"""The folder of a workload made from statements: scripts, workload.toml, README.md."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from pgpaces.capture import selection
from pgpaces.capture.catalog import Captured, Entry, ExcludedStatement
from pgpaces.capture.guess import ValueSource
from pgpaces.core.errors import WorkloadError
from pgpaces.core.units import RATE_MAX, RATE_MIN
from pgpaces.show import escape

TOML = "workload.toml"
_SHOWN = 120
# The server replaces constants in these statements; it keeps others as they were sent.
_PLAIN = re.compile(
    r"(?>\s|\(|--[^\n]*\n|/\*.*?\*/)*+(select|with|insert|update|delete|merge|values|table)\b",
    re.IGNORECASE | re.DOTALL,
)
_WORDS = re.compile(r"\s*([A-Za-z]+)(?:\s+([A-Za-z]+))?")


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
    lines = [f"{entry.calls} calls, {mean:.3g} ms each"]
    lines += [f"p{number}: {source.why}" for number, source in sorted(sources.items())]
    return "".join(f"-- {escape.line(line)}\n" for line in lines)


def write(workload: Captured, *, values: bool, logged: bool) -> None:
    """Writes all files of the folder or none. Raises WorkloadError where it cannot."""
    texts = {f"{each.name}.sql": each.script for each in workload.scripts}
    texts |= {"README.md": _readme(workload, values=values, logged=logged), TOML: _toml(workload)}
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


def _toml(workload: Captured) -> str:
    database = escape.line(workload.server.database)
    about = f"The statements of database {database}, by pg_stat_statements"
    lines = [
        f"description = {json.dumps(about, ensure_ascii=False)}",
        f"writes = {str(any(each.writes for each in workload.scripts)).lower()}",
        "# The data is a copy of the database: --from-database.",
        "init = []",
    ]
    for each in workload.scripts:
        lines += ["", "[[scripts]]", f'file = "{each.name}.sql"', f"weight = {each.weight}"]
    if workload.rate is not None and RATE_MIN <= workload.rate <= RATE_MAX:
        lines += ["", "[load]", "# Calls per second, counted while the statements were read."]
        lines.append(f'rate = "{workload.rate:.6f}/s"')
    return "\n".join(lines) + "\n"


def _readme(workload: Captured, *, values: bool, logged: bool) -> str:
    def shares(calls: int, total_ms: float) -> str:
        time = selection.share(total_ms, workload.total_ms)
        return f"{selection.share(calls, workload.calls):.2f} | {time:.2f}"

    privacy = "Of the database's values the scripts contain only ranges of numbers and shares."
    if logged:
        privacy = "The scripts contain parameters from a log of the server: treat them as its data."
    elif values:
        privacy = (
            "The scripts contain values of the database, from pg_stats: treat them as its data."
        )
    lines = [
        f"# Statements of {_cell(workload.server.database)}",
        "",
        f"Made from pg_stat_statements of PostgreSQL {workload.server.version}."
        f" {' '.join(selection.summary(workload))}",
        "",
        privacy,
        "",
        *(f"- {_marked_up(escape.line(note))}" for note in workload.notes),
        "",
        "## Taken",
        "",
        "| script | calls % | time % | values | statement |",
        "| --- | ---: | ---: | --- | --- |",
    ]
    for each in workload.scripts:
        sources = ", ".join(f"{count} {kind}" for kind, count in each.sources.items()) or "none"
        row = f"{shares(each.entry.calls, each.entry.total_ms)} | {sources}"
        lines.append(f"| {each.name} | {row} | {_cell(each.entry.text)} |")
    lines += ["", "## Left out", "", "| calls % | time % | why | statement |"]
    lines.append("| ---: | ---: | --- | --- |")
    for left_out in sorted(workload.excluded, key=lambda each: -each.calls):
        row = f"{shares(left_out.calls, left_out.total_ms)} | {_cell(left_out.reason.message)}"
        lines.append(f"| {row} | {_cell(_shown(left_out, values=values))} |")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _shown(excluded: ExcludedStatement, *, values: bool) -> str:
    """The text of an excluded statement, or its kind if it may contain constants (a password).

    values: texts of the database may be shown.
    """
    text = excluded.text
    plain = _PLAIN.match(text) and excluded.reason.name != "statement-creates-table"
    if not text or (plain and (values or "'" not in text)):
        return text
    words = _WORDS.match(text)
    return f"{' '.join(filter(None, words.groups()))} ..." if words else "..."


def _cell(text: str) -> str:
    """A text for a table cell, which does not end the cell and contains no markup."""
    shown = escape.line(re.sub(r"\s+", " ", text)).strip()
    return _marked_up(shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}...")


def _marked_up(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|#$])", r"\\\1", text)
