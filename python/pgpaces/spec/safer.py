"""A safer form of a migration: the same result with weaker or shorter locks.

It is made from the parse trees, and from what a pass of the migration showed. Names and clauses
that this does not know are left as they are: then there is no safer form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pgpaces.core.texts import redacted
from pgpaces.spec.migration import Keys, Statement, StatementRun, split

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
# Clauses of an UPDATE or DELETE that cannot be divided by the key of its table.
_JOINED = ("fromClause", "usingClause", "withClause", "returningList")
_QUOTED_OR_WHERE = re.compile(
    r"""'(?:[^']|'')*'|"[^"]*"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/|[()]|\bwhere\b""",
    re.IGNORECASE | re.DOTALL,
)
_NO_KEYS: Keys = {}
_RETRIED = "half the limit; on error 55P03, repeat the statement"
_NOT_CANCELED = "a canceled CONCURRENTLY would leave an invalid index"
# A batch takes about this part of the latency limit, and has at most so many rows for each ms.
_OF_LIMIT, _ROWS_PER_MS = 0.2, 10
_BATCHES = """DO $batches$
DECLARE
  pgpaces_batch {kind}[];
BEGIN
  FOR pgpaces_batch IN
    SELECT array_agg(key) FROM (
      SELECT {key} AS key,
        (row_number() OVER (ORDER BY {key}) - 1) / {rows} AS part
      FROM {table}{condition}
    ) AS pgpaces_keys GROUP BY part ORDER BY part
  LOOP
    LOOP  -- until its rows are free
      BEGIN
        {change}
        WHERE {both}{key} = ANY (pgpaces_batch);
        EXIT;
      EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        PERFORM pg_sleep(0.1);
      END;
    END LOOP;
    COMMIT;
  END LOOP;
END
$batches$"""


def safer(
    statements: Sequence[Statement],
    limit_ns: int,
    *,
    runs: Sequence[StatementRun] = (),
    keys: Keys = _NO_KEYS,
    before_autovacuum: bool = False,
) -> str | None:
    """The migration with weaker or shorter locks; None if there is none.

    runs: of the statements, as far as a pass of the migration got. before_autovacuum: whether an
    autovacuum was in its way, which PostgreSQL cancels only for a statement that waits longer than
    deadlock_timeout. Each statement is alone in its transaction, with a lock_timeout of half the
    latency limit: who waits behind a statement that waits for its lock waits no longer. A statement
    that works CONCURRENTLY has none: it would leave an invalid index. Who runs this repeats a
    statement that fails with 55P03.
    """
    pairs = [
        (each, runs[number] if number < len(runs) else None)
        for number, each in enumerate(statements)
        if not _LOCK_TIMEOUT.match(each.text)
    ]
    if any(each.kind in ("begin", "end") for each, _ in pairs):
        ends = [s.text for s, _ in pairs if s.kind == "end"]
        pairs = [pair for pair in pairs if pair[0].kind not in ("begin", "end")]
        whole = all(s.name in _SEPARABLE for s, _ in pairs if not _fills_new(s, statements))
        if not whole or any(re.match(r"rollback|abort", each, re.IGNORECASE) for each in ends):
            return None
    if any(_secret(each) for each, _ in pairs):
        return None
    timeout = f"SET lock_timeout = '{max(1, limit_ns // 2_000_000)}ms'"
    lines, now = ["SET deadlock_timeout = '10ms';"] if before_autovacuum else list[str](), ""
    replaced = (each for s, run in pairs for each in _replaced(s, run, keys, limit_ns=limit_ns))
    for text, concurrent in replaced:
        setting = "RESET lock_timeout" if concurrent else timeout
        if setting != now and (now or not concurrent):
            why = _NOT_CANCELED if concurrent else _RETRIED
            lines.append(f"{setting};  -- {why}" if why not in "".join(lines) else f"{setting};")
        now = setting
        # A comment at the end of a statement would swallow what follows it.
        lines.append(f"{text}\n;" if _ends_in_comment(text) else f"{text};")
    found = "\n".join(lines) + "\n"
    texts = [each.text for each in split(found)] if pairs else []
    return None if texts == [each.text for each in statements] or not texts else found


def _ends_in_comment(text: str) -> bool:
    return "--" in text.rpartition("\n")[2]


def _tree(statement: Statement) -> dict[str, Any]:
    import pgparse

    [each] = pgparse.parse(statement.text)
    [tree] = each["stmt"].values()
    return dict(tree)


def _fills_new(statement: Statement, statements: Sequence[Statement]) -> bool:
    """Whether it only sets columns that the migration adds, which nobody reads yet."""
    if statement.name != "UpdateStmt":
        return False
    tree = _tree(statement)
    new = {
        (_name(each["relation"]), command["AlterTableCmd"]["def"]["ColumnDef"]["colname"])
        for each in (_tree(s) for s in statements if s.name == "AlterTableStmt")
        for command in each["cmds"]
        if command["AlterTableCmd"]["subtype"] == "AT_AddColumn"
    }
    table = _name(tree["relation"])
    return {(table, each["ResTarget"]["name"]) for each in tree["targetList"]} <= new


def _secret(statement: Statement) -> bool:
    """Whether it may hold a password, so that its text must not be shown."""
    text = " ".join(statement.text.split())
    return "://" in text or (redacted(text) != text and statement.name not in _SEPARABLE)


def _replaced(
    statement: Statement, run: StatementRun | None, keys: Keys, *, limit_ns: int
) -> Iterator[tuple[str, bool]]:
    """What replaces a statement: texts, and whether each may take as long as it takes."""
    text, found = statement.text, list[tuple[str, bool]]()
    if statement.concurrent or statement.kind == "alone":
        yield text, True
    elif statement.name == "IndexStmt":
        yield _INDEX.sub(r"\1 CONCURRENTLY", text, count=1), True
    elif statement.name == "ReindexStmt":
        yield _REINDEX.sub(r"\1 CONCURRENTLY", text, count=1), True
    else:
        if statement.name == "AlterTableStmt":
            rewrites = run is not None and bool(run.rewritten)
            found = _table(text, keys if rewrites else _NO_KEYS, rows=_rows(run, limit_ns))
        elif statement.name in ("UpdateStmt", "DeleteStmt"):
            short = run is not None and 2 * (run.done_ns - run.tried_ns) < limit_ns
            found = [] if short else _batches(text, keys, rows=_rows(run, limit_ns))
        yield from found or [(text, False)]


def _rows(run: StatementRun | None, limit_ns: int) -> int:
    """Those of a batch, by how long the statement took for all of its rows."""
    most = max(1, _ROWS_PER_MS * limit_ns // 1_000_000)
    if run is None or not run.rows:
        return most
    a_row_ns = (run.done_ns - run.tried_ns - run.waited_ns) / run.rows
    return max(1, min(most, int(_OF_LIMIT * limit_ns / max(a_row_ns, 1))))


def _batches(text: str, keys: Keys, *, rows: int) -> list[tuple[str, bool]]:
    """An UPDATE or DELETE by ranges of the key, each in a transaction; else nothing."""
    import pgparse

    tree = _tree(Statement(text))
    relation = tree["relation"]
    column, kind = keys.get(_name(relation), ("", ""))
    targets = [each["ResTarget"]["name"] for each in tree.get("targetList", ())]
    # What it reads of its own table would be changed by earlier batches.
    read = _nodes([tree.get("targetList"), tree.get("whereClause")], "RangeVar")
    itself = any(each["relname"] == relation["relname"] for each in read)
    joined = itself or any(map(tree.get, _JOINED))
    if not column or joined or not relation.get("inh") or column in targets:
        return []
    depth, at = 0, None
    for match in _QUOTED_OR_WHERE.finditer(text):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if match[0].lower() == "where" and not depth:
            at = match.start()
    alias = relation.get("alias", {}).get("aliasname")
    change, where = (text, "") if at is None else (text[:at].rstrip(), text[at + 5 :].strip())
    line = "\n" if _ends_in_comment(where) else ""
    both = f"({where}{line}) AND " if where else ""
    key = f"{_quoted(alias or relation['relname'])}.{_quoted(column)}"
    batches = _BATCHES.format(
        kind=kind,
        key=key,
        rows=rows,
        table=_name(relation) + (f" AS {_quoted(alias)}" if alias else ""),
        condition=f" WHERE {where}{line}" if where else "",
        change=change + ("\n" if _ends_in_comment(change) else ""),
        both=both,
    )
    try:
        [each] = pgparse.parse(f"{change}\nWHERE {both}true")
    except (pgparse.PGQueryError, ValueError):
        return []
    return [(batches, False)] if set(each["stmt"]) & {"UpdateStmt", "DeleteStmt"} else []


def _table(text: str, keys: Keys = _NO_KEYS, *, rows: int = 1) -> list[tuple[str, bool]]:
    """An ALTER TABLE with one command for which there is a safer way; else nothing.

    keys: of tables, if it rewrites its table.
    """
    tree = _tree(Statement(text))
    relation = tree["relation"]
    if len(tree["cmds"]) != 1 or tree.get("missing_ok") or not relation.get("inh"):
        return []
    command = tree["cmds"][0]["AlterTableCmd"]
    alter = f"ALTER TABLE {_name(relation)}"
    if command["subtype"] == "AT_AddColumn" and keys:
        return _filled(text, command["def"]["ColumnDef"], relation, keys=keys, rows=rows)
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
        end = "\nNOT VALID" if _ends_in_comment(text) else " NOT VALID"
        return [(text + end, False), (f"{alter} VALIDATE CONSTRAINT {_quoted(name)}", False)]
    if kind in _KEYS and "keys" in constraint and not any(map(constraint.get, _CLAUSES)):
        return _key(relation, constraint, alter)
    return []


def _filled(
    text: str, column: Mapping[str, Any], relation: Mapping[str, Any], *, keys: Keys, rows: int
) -> list[tuple[str, bool]]:
    """A column whose default differs by row: rows that are there get it in batches."""
    parts = {
        each["Constraint"]["contype"]: each["Constraint"] for each in column.get("constraints", ())
    }
    table, name = _name(relation), _quoted(column["colname"])
    update = f"UPDATE {table} SET {name} = DEFAULT WHERE {name} IS NULL"
    batches = _batches(update, keys, rows=rows)
    if "CONSTR_DEFAULT" not in parts or parts.keys() - {"CONSTR_DEFAULT", "CONSTR_NOTNULL"}:
        return []
    starts = sorted(each["location"] for each in parts.values())
    begin = parts["CONSTR_DEFAULT"]["location"]
    end = next((at for at in starts if at > begin), None)
    bare, default = text.encode()[: starts[0]].decode(), text.encode()[begin:end].decode()
    alter = f"ALTER TABLE {table} ALTER COLUMN {name} SET"
    last = _table(f"{alter} NOT NULL") if "CONSTR_NOTNULL" in parts else []
    added = [(bare.rstrip(), False), (f"{alter} {default.rstrip()}", False)]
    return [*added, *batches, *last] if batches else []


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
    for each in _nodes(tree, "ColumnRef"):
        yield from (part["String"]["sval"] for part in each["fields"] if "String" in part)


def _nodes(tree: Any, kind: str) -> Iterator[Any]:
    """The nodes of this kind in a parse tree."""
    for key, each in tree.items() if isinstance(tree, dict) else enumerate(tree or ()):
        if key == kind:
            yield each
        elif isinstance(each, (dict, list)):
            yield from _nodes(each, kind)


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
