"""Client authentication of a managed server: the private socket, TCP with a password, and TLS.

The socket needs no password because only its owner can enter its folder. TCP is optional and
always has a password: a new one at every start, in a file that only its owner can read. A server
with TLS refuses TCP without it. Its certificate is made at each start and self-signed, so clients
can verify it in full (`verify-full`). Standbys stream over the same socket.
"""

import ipaddress
import os
import secrets
import socket
from pathlib import Path

from pgpaces.core.errors import PlanError, ServerError
from pgpaces.server import binaries
from pgpaces.server.binaries import Installation, Source, installations, run
from pgpaces.server.folder import CERTIFICATE, KEY, ServerRecord
from pgpaces.server.os_user import OsUser, give

DEFAULT_PORT, TCP_HOST = 5432, "127.0.0.1"
RULES = """\
# pgpaces writes this file at every start. The socket lies in a private folder.
local all         all     trust
local replication all     trust
{kind} all         all all {method}
{kind} replication all all {method}
"""
SCRAM_SINCE = 10
TLS_SETTINGS = ("ssl", "ssl_cert_file", "ssl_key_file")
DAYS = 3650
MINIMUM = "TLSv1.2"
MINIMUM_SINCE = 12  # older servers accept TLS 1.0 too, and have no setting against it


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


def has_tls(installation: Installation) -> bool:
    if installation.source is Source.EMBEDDED:
        return False
    return binaries.is_linked_with(installation.program("postgres"), "libssl") is not False


def check_tls(installation: Installation) -> None:
    """Raises PlanError for a build without TLS, naming builds with it."""
    if has_tls(installation):
        return
    here = ", ".join(f"{i.version} ({i.source})" for i in installations() if has_tls(i))
    values = {"version": installation.version, "series": installation.series, "others": here}
    raise PlanError("built-without-tls", source=installation.source, **values)


def tls_settings(major: int, folder: Path) -> dict[str, str]:
    """The settings of a server with TLS; the user may set another minimum version."""
    values = {
        "ssl": "on",
        "ssl_cert_file": str(folder / CERTIFICATE),
        "ssl_key_file": str(folder / KEY),
    }
    if major >= MINIMUM_SINCE:
        values["ssl_min_protocol_version"] = MINIMUM
    return values


def make_certificate(folder: Path, host: str, os_user: OsUser | None) -> Path:
    """A new certificate for `host` and the loopback addresses; only the server can read its key.

    The key is on the curve P-256, as public authorities issue them: with an RSA key, connecting
    would be slower. Raises ServerError where there is no openssl.
    """
    certificate, key = folder / CERTIFICATE, folder / KEY
    for path in (certificate, key):
        path.unlink(missing_ok=True)
    os.close(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-sha256", "-days", str(DAYS), "-subj", f"/CN={host}"]
    # No localhost: psql before 15 matches addresses with the subject only, and only where there is
    # no DNS name.
    try:
        name = f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        name = f"DNS:{host}"
    names = ",".join(dict.fromkeys((name, "IP:127.0.0.1", "IP:::1")))
    words += ["-addext", f"subjectAltName={names}"]
    words += ["-keyout", str(key), "-out", str(certificate)]
    try:
        done = run(words)
    except OSError as error:
        raise ServerError("openssl-missing", why=str(error)) from error
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise ServerError("program-failed", program="openssl", why=why)
    certificate.chmod(0o644)
    give(key, os_user)
    return certificate
