"""The setup connection of `pgpaces pgbench`, and the initialization of its tables."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING, ClassVar

import psycopg
from psycopg import conninfo
from psycopg.pq import ConnStatus, PGconn, abc

from pgpaces.cli.pgbench.values import PgbenchError
from pgpaces.core import sessions
from pgpaces.core.errors import PgpacesError, ServerError
from pgpaces.core.redaction import Redacted
from pgpaces.core.sessions import Session
from pgpaces.core.texts import decoded, encoded
from pgpaces.database import pgbench_tables
from pgpaces.load import engine
from pgpaces.server.folder import quoted

if TYPE_CHECKING:
    from pgpaces.cli.pgbench import Voice
    from pgpaces.cli.pgbench.options import Options


class Setup(Redacted, frozen=True):
    """The connection for setup, and its parameters, the password included."""

    REDACTED: ClassVar = ("parameters",)
    session: Session
    parameters: dict[str, str]


def _parameters(options: Options, program: str, purpose: str) -> dict[str, str]:
    """The connection parameters. A connection string as database name overrides the options.

    Empty options are none, as in libpq, so that its variables apply; an empty value in a connection
    string is one.
    """
    every = {"host": options.host, "port": options.port, "user": options.user}
    every |= {"fallback_application_name": program}
    parameters = {name: value for name, value in every.items() if value}
    name = options.dbname
    if name.startswith(("postgresql://", "postgres://")) or "=" in name:
        # All its values are texts, whatever their declared type.
        return parameters | {k: str(v) for k, v in conninfo.conninfo_to_dict(name).items()}
    if re.match(r"[a-zA-Z0-9+]+://", name):
        # A misspelled URI would be sent as a database name, and quoted with its password.
        raise _unconnected(ServerError("uri-of-other-program").message, purpose)
    return parameters | ({"dbname": name} if name else {})


def connect(options: Options, voice: Voice, purpose: str) -> Setup:
    """Connects, and asks for a password if the server requires one. Raises PgbenchError."""
    try:
        parameters = _parameters(options, voice.program, purpose)
        with contextlib.suppress(PgpacesError):  # libpq has words for it
            # The host that the load will find: libpq may know another directory.
            if host := engine.resolve("", **parameters).keywords.get("host"):
                parameters["host"] = host
        conn = _attempt(parameters)
        if conn.status != ConnStatus.OK and conn.needs_password and "password" not in parameters:
            parameters["password"] = _ask_password(voice)
            conn = _attempt(parameters)
    except psycopg.ProgrammingError as error:  # not a connection string
        raise _unconnected(_without_pieces(str(error), options.dbname), purpose) from None
    if conn.status != ConnStatus.OK:
        raise _unconnected(decoded(conn.error_message), purpose)
    session = sessions.with_text(psycopg.Connection(conn))
    session.autocommit = True
    return Setup(session, parameters)


def _without_pieces(words: str, name: str) -> str:
    """libpq's message for a bad connection string, without quotations of one with a password.

    libpq quotes the whole string or a piece of it; either may hold the password.
    """
    if not re.search("@|pass|secret|_key", name):
        return words
    words = re.sub(r'(: |after |option |in )".*"', r'\1"***"', words, count=1, flags=re.DOTALL)
    return re.sub(r'^unexpected character ".', 'unexpected character "*', words)


def _attempt(parameters: dict[str, str]) -> abc.PGconn:
    # By libpq and not psycopg, which tries the hosts itself, so that errors are libpq's.
    words = (f"{name}={quoted(value)}" for name, value in parameters.items())
    return PGconn.connect(encoded(" ".join(words)))


def _unconnected(why: str, purpose: str) -> PgbenchError:
    last = ("error", f"could not create connection for {purpose}")
    return PgbenchError(why.rstrip("\n"), last)


def _ask_password(voice: Voice) -> str:
    import getpass

    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        voice.say("Password: ")
        password = sys.stdin.readline().rstrip("\r\n")
        voice.say("\n")
        return password
    try:
        return getpass.getpass("Password: ")
    except EOFError:
        return ""


def initialize(options: Options, voice: Voice) -> int:
    # The fields of tables are options of the same names; the others have their defaults.
    values = {name: getattr(options, name) for name in pgbench_tables.Tables.__struct_fields__}
    tables = pgbench_tables.Tables(**{k: v for k, v in values.items() if v is not None})
    setup = connect(options, voice, "initialization")

    def progress(text: str, width: int) -> None:
        if sys.stderr.isatty():
            voice.rewrite(f"{text:<{width}}")
        elif text:
            voice.say(f"{text}\n")

    with contextlib.closing(setup.session) as session:
        pgbench_tables.initialize(session, tables, options.steps, say=voice.say, progress=progress)
    return 0
