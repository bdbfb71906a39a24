"""The programs that the files of a workload would execute, for the user's confirmation.

workload.toml names programs and Python files, the engine's parser finds the commands of scripts. A
simple search finds commands for psql and the server in SQL files: an indication, no guard. The
guard is that psql itself refuses its commands (psql.py). Reads files; runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from pgpaces.core.errors import ScriptError, WorkloadError
from pgpaces.spec import workload
from pgpaces.spec.scripts import ScriptCommand, commands_in
from pgpaces.spec.workload import Workload, WorkloadScript

_SHELL = ("\\shell", "\\setshell")
_INCLUDES_MAX = 100
_MODULES = (".py", ".pyc", ".so")
# An unterminated part extends to the end of the text, so that the search does not backtrack.
_PARTS = re.compile(
    r"--[^\n]*|/\*.*?(?:\*/|\Z)"
    r"|(?P<data>\bcopy\s+(?:\"[^\"]*\"|[^\s(;'\"\\])+\s*(?:\([^();'\\]*\))?\s*from\s+stdin\b"
    r"[^;\\]{0,500};[^\n]*\n.*?(?:^\\\.|\Z))"
    r"|(?P<string>\$(?P<tag>[^\W\d]\w*)?\$.*?(?:\$(?P=tag)\$|\Z)"
    r"|\$\$.*?(?:\$\$|\Z)"
    r"|\be'(?:[^'\\]|\\.|'')*(?:'|\Z)|'(?:[^']|'')*(?:'|\Z)|\"(?:[^\"]|\"\")*(?:\"|\Z))"
    r"|\\[;:]|(?P<psql>\\[^\n]*)",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
_PROGRAM = re.compile(r"\b(?:from|to)\s+program\b\s*(?:e?'|\$|:)[^;\n]{0,500}", re.IGNORECASE)
_COPY = re.compile(r"\bcopy\b[^;]*\Z", re.IGNORECASE)
_COPY_CHARACTERS = 500  # before its program
_FILE = re.compile(
    r"\\(?P<what>include_relative|include|ir|i|copy)\b(?P<rest>[^\n]*)", re.IGNORECASE
)
_COPIED = re.compile(r".*\b(?:from|to)\s+(?!program\b|stdin\b|stdout\b|pstd)(?P<rest>.*)", re.I)
_NAME = re.compile(r"\s*(?:'(?P<single>(?:[^']|'')*)'|\"(?P<double>[^\"]*)\"|(?P<bare>[^\s;]+))")


class Action(Struct, frozen=True):
    """Something that is executed: what runs it, in words; the file that asks for it; its text."""

    what: str
    file: str
    text: str


def of(candidate: Workload) -> tuple[Action, ...]:
    """The actions of a workload, without those of scripts that the user named.

    Raises WorkloadError if SQL includes files outside of the folder, as far as the search finds it.
    """
    found = [*programs(candidate)]
    for step in candidate.init:
        if step.run is None:
            visited = {step.path.resolve()}
            found += _of_sql(candidate.folder, step.path, step.text, visited=visited)
    for name, command in _commands(candidate):
        if command.is_sql:
            found += _of_server(name, command.text)
    return tuple(dict.fromkeys(found))


def of_folder(candidate: Workload) -> tuple[Action, ...]:
    """The actions of a workload, its base and its variants. Raises WorkloadError as `of`."""
    every = [candidate]
    for name in (None, *candidate.variants):
        try:
            every.append(workload.read(candidate.folder, name))
        except WorkloadError:
            continue  # it cannot be run in its present state
    return tuple(dict.fromkeys(action for each in every for action in of(each)))


def programs(candidate: Workload) -> Iterator[Action]:
    """The programs that pgpaces itself would run on this machine: an exact list."""
    for step in candidate.init:
        if step.run is not None:
            yield Action("program that makes data", workload.FILE, step.text)
    if candidate.command is not None:
        if candidate.command.before is not None:
            before = candidate.command.before
            text = before if isinstance(before, str) else str(workload.Command(before))
            yield Action("program before each trial", workload.FILE, text)
        yield Action("program that is timed", workload.FILE, str(candidate.command))
    if any(step.run is not None for step in candidate.init) or candidate.command is not None:
        for file in candidate.files:
            yield Action("package that pip downloads", workload.FILE, file.package)
    if candidate.users_file is not None:
        yield Action("Python users", _relative(candidate.folder, candidate.users_file), "")
        for path in sorted(candidate.folder.rglob("*")):
            if path.suffix in _MODULES and path != candidate.users_file:
                yield Action("Python module they may import", _relative(candidate.folder, path), "")
    yield from _of_shell(_commands(candidate))


def _relative(folder: Path, path: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _commands(candidate: Workload) -> Iterator[tuple[str, ScriptCommand]]:
    for script in candidate.scripts if candidate.is_scripts else ():
        name = f"{script.name}.sql"
        for command in () if script.source else _parsed(name, script.text):
            yield name, command


def _parsed(name: str, text: str) -> tuple[ScriptCommand, ...]:
    try:
        return commands_in(name, text)
    except ScriptError:
        return ()  # it does not run: an attempt reports the error


def of_script(script: WorkloadScript) -> tuple[Action, ...]:
    """The shell commands of a script that is no part of a folder."""
    return tuple(dict.fromkeys(_of_shell((script.name, each) for each in _parsed("", script.text))))


def _of_shell(commands: Iterable[tuple[str, ScriptCommand]]) -> Iterator[Action]:
    for name, command in commands:
        if not command.is_sql and command.text.split(None, 1)[0].lower() in _SHELL:
            yield Action("shell command of a script", name, command.text)


def _of_sql(folder: Path, path: Path, text: str, *, visited: set[Path]) -> Iterator[Action]:
    """Actions of a file for psql, and of its includes whose names are no variables."""
    name, plain, last, lines = _relative(folder, path), list[str](), 0, set[str]()
    for part in _PARTS.finditer(text):
        plain += [text[last : part.start()], part["string"] or " "]
        last = part.end()
        if part["psql"] and part["psql"] not in lines:
            lines.add(part["psql"])
            yield Action("command of psql", name, part["psql"].strip())
            for file in _included(folder, path, part["psql"]):
                if file.resolve() not in visited and len(visited) < _INCLUDES_MAX:
                    visited.add(file.resolve())
                    try:
                        more = file.read_text("utf-8", "replace") if file.is_file() else ""
                    except OSError:
                        continue
                    yield from _of_sql(folder, file, more, visited=visited)
    yield from _of_server(name, "".join([*plain, text[last:]]))


def _included(folder: Path, path: Path, line: str) -> Iterator[Path]:
    """The files that a command of psql reads as SQL. Raises WorkloadError for one elsewhere."""
    for match in _FILE.finditer(line):
        rest = match["rest"]
        if match["what"].lower() == "copy":
            copied = _COPIED.fullmatch(rest)
            rest = copied["rest"] if copied else ""
        name = _NAME.match(rest)
        if name is None:
            continue
        file = (name["single"] or "").replace("''", "'") or name["double"] or name["bare"] or ""
        if not file or ":" in file or "`" in file or file.startswith("~"):
            continue  # the name is only known while psql runs
        try:
            inside = (path.parent / file).resolve().is_relative_to(folder.resolve())
        except (OSError, RuntimeError, ValueError):
            inside = False
        if not inside:
            about = f"workload {folder.name}: {path.name}"
            raise WorkloadError("outside-folder", file=file).at(about)
        if match["what"].lower() != "copy":
            yield path.parent / file


def _of_server(name: str, text: str) -> Iterator[Action]:
    for match in _PROGRAM.finditer(text):
        start = max(0, match.start() - _COPY_CHARACTERS)
        if (copy := _COPY.search(text[start : match.start()])) is not None:
            command = " ".join(f"{copy[0]}{match[0]}".split())
            yield Action("program that the server runs", name, command)
