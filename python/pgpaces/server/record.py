"""The record of one managed server: its name, version, processes and address.

It is a JSON file in the server's folder, by which another pgpaces finds the server. It gives the
address in two forms: a conninfo string and the PG* variables. Never holds a password: TCP names a
password file. Starts and stops nothing.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct, field

FORMAT = 1
_VARIABLES = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "dbname": "PGDATABASE",
    "passfile": "PGPASSFILE",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
}


class Transport(StrEnum):
    SOCKET = "socket"
    TCP = "tcp"


class ServerRecord(Struct, frozen=True):
    """One managed server. `pid` is the postmaster's, 0 while it is starting."""

    name: str
    version: str
    major: int
    bin: Path
    socket_dir: Path
    port: int
    data_dir: Path
    pid: int
    owner_pid: int
    stays: bool
    superuser: str = "postgres"
    tcp_host: str | None = None
    password_file: Path | None = None
    certificate: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def keywords(
        self, dbname: str = "postgres", transport: Transport = Transport.SOCKET
    ) -> dict[str, str]:
        """The address as libpq's keywords; TCP with TLS that is fully verified, or without TLS."""
        words = {
            "host": self.host(transport),
            "port": str(self.port),
            "user": self.superuser,
            "dbname": dbname,
        }
        if transport is Transport.SOCKET:
            return words
        words["passfile"] = str(self.password_file)
        if self.certificate is None:
            return words | {"sslmode": "disable"}
        return words | {"sslmode": "verify-full", "sslrootcert": str(self.certificate)}

    def dsn(self, dbname: str = "postgres", transport: Transport = Transport.SOCKET) -> str:
        words = self.keywords(dbname, transport)
        return " ".join(f"{word}={quoted(value)}" for word, value in words.items())

    def environment(
        self, dbname: str = "postgres", transport: Transport = Transport.SOCKET
    ) -> dict[str, str]:
        words = self.keywords(dbname, transport)
        return {_VARIABLES[word]: value for word, value in words.items()}

    def host(self, transport: Transport) -> str:
        """The host for clients on this machine; ValueError for TCP if the server has none."""
        if transport is Transport.SOCKET:
            return str(self.socket_dir)
        if self.tcp_host is None:
            raise ValueError(f"server {self.name} was started without TCP")
        return self.tcp_host


def quoted(value: str) -> str:
    """A value of a conninfo string, quoted where libpq needs it."""
    if value and not any(c.isspace() or c in "'\\" for c in value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def to_json(record: ServerRecord) -> str:
    values = as_values(record) | {"settings": dict(record.settings)}
    return json.dumps({"format": FORMAT, **values}, default=str, indent=1) + "\n"


def from_json(text: str) -> ServerRecord | None:
    """The record in a file's text; None for an incomplete one or another format."""
    try:
        values: dict[str, Any] = json.loads(text)
        if values.pop("format") != FORMAT:
            return None
        for key in ("bin", "socket_dir", "data_dir", "password_file", "certificate"):
            values[key] = None if values.get(key) is None else Path(values[key])
        return ServerRecord(**values)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def as_values(record: ServerRecord) -> dict[str, Any]:
    """The fields of a record by name, without the fields of subclasses."""
    return {name: getattr(record, name) for name in ServerRecord.__struct_fields__}
