"""Before and after a load: settings, sizes of tables and indexes, statistics of statements.

Each is one query; the comparison of two results is pure. Notes say what cannot be read and what
would show more. Knows no thread and no trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from pgpaces.core.findings import Finding, Notes, finding
from pgpaces.core.sessions import Session
from pgpaces.core.texts import encoded, redacted
from pgpaces.monitor.session import MARK, SessionSnapshot
from pgpaces.spec.result import Executed, Grown

T = TypeVar("T")
SHOWN_MAX = 20
# The largest relations that are read: each size needs file system calls.
RELATIONS_MAX = 2000
_TEXT_MAX = 300

_SIZES = f"""
SELECT {MARK} n.nspname || '.' || c.relname, c.relkind::text,
  CASE WHEN c.relkind = 'i' THEN pg_catalog.pg_relation_size(c.oid)
       ELSE pg_catalog.pg_table_size(c.oid) END,
  CASE WHEN c.relkind <> 'i' THEN pg_catalog.pg_stat_get_dead_tuples(c.oid) END
FROM (
  SELECT oid, relname, relkind, relnamespace FROM pg_catalog.pg_class
  WHERE relkind IN ('r', 'm', 'i') AND relpersistence <> 't' AND relnamespace NOT IN (
    SELECT oid FROM pg_catalog.pg_namespace
    WHERE nspname IN ('pg_catalog', 'information_schema', 'pg_toast'))
  ORDER BY relpages DESC LIMIT {RELATIONS_MAX}
) c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
"""


class Size(Struct, frozen=True):
    """A relation: bytes with its TOAST and maps, and dead tuples of a table."""

    kind: Literal["table", "index"]
    size_bytes: int
    dead: int | None = None


Sizes = Mapping[str, Size]


def sizes(session: Session) -> Sizes:
    """The relations of a database, by schema and name. Raises psycopg.Error."""
    relations: dict[str, Size] = {}
    for name, kind, size, dead in session.execute(_SIZES.encode(), prepare=False):
        if size is not None:  # else it was dropped during the query
            relations[name] = Size("index" if kind == "i" else "table", size, dead)
    return relations


def grown(before: Sizes, after: Sizes) -> tuple[Grown, ...]:
    """The relations with the largest changes and sizes, at most 20 of each, in this order.

    The size is 0 before a relation is created and after it is dropped. Where one of them has only
    the largest relations, those that only the other one has are omitted: they may have been there.
    """
    names = {*before, *after}
    if len(before) >= RELATIONS_MAX:
        names &= before.keys()
    if len(after) >= RELATIONS_MAX:
        names &= after.keys()
    absent, every = Size("table", 0), list[Grown]()
    for name in sorted(names):
        old, new = before.get(name, absent), after.get(name, absent)
        if old.size_bytes or new.size_bytes:
            kind = (new if name in after else old).kind
            change = old.size_bytes, new.size_bytes, old.dead, new.dead
            every.append(Grown(name, kind, *change))

    def growth(one: Grown) -> int:
        return abs(one.after_bytes - one.before_bytes)

    by_size = sorted(every, key=lambda one: (-one.after_bytes, -one.before_bytes))
    by_growth = [one for one in sorted(every, key=lambda one: -growth(one)) if growth(one)]
    return tuple(dict.fromkeys([*by_growth[:SHOWN_MAX], *by_size[:SHOWN_MAX]]))


_HAVE = """
SELECT pg_catalog.quote_ident(n.nspname) FROM pg_catalog.pg_extension e
JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_stat_statements'
"""
_OWN = """
  AND dbid = (SELECT oid FROM pg_catalog.pg_database
              WHERE datname = pg_catalog.current_database())
"""
# role, statement
Key = tuple[int, int]


class Counted(Struct, frozen=True):
    """The counters of a statement, in the order in which `Executed` has them."""

    calls: int
    total_ms: float
    rows: int
    blocks_hit: int
    blocks_read: int
    wal_bytes: int | None


Statements = Mapping[Key, Counted]
_NONE = Counted(0, 0.0, 0, 0, 0, 0)


class View(Struct, frozen=True):
    """The view pg_stat_statements of a database. schema: quoted."""

    schema: str
    columns: frozenset[str]

    @classmethod
    def of(cls, session: Session) -> View | None:
        """None if the database lacks the extension, or it is not loaded."""
        row = session.execute(_HAVE.encode()).fetchone()
        if row is None:
            return None
        probed = session.execute(
            encoded(f"SELECT * FROM {row[0]}.pg_stat_statements(false) LIMIT 0")
        )
        return cls(row[0], frozenset(column.name for column in probed.description or ()))

    def read(self, session: Session) -> Statements:
        time = "total_exec_time" if "total_exec_time" in self.columns else "total_time"
        wal = "sum(wal_bytes)::bigint" if "wal_bytes" in self.columns else "NULL::bigint"
        query = (
            f"SELECT {MARK} userid::bigint, queryid, sum(calls)::bigint, sum({time}),"
            " sum(rows)::bigint, sum(shared_blks_hit)::bigint, sum(shared_blks_read)::bigint,"
            f" {wal} FROM {self.schema}.pg_stat_statements(false)"
            f" WHERE queryid IS NOT NULL {_OWN} GROUP BY 1, 2"
        )
        rows = session.execute(encoded(query), prepare=False)
        return {(row[0], row[1]): Counted(*row[2:]) for row in rows}

    def calls(self, session: Session) -> dict[str, int]:
        """How often each text was executed by others, without commands such as SET."""
        query = (
            f"SELECT {MARK} query, sum(calls)::bigint FROM {self.schema}.pg_stat_statements(true)"
            f" WHERE query ~* '^\\s*(select|insert|update|delete|merge|with)' {_OWN} GROUP BY 1"
        )
        rows = session.execute(encoded(query), prepare=False).fetchall()
        return {text: calls for text, calls in rows if MARK not in text}

    def executed(
        self, session: Session, before: Statements, after: Statements
    ) -> tuple[Executed, ...]:
        """The at most 20 statements with the largest total time in between, by total time."""
        changes = statement_changes(before, after)
        if not changes:
            return ()
        query = (
            f"SELECT {MARK} userid::bigint, queryid, min(query), userid = (SELECT oid FROM"
            " pg_catalog.pg_roles WHERE rolname = session_user) FROM"
            f" {self.schema}.pg_stat_statements(true)"
            f" WHERE queryid = ANY(%s::bigint[]) {_OWN} GROUP BY 1, 2, 4"
        )
        ids = [key[1] for key in list(changes)[: SHOWN_MAX + 30]]
        texts = {
            (role, id_): (text or "", load)
            for role, id_, text, load in session.execute(encoded(query), [ids])
        }
        rows = []
        for key, change in changes.items():
            text, load = texts.get(key, ("", False))
            if text and MARK not in text:
                rounded = replace(change, total_ms=round(change.total_ms, 3))
                rows.append(Executed(redacted(text)[:_TEXT_MAX], load, *astuple(rounded)))
        return tuple(rows[:SHOWN_MAX])


def statement_changes(before: Statements, after: Statements) -> dict[Key, Counted]:
    """The executions in between, by total time; counters that were reset count from 0."""
    changes: dict[Key, Counted] = {}
    for key, now in after.items():
        past, present = astuple(before.get(key, _NONE)), astuple(now)
        pairs = list(zip(past, present, strict=True))
        fell = any(old is not None and new is not None and new < old for old, new in pairs)
        if now.calls != past[0] and fell:
            pairs = [(0, new) for new in present]
        rises: Any = (None if new is None else new - (old or 0) for old, new in pairs)
        change = Counted(*rises)
        if change.calls > 0:
            changes[key] = change
    return dict(sorted(changes.items(), key=lambda pair: -pair[1].total_ms))


# Texts are only compared: connection strings and commands may hold secrets.
_SETTINGS = (
    f"SELECT {MARK} name, pg_catalog.current_setting(name, true), vartype <> 'string'"
    " FROM pg_catalog.pg_settings"
)
# Of each setting its value, and whether it may be shown.
Settings = Mapping[str, tuple[str, bool]]


def settings(session: Session) -> Settings:
    return {name: (value, shown) for name, value, shown in session.execute(_SETTINGS.encode())}


def changed(before: Settings, after: Settings) -> Iterator[Finding]:
    parts = [
        f"{name} {old[0]} -> {after[name][0]}" if old[1] else name
        for name, old in before.items()
        if old != after.get(name, old)
    ]
    if parts:
        yield finding("settings-changed", changes=sorted(parts))


class Snapshots:
    """The snapshots before and after a load. notes, more: those of a CounterReader, extended."""

    def __init__(self, snapshot: SessionSnapshot, notes: Notes, more: Notes) -> None:
        self._snapshot, self._notes, self._more = snapshot, notes, more
        self._settings: Settings | None = None
        self._sizes: Sizes | None = None
        self._view: View | None = None
        self._statements: Statements | None = None
        self.changed: tuple[Finding, ...] = ()
        self.grown: tuple[Grown, ...] = ()
        self.executed: tuple[Executed, ...] = ()

    def before(self) -> None:
        """Call it before the load. Raises psycopg.Error if the session is broken."""
        self._settings = self._read("settings", settings)
        self._sizes = self._read("sizes", sizes)
        self._view = self._read("statements", View.of)
        if self._view is None:
            self._more.add(finding("statements-uncounted"))
        else:
            self._statements = self._read("statements", self._view.read)

    def after(self) -> None:
        """Call it after the load. Raises as `before`."""
        if self._settings is not None and (now := self._read("settings", settings)) is not None:
            self.changed = tuple(changed(self._settings, now))
        if self._sizes is not None and (after := self._read("sizes", sizes)) is not None:
            self.grown = grown(self._sizes, after)
        view, before = self._view, self._statements
        if view is None or before is None:
            return

        def executed(session: Session) -> tuple[Executed, ...]:
            return view.executed(session, before, view.read(session))

        self.executed = self._read("statements", executed) or ()

    def _read(self, what: str, read: Callable[[Session], T]) -> T | None:
        """The result of `read`; None with a note if the server refuses or needs too long."""
        with self._snapshot.refusals(what, self._notes), self._snapshot.bounded() as session:
            return read(session)
        return None
