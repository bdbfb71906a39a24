"""A safer form of a migration: the same result with weaker or shorter locks.

It is made from the parse trees. Names and clauses that this does not know are left as they are:
then there is no safer form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pgpaces.core.texts import redacted
from pgpaces.spec.migration import Statement, split

_INDEX = re.compile(r"(create\s+(?:unique\s+)?index)(?=\s)", re.IGNORECASE)
_REINDEX = re.compile(
    r"(reindex\s+(?:\([^)]*\)\s*)?(?:table|index|schema|database|system))(?=\s)", re.IGNORECASE
)
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_LOCK_TIMEOUT = re.compile(r"set\s+(session\s+)?lock_timeout\b", re.IGNORECASE)
# Statements of a transaction that may as well have one each.
_SEPARABLE = ("AlterTableStmt", "IndexStmt", "CreateStmt", "CommentStmt", "ReindexStmt")
# Constraints that are checked later when they are added with NOT VALID.
_LATER = ("CONSTR_FOREIGN", "CONSTR_CHECK")
_KEYS = {"CONSTR_UNIQUE": "UNIQUE", "CONSTR_PRIMARY": "PRIMARY KEY"}
# Clauses of a key that an index made before would not have.
_CLAUSES = ("including", "options", "indexspace", "indexname", "deferrable", "nulls_not_distinct")


def safer(statements: Sequence[Statement], limit_ns: int) -> str | None:
    """The migration with weaker or shorter locks; None if there is none.

    Each statement is alone in its transaction, with a lock_timeout of half the latency limit: who
    waits behind a statement that waits for its lock waits no longer. A statement that works
    CONCURRENTLY has none: it would leave an invalid index. Who runs this repeats a statement that
    fails with 55P03.
    """
    own = [s for s in statements if not _LOCK_TIMEOUT.match(s.text)]
    if any(each.kind in ("begin", "end") for each in own):
        inside = [s for s in own if s.kind not in ("begin", "end")]
        ends = [s for s in own if s.kind == "end"]
        whole = all(s.name in _SEPARABLE for s in inside) and not any(
            re.match(r"rollback|abort", s.text, re.IGNORECASE) for s in ends
        )
        if not whole:
            return None
        own = inside
    if any(_secret(each) for each in own):
        return None
    timeout = f"SET lock_timeout = '{max(1, limit_ns // 2_000_000)}ms'"
    lines, now = list[str](), ""
    for text, concurrent in (pair for each in own for pair in _replaced(each)):
        setting = "RESET lock_timeout" if concurrent else timeout
        if setting != now and (now or not concurrent):
            lines.append(f"{setting};")
        now = setting
        # A comment at the end of a statement would swallow what follows it.
        lines.append(f"{text}\n;" if "--" in text.rpartition("\n")[2] else f"{text};")
    found = "\n".join(lines) + "\n"
    texts = [each.text for each in split(found)] if lines else []
    return None if texts == [each.text for each in statements] or not texts else found


def _secret(statement: Statement) -> bool:
    """Whether it may hold a password, so that its text must not be shown."""
    text = " ".join(statement.text.split())
    return "://" in text or (redacted(text) != text and statement.name not in _SEPARABLE)


def _replaced(statement: Statement) -> Iterator[tuple[str, bool]]:
    """What replaces a statement: texts, and whether each may take as long as it takes."""
    text = statement.text
    if statement.concurrent or statement.kind == "alone":
        yield text, True
    elif statement.name == "IndexStmt":
        yield _INDEX.sub(r"\1 CONCURRENTLY", text, count=1), True
    elif statement.name == "ReindexStmt":
        yield _REINDEX.sub(r"\1 CONCURRENTLY", text, count=1), True
    elif statement.name == "AlterTableStmt" and (found := _table(text)):
        yield from found
    else:
        yield text, False


def _table(text: str) -> list[tuple[str, bool]]:
    """An ALTER TABLE with one command for which there is a safer way; else nothing."""
    import pgparse

    [each] = pgparse.parse(text)
    tree = each["stmt"]["AlterTableStmt"]
    relation = tree["relation"]
    if len(tree["cmds"]) != 1 or tree.get("missing_ok") or not relation.get("inh"):
        return []
    command = tree["cmds"][0]["AlterTableCmd"]
    alter = f"ALTER TABLE {_name(relation)}"
    if command["subtype"] == "AT_SetNotNull":
        column = _quoted(command["name"])
        check = _quoted(f"{relation['relname']}_{command['name']}_not_null")
        return [
            (f"{alter} ADD CONSTRAINT {check} CHECK ({column} IS NOT NULL) NOT VALID", False),
            (f"{alter} VALIDATE CONSTRAINT {check}", False),
            (text, False),
            (f"{alter} DROP CONSTRAINT {check}", False),
        ]
    constraint = command.get("def", {}).get("Constraint", {})
    kind, name = constraint.get("contype"), constraint.get("conname")
    if kind in _LATER and not constraint.get("skip_validation"):
        if name is None:
            name = _unnamed(relation["relname"], constraint)
            at = constraint["location"]
            whole = text.encode()
            given = f"CONSTRAINT {_quoted(name)} ".encode()
            text = (whole[:at] + given + whole[at:]).decode()
        end = "\nNOT VALID" if "--" in text.rpartition("\n")[2] else " NOT VALID"
        return [(text + end, False), (f"{alter} VALIDATE CONSTRAINT {_quoted(name)}", False)]
    if kind in _KEYS and "keys" in constraint and not any(map(constraint.get, _CLAUSES)):
        return _key(relation, constraint, alter)
    return []


def _key(
    relation: Mapping[str, Any], constraint: Mapping[str, Any], alter: str
) -> list[tuple[str, bool]]:
    """A key by an index that is built first; the columns of a primary key are not null before."""
    primary = constraint["contype"] == "CONSTR_PRIMARY"
    columns = [key["String"]["sval"] for key in constraint["keys"]]
    parts = [relation["relname"], *([] if primary else columns), "pkey" if primary else "key"]
    name = _quoted(constraint.get("conname") or "_".join(parts))
    index = ", ".join(map(_quoted, columns))
    found = [(f"CREATE UNIQUE INDEX CONCURRENTLY {name} ON {_name(relation)} ({index})", True)]
    for column in columns if primary else ():
        found += _table(f"{alter} ALTER COLUMN {_quoted(column)} SET NOT NULL")
    using = f"{_KEYS[constraint['contype']]} USING INDEX {name}"
    return [*found, (f"{alter} ADD CONSTRAINT {name} {using}", False)]


def _unnamed(table: str, constraint: Mapping[str, Any]) -> str:
    """The name of a constraint without one, as PostgreSQL chooses it."""
    if constraint["contype"] == "CONSTR_CHECK":
        columns = sorted(set(_columns(constraint.get("raw_expr", {}))))
        return "_".join([table, *(columns if len(columns) == 1 else ()), "check"])
    columns = [each["String"]["sval"] for each in constraint["fk_attrs"]]
    return "_".join([table, *columns, "fkey"])


def _columns(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        for key, each in tree.items():
            if key == "ColumnRef":
                yield from (part["String"]["sval"] for part in each["fields"] if "String" in part)
            else:
                yield from _columns(each)
    elif isinstance(tree, list):
        for each in tree:
            yield from _columns(each)


def _name(relation: Mapping[str, Any]) -> str:
    parts = [relation[key] for key in ("schemaname", "relname") if key in relation]
    return ".".join(map(_quoted, parts))


def _quoted(name: str) -> str:
    """A name as SQL has it; one that is a key word, or has other letters, with quotes."""
    import pgparse

    if _PLAIN_NAME.fullmatch(name):
        try:
            [each] = pgparse.parse(f"SELECT {name} FROM {name}")
        except pgparse.PGQueryError:
            each = {"stmt": {}}
        select = each["stmt"].get("SelectStmt", {"targetList": [], "fromClause": []})
        columns = [one["ResTarget"]["val"] for one in select["targetList"]]
        if all("ColumnRef" in one for one in columns) and columns:
            return name
    return '"' + name.replace('"', '""') + '"'
