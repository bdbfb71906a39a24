"""A migration: its statements, a safer form of it, and what became of it when it was rehearsed.

The parser is PostgreSQL's: libpg_query, through pgparse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from pgpaces.core.errors import PlanError, extra
from pgpaces.core.findings import Finding

# begin, end: of a transaction of the file. alone: PostgreSQL does not run it in a transaction, or
# it may end one itself. plain: everything else.
Kind = Literal["plain", "begin", "end", "alone"]
Verdict = Literal["safe", "blocks", "fails", "slows", "unknown"]
# The worst first.
VERDICTS: tuple[Verdict, ...] = ("fails", "blocks", "slows", "unknown", "safe")
# alone: the migration as it is. open: behind an open transaction.
Behind = Literal["alone", "open"]
Form = Literal["asked", "safer"]

_BEGINS = ("TRANS_STMT_BEGIN", "TRANS_STMT_START")
_ENDS = ("TRANS_STMT_COMMIT", "TRANS_STMT_ROLLBACK")
_ALONE = (
    *("CreatedbStmt", "DropdbStmt", "CreateTableSpaceStmt", "DropTableSpaceStmt"),
    *("AlterSystemStmt", "DoStmt", "CallStmt"),
)
_META = re.compile(r"^\s*\\[a-z!]", re.MULTILINE)
_INDEX = re.compile(r"(create\s+(?:unique\s+)?index)(?=\s)", re.IGNORECASE)
_REINDEX = re.compile(
    r"(reindex\s+(?:\([^)]*\)\s*)?(?:table|index|schema|database|system))(?=\s)", re.IGNORECASE
)
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
# Constraints that are checked later when they are added with NOT VALID.
_LATER = ("CONSTR_FOREIGN", "CONSTR_CHECK")
_KEYS = {"CONSTR_UNIQUE": "UNIQUE", "CONSTR_PRIMARY": "PRIMARY KEY"}


class Statement(Struct, frozen=True):
    """A statement of a migration. concurrent: no lock_timeout may cancel it.

    kind: how it is executed; `name` is the kind of its parse tree.
    """

    text: str
    kind: Kind = "plain"
    name: str = ""
    concurrent: bool = False


class StatementRun(Struct, frozen=True, kw_only=True):
    """A statement of a rehearsed migration. Times in ns from the start of the load's measured part.

    text: without a password. done: its last try had ended; released: its locks were. relation,
    mode: of the lock that conflicts with the load, and stopped it for the longest time; held,
    waited: for how long. holders: the sessions for which it waited. late: requests that were late
    because of it, the worst by worst_ns. queue: sessions that waited behind it at a time, by script
    (the script of one that is not known is empty). rewritten: tables. built: new indexes with their
    bytes. error: of the server, if it failed.
    """

    text: str
    began_ns: int
    done_ns: int
    released_ns: int
    tries: int = 1
    locks: tuple[tuple[str, str], ...] = ()
    relation: str = ""
    mode: str = ""
    held_ns: int = 0
    waited_ns: int = 0
    holders: tuple[str, ...] = ()
    late: int = 0
    worst_ns: int = 0
    queue: Mapping[str, int] = field(default_factory=dict)
    rewritten: tuple[str, ...] = ()
    built: tuple[tuple[str, int], ...] = ()
    sqlstate: str | None = None
    error: str | None = None


class Outage(Struct, frozen=True):
    """How long nothing could be committed, and how many commits were acknowledged, and lost.

    back_ns: from its beginning until the p95 of a second was what it had been before; None: never.
    """

    began_ns: int
    length_ns: int
    acknowledged: int
    lost: int
    back_ns: int | None = None


class MissedRequest(Struct, frozen=True, array_like=True):
    """A request that was late or failed. due_ms: from the start; took_ms: from due to its end.

    cause: one of `causes` of a Pass, or the SQLSTATE of a failure.
    """

    due_ms: int
    took_ms: int
    cause: str


class Phase(Struct, frozen=True):
    """Requests of a part of a rehearsal. worst_ns: the longest that succeeded."""

    due: int = 0
    missed: int = 0
    worst_ns: int = 0


class Pass(Struct, frozen=True, kw_only=True):
    """One rehearsal of one form of a migration.

    before, during: the requests before it, and from its beginning to the end of the load. failed:
    requests by SQLSTATES that did not occur before it. causes: of the late requests: `migration`,
    `resources`, `after`, `unexplained`. clients: of the load. wal_bytes: written meanwhile, without
    what the load writes. schema: a hash of the schema afterwards. requests: those that missed, or a
    part of them. findings: what decides the verdict, and what weakens it.
    """

    form: Form
    behind: Behind
    verdict: Verdict
    statements: tuple[StatementRun, ...]
    before: Phase
    during: Phase
    failed: Mapping[str, int] = field(default_factory=dict)
    causes: Mapping[str, int] = field(default_factory=dict)
    clients: int = 0
    wal_bytes: int | None = None
    schema: str = ""
    outage: Outage | None = None
    requests: tuple[MissedRequest, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def worst(self) -> StatementRun | None:
        """The statement that harmed most requests, or stopped a table for the longest time."""
        own = [each for each in self.statements if each.late or each.held_ns or each.waited_ns]
        return max(own, key=lambda each: (each.late, each.held_ns + each.waited_ns), default=None)


def read(paths: Sequence[str]) -> tuple[str, tuple[Statement, ...]]:
    """The text of files in their order, and its statements. Raises PlanError."""
    texts = []
    for path in paths:
        try:
            texts.append(Path(path).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise PlanError("cannot-read", path=path, why=why) from None
        if match := _META.search(texts[-1]):
            raise PlanError("migration-for-psql", path=path, command=match[0].strip())
    text = "\n".join(texts)
    return text, tuple(split(text))


def split(text: str) -> Iterator[Statement]:
    """The statements of a text. Raises PlanError if it is not SQL, or has none."""
    with extra("statements", "pgpaces rehearse"):
        import pgparse
    whole = text.encode()
    try:
        parsed = pgparse.parse(text)
    except pgparse.PGQueryError as error:
        line = text.count("\n", 0, error.position) + 1
        raise PlanError("migration-not-parsed", line=line, why=error.message) from None
    if not parsed:
        raise PlanError("migration-empty")
    for each in parsed:
        begin = each.get("stmt_location", 0)
        end = begin + each.get("stmt_len", len(whole))
        [(name, tree)] = each["stmt"].items()
        concurrent = bool(tree.get("concurrent")) or "concurrently" in _options(tree)
        yield Statement(
            _bare(whole[begin:end].decode()), _kind(name, tree, concurrent), name, concurrent
        )


def _options(tree: Mapping[str, Any]) -> list[str]:
    every = [*tree.get("params", ()), *tree.get("options", ())]
    return [each["DefElem"]["defname"] for each in every if "DefElem" in each]


def _kind(name: str, tree: Mapping[str, Any], concurrent: bool) -> Kind:
    if name == "TransactionStmt":
        return "begin" if tree["kind"] in _BEGINS else "end" if tree["kind"] in _ENDS else "plain"
    vacuum = name == "VacuumStmt" and tree.get("is_vacuumcmd", False)
    every = name == "ClusterStmt" and "relation" not in tree
    reindex = name == "ReindexStmt" and tree["kind"] not in (
        "REINDEX_OBJECT_TABLE",
        "REINDEX_OBJECT_INDEX",
    )
    detaches = any(
        each["AlterTableCmd"].get("def", {}).get("PartitionCmd", {}).get("concurrent")
        for each in tree.get("cmds", ())
    )
    alone = concurrent or vacuum or every or reindex or detaches or name in _ALONE
    return "alone" if alone else "plain"


def _bare(text: str) -> str:
    """A statement without the comments before it."""
    while (rest := re.sub(r"\A(\s+|--[^\n]*\n?|/\*.*?\*/)", "", text, flags=re.DOTALL)) != text:
        text = rest
    return text.strip()


def safer(statements: Sequence[Statement], limit_ns: int) -> str | None:
    """The migration with weaker or shorter locks, if it changes by that; else None.

    Each statement is alone in its transaction, with a lock_timeout of half the latency limit: who
    waits behind a statement that waits for its lock waits no longer. A statement that works
    CONCURRENTLY has none: it would leave an invalid index. Who runs this repeats a statement that
    fails with 55P03.
    """
    if any(each.kind in ("begin", "end") for each in statements):
        own = [each for each in statements if each.kind not in ("begin", "end")]
    else:
        own = [*statements]
    timeout = f"SET lock_timeout = '{max(1, limit_ns // 2_000_000)}ms'"
    none = "SET lock_timeout = 0"
    lines, now = list[str](), ""
    for each in own:
        for text, concurrent in _safer_statements(each):
            setting = none if concurrent else timeout
            if setting != now:
                lines.append(setting)
                now = setting
            lines.append(text)
    return None if not lines else ";\n".join(lines) + ";\n"


def _safer_statements(statement: Statement) -> Iterator[tuple[str, bool]]:
    """What replaces a statement: texts, and whether each works concurrently."""
    text, concurrent = statement.text, statement.concurrent or statement.kind == "alone"
    if concurrent:
        yield text, True
    elif statement.name == "IndexStmt":
        yield _INDEX.sub(r"\1 CONCURRENTLY", text, count=1), True
    elif statement.name == "ReindexStmt":
        yield _REINDEX.sub(r"\1 CONCURRENTLY", text, count=1), True
    elif statement.name == "AlterTableStmt" and (found := _safer_table(text)):
        yield from found
    else:
        yield text, False


def _safer_table(text: str) -> list[tuple[str, bool]]:
    """An ALTER TABLE with one command for which there is a safer way; else nothing."""
    import pgparse

    [each] = pgparse.parse(text)
    tree = each["stmt"]["AlterTableStmt"]
    if len(tree["cmds"]) != 1:
        return []
    command = tree["cmds"][0]["AlterTableCmd"]
    table = _name(tree["relation"])
    if command["subtype"] == "AT_SetNotNull":
        column = _quoted(command["name"])
        check = _quoted(f"{tree['relation']['relname']}_{command['name']}_not_null")
        alter = f"ALTER TABLE {table}"
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
            name = _unnamed(tree["relation"]["relname"], constraint)
            add = re.compile(r"\badd\b(\s+constraint\b)?", re.IGNORECASE)
            text = add.sub(f"ADD CONSTRAINT {_quoted(name)}", text, count=1)
        validate = f"ALTER TABLE {table} VALIDATE CONSTRAINT {_quoted(name)}"
        return [(f"{text} NOT VALID", False), (validate, False)]
    if kind in _KEYS and "indexname" not in constraint and "keys" in constraint:
        columns = [key["String"]["sval"] for key in constraint["keys"]]
        end = "pkey" if kind == "CONSTR_PRIMARY" else "key"
        base = tree["relation"]["relname"]
        name = name or "_".join([base, *([] if end == "pkey" else columns), end])
        index = ", ".join(map(_quoted, columns))
        unique = f"CREATE UNIQUE INDEX CONCURRENTLY {_quoted(name)} ON {table} ({index})"
        parts = [(unique, True)]
        using = f"ADD CONSTRAINT {_quoted(name)} {_KEYS[kind]} USING INDEX {_quoted(name)}"
        for column in columns if kind == "CONSTR_PRIMARY" else ():
            parts += _safer_table(
                f"ALTER TABLE {table} ALTER COLUMN {_quoted(column)} SET NOT NULL"
            )
        return [*parts, (f"ALTER TABLE {table} {using}", False)]
    return []


def _unnamed(table: str, constraint: Mapping[str, Any]) -> str:
    """A name for a constraint without one, as PostgreSQL chooses it."""
    if constraint["contype"] == "CONSTR_CHECK":
        return f"{table}_check"
    columns = [each["String"]["sval"] for each in constraint["fk_attrs"]]
    return "_".join([table, *columns, "fkey"])


def _name(relation: Mapping[str, Any]) -> str:
    parts = [relation[key] for key in ("schemaname", "relname") if key in relation]
    return ".".join(map(_quoted, parts))


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


class Rehearsal(Struct, frozen=True, kw_only=True, tag_field="kind", tag="rehearsal"):
    """A rehearsed migration: its passes, and a safer form of it, if there is one to try.

    name: of its first file. sha256: of its text. source: the name of the database that is copied.
    open_s: how long the open transaction stays open; 0: there is none.
    """

    id: str
    name: str
    sha256: str
    open_s: float
    source: str = ""
    safer: str | None = None
    passes: tuple[Pass, ...] = ()

    @property
    def behinds(self) -> tuple[Behind, ...]:
        return ("alone", "open") if self.open_s else ("alone",)

    def of(self, form: Form, behind: Behind) -> Pass | None:
        return next((p for p in self.passes if (p.form, p.behind) == (form, behind)), None)

    @property
    def proved(self) -> bool:
        """Whether the safer form was safe in every pass, and made the same schema."""
        own = [self.of("safer", behind) for behind in self.behinds]
        asked = self.of("asked", "alone")
        safe = all(each is not None and each.verdict == "safe" for each in own)
        return safe and bool(own[0] and asked and own[0].schema == asked.schema)

    @property
    def verdict(self) -> Verdict:
        """The worst of the migration as it was asked for."""
        every = {each.verdict for each in self.passes if each.form == "asked"}
        return next((each for each in VERDICTS if each in every), "unknown")

    @property
    def decisive(self) -> Pass | None:
        """The first pass with this verdict."""
        verdict = self.verdict
        return next((p for p in self.passes if p.form == "asked" and p.verdict == verdict), None)
