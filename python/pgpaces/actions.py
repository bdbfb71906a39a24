"""What the files of a workload would execute: for whoever is asked whether they may.

Programs and Python files are in workload.toml, commands of scripts are told by the engine's own
parser. What SQL files ask of psql or of the server is found by a simple search: an indication, and
no guard. The guard is that psql itself refuses its commands (psql.py). Reads files; runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from pgpaces import workload
from pgpaces.errors import ScriptError, WorkloadError
from pgpaces.generators import engine as generator
from pgpaces.workload import Workload, WorkloadScript

_SHELL = ("\\shell", "\\setshell")
_INCLUDES_MAX = 100
_MODULES = (".py", ".pyc", ".so")
# Each part goes to the end of the text where it is not ended, so that none is begun again.
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


def of(found: Workload) -> tuple[Action, ...]:
    """What a workload would execute. Scripts that the user named are not looked at.

    Raises WorkloadError where SQL includes files outside of the folder, as far as that can be told.
    """
    return tuple(dict.fromkeys(_of(found)))


def of_folder(found: Workload) -> tuple[Action, ...]:
    """What a workload would execute, or another one of its folder: the base or a variant.

    Raises WorkloadError as `of`.
    """
    every = [found]
    for name in (None, *found.variants):
        try:
            every.append(workload.read(found.folder, name))
        except WorkloadError:
            continue  # as it is, it cannot be run
    return tuple(dict.fromkeys(action for each in every for action in of(each)))


def programs(found: Workload) -> Iterator[Action]:
    """What is executed on this machine by pgpaces itself: exact, because it is what is run."""
    for step in found.init:
        if step.run is not None:
            yield Action("program that makes data", workload.FILE, step.text)
    yield from _of_command(found)
    if found.users_file is not None:
        yield Action("Python users", _relative(found.folder, found.users_file), "")
        for path in sorted(found.folder.rglob("*")):
            if path.suffix in _MODULES and path != found.users_file:
                yield Action("Python module they may import", _relative(found.folder, path), "")
    yield from _of_shell(_commands(found))


def _of_command(found: Workload) -> Iterator[Action]:
    """The program that is timed, and what programs of this workload have fetched for them."""
    if found.command is not None:
        if found.command.before is not None:
            before = found.command.before
            text = before if isinstance(before, str) else str(workload.Command(before))
            yield Action("program before each trial", workload.FILE, text)
        yield Action("program that is timed", workload.FILE, str(found.command))
    if any(step.run is not None for step in found.init) or found.command is not None:
        for file in found.files:
            yield Action("package that pip downloads", workload.FILE, file.package)


def _of(found: Workload) -> Iterator[Action]:
    yield from programs(found)
    for step in found.init:
        if step.run is None:
            yield from _of_sql(found.folder, step.path, step.text, {step.path.resolve()})
    for name, command in _commands(found):
        if command.is_sql:
            yield from _of_server(name, command.text)


def _relative(folder: Path, path: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _commands(found: Workload) -> Iterator[tuple[str, generator.ScriptCommand]]:
    """Those of scripts of the folder, each with its file."""
    for script in found.scripts if found.is_scripts else ():
        name = f"{script.name}.sql"
        for command in () if script.source else _parsed(name, script.text):
            yield name, command


def _parsed(name: str, text: str) -> tuple[generator.ScriptCommand, ...]:
    try:
        return generator.commands(name, text)
    except ScriptError:
        return ()  # it does not run: whoever tries hears why


def of_script(found: WorkloadScript) -> tuple[Action, ...]:
    """The shell commands of a script that is no part of a folder."""
    return tuple(dict.fromkeys(_of_shell((found.name, each) for each in _parsed("", found.text))))


def _of_shell(commands: Iterable[tuple[str, generator.ScriptCommand]]) -> Iterator[Action]:
    for name, command in commands:
        if not command.is_sql and command.text.split(None, 1)[0].lower() in _SHELL:
            yield Action("shell command of a script", name, command.text)


def _of_sql(folder: Path, path: Path, text: str, seen: set[Path]) -> Iterator[Action]:
    """Of a file for psql, and of those that it includes by names that are no variables."""
    name, plain, last = _relative(folder, path), list[str](), 0
    lines = set[str]()
    for part in _PARTS.finditer(text):
        plain += [text[last : part.start()], part["string"] or " "]
        last = part.end()
        if part["psql"] and part["psql"] not in lines:
            lines.add(part["psql"])
            yield Action("command of psql", name, part["psql"].strip())
            for file in _included(folder, path, part["psql"]):
                if file.resolve() not in seen and len(seen) < _INCLUDES_MAX:
                    seen.add(file.resolve())
                    yield from _of_include(folder, file, seen)
    yield from _of_server(name, "".join([*plain, text[last:]]))


def _of_include(folder: Path, file: Path, seen: set[Path]) -> Iterator[Action]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    except OSError:
        return
    yield from _of_sql(folder, file, text, seen)


def _included(folder: Path, path: Path, line: str) -> Iterator[Path]:
    """The files that a command of psql reads as SQL. Raises WorkloadError for one elsewhere."""
    for found in _FILE.finditer(line):
        rest = found["rest"]
        if found["what"].lower() == "copy":
            copied = _COPIED.fullmatch(rest)
            rest = copied["rest"] if copied else ""
        name = _NAME.match(rest)
        if name is None:
            continue
        file = (name["single"] or "").replace("''", "'") or name["double"] or name["bare"] or ""
        if not file or ":" in file or "`" in file or file.startswith("~"):
            continue  # known only while psql runs
        try:
            inside = (path.parent / file).resolve().is_relative_to(folder.resolve())
        except (OSError, RuntimeError, ValueError):
            inside = False
        if not inside:
            raise WorkloadError(
                f"workload {folder.name}: {path.name} reads '{file}', which is outside of the"
                " folder",
                "a workload reads files of its folder only: copy it there",
            )
        if found["what"].lower() != "copy":
            yield path.parent / file


def _of_server(name: str, text: str) -> Iterator[Action]:
    for found in _PROGRAM.finditer(text):
        start = max(0, found.start() - _COPY_CHARACTERS)
        if (copy := _COPY.search(text[start : found.start()])) is not None:
            said = " ".join(f"{copy[0]}{found[0]}".split())
            yield Action("program that the server runs", name, said)
