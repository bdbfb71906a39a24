"""A migration: its statements, and the result of each pass of its rehearsal.

The parser is PostgreSQL's: libpg_query, through pgparse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.core.errors import PlanError, extra
from pgpaces.core.findings import Finding
from pgpaces.core.texts import redacted

# begin, end: of a transaction of the file. alone: PostgreSQL does not run it in a transaction, or
# it may end one itself. plain: everything else.
Kind = Literal["plain", "begin", "end", "alone"]
Verdict = Literal["safe", "blocks", "fails", "slows", "unknown"]
# The worst first.
VERDICTS: tuple[Verdict, ...] = ("fails", "blocks", "slows", "unknown", "safe")
# alone: the migration as it is. open: behind an open transaction. autovacuum: while an autovacuum
# works on a table of the load.
Behind = Literal["alone", "open", "autovacuum"]
Form = Literal["asked", "safer"]
# Of tables by name, as SQL has it, the only column of the primary key, and its type.
Keys = Mapping[str, tuple[str, str]]

_BEGINS = ("TRANS_STMT_BEGIN", "TRANS_STMT_START")
_ENDS = ("TRANS_STMT_COMMIT", "TRANS_STMT_ROLLBACK")
# PostgreSQL refuses these in a transaction, or outside one, or they may end it.
_ALONE = ("DoStmt", "CallStmt", "LockStmt", "DeclareCursorStmt", "DiscardStmt", "TransactionStmt")
# What changes the whole server, which is not a copy.
_OF_SERVER = frozenset((
    "CreatedbStmt", "DropdbStmt", "AlterDatabaseStmt", "AlterDatabaseSetStmt", "AlterSystemStmt",
    "CreateTableSpaceStmt", "DropTableSpaceStmt", "AlterTableSpaceOptionsStmt", "CreateRoleStmt",
    "AlterRoleStmt", "AlterRoleSetStmt", "DropRoleStmt", "GrantRoleStmt", "ReassignOwnedStmt",
    "DropOwnedStmt", "CreateSubscriptionStmt", "AlterSubscriptionStmt", "DropSubscriptionStmt",
))  # fmt: skip
_META = re.compile(r"^\s*\\[a-z!].*", re.MULTILINE)


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

    text: without a password. tried: its last try began; done: that had ended; released: its locks
    were. relation, mode: of the lock that conflicts with the load, and stopped it for the longest
    time; held, waited: for how long. holders: the sessions for which it waited. late: requests that
    were late because of it, the worst by worst_ns. queue: sessions that waited behind it at a time,
    by script (the script of one that is not known is empty). rewritten: tables. built: new indexes
    with their bytes. table, rows: the largest table that it rewrote, indexed, or locked, and about
    how many rows that has; or the rows that it changed. error: of the server, if it failed.
    """

    text: str
    began_ns: int
    tried_ns: int
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
    table: str = ""
    rows: int = 0
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
    what the load writes. schema: a hash of the schema afterwards. sql: of a safer form. covered:
    the share of the source's calls whose statements the load has; None: unknown. in_doubt: it
    blocks for a short time on a machine whose CPUs are busy, which may be the reason. requests:
    those that missed, or a part of them. findings: what decides the verdict, and what weakens it.
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
    sql: str = ""
    covered: float | None = None
    in_doubt: bool = False
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
    texts, statements = [], list[Statement]()
    for path in paths:
        try:
            texts.append(Path(path).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise PlanError("cannot-read", path=path, why=why) from None
        statements += split(texts[-1], path)
    return "\n".join(texts), tuple(statements)


def split(text: str, path: str = "") -> Iterator[Statement]:
    """The statements of a text. Raises PlanError for what is not SQL, or cannot be rehearsed."""
    with extra("statements", "pgpaces rehearse"):
        import pgparse
    whole = text.encode()
    try:
        parsed = pgparse.parse(text)
    except pgparse.PGQueryError as error:
        if match := _META.search(text):
            raise PlanError("migration-for-psql", path=path, command=match[0].strip()) from None
        line = text.count("\n", 0, error.position) + 1
        raise PlanError("migration-not-parsed", path=path, line=line, why=error.message) from None
    if not parsed:
        raise PlanError("migration-empty")
    for each in parsed:
        begin = each.get("stmt_location", 0)
        end = begin + each.get("stmt_len", len(whole))
        [(name, tree)] = each["stmt"].items()
        found = _bare(whole[begin:end].decode())
        if name in _OF_SERVER or tree.get("kind") == "TRANS_STMT_PREPARE":
            raise PlanError("migration-of-server", statement=shorten(redacted(found), 60))
        if name == "CopyStmt" and (tree.get("is_program") or "filename" not in tree):
            raise PlanError("migration-copies", statement=shorten(redacted(found), 60))
        concurrent = bool(tree.get("concurrent")) or "concurrently" in _options(tree)
        yield Statement(found, _kind(name, tree, concurrent), name, concurrent)


def fingerprint(text: str) -> str | None:
    """What statements have in common that differ in constants; None if it is not SQL."""
    import pgparse

    try:
        found: str = pgparse.fingerprint(text)
    except pgparse.PGQueryError:
        return None
    return found


def _options(tree: Mapping[str, Any]) -> list[str]:
    every = [*tree.get("params", ()), *tree.get("options", ())]
    return [each["DefElem"]["defname"] for each in every if "DefElem" in each]


def _kind(name: str, tree: Mapping[str, Any], concurrent: bool) -> Kind:
    if name == "TransactionStmt" and tree["kind"] in (*_BEGINS, *_ENDS):
        return "begin" if tree["kind"] in _BEGINS else "end"
    vacuum = name == "VacuumStmt" and tree.get("is_vacuumcmd", False)
    every = name == "ClusterStmt" and "relation" not in tree
    reindex = name == "ReindexStmt" and tree["kind"] not in (
        "REINDEX_OBJECT_TABLE",
        "REINDEX_OBJECT_INDEX",
    )
    local = name == "VariableSetStmt" and tree.get("is_local", False)
    detaches = any(
        each["AlterTableCmd"].get("def", {}).get("PartitionCmd", {}).get("concurrent")
        for each in tree.get("cmds", ())
    )
    alone = concurrent or vacuum or every or reindex or local or detaches or name in _ALONE
    return "alone" if alone else "plain"


def _bare(text: str) -> str:
    """A statement without the comments before it."""
    while (rest := re.sub(r"\A(\s+|--[^\n]*\n?|/\*.*?\*/)", "", text, flags=re.DOTALL)) != text:
        text = rest
    return text.strip()


class Rehearsal(Struct, frozen=True, kw_only=True, tag_field="kind", tag="rehearsal"):
    """A rehearsed migration, and its passes.

    name: of its first file. sha256: of its text. source: the name of the database that is copied.
    open_s: how long the open transaction stays open; 0: there is none. autovacuum: whether there is
    a pass with one. separated: only the safer form has a transaction for each statement. rows: of
    production's tables, if the copy is smaller. interrupted: by its user.
    """

    id: str
    name: str
    sha256: str
    open_s: float
    source: str = ""
    autovacuum: bool = False
    separated: bool = False
    rows: Mapping[str, int] = field(default_factory=dict)
    interrupted: bool = False
    passes: tuple[Pass, ...] = ()

    @property
    def behinds(self) -> tuple[Behind, ...]:
        asked = {"alone": True, "open": bool(self.open_s), "autovacuum": self.autovacuum}
        return tuple(behind for behind in get_args(Behind) if asked[behind])

    @property
    def safer(self) -> str:
        """The safer form that was rehearsed; empty if there was none."""
        return next((each.sql for each in self.passes if each.form == "safer"), "")

    def with_passes(self, passes: Iterable[Pass]) -> Rehearsal:
        """With these; of those that were repeated, the last."""
        last = {(each.form, each.behind): each for each in passes}
        return replace(self, passes=tuple(last.values()))

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
