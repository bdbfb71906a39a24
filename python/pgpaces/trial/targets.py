"""Addresses of databases and servers as they are stored and shown, without a password."""

from __future__ import annotations

from pgpaces.core.errors import PgpacesError
from pgpaces.database.specification import is_dsn
from pgpaces.load import engine as generator
from pgpaces.server.record import quoted
from pgpaces.spec.target_plan import without_secrets

# Keywords of the address of a database, and those that `resolve` has already applied.
_PLACE = frozenset(("host", "hostaddr", "port", "user", "dbname"))
_SPENT = frozenset(("service", "servicefile", "fallback_application_name"))


def source(from_database: str | None) -> str | None:
    """A database to copy, as its name or a DSN without a password."""
    if from_database is None or not is_dsn(from_database):
        return from_database
    return dsn(from_database)


def target(written: str, **overrides: str) -> str:
    """A DSN that reaches the same database from here, without a password.

    With the address from the DSN and the environment, and the other keywords that they change.
    """
    keywords = without_secrets(generator.resolve(written, **overrides).keywords)
    try:
        usual = generator.resolve("").keywords
    except PgpacesError:  # the environment is only usable with this DSN
        usual = {}
    words = {k: v for k, v in keywords.items() if k in _PLACE or usual.get(k) != v}
    return " ".join(f"{k}={quoted(v)}" for k, v in words.items() if k not in _SPENT)


def dsn(written: str) -> str:
    """The DSN with its keywords written out, but not the password: that is for a password file."""
    keywords = without_secrets(generator.resolve(written).keywords)
    words = (f"{k}={_quoted(v)}" for k, v in keywords.items() if k not in _SPENT)
    return " ".join(words)


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
