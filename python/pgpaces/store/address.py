"""Where a store is: a file of SQLite, or a database of a PostgreSQL server. Opens nothing.

An address is shown in messages, so it holds no password; what connects holds it elsewhere.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pgpaces.errors import StoreError
from pgpaces.home import home

_URL = re.compile(r"\s*postgres(ql)?://", re.IGNORECASE)
# A file whose name looks like this is meant with a folder before it: ./host=pi
_CONNINFO = re.compile(r"\s*(host|hostaddr|port|dbname|user|password|service|passfile|ssl\w+)\s*=")
# What PostgreSQL calls what it connects with when nothing is said.
Keywords = dict[str, str]


def default() -> Path | str:
    """$PGPACES_STORE, else results.db in pgpaces' home."""
    chosen = os.environ.get("PGPACES_STORE")
    return located(chosen) if chosen else home() / "results.db"


def located(place: Path | str) -> Path | str:
    """A file, or the connection string of a PostgreSQL server as libpq reads it."""
    if isinstance(place, str) and (_URL.match(place) or _CONNINFO.match(place)):
        return place
    return Path(place).expanduser()


def parsed(written: str) -> Keywords:
    """What a connection string says, before libpq adds what it knows. Raises StoreError."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {name: str(value) for name, value in conninfo_to_dict(written).items()}
    except psycopg.Error:
        # What libpq says of it may quote it, and so a password.
        raise StoreError(
            "the connection string of the store is none that libpq reads",
            "write postgresql://user@host/dbname; the password belongs in a password file",
        ) from None


def default_shown() -> str:
    """The address of the default store. Raises StoreError."""
    place = default()
    return str(place) if isinstance(place, Path) else shown(parsed(place))


def shown(keywords: Keywords) -> str:
    """The address of a database by the keywords of its connection, as a URL without secrets."""
    if "service" in keywords and "host" not in keywords:
        return f"the PostgreSQL database of service {keywords['service']}"
    user = f"{keywords['user']}@" if "user" in keywords else ""
    host = keywords.get("host") or keywords.get("hostaddr") or ""
    port = f":{keywords['port']}" if keywords.get("port") else ""
    return f"postgresql://{user}{host}{port}/{keywords.get('dbname', '')}"
