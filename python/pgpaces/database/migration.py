"""Executes a migration's statements, and reads what each locks and makes.

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
_PAUSE_S, _AGAIN_S = 0.5, 0.2
_IN_TRANSACTION, _CANCELED, _NOTICES_SINCE = "25001", "57014", 140_000
# The end of a hold that has not ended.
STILL = 2**62
# Relations by oid: name, kind, file.
Names = Mapping[Any, tuple[str, str, int]]
_LOCKS = """
SELECT relation, relation::pg_catalog.regclass::text, mode FROM pg_catalog.pg_locks
WHERE pid = pg_catalog.pg_backend_pid() AND locktype = 'relation' AND granted
  AND relation >= 16384
"""
_RELATIONS = """
SELECT oid, oid::pg_catalog.regclass::text, relkind::text, relfilenode
FROM pg_catalog.pg_class WHERE oid >= 16384 AND relkind IN ('r', 'm', 'i')
  AND relnamespace <> 'pg_toast'::pg_catalog.regnamespace
"""
# Of new indexes and of tables.
_LARGEST = """
SELECT oid::pg_catalog.regclass::text, reltuples::bigint FROM pg_catalog.pg_class
WHERE reltuples > 0 AND (oid = ANY(%s::oid[]) OR oid IN (
  SELECT indrelid FROM pg_catalog.pg_index WHERE indexrelid = ANY(%s::oid[])))
ORDER BY reltuples DESC LIMIT 1
"""
_KEYS = """
SELECT c.oid::pg_catalog.regclass::text, pg_catalog.quote_ident(n.nspname) || '.'
  || pg_catalog.quote_ident(c.relname), attname, pg_catalog.format_type(atttypid, NULL)
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = indrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace
  JOIN pg_catalog.pg_attribute a ON attrelid = indrelid AND attnum = indkey[0]
WHERE indisprimary AND indnatts = 1 AND c.oid >= 16384
"""
# Any dead row makes such a table due, and the work on it takes long.
_HURRIED = (
    "autovacuum_enabled, autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0,"
    " autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1"
)
_AUTOVACUUM = """
SELECT FROM pg_catalog.pg_stat_activity a JOIN pg_catalog.pg_locks l USING (pid)
WHERE backend_type = 'autovacuum worker' AND l.mode = 'ShareUpdateExclusiveLock'
  AND l.relation::pg_catalog.regclass::text = ANY(%s::text[])
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


# What a program executes, by event triggers on the copy: when each command and rewrite was.
_TRACE = """
CREATE SCHEMA pgpaces_trace;
CREATE TABLE pgpaces_trace.commands (at timestamptz, what text, tag text, locks text[][]);
CREATE FUNCTION pgpaces_trace.seen() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
  what text := '';
  locks text[][];
BEGIN
  IF TG_EVENT = 'ddl_command_end' THEN
    SELECT pg_catalog.string_agg(DISTINCT object_identity, ', ') INTO what
    FROM pg_catalog.pg_event_trigger_ddl_commands();
    SELECT pg_catalog.array_agg(ARRAY[relation::pg_catalog.regclass::text, mode]) INTO locks
    FROM pg_catalog.pg_locks
    WHERE pid = pg_catalog.pg_backend_pid() AND locktype = 'relation' AND granted
      AND relation >= 16384 AND relation <> 'pgpaces_trace.commands'::pg_catalog.regclass;
  ELSIF TG_EVENT = 'table_rewrite' THEN
    what := pg_catalog.pg_event_trigger_table_rewrite_oid()::pg_catalog.regclass::text;
  END IF;
  INSERT INTO pgpaces_trace.commands
  VALUES (pg_catalog.clock_timestamp(), what, TG_EVENT || ' ' || TG_TAG, locks);
END $$;
"""
_EVENTS = ("ddl_command_start", "ddl_command_end", "table_rewrite")
_CLOCK = "SELECT extract(epoch FROM pg_catalog.clock_timestamp())::float8"
_TRACED = """
SELECT tag, what, extract(epoch FROM at)::float8, locks FROM pgpaces_trace.commands ORDER BY at
"""


def trace(session: Session) -> bool:
    """Lets event triggers of a copy report what others execute; false without a superuser."""
    try:
        with session.transaction():
            session.execute(_TRACE.encode())
            for event in _EVENTS:
                session.execute(
                    f"CREATE EVENT TRIGGER pgpaces_{event} ON {event}"
                    " EXECUTE PROCEDURE pgpaces_trace.seen()".encode()
                )
    except psycopg.Error:
        return False
    return True


def traced(session: Session, now_ns: Callable[[], int]) -> list[StatementRun]:
    """The commands that event triggers reported and whose transactions were committed."""
    offset_ns = now_ns() - round(float(sessions.scalar(session, _CLOCK)) * 1e9)
    found: list[StatementRun] = []
    began_ns, rewritten = 0, list[str]()
    for tag, what, at_s, locks in session.execute(_TRACED.encode()).fetchall():
        event, _, word = tag.partition(" ")
        at_ns = round(at_s * 1e9) + offset_ns
        if event == "ddl_command_start":
            began_ns, rewritten = at_ns, []
        elif event == "table_rewrite":
            rewritten.append(what)
        else:
            found.append(
                StatementRun(
                    text=f"{word} {what or ''}".strip(),
                    began_ns=began_ns,
                    tried_ns=began_ns,
                    done_ns=at_ns,
                    released_ns=at_ns,
                    locks=tuple((relation, mode) for relation, mode in locks or ()),
                    rewritten=tuple(rewritten),
                )
            )
    return found


class Migrating:
    """One execution of a migration.

    now_ns: the time since the load's measured part began. tries: of a statement that waits for a
    lock longer than its lock_timeout. timeout_s: for all of it. at: the number of the statement
    that runs; None between statements. whole: it came to its end, be that an error. timed_out:
    pgpaces ended it.
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
        if self._session.info.server_version >= _NOTICES_SINCE:
            # So that the server notices a kill of pgpaces, where its system can.
            with contextlib.suppress(psycopg.Error):
                self._session.execute("SET client_connection_check_interval = '1s'")
        self._now_ns, self._statements = now_ns, statements
        self._tries, self._timeout_s = tries, timeout_s
        self.pids = (self._session.info.backend_pid,)
        self.at: int | None = None
        self.whole = self.timed_out = False
        self._stopped, self._done = threading.Event(), threading.Event()

    def run(self) -> list[StatementRun]:
        """Executes them until one fails. What each made is known once its transaction is over."""
        timer = threading.Timer(self._timeout_s, self._time_out)
        timer.daemon = True
        timer.start()
        try:
            done = self._all()
        finally:
            timer.cancel()
            self._done.set()
        self.whole = not self._stopped.is_set()
        return done

    def stop(self) -> None:
        """Cancels what runs, from another thread; nothing else begins."""
        if not self._stopped.is_set():
            self._stopped.set()
            threading.Thread(target=self._cancel, daemon=True).start()

    def close(self) -> None:
        """Closes the sessions: the server rolls back what is open."""
        self._stopped.set()
        for session in (self._session, self._looks):
            session.close()

    def _time_out(self) -> None:
        self.timed_out = True
        self.stop()

    def _cancel(self) -> None:
        """Again and again: a cancel between two statements has no effect."""
        while not self._session.closed:
            with contextlib.suppress(psycopg.Error):
                self._session.cancel_safe(timeout=5)
            if self._done.wait(_AGAIN_S):
                return

    def _all(self) -> list[StatementRun]:
        done: list[StatementRun] = []
        begun: int | None = None  # the statement that began the open transaction of the file
        before = self._relations()
        for number, statement in enumerate(self._statements):
            if self._stopped.is_set():
                break
            self.at = number
            run = self._one(statement, before, alone=begun is None)
            self.at = None
            done.append(run)
            if statement.kind == "begin" and begun is None:
                begun = number
            failed = run.error is not None
            if begun is not None and not failed and statement.kind != "end":
                self._let_go(done, begun, before)
                continue
            if failed and not self._session.closed:
                self._session.execute("ROLLBACK")
            self._released(done, number if begun is None else begun)
            if self._session.closed:
                break
            after = self._relations()
            done[-1] = replace(done[-1], **self._made(before, after, done[-1].locks))
            before, begun = after, None
            if failed:
                break
        if begun is not None and not self._session.closed:
            self._session.execute("ROLLBACK")  # the file leaves its transaction open
            self._released(done, begun)
        return done

    def _released(self, done: list[StatementRun], first: int) -> None:
        """The locks of statements from the first on that still had them are gone."""
        now_ns = self._now_ns()
        done[first:] = [
            replace(each, released_ns=now_ns) if each.released_ns == STILL else each
            for each in done[first:]
        ]

    def _let_go(self, done: list[StatementRun], first: int, names: Names) -> None:
        """Statements of the open transaction whose locks a ROLLBACK TO has given up."""
        held, now_ns = set(self._own_locks(names)), self._now_ns()
        for place, each in enumerate(done[first:], first):
            if each.locks and each.released_ns == STILL and not held & set(each.locks):
                done[place] = replace(each, released_ns=now_ns)

    def _one(self, statement: Statement, names: Names, *, alone: bool) -> StatementRun:
        """Executes a statement. names: of the relations before its transaction."""
        began_ns, tries, error = self._now_ns(), 0, None
        locks: tuple[tuple[str, str], ...] = ()
        rows, own = 0, alone and statement.kind == "plain"
        while True:
            tries, tried_ns = tries + 1, self._now_ns()
            try:
                locks, rows = self._execute(statement, names, own=own, inside=not alone)
                error = None
                break
            except psycopg.Error as failed:
                error = failed
                if self._session.closed:
                    break
                if own:
                    self._session.execute("ROLLBACK")
                    if failed.sqlstate == _IN_TRANSACTION:
                        own, tries = False, tries - 1  # PostgreSQL runs it only without one
                        continue
                again = alone and failed.sqlstate == LOCK_TIMEOUT and tries < self._tries
                if not again or self._stopped.wait(_PAUSE_S):
                    break
        done_ns = self._now_ns()
        words = None if error is None else error.diag.message_primary or str(error).strip()
        if self._stopped.is_set() and error is not None and error.sqlstate == _CANCELED:
            error = words = None  # it says nothing about the migration
        return StatementRun(
            text=redacted(statement.text),
            began_ns=began_ns,
            tried_ns=tried_ns,
            done_ns=done_ns,
            released_ns=STILL,
            tries=tries,
            locks=locks,
            rows=rows,
            sqlstate=None if error is None else error.sqlstate,
            error=None if words is None else redacted(words),
        )

    def _execute(
        self, statement: Statement, names: Names, *, own: bool, inside: bool
    ) -> tuple[tuple[tuple[str, str], ...], int]:
        """Executes a statement, in a transaction of its own or not.

        Returns the locks that it has then, and how many rows it changed or returned.
        """
        locks: tuple[tuple[str, str], ...] = ()
        if own:
            self._session.execute("BEGIN")
        rows = self._session.execute(encoded(statement.text)).rowcount
        if own or (inside and statement.kind != "end"):
            locks = self._own_locks(names)
        if own:
            self._session.execute("COMMIT")
        return locks, max(0, rows)

    def _own_locks(self, names: Names) -> tuple[tuple[str, str], ...]:
        """What the session holds; what it dropped or renamed has the name that the load knows."""
        rows = self._session.execute(_LOCKS).fetchall()
        return tuple((names.get(oid, (name,))[0], mode) for oid, name, mode in rows)

    def _relations(self) -> Names:
        rows = self._looks.execute(_RELATIONS).fetchall()
        return {oid: (name, kind, node) for oid, name, kind, node in rows}

    def _made(
        self, before: Names, after: Names, locks: Sequence[tuple[str, str]]
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
        locked = [
            oid
            for oid, (name, kind, _) in after.items()
            if kind != "i" and (name, "AccessExclusiveLock") in locks
        ]
        largest = self._looks.execute(_LARGEST, ([*moved, *locked], new)).fetchone()
        return {
            "rewritten": tuple(after[oid][0] for oid in moved if sizes[oid]),
            "built": tuple((after[oid][0], int(sizes[oid])) for oid in new),
            **dict(zip(("table", "rows"), largest or (), strict=False)),
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


def keys_of(session: Session) -> dict[str, tuple[str, str]]:
    """The only column of the primary key of each table, and its type, by names of the table."""
    rows = session.execute(_KEYS.encode()).fetchall()
    return {name: (column, kind) for *names, column, kind in rows for name in names}


def hurry_autovacuum(session: Session, tables: Sequence[str]) -> None:
    """Lets an autovacuum begin soon on tables of a copy, and work for long."""
    for table in tables:  # quoted by the server; a partitioned one has no such settings
        with contextlib.suppress(psycopg.Error):
            session.execute(encoded(f"ALTER TABLE {table} SET ({_HURRIED})"))


def in_autovacuum(session: Session, tables: Sequence[str]) -> bool:
    return session.execute(_AUTOVACUUM, (list(tables),)).fetchone() is not None


def locks_of(session: Session, statements: Sequence[str]) -> set[tuple[str, str]]:
    """The relations that a script's statements lock, with the modes.

    They are executed in one transaction, which is rolled back. One that fails is left out.
    """
    with session.transaction(force_rollback=True):
        for sql in statements:
            with contextlib.suppress(psycopg.Error), session.transaction():
                session.execute(encoded(sql))
        rows = session.execute(_LOCKS).fetchall()
    return {(name, mode) for _, name, mode in rows}


def every_table(session: Session) -> list[str]:
    """The tables of the database, as locks name them."""
    query = (
        "SELECT oid::pg_catalog.regclass::text FROM pg_catalog.pg_class"
        " WHERE oid >= 16384 AND relkind IN ('r', 'p')"
    )
    return [name for (name,) in session.execute(query.encode()).fetchall()]


def schema_of(session: Session) -> str:
    """A hash of columns, constraints and indexes, without the names of the latter two."""
    rows = sorted("\0".join(row) for row in session.execute(_SCHEMA).fetchall())
    return hashlib.sha256(encoded("\0\0".join(rows))).hexdigest()


def wal_position(session: Session) -> int:
    return int(
        sessions.scalar(session, "SELECT pg_catalog.pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    )
