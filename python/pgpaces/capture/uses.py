"""The uses of a statement's parameters: compared with a column, inserted into one.

Names are resolved as in SQL, from the innermost query outwards. An argument of a function has the
uses that it has in the function's body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.capture import parser as parsing
from pgpaces.capture.catalog import CatalogColumn, CatalogTable, Function, Name

_COMPARING = {
    "=": "EQUAL", "<>": "EQUAL", "<": "UPPER", "<=": "UPPER", ">": "LOWER", ">=": "LOWER",
}  # fmt: skip
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_QUERIES = frozenset(("SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt"))
_ARITHMETIC = frozenset("+-*/%")
_DEPTH_MAX = 3
# Functions of PostgreSQL that allow only known words: the place of the argument.
_WORDS = {
    **dict.fromkeys(("date_trunc", "date_part", "extract", "timezone"), 1),
    **dict.fromkeys(("to_char", "to_date", "to_timestamp", "to_number", "encode", "decode"), 2),
}


# The first argument of these is the name of something that exists.
_NAMES = frozenset(("nextval", "currval", "setval", "current_setting", "set_config"))


class Role(StrEnum):
    """How a statement uses a parameter: a name of messages.toml."""

    EQUAL = "used-equal"
    LOWER = "used-lower"
    UPPER = "used-upper"
    PATTERN = "used-pattern"
    ELEMENTS = "used-elements"
    INSERT = "used-insert"
    SET = "used-set"
    AMOUNT = "used-amount"
    LIMIT = "used-limit"
    OFFSET = "used-offset"
    WORD = "used-word"
    NAME = "used-name"


_ROLES = {
    "AEXPR_IN": Role.EQUAL,
    "AEXPR_DISTINCT": Role.EQUAL,
    "AEXPR_NOT_DISTINCT": Role.EQUAL,
    "AEXPR_LIKE": Role.PATTERN,
    "AEXPR_ILIKE": Role.PATTERN,
    "AEXPR_OP_ANY": Role.ELEMENTS,
}


class Use(Struct, frozen=True):
    """One use of a parameter. partner: the parameter at the other end of a range.

    within: the function that has it as an argument.
    """

    role: Role
    column: CatalogColumn | None = None
    partner: int | None = None
    within: str = ""


class Catalog(Struct, frozen=True):
    tables: Mapping[Name, CatalogTable]
    functions: Mapping[Name, Function]


def uses(tree: Any, catalog: Catalog) -> dict[int, list[Use]]:
    walk = _Walk(catalog, lambda node: node["ParamRef"]["number"] if "ParamRef" in node else None)
    walk.visit(tree)
    return walk.uses


class _Walk:
    """Walks a tree, with the tables of each query around the current node."""

    def __init__(
        self, catalog: Catalog, parameter: Callable[[Any], int | None], depth: int = 0
    ) -> None:
        self._catalog, self._parameter, self._depth = catalog, parameter, depth
        self._scopes: list[dict[str, CatalogTable | None]] = []
        self.uses: dict[int, list[Use]] = {}

    def visit(self, node: Any) -> None:
        if isinstance(node, list):
            for each in node:
                self.visit(each)
        for kind, value in node.items() if isinstance(node, dict) else ():
            # The sides of a UNION are queries whose kind the tree omits.
            query = "SelectStmt" if kind in ("larg", "rarg") and "op" in value else kind
            if query in _QUERIES:
                self._scopes.append(self._sources(query, value))
                self._statement(query, value)
                self.visit(value)
                self._scopes.pop()
                continue
            if kind == "A_Expr":
                self._expression(value)
            elif kind == "BoolExpr" and value.get("boolop") == "AND_EXPR":
                self._ranges(value["args"])
            elif kind in ("FuncCall", "funccall"):
                self._call(value)
            self.visit(value)

    def _sources(self, kind: str, value: Any) -> dict[str, CatalogTable | None]:
        tables: dict[str, CatalogTable | None] = {}
        waiting = [*value.get("fromClause", ()), *value.get("usingClause", ())]
        waiting += [value[key] for key in ("relation", "sourceRelation") if key in value]
        while waiting:
            node = waiting.pop()
            if "JoinExpr" in node:
                waiting += [node["JoinExpr"]["larg"], node["JoinExpr"]["rarg"]]
                continue
            node = node.get("RangeTableSample", {}).get("relation", node)
            source = node.get("RangeVar", node)
            alias = source.get("alias", {}).get("aliasname")
            if "relname" in source:
                name = (source.get("schemaname", ""), source["relname"])
                tables[alias or source["relname"]] = self._catalog.tables.get(name)
            else:
                inner = next(iter(node.values()))
                tables[(inner.get("alias") or {}).get("aliasname", "")] = None
        if kind == "InsertStmt":
            tables["excluded"] = self._target(value)
        return tables

    def _target(self, value: Any) -> CatalogTable | None:
        relation = value.get("relation", {})
        return self._catalog.tables.get((relation.get("schemaname", ""), relation.get("relname")))

    def _column(self, node: Any) -> CatalogColumn | None:
        """The column of a node, without casts; None if it is no column."""
        while "TypeCast" in node:
            node = node["TypeCast"]["arg"]
        fields = node.get("ColumnRef", {}).get("fields", ())
        words = [field["String"]["sval"] for field in fields if "String" in field]
        if not words or len(words) != len(fields):
            return None
        for scope in reversed(self._scopes):
            if len(words) > 1:
                if words[-2] in scope:
                    table = scope[words[-2]]
                    return table.columns.get(words[-1]) if table else None
                continue
            having = [t.columns[words[0]] for t in scope.values() if t and words[0] in t.columns]
            if having:
                return having[0]
        return None

    def _number(self, node: Any) -> int | None:
        while "TypeCast" in node:
            node = node["TypeCast"].get("arg", {})
        if self._column(node) is not None:
            return None
        return self._parameter(node)

    def _note(self, node: Any, use: Use) -> None:
        number = self._number(node)
        if number is not None:
            self.uses.setdefault(number, []).append(use)

    def _statement(self, kind: str, value: Any) -> None:
        self._note(value.get("limitCount", {}), Use(Role.LIMIT))
        self._note(value.get("limitOffset", {}), Use(Role.OFFSET))
        target = self._target(value)
        if target is None:
            return
        if kind == "UpdateStmt":
            self._set(value.get("targetList", ()), target)
        elif kind == "InsertStmt":
            self._insert(value, target)
            self._set(value.get("onConflictClause", {}).get("targetList", ()), target)

    def _set(self, targets: Sequence[Any], table: CatalogTable) -> None:
        for target in targets:
            result = target["ResTarget"]
            value = result.get("val", {})
            if "MultiAssignRef" in value:
                assigned = value["MultiAssignRef"]
                row = assigned["source"].get("RowExpr", {}).get("args", ())
                place = assigned.get("colno", 1) - 1
                value = row[place] if place < len(row) else {}
            self._put(value, table, result.get("name", ""), role=Role.SET)

    def _put(self, value: Any, table: CatalogTable, name: str, *, role: Role) -> None:
        column = table.columns.get(name)
        if column is not None:
            self._note(value, Use(role, column))

    def _insert(self, value: Any, table: CatalogTable) -> None:
        names = [each["ResTarget"]["name"] for each in value.get("cols", ())] or list(table.columns)
        select = value.get("selectStmt", {}).get("SelectStmt", {})
        rows = [row["List"]["items"] for row in select.get("valuesLists", ())]
        if "fromClause" in select:
            # A SELECT for the rows has its own names.
            self._scopes.append(self._sources("SelectStmt", select))
        rows.append([each["ResTarget"].get("val", {}) for each in select.get("targetList", ())])
        for row in rows:
            for name, node in zip(names, row, strict=False):
                self._put(node, table, name, role=Role.INSERT)
        if "fromClause" in select:
            self._scopes.pop()

    def _expression(self, value: Any) -> None:
        left, right = value.get("lexpr", {}), value.get("rexpr", {})
        kind, operator = value["kind"], value["name"][-1]["String"]["sval"]
        if "RowExpr" in left and "RowExpr" in right:
            pairs = zip(left["RowExpr"]["args"], right["RowExpr"]["args"], strict=False)
            for one, other in pairs:
                self._compare(one, other, operator)
        elif kind == "AEXPR_OP":
            self._compare(left, right, operator)
        elif column := self._column(left):
            items = right.get("List", {}).get("items", ())
            if "BETWEEN" in kind and len(items) == 2:
                self._pair(items[0], items[1], column)
            elif kind in _ROLES:
                for item in items or [right]:
                    self._note(item, Use(_ROLES[kind], column))

    def _compare(self, left: Any, right: Any, operator: str) -> None:
        mirrored = _MIRRORED.get(operator, operator)
        for one, other, sign in ((left, right, operator), (right, left, mirrored)):
            column = self._column(one)
            if sign in _ARITHMETIC:
                self._note(other, Use(Role.AMOUNT, column))
            elif column is not None and sign in _COMPARING:
                self._note(other, Use(Role[_COMPARING[sign]], column))

    def _pair(self, low: Any, high: Any, column: CatalogColumn) -> None:
        first, last = self._number(low), self._number(high)
        if first == last:
            first = last = None
        self._note(low, Use(Role.LOWER, column, last))
        self._note(high, Use(Role.UPPER, column, first))

    def _ranges(self, arguments: Sequence[Any]) -> None:
        """Notes the two ends of a range: `x >= $1 AND x < $2`."""
        ends: dict[str, dict[str, Any]] = {}
        for each in arguments:
            value = each.get("A_Expr", {})
            if value.get("kind") != "AEXPR_OP":
                continue
            role = _COMPARING.get(value["name"][-1]["String"]["sval"])
            column = self._column(value.get("lexpr", {}))
            if column is not None and role in ("LOWER", "UPPER"):
                ends.setdefault(column.label, {"column": column})[role] = value["rexpr"]
        for one in ends.values():
            if "LOWER" in one and "UPPER" in one:
                self._pair(one["LOWER"], one["UPPER"], one["column"])

    def _call(self, value: Any) -> None:
        name, given = parsing.function_name(value), value.get("args", ())
        word = name[1] if name[0] in ("", "pg_catalog") else ""
        if 0 < (place := _WORDS.get(word, 0)) <= len(given):
            self._note(given[place - 1], Use(Role.WORD, within=word))
        if word in _NAMES and given:
            self._note(given[0], Use(Role.NAME, within=word))
        function = self._catalog.functions.get(name)
        if function is None or self._depth >= _DEPTH_MAX:
            return
        arguments: dict[int, Any] = {}
        for place, node in enumerate(given, 1):
            named = node.get("NamedArgExpr")
            if named is None:
                arguments[place] = node
            elif named["name"] in function.arguments:
                arguments[function.arguments.index(named["name"]) + 1] = named["arg"]
        if all(self._number(node) is None for node in arguments.values()):
            return
        for number, uses in within(function, self._catalog, self._depth + 1).items():
            for use in uses if number in arguments else ():
                # The partner is a number of the function's arguments, not of the statement. Words
                # and names are for the inner function.
                inner = use.within if use.role in (Role.WORD, Role.NAME) else function.name[1]
                self._note(arguments[number], replace(use, partner=None, within=inner))


def within(function: Function, catalog: Catalog, depth: int = 1) -> dict[int, list[Use]]:
    """The uses of a function's arguments, numbered from 1."""

    def argument(node: Any) -> int | None:
        if "ParamRef" in node:
            return int(node["ParamRef"]["number"])
        fields = node.get("ColumnRef", {}).get("fields", ())
        words = [field["String"]["sval"] for field in fields if "String" in field]
        if len(words) == 2 and words[0] != function.name[1]:
            return None
        if not words or len(words) > 2 or words[-1] not in function.arguments:
            return None
        return function.arguments.index(words[-1]) + 1

    walk = _Walk(catalog, argument, depth)
    for tree in parsing.body(function):
        walk.visit(tree)
    return walk.uses
