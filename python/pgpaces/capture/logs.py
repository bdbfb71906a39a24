"""Parameters of statements from a server's log: stderr, csvlog or jsonlog. Reads files."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pgpaces.capture import parser as parsing
from pgpaces.capture.guess import quoted
from pgpaces.core.errors import WorkloadError

# Distinct tuples of parameters that are counted for each statement.
TUPLES_MAX = 5000
_LEVEL = re.compile(
    r"(?:^|[^A-Za-z0-9_])(LOG|DETAIL|STATEMENT|CONTEXT|HINT|ERROR|FATAL|PANIC|WARNING|NOTICE|INFO"
    r"|DEBUG\d?|QUERY|LOCATION):  (?:[0-9A-Z]{5}: )?(.*)",
    re.DOTALL,
)
# A fetch from a portal repeats what was executed once.
_STATEMENT = re.compile(
    r"(?:duration: [0-9.]+ ms  )?(?:statement|execute (?!fetch from )[^:]*): (.*)", re.DOTALL
)
_PARAMETERS = re.compile(r"parameters: (.*)", re.DOTALL | re.IGNORECASE)
_ONE = re.compile(r"\$(\d+) = (?:'((?:[^']|'')*)'|(NULL))(?:, |$)", re.DOTALL)
_UNDECODED = re.compile(r"[\udc80-\udcff]")
# The columns of a csvlog that are read.
_CSV_DATABASE, _CSV_MESSAGE, _CSV_DETAIL = 2, 13, 14
_FIELD_MAX = 64 * 1024 * 1024

# A statement of the log, and its parameters, if the log has them separately.
Logged = tuple[str, Mapping[int, str]]


def read(path: Path, database: str | None = None, encoding: str = "utf-8") -> Iterator[Logged]:
    """Every logged statement, of this database where the log names it.

    csvlog and jsonlog do; the prefix of stderr's lines may be anything. encoding: of the database,
    in which the server logs its statements; other bytes become surrogates. Raises WorkloadError
    where the file cannot be read.
    """
    try:
        with path.open(encoding=encoding, errors="surrogateescape", newline="") as lines:
            for message, detail in _messages(path, lines, database):
                if statement := _STATEMENT.fullmatch(message):
                    yield statement[1], parameters(detail)
    except OSError as error:
        raise WorkloadError("cannot-read", path=str(path), why=error.strerror) from None
    except csv.Error as error:
        raise WorkloadError("not-a-csvlog", path=str(path), why=str(error)) from None


def _messages(path: Path, lines: Iterable[str], database: str | None) -> Iterator[tuple[str, str]]:
    """Messages with their details; the format by the ending that the server gives the file."""
    if path.suffix == ".csv":
        csv.field_size_limit(_FIELD_MAX)
        for row in csv.reader(lines):
            if len(row) > _CSV_DETAIL and database in (None, row[_CSV_DATABASE]):
                yield row[_CSV_MESSAGE], row[_CSV_DETAIL]
    elif path.suffix == ".json":
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and database in (None, entry.get("dbname", database)):
                yield str(entry.get("message", "")), str(entry.get("detail", ""))
    else:
        yield from _plain(lines)


def _plain(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Messages and details of a log in stderr's format, with any log_line_prefix."""
    pairs = itertools.pairwise(itertools.chain(_entries(lines), [("", "")]))
    for (level, text), (next_level, next_text) in pairs:
        if level == "LOG":
            yield text, next_text if next_level == "DETAIL" else ""


def _entries(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    level, text = "", ""
    for line in lines:
        rest = line.rstrip("\r\n")
        if rest.startswith("\t") and level:
            text += f"\n{rest[1:]}"
            continue
        match = _LEVEL.search(rest)
        if match is None:
            continue
        if level:
            yield level, text
        level, text = match[1], match[2]
    if level:
        yield level, text


def parameters(detail: str) -> dict[int, str]:
    listed = _PARAMETERS.fullmatch(detail)
    if listed is None:
        return {}
    return {
        int(one[1]): "NULL" if one[3] else quoted(one[2].replace("''", "'"))
        for one in _ONE.finditer(listed[1])
    }


class LoggedParameters:
    """Parameters of statements, collected from a log. undecoded: those in another encoding."""

    def __init__(self, statements: Sequence[tuple[str, Any]]) -> None:
        self._trees: dict[str, list[tuple[int, Any]]] = {}
        for place, (text, tree) in enumerate(statements):
            if (fingerprint := parsing.fingerprint(text)) is not None:
                self._trees.setdefault(fingerprint, []).append((place, tree))
        self._tuples: dict[int, Counter[tuple[tuple[int, str], ...]]] = {}
        self._fingerprints: dict[str, str | None] = {}
        self.read, self.matched, self.undecoded = 0, 0, 0

    def add(self, logged: Logged) -> None:
        text, literals = logged
        self.read += 1
        if any(map(_UNDECODED.search, (text, *literals.values()))):
            self.undecoded += 1
            return
        fingerprint = self._fingerprint(text, bool(literals))
        if fingerprint not in self._trees:
            return
        try:
            trees = parsing.trees(text)
        except parsing.UnusableError:
            return
        for place, tree in self._trees[fingerprint] if len(trees) == 1 else ():
            values = _values(tree, trees[0], literals)
            if values is None:
                continue
            counts = self._tuples.setdefault(place, Counter())
            key = tuple(sorted(values.items()))
            if key in counts or len(counts) < TUPLES_MAX:
                counts[key] += 1
            self.matched += 1
            return

    def _fingerprint(self, text: str, repeats: bool) -> str | None:
        """The fingerprint of a text; cached if texts repeat, as those with separate parameters."""
        if text in self._fingerprints:
            return self._fingerprints[text]
        fingerprint = parsing.fingerprint(text)
        if repeats and len(self._fingerprints) < TUPLES_MAX:
            self._fingerprints[text] = fingerprint
        return fingerprint

    def of(self, place: int) -> list[tuple[int, dict[int, str]]]:
        counts = self._tuples.get(place, Counter())
        return [(count, dict(key)) for key, count in counts.most_common()]


def _values(template: Any, tree: Any, literals: Mapping[int, str]) -> dict[int, str] | None:
    """The values of a statement for the template's parameters; None if the trees differ."""
    values: dict[int, str] = {}
    waiting = [(template, tree)]
    while waiting:
        pattern, node = waiting.pop()
        if isinstance(pattern, dict) and "ParamRef" in pattern:
            # PostgreSQL 18 replaces a list of any length by one parameter.
            nodes = node if isinstance(node, list) else [node]
            constants = [_constant(each, literals) for each in nodes]
            if None in constants:
                return None
            values[pattern["ParamRef"]["number"]] = ", ".join(map(str, constants))
            continue
        pairs = _pairs(pattern, node)
        if pairs is None:
            return None
        waiting += pairs
    return values


def _pairs(pattern: Any, node: Any) -> list[tuple[Any, Any]] | None:
    if type(pattern) is not type(node):
        return None
    if isinstance(pattern, list):
        if len(pattern) == 1 and len(node) > 1:
            return [(pattern[0], node)]
        return None if len(pattern) != len(node) else list(zip(pattern, node, strict=True))
    if any(key not in node for key in pattern if key != "location"):
        return None
    return [(part, node[key]) for key, part in pattern.items() if isinstance(part, dict | list)]


def _constant(node: Any, literals: Mapping[int, str]) -> str | None:
    if not isinstance(node, dict):
        return None
    if "ParamRef" in node:
        return literals.get(node["ParamRef"].get("number", 0))
    value = node.get("A_Const")
    return None if value is None else _literal(value)


def _literal(value: Any) -> str:
    if value.get("isnull"):
        return "NULL"
    if "ival" in value:
        return str(value["ival"].get("ival", 0))
    if "boolval" in value:
        return "true" if value["boolval"].get("boolval") else "false"
    if "bsval" in value:
        bits = value["bsval"]["bsval"]
        return f"{bits[0].upper()}'{bits[1:]}'"
    if "fval" in value:
        return str(value["fval"]["fval"])
    return quoted(str(value.get("sval", {}).get("sval", "")))
