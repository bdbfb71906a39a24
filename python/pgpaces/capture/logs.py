"""Parameters of statements as a server's log has them: stderr, csvlog or jsonlog. Reads files.

Knows nothing of weights and scripts.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pgpaces.capture import parser as parsing
from pgpaces.capture.guess import quoted
from pgpaces.errors import WorkloadError

# Of each statement so many different tuples are kept apart.
TUPLES_MAX = 5000
_LEVEL = re.compile(
    r"(?:^|[\s\]:>|)])(LOG|DETAIL|STATEMENT|CONTEXT|HINT|ERROR|FATAL|PANIC|WARNING|NOTICE|INFO"
    r"|DEBUG\d?|QUERY|LOCATION):  (.*)",
    re.DOTALL,
)
_STATEMENT = re.compile(r"(?:duration: [0-9.]+ ms  )?(?:statement|execute [^:]*): (.*)", re.DOTALL)
_PARAMETERS = re.compile(r"parameters: (.*)", re.DOTALL | re.IGNORECASE)
_ONE = re.compile(r"\$(\d+) = (?:'((?:[^']|'')*)'|(NULL))(?:, |$)", re.DOTALL)
# Beyond a csvlog's message and detail nothing is read of it.
_CSV_DATABASE, _CSV_MESSAGE, _CSV_DETAIL = 2, 13, 14
_FIELD_MAX = 64 * 1024 * 1024

# A statement of the log, and its parameters, if they came apart from it.
Logged = tuple[str, Mapping[int, str]]


def read(path: Path, database: str | None = None) -> Iterator[Logged]:
    """Every statement that was logged, of this database as far as the log tells.

    That is csvlog and jsonlog; a prefix of stderr's lines is anything. Raises WorkloadError where
    the file cannot be read.
    """
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as lines:
            for message, detail in _messages(path, lines, database):
                found = _STATEMENT.fullmatch(message)
                if found is not None:
                    yield found[1], parameters(detail)
    except OSError as error:
        raise WorkloadError(f"the log {path} cannot be read: {error.strerror}") from None
    except csv.Error as error:
        raise WorkloadError(f"the log {path} is not a csvlog: {error}") from None


def _messages(path: Path, lines: Iterable[str], database: str | None) -> Iterator[tuple[str, str]]:
    """Messages with their details, by the file's ending as the server gives it."""
    if path.suffix == ".csv":
        csv.field_size_limit(_FIELD_MAX)
        for row in csv.reader(lines):
            if len(row) > _CSV_DETAIL and database in (None, row[_CSV_DATABASE]):
                yield row[_CSV_MESSAGE], row[_CSV_DETAIL]
    elif path.suffix == ".json":
        for line in lines:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and database in (None, found.get("dbname", database)):
                yield str(found.get("message", "")), str(found.get("detail", ""))
    else:
        yield from _plain(lines)


def _plain(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Of a log in stderr's format, whatever log_line_prefix is: further lines begin with a tab."""
    message: list[str] = []
    for level, text in _entries(lines):
        if level == "DETAIL":
            message = [*message[:1], text]
            continue
        if message:
            yield message[0], message[1] if len(message) > 1 else ""
        message = [text] if level == "LOG" else []
    if message:
        yield message[0], message[1] if len(message) > 1 else ""


def _entries(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    level, text = "", ""
    for line in lines:
        rest = line.rstrip("\r\n")
        if rest.startswith("\t") and level:
            text += f"\n{rest[1:]}"
            continue
        found = _LEVEL.search(rest)
        if found is None:
            continue
        if level:
            yield level, text
        level, text = found[1], found[2]
    if level:
        yield level, text


def parameters(detail: str) -> dict[int, str]:
    """Literals by their number, of the detail that a logged statement has."""
    found = _PARAMETERS.fullmatch(detail)
    if found is None:
        return {}
    return {
        int(one[1]): "NULL" if one[3] else quoted(one[2].replace("''", "'"))
        for one in _ONE.finditer(found[1])
    }


class Real:
    """Real parameters of statements, gathered from a log."""

    def __init__(self, statements: Sequence[tuple[str, Any]]) -> None:
        """Of these: each one's text, and its tree."""
        self._trees: dict[str, list[tuple[int, Any]]] = {}
        for place, (text, tree) in enumerate(statements):
            if (mark := parsing.fingerprint(text)) is not None:
                self._trees.setdefault(mark, []).append((place, tree))
        self._found: dict[int, Counter[tuple[tuple[int, str], ...]]] = {}
        self._marks: dict[str, str | None] = {}
        self.read, self.matched = 0, 0

    def add(self, logged: Logged) -> None:
        """One more of the log's statements."""
        text, given = logged
        self.read += 1
        mark = self._mark(text, bool(given))
        if mark not in self._trees:
            return
        try:
            trees = parsing.trees(text)
        except parsing.UnusableError:
            return
        for place, tree in self._trees[mark] if len(trees) == 1 else ():
            values = _values(tree, trees[0], given)
            if values is None:
                continue
            kept = self._found.setdefault(place, Counter())
            key = tuple(sorted(values.items()))
            if key in kept or len(kept) < TUPLES_MAX:
                kept[key] += 1
            self.matched += 1
            return

    def _mark(self, text: str, same: bool) -> str | None:
        """Its fingerprint; texts with parameters apart come again and again."""
        if text in self._marks:
            return self._marks[text]
        mark = parsing.fingerprint(text)
        if same and len(self._marks) < TUPLES_MAX:
            self._marks[text] = mark
        return mark

    def of(self, place: int) -> list[tuple[int, dict[int, str]]]:
        """Tuples of one statement with how often each came, the most frequent first."""
        found = self._found.get(place, Counter())
        return [(count, dict(key)) for key, count in found.most_common()]


def _values(template: Any, tree: Any, given: Mapping[int, str]) -> dict[int, str] | None:
    """What stands in a statement where the template has its parameters; None if they differ."""
    found: dict[int, str] = {}
    waiting = [(template, tree)]
    while waiting:
        ours, theirs = waiting.pop()
        if isinstance(ours, dict) and "ParamRef" in ours:
            # Of a list PostgreSQL 18 keeps one parameter, whatever its length.
            several = theirs if isinstance(theirs, list) else [theirs]
            values = [_constant(each, given) for each in several]
            if None in values:
                return None
            found[ours["ParamRef"]["number"]] = ", ".join(str(value) for value in values)
            continue
        pairs = _pairs(ours, theirs)
        if pairs is None:
            return None
        waiting += pairs
    return found


def _pairs(ours: Any, theirs: Any) -> list[tuple[Any, Any]] | None:
    """The parts of two trees, side by side; None if they differ."""
    if type(ours) is not type(theirs):
        return None
    if isinstance(ours, list):
        if len(ours) == 1 and len(theirs) > 1:
            return [(ours[0], theirs)]
        return None if len(ours) != len(theirs) else list(zip(ours, theirs, strict=True))
    if any(key not in theirs for key in ours if key != "location"):
        return None
    return [(ours[key], theirs[key]) for key in ours if isinstance(ours[key], dict | list)]


def _constant(node: Any, given: Mapping[int, str]) -> str | None:
    """A literal of the value that a node is; None where it is no constant."""
    if not isinstance(node, dict):
        return None
    if "ParamRef" in node:
        return given.get(node["ParamRef"].get("number", 0))
    value = node.get("A_Const")
    return None if value is None else _written(value)


def _written(value: Any) -> str:
    """A constant of the tree as a literal."""
    if value.get("isnull"):
        return "NULL"
    if "ival" in value:
        return str(value["ival"].get("ival", 0))
    if "boolval" in value:
        return "true" if value["boolval"].get("boolval") else "false"
    if "bsval" in value:
        bits = value["bsval"]["bsval"]
        return f"{bits[0].upper()}'{bits[1:]}'"
    return str(value["fval"]["fval"]) if "fval" in value else quoted(_text(value))


def _text(value: Any) -> str:
    return str(value.get("sval", {}).get("sval", ""))
