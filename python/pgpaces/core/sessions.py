"""Administrative sessions: the only module that opens them, and converts their text to `str`.

Text is UTF-8 if the server can convert to it. A database in SQL_ASCII converts nothing: its bytes
are read as UTF-8, and invalid ones become surrogates (PEP 383), which go back to the server as the
same bytes. Connections of a load are not opened here: they have the client encoding by libpq's
rules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.adapt import Dumper, Loader

from pgpaces.core.errors import ServerError
from pgpaces.core.texts import decoded, encoded

Row = tuple[Any, ...]
Session = psycopg.Connection[Row]

_TEXTS = (0, "text", "varchar", "bpchar", "name", '"char"')


def connect(
    keywords: Mapping[str, str],
    application: str,
    *,
    autocommit: bool = True,
    prepare_threshold: int | None = 5,
    as_the_load: bool = False,
) -> Session:
    """A session whose text is `str`, whatever the encoding of its database.

    keywords: libpq's. A client encoding in them, in PGCLIENTENCODING, or set for the role or the
    database has no effect, except with as_the_load: then text is as in the load's connections.
    Raises psycopg.Error, and ServerError for keywords that are not UTF-8.
    """
    options: dict[str, Any] = {**keywords, "application_name": application}
    if not as_the_load:
        options["client_encoding"] = "UTF8"
    try:
        session: Session = psycopg.connect(
            autocommit=autocommit, prepare_threshold=prepare_threshold, **options
        )
    except UnicodeEncodeError:
        raise ServerError("connection-not-utf-8") from None
    if not as_the_load and session.info.parameter_status("server_encoding") == "SQL_ASCII":
        # With UTF8 the server would refuse invalid bytes, in either direction.
        _convert_nothing(session)
    return with_text(session)


@contextlib.contextmanager
def errors(name: str) -> Iterator[None]:
    """Turns errors of the server into a ServerError with this name; `why` has their text."""
    try:
        yield
    except psycopg.Error as error:
        raise ServerError(name, why=str(error).strip()) from None


def scalar(
    session: Session,
    query: LiteralString | bytes,
    parameters: Sequence[object] | Mapping[str, object] | None = None,
) -> Any:
    """The first value of the first row; None without a row. Raises psycopg.Error."""
    row = session.execute(query, parameters).fetchone()
    return None if row is None else row[0]


def _convert_nothing(session: Session) -> None:
    session.pgconn.exec_(b"SET client_encoding = SQL_ASCII")


def with_text(session: Session) -> Session:
    """The session, with text as `str` also in SQL_ASCII and in encodings that Python lacks."""
    try:
        session.info.encoding  # noqa: B018
    except psycopg.NotSupportedError:
        _convert_nothing(session)
    for name in _TEXTS:
        session.adapters.register_loader(name, _Text)
    for dumper in (_AsText, _Unknown):  # the last one is for `str` of unknown type
        session.adapters.register_dumper(str, dumper)
    session.cursor_factory = _Cursor
    return session


def encoding_of(session: Session) -> str:
    """Python's name of the encoding of the server's messages in a session."""
    encoding = session.info.encoding
    return "utf-8" if encoding == "ascii" else encoding


class Identifier(sql.Identifier):
    """A name in a statement; psycopg's class refuses non-ASCII characters in SQL_ASCII."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self._names = names

    def as_bytes(self, context: Any = None) -> bytes:
        return b".".join(b'"' + encoded(name).replace(b'"', b'""') + b'"' for name in self._names)


class _Text(Loader):
    def load(self, data: Any) -> str:
        return decoded(data)


class _Unknown(Dumper):
    """`str` as text whose type the server infers, as in psycopg's default."""

    def dump(self, obj: str) -> bytes:
        if "\0" in obj:
            raise psycopg.DataError("text of PostgreSQL cannot hold a NUL byte")
        return encoded(obj)


class _AsText(_Unknown):
    oid = psycopg.adapters.types["text"].oid


class _Cursor(psycopg.Cursor[Row]):
    """A cursor with non-ASCII names in statements and messages also in SQL_ASCII."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        try:
            return super().execute(query, params, **options)
        except psycopg.Error as error:
            result = error.pgresult
            if result is None or self.connection.info.encoding != "ascii":
                raise
            words = result.get_error_message("utf-8")
            raise type(error)(words, info=result, encoding="utf-8") from None
