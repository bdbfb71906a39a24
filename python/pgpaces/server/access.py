"""Client authentication of a managed server: the private socket, and TCP with a password.

The socket needs no password because only its owner can enter its folder. TCP is optional and
always has a password: a new one at every start, in a file that only its owner can read. A server
with TLS refuses TCP without it.
Standbys stream over the same socket. Starts no server.
"""

import os
import secrets
import socket
from pathlib import Path

from pgpaces.server.record import ServerRecord

DEFAULT_PORT, TCP_HOST = 5432, "127.0.0.1"
RULES = """\
# pgpaces writes this file at every start. The socket lies in a private folder.
local all         all     trust
local replication all     trust
{kind} all         all all {method}
{kind} replication all all {method}
"""
SCRAM_SINCE = 10


def choose_port(*, tcp: bool) -> int:
    """A free TCP port of this machine; 5432 without TCP: the socket's directory is private."""
    if not tcp:
        return DEFAULT_PORT
    with socket.socket() as probe:
        probe.bind((TCP_HOST, 0))
        return int(probe.getsockname()[1])


def write_rules(path: Path, major: int, *, tls: bool) -> None:
    """Write a pg_hba.conf that the server's user can read. tls: TCP is refused without it."""
    path.write_text(RULES.format(kind="hostssl" if tls else "host", method=_method(major)))
    path.chmod(0o644)


def _method(major: int) -> str:
    return "scram-sha-256" if major >= SCRAM_SINCE else "md5"


def set_password(record: ServerRecord) -> None:
    """Give the superuser a new password; only its verifier is sent to the server."""
    from psycopg import sql

    from pgpaces.core import sessions

    password = secrets.token_urlsafe(24)
    if record.password_file is not None:
        record.password_file.unlink(missing_ok=True)
        descriptor = os.open(record.password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"*:*:*:{record.superuser}:{password}\n")
    with (
        sessions.errors("cannot-set-password"),
        sessions.connect(record.keywords(), "pgpaces admin") as connection,
    ):
        verifier = connection.pgconn.encrypt_password(
            password.encode(), record.superuser.encode(), _method(record.major).encode()
        )
        role, secret = sessions.Identifier(record.superuser), sql.Literal(verifier.decode())
        connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(role, secret))
