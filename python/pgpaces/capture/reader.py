"""Statements, tables and functions of a server, read in read-only transactions.

To check a statement, the server prepares it, which does not execute it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import pq

from pgpaces.capture.catalog import (
    CatalogColumn,
    CatalogTable,
    Entry,
    Function,
    Name,
    ServerStatements,
    Type,
)
from pgpaces.core import sessions
from pgpaces.core.errors import ServerError
from pgpaces.core.findings import Finding, finding
from pgpaces.core.sessions import Session, scalar
from pgpaces.core.texts import decoded, encoded
from pgpaces.monitor.sizes import View

_HIDDEN = "<insufficient privilege>"
# In the text of its own statements: they are not the application's.
_OF_PGPACES = b"/* pgpaces"
# Volatile functions that change nothing.
_HARMLESS = frozenset(("random", "clock_timestamp", "timeofday", "gen_random_uuid", "pg_sleep"))
_BOUNDS = "SET LOCAL statement_timeout = '60s'; SET LOCAL lock_timeout = '2s'"
_TABLES = """
SELECT w.schema, w.name,
       CASE n.nspname WHEN 'public' THEN '' ELSE n.nspname || '.' END || c.relname,
       a.attname, format_type(coalesce(b.oid, t.oid), NULL), coalesce(b.typcategory, t.typcategory),
       EXISTS (SELECT FROM pg_catalog.pg_index i
                WHERE i.indrelid = c.oid AND i.indisunique AND i.indnkeyatts = 1
                  AND i.indkey[0] = a.attnum AND i.indpred IS NULL),
       s.null_frac, s.n_distinct, greatest(c.reltuples, 0)::float8,
       s.most_common_vals::text::text[], s.most_common_freqs::float8[],
       s.histogram_bounds::text::text[],
       has_column_privilege(c.oid, a.attnum, 'SELECT')
  FROM unnest(%s::text[], %s::text[]) w (schema, name)
  JOIN pg_catalog.pg_class c ON c.relname = w.name AND c.relkind IN ('r', 'p', 'm', 'f')
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
   AND CASE w.schema WHEN '' THEN pg_catalog.pg_table_is_visible(c.oid)
            ELSE n.nspname = w.schema END
  JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_catalog.pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
  LEFT JOIN LATERAL (
       SELECT * FROM pg_catalog.pg_stats p
        WHERE p.schemaname = n.nspname AND p.tablename = c.relname AND p.attname = a.attname
        ORDER BY p.inherited DESC LIMIT 1) s ON true
 ORDER BY c.oid, a.attnum
"""
_FUNCTIONS = """
SELECT w.schema, w.name, min(l.lanname), min(p.prosrc), min(pg_get_functiondef(p.oid)),
       min(ARRAY(SELECT coalesce(a.name, '')
                   FROM unnest(coalesce(p.proargnames, ARRAY[]::text[]),
                               coalesce(p.proargmodes, '{}'::"char"[])) WITH ORDINALITY
                        a (name, mode, place)
                  WHERE coalesce(a.mode, 'i') IN ('i', 'b', 'v') ORDER BY place))
  FROM unnest(%s::text[], %s::text[]) w (schema, name)
  JOIN pg_catalog.pg_proc p ON p.proname = w.name AND p.prokind IN ('f', 'p')
  JOIN pg_catalog.pg_language l ON l.oid = p.prolang AND l.lanname IN ('sql', 'plpgsql')
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname <> 'pg_catalog'
   AND CASE w.schema WHEN '' THEN pg_catalog.pg_function_is_visible(p.oid)
            ELSE n.nspname = w.schema END
 GROUP BY w.schema, w.name HAVING count(*) = 1
"""


@contextlib.contextmanager
def reading(keywords: Mapping[str, str]) -> Iterator[Reader]:
    """A reader of a read-only session. Errors of the session become ServerError."""
    with (
        sessions.errors("statements-unreadable"),
        sessions.connect(
            keywords, "pgpaces statements", autocommit=False, prepare_threshold=None
        ) as session,
    ):
        session.read_only = True
        yield Reader(session)


class Reader:
    """Reads one database, within a `transaction` that is rolled back."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._types: dict[int, Type] = {}
        self.hidden_columns: set[str] = set()
        self.unknown_tables: set[str] = set()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """The transaction for all other methods. Its end releases its locks."""
        session = self._session
        try:
            if session.info.parameter_status("is_superuser") == "on":
                # So that the reader's own statements are not counted, where it may prevent that.
                session.execute("SET LOCAL pg_stat_statements.track = 'none'")
            session.execute(_BOUNDS)
            yield
        finally:
            session.rollback()

    @contextlib.contextmanager
    def _savepoint(self) -> Iterator[Session]:
        self._session.execute("SAVEPOINT query")
        try:
            yield self._session
        finally:
            if not self._session.closed:
                self._session.execute("ROLLBACK TO query")

    def statements(self) -> ServerStatements:
        """Every statement of this database. Raises ServerError where pg_stat_statements fails."""
        with self._savepoint() as session:
            try:
                view = View.of(session)
                if view is None:
                    raise ServerError("statements-extension-missing")
                return _statements(session, view)
            except psycopg.errors.ObjectNotInPrerequisiteState:
                raise ServerError("statements-extension-not-loaded") from None

    def tables(self, names: Sequence[Name]) -> dict[Name, CatalogTable]:
        """Tables by the names that statements use, with statistics of their columns."""
        with self._savepoint() as session:
            rows = session.execute(_TABLES, _arrays(names)).fetchall()
        tables: dict[Name, CatalogTable] = {}
        for schema, name, label, *row in rows:
            column = _column(label, row)
            table = tables.setdefault((schema, name), CatalogTable(label, {}))
            table.columns[column.name] = column
            if not column.has_statistics and not row[-1]:
                self.hidden_columns.add(column.label)
        for table in tables.values():
            columns = table.columns.values()
            if not any(c.has_statistics or c.label in self.hidden_columns for c in columns):
                self.unknown_tables.add(table.name)
        return tables

    def functions(self, names: Sequence[Name]) -> dict[Name, Function]:
        with self._savepoint() as session:
            rows = session.execute(_FUNCTIONS, _arrays(names)).fetchall()
        return {
            (schema, name): Function((schema, name), tuple(arguments), language, text, body or "")
            for schema, name, language, body, text, arguments in rows
        }

    def parameters(self, text: str) -> list[Type] | str:
        """The types that the server infers for a statement's parameters, or its error message."""
        with self._savepoint() as session:
            result = session.pgconn.prepare(b"", encoded(text))
            if result.status == pq.ExecStatus.COMMAND_OK:
                result = session.pgconn.describe_prepared(b"")
            if result.status != pq.ExecStatus.COMMAND_OK:
                message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"refused"
                return message.decode("utf-8", "replace")
            oids = [result.param_type(place) for place in range(result.nparams)]
            missing = [oid for oid in oids if oid not in self._types]
            if missing:
                rows = session.execute(
                    "SELECT oid::bigint, format_type(oid, NULL), typcategory"
                    " FROM pg_catalog.pg_type WHERE oid = ANY(%s::oid[])",
                    (missing,),
                )
                self._types |= {oid: Type(name, category) for oid, name, category in rows}
            return [self._types.get(oid, Type("text", "S")) for oid in oids]

    def encoding(self) -> str:
        """Python's name of the encoding of the database; UTF-8 for one that Python lacks."""
        with self._savepoint() as session:
            session.execute(
                "SELECT set_config('client_encoding', current_setting('server_encoding'), true)"
            )
            try:
                return sessions.encoding_of(session)
            except psycopg.NotSupportedError:
                return "utf-8"

    def as_stored(self, text: str) -> bytes:
        if self._session.info.parameter_status("server_encoding") in ("UTF8", "SQL_ASCII"):
            return encoded(text)
        with self._savepoint() as session:
            query = "SELECT convert_to(%s, getdatabaseencoding()::name)"
            return bytes(scalar(session, query, (text,)))

    def may_write(self, names: Sequence[Name]) -> bool:
        """Whether a function of one of these names may change data, that is, is volatile."""
        checked = [name for _, name in names if name not in _HARMLESS]
        query = (
            "SELECT count(*) FROM pg_catalog.pg_proc WHERE provolatile = 'v' AND proname = ANY(%s)"
        )
        with self._savepoint() as session:
            return bool(scalar(session, query, (checked,)))

    def lacks(self) -> Iterator[Finding]:
        """What the role could not see of the tables."""
        if hidden := sorted(self.hidden_columns):
            yield finding("statistics-hidden", count=len(hidden), columns=hidden[:3])
        if self.unknown_tables:
            yield finding("statistics-missing", tables=sorted(self.unknown_tables)[:3])

    def refusal(self, text: str) -> str | None:
        """The error for a statement that the server does not accept; None if it does."""
        types = self.parameters(text)
        return types if isinstance(types, str) else None


def _arrays(names: Sequence[Name]) -> tuple[list[str], list[str]]:
    return [schema for schema, _ in names], [name for _, name in names]


def _statements(session: Session, view: View) -> ServerStatements:
    total = "total_exec_time" if "total_exec_time" in view.columns else "total_time"
    top = "toplevel" if "toplevel" in view.columns else "true"
    query = (
        f"SELECT query = '{_HIDDEN}', convert_to(query, CASE getdatabaseencoding()"
        f" WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END::name), {top}, sum(calls)::bigint,"
        f" sum({total})::float8, sum(rows)::bigint FROM {view.schema}.pg_stat_statements"
        " WHERE dbid = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())"
        " GROUP BY 1, 2, 3"
    )
    every = session.execute(encoded(query)).fetchall()
    rows = [row for row in every if _OF_PGPACES not in (row[1] or b"")]
    entries, hidden, nested = [], (0, 0.0), (0, 0.0)
    for is_hidden, text, top_level, calls, total_ms, returned in rows:
        if not top_level:
            nested = (nested[0] + calls, nested[1] + total_ms)
        elif is_hidden:
            hidden = (hidden[0] + calls, hidden[1] + total_ms)
        else:
            # The server has no text where it cannot read its file of texts.
            entries.append(Entry(decoded(text or b""), calls, total_ms, returned))
    dropped = 0
    info = f"{view.schema}.pg_stat_statements_info"
    if not scalar(session, "SELECT pg_catalog.to_regclass(%s) IS NULL", (info,)):
        dropped = int(scalar(session, f"SELECT dealloc::bigint FROM {info}"))
    # The value of track for other sessions: this transaction may have changed its own.
    row: Any = session.execute(
        "SELECT current_database(), current_setting('server_version_num')::int / 10000,"
        " (SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'pg_stat_statements.track'),"
        " extract(epoch FROM clock_timestamp())::float8"
    ).fetchone()
    twice = row[2] == "all" and "toplevel" not in view.columns
    counted = sum(each[3] for each in rows)
    findings = lacks(row[2], twice=twice, counted=counted, hidden=hidden[0], dropped=dropped)
    return ServerStatements(row[0], row[1], tuple(entries), hidden, nested, row[3], tuple(findings))


def lacks(track: str, *, twice: bool, counted: int, hidden: int, dropped: int) -> Iterator[Finding]:
    """Findings about what the server counts. counted, hidden: calls; dropped: how many times."""
    if hidden:
        yield finding("statements-unseen", calls=hidden)
    if track == "none":
        yield finding("statements-not-counted")
    if twice:
        yield finding("statements-counted-twice")
    if not counted:
        yield finding("no-statement-counted")
    if dropped:
        yield finding("statements-dropped", times=dropped)


def _column(label: str, row: Sequence[Any]) -> CatalogColumn:
    name, kind, category, unique, nulls, distinct, rows, common, shares, bounds, _ = row
    return CatalogColumn(
        label,
        name,
        Type(kind, category),
        unique,
        has_statistics=nulls is not None,
        null_share=nulls or 0.0,
        distinct=distinct or 0.0,
        rows=rows,
        common=_texts(common),
        frequencies=tuple(shares or ()),
        bounds=_texts(bounds),
    )


def _texts(values: Sequence[str | None] | None) -> tuple[str, ...]:
    return tuple(value for value in values or () if value is not None)
