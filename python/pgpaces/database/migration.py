"""Executes a migration statement by statement, and reads which locks each takes and what it makes.

A statement that may run in a transaction has one of its own, in which its session reads its locks
before it commits. The locks of others are found by samples of another session (monitor/locks.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
from msgspec.structs import replace

from pgpaces.core import sessions
from pgpaces.core.sessions import Session
from pgpaces.core.texts import encoded, redacted
from pgpaces.spec.migration import Statement, StatementRun

APPLICATION, HOLDER = "pgpaces migration", "pgpaces open transaction"
# Waiting for a lock took too long: the statement may be tried again.
LOCK_TIMEOUT = "55P03"
_PAUSE_S = 0.5
_LOCKS = """
SELECT relation, relation::pg_catalog.regclass::text, mode FROM pg_catalog.pg_locks
WHERE pid = pg_catalog.pg_backend_pid() AND locktype = 'relation' AND granted
  AND relation >= 16384
"""
_RELATIONS = """
SELECT oid, oid::pg_catalog.regclass::text, relkind::text, relfilenode
FROM pg_catalog.pg_class WHERE oid >= 16384 AND relkind IN ('r', 'm', 'i')
"""
# Names do not matter: a safer form may choose other ones.
_SCHEMA = """
SELECT 'column', attrelid::pg_catalog.regclass::text, attname || ' '
  || pg_catalog.format_type(atttypid, atttypmod) || ' ' || attnotnull || ' '
  || coalesce(pg_catalog.pg_get_expr(adbin, adrelid), '')
FROM pg_catalog.pg_attribute
  LEFT JOIN pg_catalog.pg_attrdef ON adrelid = attrelid AND adnum = attnum
  JOIN pg_catalog.pg_class c ON c.oid = attrelid
WHERE attnum > 0 AND NOT attisdropped AND c.oid >= 16384 AND relkind IN ('r', 'v', 'm', 'p')
UNION ALL
SELECT 'constraint', conrelid::pg_catalog.regclass::text,
  pg_catalog.pg_get_constraintdef(oid) || ' ' || convalidated
FROM pg_catalog.pg_constraint WHERE oid >= 16384 AND contype <> 'n'
UNION ALL
SELECT 'index', indrelid::pg_catalog.regclass::text, pg_catalog.regexp_replace(
  pg_catalog.pg_get_indexdef(indexrelid), ' INDEX .* ON ', ' INDEX ON ') || ' ' || indisvalid
FROM pg_catalog.pg_index WHERE indexrelid >= 16384
"""


class Migrating:
    """One execution of a migration.

    now_ns: the time since the load's measured part began. tries: of a statement that waits for a
    lock longer than its lock_timeout. timeout_s: for all of it. at: the number of the statement
    that runs; None between statements.
    """

    known, outage = True, None

    def __init__(
        self,
        keywords: Mapping[str, str],
        now_ns: Callable[[], int],
        statements: Sequence[Statement],
        *,
        tries: int = 1,
        timeout_s: float = 600.0,
    ) -> None:
        self._session = sessions.connect(keywords, APPLICATION, prepare_threshold=None)
        self._looks = sessions.connect(keywords, "pgpaces sensor", prepare_threshold=None)
        self._now_ns, self._tries, self._timeout_s = now_ns, tries, timeout_s
        self._statements = statements
        self.pids = (self._session.info.backend_pid,)
        self.at: int | None = None
        self._stopped = threading.Event()

    def run(self) -> list[StatementRun]:
        """Executes them until one fails. What each made is known once its transaction is over."""
        done: list[StatementRun] = []
        open_from: int | None = None
        before = self._relations()
        timer = threading.Timer(self._timeout_s, self.stop)
        timer.daemon = True
        timer.start()
        try:
            for number, statement in enumerate(self._statements):
                if self._stopped.is_set():
                    break
                self.at = number
                run = self._one(statement, before, alone=open_from is None)
                self.at = None
                done.append(run)
                if statement.kind == "begin":
                    open_from = number
                if run.error is not None:
                    self._session.execute("ROLLBACK")
                if open_from is None or statement.kind == "end" or run.error is not None:
                    released_ns = self._now_ns()
                    first = number if open_from is None else open_from
                    done[first:] = [replace(each, released_ns=released_ns) for each in done[first:]]
                    after = self._relations()
                    done[-1] = replace(done[-1], **self._made(before, after))
                    before, open_from = after, None
                if run.error is not None:
                    break
            self._session.execute("ROLLBACK")  # of a transaction that the file leaves open
        finally:
            timer.cancel()
        return done

    def stop(self) -> None:
        """Cancels what runs, from another thread; nothing else begins."""
        self._stopped.set()
        with contextlib.suppress(psycopg.Error):
            self._session.cancel_safe(timeout=5)

    def close(self) -> None:
        """Closes the sessions: the server rolls back what is open."""
        self.stop()
        for session in (self._session, self._looks):
            session.close()

    def _one(
        self, statement: Statement, names: Mapping[Any, tuple[Any, ...]], *, alone: bool
    ) -> StatementRun:
        """names: of the relations before its transaction, first in each value."""
        began_ns, tries, error = self._now_ns(), 0, None
        locks: tuple[tuple[str, str], ...] = ()
        own = alone and statement.kind == "plain"
        while True:
            tries += 1
            try:
                if own:
                    self._session.execute("BEGIN")
                self._session.execute(encoded(statement.text))
                if statement.kind == "plain":
                    rows = self._session.execute(_LOCKS).fetchall()
                    # One that it dropped or renamed has the name that the load knows.
                    locks = tuple((names.get(o, (name,))[0], mode) for o, name, mode in rows)
                if own:
                    self._session.execute("COMMIT")
                error = None
                break
            except psycopg.Error as failed:
                error = failed
                if self._session.closed:
                    break
                if own:
                    self._session.execute("ROLLBACK")
                again = alone and failed.sqlstate == LOCK_TIMEOUT and tries < self._tries
                if not again or self._stopped.wait(_PAUSE_S):
                    break
        done_ns = self._now_ns()
        words = None if error is None else error.diag.message_primary or str(error).strip()
        return StatementRun(
            text=redacted(statement.text),
            began_ns=began_ns,
            done_ns=done_ns,
            released_ns=done_ns,
            tries=tries,
            locks=locks,
            sqlstate=None if error is None else error.sqlstate,
            error=None if words is None else redacted(words),
        )

    def _relations(self) -> dict[Any, tuple[str, str, int]]:
        rows = self._looks.execute(_RELATIONS).fetchall()
        return {oid: (name, kind, node) for oid, name, kind, node in rows}

    def _made(
        self, before: Mapping[Any, tuple[str, str, int]], after: Mapping[Any, tuple[str, str, int]]
    ) -> dict[str, Any]:
        """The rewritten tables and the new indexes. A truncated table is new and empty."""
        new = [oid for oid, (_, kind, _) in after.items() if kind == "i" and oid not in before]
        moved = [
            oid
            for oid, (_, kind, node) in after.items()
            if kind != "i" and oid in before and before[oid][2] != node
        ]
        sizes: dict[Any, int] = dict(
            self._looks.execute(
                "SELECT o, coalesce(pg_catalog.pg_relation_size(o), 0)"
                " FROM pg_catalog.unnest(%s::oid[]) o",
                ([*new, *moved],),
            ).fetchall()
        )
        return {
            "rewritten": tuple(after[oid][0] for oid in moved if sizes[oid]),
            "built": tuple((after[oid][0], int(sizes[oid])) for oid in new),
        }


@contextlib.contextmanager
def holding(
    keywords: Mapping[str, str], tables: Sequence[str], seconds: float
) -> Iterator[threading.Timer]:
    """A transaction that has read and written these tables, and stays open for some seconds."""
    session = sessions.connect(keywords, HOLDER, autocommit=False, prepare_threshold=None)

    def end() -> None:
        with contextlib.suppress(psycopg.Error):
            session.rollback()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    try:
        for table in tables:  # quoted by the server
            session.execute(encoded(f"LOCK TABLE ONLY {table} IN ROW EXCLUSIVE MODE"))
            session.execute(encoded(f"SELECT FROM ONLY {table} LIMIT 1"))
        timer.start()
        yield timer
    finally:
        timer.cancel()
        session.close()


def locks_of(session: Session, statements: Sequence[str]) -> set[tuple[str, str]]:
    """The relations that statements lock, with the modes. They are executed and rolled back.

    A statement that fails is left out.
    """
    found: set[tuple[str, str]] = set()
    for sql in statements:
        with contextlib.suppress(psycopg.Error), session.transaction(force_rollback=True):
            session.execute(encoded(sql))
            found |= {(name, mode) for _, name, mode in session.execute(_LOCKS).fetchall()}
    return found


def tables_of(session: Session, relations: Sequence[str]) -> list[str]:
    """Those of the relations that are tables."""
    query = (
        "SELECT name FROM pg_catalog.unnest(%s::text[]) name JOIN pg_catalog.pg_class c"
        " ON c.oid = name::pg_catalog.regclass WHERE relkind IN ('r', 'p')"
    )
    return [name for (name,) in session.execute(query, (list(relations),)).fetchall()]


def schema_of(session: Session) -> str:
    """A hash of columns, constraints and indexes, without the names of the latter two."""
    rows = sorted("\0".join(row) for row in session.execute(_SCHEMA).fetchall())
    return hashlib.sha256(encoded("\0\0".join(rows))).hexdigest()


def wal_position(session: Session) -> int:
    return int(
        sessions.scalar(session, "SELECT pg_catalog.pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    )
