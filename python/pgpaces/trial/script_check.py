"""Whether the server accepts the scripts of a load, looked at once before it begins.

The server plans each statement (EXPLAIN), which finds typos, missing relations and missing rights
and executes nothing. Where nothing can be harmed, in a copy or on a managed server, it also runs
the user's own scripts once, in a transaction that is rolled back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg

from pgpaces.core import sessions
from pgpaces.core.errors import HopelessError, PgpacesError, ServerError, hopeless_name
from pgpaces.core.sessions import Session
from pgpaces.core.texts import encoded
from pgpaces.load import engine
from pgpaces.load.engine import Connection, for_driver
from pgpaces.trial.components import ComponentLoad

_TIMEOUT_MS = 10_000
# Characters of a script up to which it is looked at.
_LENGTH_MAX = 2**20
_WORD = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*([a-z]+)", re.IGNORECASE | re.DOTALL)
_PLANNED = ("select", "insert", "update", "delete", "merge", "with", "values", "table")
_OF_TRANSACTIONS = (
    *("begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release"),
)
# SQLSTATE classes of a script that cannot work: login, catalog, schema, and syntax or access.
_CANNOT_WORK = ("28", "3D", "3F", "42")


def check(component: ComponentLoad, connection: Connection, *, runs: bool) -> None:
    """Raises HopelessError for a statement that the server does not accept.

    runs: nothing there can be harmed, so scripts run once and are rolled back.
    """
    if not component.work.request.workload.is_scripts:
        return
    try:
        # Each statement is prepared, so that several in one text are refused.
        with sessions.connect(
            for_driver(connection), "pgpaces check", autocommit=False, prepare_threshold=0
        ) as session:
            session.execute(f"SET LOCAL statement_timeout = {_TIMEOUT_MS}".encode())
            for sql in component.plan.on_connect:
                session.execute(encoded(sql))
            for name, statements in _rehearsed(component):
                _look(session, name, statements, runs=runs)
            session.rollback()
    except (psycopg.Error, ServerError):
        return  # the load itself finds out, and says it


def _rehearsed(component: ComponentLoad) -> Iterator[tuple[str, list[str]]]:
    """The statements of each script, as far as no variable from the server is in them."""
    variables = tuple(component.work.variables().items())
    for script in component.scripts:
        if len(script.text) > _LENGTH_MAX or not script.weight:
            continue
        try:
            found = engine.rehearse(script.name, script.text, variables, seed=component.plan.seed)
        except PgpacesError:  # its clients give up, too
            continue
        yield script.name, [sql for _, sql in found]


def _look(session: Session, name: str, statements: list[str], *, runs: bool) -> None:
    for sql in statements:
        match = _WORD.match(sql)
        word = match[1].lower() if match else ""
        if word in _OF_TRANSACTIONS:
            continue
        if word not in _PLANNED and not runs:
            return  # what follows may need what this one makes
        error = _error(session, sql if runs else f"EXPLAIN {sql}")
        if error is None:
            continue
        state, message = error
        if state[:2] in _CANNOT_WORK and ";" not in sql.rstrip().rstrip(";"):
            why = f"{message}: {sql}"
            raise HopelessError(hopeless_name(state), script=name, why=why, sqlstate=state)
        return


def _error(session: Session, sql: str) -> tuple[str, str] | None:
    try:
        with session.transaction():
            session.execute(encoded(sql))
    except psycopg.Error as error:
        return error.sqlstate or "", error.diag.message_primary or str(error)
    return None
