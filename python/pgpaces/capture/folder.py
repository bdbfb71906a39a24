"""The folder of a workload that was made from statements: scripts, workload.toml, README.md."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from pgpaces.capture import selection
from pgpaces.capture.catalog import Captured, Entry, Left
from pgpaces.capture.guess import ValueSource
from pgpaces.capture.parser import TABLE
from pgpaces.errors import WorkloadError
from pgpaces.report import escape
from pgpaces.units import RATE_MAX, RATE_MIN

TOML = "workload.toml"
_SHOWN = 120
# Of these the server keeps no constants; of others it keeps the text as it was sent.
_PLAIN = re.compile(
    r"(?>\s|\(|--[^\n]*\n|/\*.*?\*/)*+(select|with|insert|update|delete|merge|values|table)\b",
    re.IGNORECASE | re.DOTALL,
)
_WORDS = re.compile(r"\s*([A-Za-z]+)(?:\s+([A-Za-z]+))?")


def name_for(database: str) -> str:
    """What the folder is called where nobody says."""
    return "from-" + (re.sub(r"[^A-Za-z0-9_.-]+", "_", database).strip("._") or "database")


def check(folder: Path) -> None:
    """Raises WorkloadError where the folder holds something, or cannot be a workload."""
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise WorkloadError(f"{folder} cannot be written: {error.strerror}") from None
    if taken:
        raise WorkloadError(f"{folder} is not empty", "name a new folder")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", folder.resolve().name):
        raise WorkloadError(
            f"'{folder.name}' cannot be a workload's name", "use letters and digits"
        )


def comments(entry: Entry, sources: Mapping[int, ValueSource]) -> str:
    """What stands above a script: what was counted of it, and where its values are from."""
    mean = entry.total_ms / entry.calls if entry.calls else 0.0
    lines = [f"{entry.calls} calls, {mean:.3g} ms each"]
    lines += [f"p{number}: {source.why}" for number, source in sorted(sources.items())]
    return "".join(f"-- {escape.line(line)}\n" for line in lines)


def write(found: Captured, *, values: bool, logged: bool) -> None:
    """Writes the folder, whole or nothing into it. Raises WorkloadError where that cannot be."""
    texts = {f"{each.name}.sql": each.script for each in found.taken}
    texts |= {"README.md": _readme(found, values=values, logged=logged), TOML: _toml(found)}
    try:
        found.folder.mkdir(parents=True, exist_ok=True)
        # Others on this machine need not read what the database holds.
        found.folder.chmod(0o700)
        for name, text in texts.items():
            (found.folder / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    except BaseException as error:
        for name in texts:
            with contextlib.suppress(OSError):
                (found.folder / name).unlink()
        if not isinstance(error, OSError):
            raise
        raise WorkloadError(f"{found.folder} cannot be written: {error.strerror}") from None


def _toml(found: Captured) -> str:
    about = f"The statements of database {escape.line(found.seen.database)}, by pg_stat_statements"
    lines = [
        f"description = {json.dumps(about, ensure_ascii=False)}",
        f"writes = {str(any(each.writes for each in found.taken)).lower()}",
        "# The data is a copy of the database's own: --from-database.",
        "init = []",
    ]
    for each in found.taken:
        lines += ["", "[[scripts]]", f'file = "{each.name}.sql"', f"weight = {each.weight}"]
    if found.rate is not None and RATE_MIN <= found.rate <= RATE_MAX:
        lines += ["", "[load]", "# Calls a second, on average since statements are counted."]
        lines.append(f'rate = "{found.rate:.6f}/s"')
    return "\n".join(lines) + "\n"


def _readme(found: Captured, *, values: bool, logged: bool) -> str:
    taken_calls = sum(each.entry.calls for each in found.taken)
    taken_ms = sum(each.entry.total_ms for each in found.taken)
    lines = [
        f"# Statements of {_cell(found.seen.database)}",
        "",
        f"Made from pg_stat_statements of PostgreSQL {found.seen.version}. Of the calls"
        f" {selection.share(taken_calls, found.calls):.1f} % are covered, of the time"
        f" {selection.share(taken_ms, found.total_ms):.1f} %."
        f" {selection.pace(found.rate, found.seen.seconds)}",
        "",
        _privacy(values, logged),
        "",
        *(f"- {_marked_up(escape.line(note))}" for note in found.notes),
        "",
        "## Taken",
        "",
        "| script | calls % | time % | values | statement |",
        "| --- | ---: | ---: | --- | --- |",
    ]
    lines += [
        f"| {each.name} | {selection.share(each.entry.calls, found.calls):.2f} |"
        f" {selection.share(each.entry.total_ms, found.total_ms):.2f} | {_sources(each.sources)} |"
        f" {_cell(each.entry.text)} |"
        for each in found.taken
    ]
    lines += ["", "## Left out", "", "| calls % | time % | why | statement |"]
    lines.append("| ---: | ---: | --- | --- |")
    lines += [
        f"| {selection.share(each.calls, found.calls):.2f} |"
        f" {selection.share(each.total_ms, found.total_ms):.2f} | {_cell(each.reason)} |"
        f" {_cell(_shown(each))} |"
        for each in sorted(found.left, key=lambda left: -left.calls)
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _privacy(values: bool, logged: bool) -> str:
    if logged:
        return "The scripts hold parameters from a log of the server: treat them as its data."
    if values:
        return "The scripts hold values of the database, from pg_stats: treat them as its data."
    return "Of the database's values the scripts hold ranges of numbers and shares only."


def _shown(left: Left) -> str:
    """A statement that is left out: of one that may have its constants, a password, its kind."""
    if not left.text or (_PLAIN.match(left.text) and left.reason != TABLE):
        return left.text
    found = _WORDS.match(left.text)
    return f"{' '.join(word for word in found.groups() if word)} ..." if found else "..."


def _sources(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "none"


def _cell(text: str) -> str:
    """A text in a cell of a table, which ends none and begins no mark-up."""
    shown = escape.line(re.sub(r"\s+", " ", text)).strip()
    return _marked_up(shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}...")


def _marked_up(text: str) -> str:
    """A line as Markdown shows it as it is."""
    return re.sub(r"([\\`*_{}\[\]<>|#$])", r"\\\1", text)
