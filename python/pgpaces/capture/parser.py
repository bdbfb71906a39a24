"""A statement as parsed by PostgreSQL, and the places of its parameters.

The parser is PostgreSQL's: libpg_query, through pgparse. Places are byte offsets in UTF-8.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from pgpaces.capture.catalog import Function, Name
from pgpaces.core.errors import PgpacesError, extra

# A variable for a script: a colon before a name; `::` is none.
_VARIABLE = re.compile(rb"(?<!:):(?=[\w{\x80-\xff])")
# PostgreSQL 18 writes this in place of the rest of a list.
_SQUASHED = re.compile(rb"\s*/\*, \.\.\. \*/")
_KINDS = {
    "SelectStmt": "select",
    "InsertStmt": "insert",
    "UpdateStmt": "update",
    "DeleteStmt": "delete",
    "MergeStmt": "merge",
    "CallStmt": "call",
}
_CALLS = ("FuncCall", "funccall")
_WRITES = frozenset(_KINDS) - {"SelectStmt"}
# Their normalized texts do not always parse.
_ENDS = re.compile(r"\s*(savepoint|release|rollback|prepare\s+transaction|commit)\b", re.IGNORECASE)
_EXCLUDED = {
    "TransactionStmt": "statement-of-transaction",
    "CopyStmt": "statement-copy",
    "FetchStmt": "statement-cursor",
    "DeclareCursorStmt": "statement-cursor",
    "ClosePortalStmt": "statement-cursor",
}
# Functions that only read the state of the server or session; and functions of pg_ that
# applications use.
_ABOUT_ITSELF = frozenset(
    ("current_setting", "set_config", "current_database", "current_schemas", "version")
)
_APPLICATIONS = ("pg_sleep", "pg_advisory", "pg_try_advisory", "pg_notify")


class UnusableError(PgpacesError):
    """A statement that cannot be a script, with the reason."""


class Spot(Struct, frozen=True):
    """The place of a parameter, in bytes. squashed: it stands for a longer list.

    typed: the start of a type name before it, which requires a literal here.
    """

    number: int
    start: int
    end: int
    squashed: bool = False
    typed: int | None = None


class Parsed(Struct, frozen=True):
    """A statement. text: valid in a script. relations, functions: those that it names.

    writes: it changes data by itself; its functions are not considered.
    """

    text: bytes
    tree: Any
    kind: str
    writes: bool
    spots: tuple[Spot, ...]
    relations: tuple[Name, ...]
    functions: tuple[Name, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(sorted({spot.number for spot in self.spots}))


def has_texts(statement: Parsed) -> bool:
    """Whether texts stand in it that the server did not replace by parameters."""
    return any(kind == "A_Const" and "sval" in value for kind, value in _nodes(statement.tree))


def parser() -> Any:
    """libpg_query. Raises RunError where it is not installed."""
    with extra("statements", "statements of a database"):
        import pgparse
    return pgparse


def trees(text: str) -> list[Any]:
    """The statements of a text. Raises UnusableError."""
    library = parser()
    try:
        return [each["stmt"] for each in library.parse(text)]
    except library.PGQueryError as error:
        raise UnusableError("statement-not-parsed", why=error.message) from None
    except (RecursionError, ValueError, UnicodeError) as error:
        raise UnusableError("statement-not-parsed", why=type(error).__name__) from None


def fingerprint(text: str) -> str | None:
    """A hash that statements share which differ only in constants; None if it does not parse."""
    library = parser()
    try:
        return str(library.fingerprint(text))
    except (library.PGQueryError, ValueError, UnicodeError):
        return None


def parse(text: str) -> Parsed:
    """A statement of pg_stat_statements. Raises UnusableError if it cannot be a script."""
    if not text:
        raise UnusableError("statement-text-lost")
    if not text.isascii() and any("\udc80" <= each <= "\udcff" for each in text):
        raise UnusableError("statement-not-utf-8")
    if _ENDS.match(text):
        raise UnusableError("statement-of-transaction")
    statements = trees(text)
    if len(statements) != 1:
        raise UnusableError("statement-not-single")
    tree = statements[0]
    node = next(iter(tree))
    if node not in _KINDS:
        raise UnusableError(_EXCLUDED.get(node, "statement-utility"))
    guarded = _VARIABLE.sub(b": ", text.encode())
    if guarded != text.encode():
        again = trees(guarded.decode())
        if [_bare(each) for each in again] != [_bare(tree)]:
            raise UnusableError("statement-colon")
        tree = again[0]
    nodes = list(_nodes(tree))
    if any("intoClause" in value for kind, value in nodes if kind == "SelectStmt"):
        raise UnusableError("statement-creates-table")
    writes = any(kind in _WRITES for kind, _ in nodes)
    locks = any("lockingClause" in value for kind, value in nodes if kind == "SelectStmt")
    parsed = Parsed(
        guarded,
        tree,
        _KINDS[node],
        writes or locks,
        tuple(sorted(_spots(guarded, nodes), key=lambda spot: spot.start)),
        tuple(dict.fromkeys(_relations(tree, nodes))),
        tuple(dict.fromkeys(function_name(call) for kind, call in nodes if kind in _CALLS)),
    )
    if _reads_catalogs(parsed):
        raise UnusableError("statement-of-catalogs")
    return parsed


def body(function: Function) -> list[Any]:
    """The statements in a function, without those that do not parse."""
    library = parser()
    if function.language == "sql" and not function.body:
        # The statements between BEGIN ATOMIC and END, or the one of a RETURN.
        with contextlib.suppress(UnusableError):
            definitions = trees(function.definition)
            return [each["CreateFunctionStmt"].get("sql_body", {}) for each in definitions]
        return []
    if function.language == "sql":
        texts = [function.body]
    elif function.language == "plpgsql":
        try:
            parsed = library.parse_pgsql(function.definition)
        except (library.PGQueryError, RecursionError, ValueError, UnicodeError):
            return []
        texts = [
            value["query"]
            for kind, value in _nodes(parsed)
            if kind == "PLpgSQL_expr" and value.get("parseMode", 0) == 0
        ]
    else:
        return []
    every: list[Any] = []
    for text in texts:
        try:
            every += trees(text)
        except UnusableError:
            continue
    return every


def relations_of(statements: list[Any]) -> list[Name]:
    return [name for tree in statements for name in _relations(tree, list(_nodes(tree)))]


def _bare(node: Any) -> Any:
    if isinstance(node, list):
        return [_bare(each) for each in node]
    if isinstance(node, dict):
        places = ("location", "stmt_len", "stmt_location")
        return {key: _bare(value) for key, value in node.items() if key not in places}
    return node


def _nodes(tree: Any) -> Iterator[tuple[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += reversed(node)
        elif isinstance(node, dict):
            for kind, value in node.items():
                if isinstance(value, dict):
                    yield kind, value
            waiting += reversed(list(node.values()))


def _spots(text: bytes, nodes: list[tuple[str, Any]]) -> Iterator[Spot]:
    typed = {
        arg["ParamRef"]["location"]: value["typeName"]["location"]
        for kind, value in nodes
        # The form `interval '1 day'`, whose cast has no location.
        if kind == "TypeCast"
        and value.get("location") == -1
        and "ParamRef" in (arg := value.get("arg", {}))
    }
    for start in {value.get("location", 0): None for kind, value in nodes if kind == "ParamRef"}:
        parameter = re.compile(rb"\$(\d+)").match(text, start)
        if parameter is None:
            raise UnusableError("statement-parameter")
        squashed = _SQUASHED.match(text, parameter.end())
        end = squashed.end() if squashed else parameter.end()
        yield Spot(int(parameter[1]), start, end, squashed is not None, typed.get(start))


def _relations(tree: Any, nodes: list[tuple[str, Any]]) -> Iterator[Name]:
    within = {value["ctename"] for kind, value in nodes if kind == "CommonTableExpr"}
    for _, value in nodes:
        if "relname" in value:
            name = (value.get("schemaname", ""), value["relname"])
            if name[0] or name[1] not in within:
                yield name


def function_name(call: Any) -> Name:
    """The schema, or an empty text, and the name of a called function."""
    words = [part["String"]["sval"] for part in call["funcname"]]
    return (words[-2] if len(words) > 1 else "", words[-1])


def _reads_catalogs(parsed: Parsed) -> bool:
    """Whether it names only relations and functions of the server itself."""
    for schema, name in parsed.relations:
        own = schema in ("pg_catalog", "information_schema")
        if not (own or name.startswith("pg_stat_statements" if schema else "pg_")):
            return False
    names = [name for _, name in parsed.functions]
    catalog = [name.startswith("pg_") and not name.startswith(_APPLICATIONS) for name in names]
    return bool(parsed.relations) or any(catalog) or (bool(names) and set(names) <= _ABOUT_ITSELF)
