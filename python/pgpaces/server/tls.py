"""TLS of managed servers: a certificate made at each start, and which builds can use one.

The certificate is self-signed, so clients can verify it in full (`verify-full`). Knows nothing
of clients.
"""

import ipaddress
import os
from pathlib import Path

from pgpaces.core.errors import PlanError, ServerError
from pgpaces.server import libraries
from pgpaces.server.binaries import Installation, Source, installations, run
from pgpaces.server.os_user import OsUser, give

CERTIFICATE = "tls.crt"
KEY = "tls.key"
RESERVED = ("ssl", "ssl_cert_file", "ssl_key_file")
DAYS = 3650
MINIMUM = "TLSv1.2"
MINIMUM_SINCE = 12  # older servers accept TLS 1.0 too, and have no setting against it


def has_tls(installation: Installation) -> bool:
    if installation.source is Source.EMBEDDED:
        return False
    return libraries.needs(installation.program("postgres"), "libssl") is not False


def check(installation: Installation) -> None:
    """Raises PlanError for a build without TLS, naming builds with it."""
    if has_tls(installation):
        return
    here = ", ".join(f"{i.version} ({i.source})" for i in installations() if has_tls(i))
    raise PlanError(
        "built-without-tls",
        version=installation.version,
        source=installation.source,
        series=installation.series,
        others=here,
    )


def settings(major: int, folder: Path) -> dict[str, str]:
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
