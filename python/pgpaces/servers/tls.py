"""TLS of managed servers: a certificate made at each start, and which builds can use one.

The certificate is its own authority, so clients verify it in full (`verify-full`). Knows nothing
of who connects.
"""

import ipaddress
import os
import subprocess
from pathlib import Path

from pgpaces.errors import PlanError, ServerError
from pgpaces.servers import libraries
from pgpaces.servers.binaries import Installation, Source, installations, server_environment
from pgpaces.servers.os_user import OsUser, give

CERTIFICATE = "tls.crt"
KEY = "tls.key"
OURS = ("ssl", "ssl_cert_file", "ssl_key_file")
DAYS = 3650
MINIMUM = "TLSv1.2"
MINIMUM_SINCE = 12  # older servers take TLS 1.0 too, and cannot be told otherwise


def has_tls(installation: Installation) -> bool:
    """Whether the build has TLS, as far as that can be told without starting it."""
    if installation.source is Source.EMBEDDED:
        return False
    return libraries.needs(installation.program("postgres"), "libssl") is not False


def check(installation: Installation) -> None:
    """Raises PlanError for a build without TLS, naming those that have it."""
    if has_tls(installation):
        return
    major = installation.series
    here = ", ".join(f"{i.version} ({i.source})" for i in installations() if has_tls(i))
    raise PlanError(
        f"PostgreSQL {installation.version} ({installation.source}) was built without TLS",
        f"here with TLS: {here or 'none'}; packages have it: --server package:{major}",
    )


def settings(major: int, folder: Path) -> dict[str, str]:
    """What a server is started with to offer TLS; a minimum that is asked for goes before ours."""
    ours = {
        "ssl": "on",
        "ssl_cert_file": str(folder / CERTIFICATE),
        "ssl_key_file": str(folder / KEY),
    }
    if major >= MINIMUM_SINCE:
        ours["ssl_min_protocol_version"] = MINIMUM
    return ours


def make_certificate(folder: Path, host: str, os_user: OsUser | None) -> Path:
    """A fresh certificate for `host` and this machine's loopback, its key for the server alone.

    An elliptic key (P-256), as public authorities give them: an RSA key would make connecting
    slower. Raises ServerError where there is no openssl.
    """
    certificate, key = folder / CERTIFICATE, folder / KEY
    for path in (certificate, key):
        path.unlink(missing_ok=True)
    os.close(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-sha256", "-days", str(DAYS), "-subj", f"/CN={host}"]
    words += ["-addext", f"subjectAltName={_names(host)}"]
    words += ["-keyout", str(key), "-out", str(certificate)]
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=server_environment(),
            check=False,
        )
    except OSError as error:
        raise ServerError(
            f"the certificate for TLS is made by the program openssl, which cannot be run: {error}",
            "install it (on Debian: apt-get install openssl), or leave out --tls",
        ) from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise ServerError(f"openssl made no certificate: {said[-1] if said else 'it says nothing'}")
    certificate.chmod(0o644)
    give(key, os_user)
    return certificate


def _names(host: str) -> str:
    """Who the certificate is for, as OpenSSL writes it."""
    # No localhost: psql before 15 knows addresses from the subject alone, and that only where no
    # name of a host is here.
    loopback = {"IP:127.0.0.1": None, "IP:::1": None}
    try:
        named = {f"IP:{ipaddress.ip_address(host)}": None}
    except ValueError:
        named = {f"DNS:{host}": None}
    return ",".join(named | loopback)
