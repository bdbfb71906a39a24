"""Which libraries of the system a program needs and does not find, and who has them.

Asks ldd, which runs the program's loader and not the program. Knows nothing of packages.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from pgpaces.servers.binaries import server_environment

# By the beginning of the library's name: Debian 12's package; Ubuntu's differ by a suffix at most.
DEBIAN = {
    "libxml2.": "libxml2",
    "libssl.so.3": "libssl3",
    "libcrypto.so.3": "libssl3",
    "libgssapi_krb5.": "libgssapi-krb5-2",
    "libkrb5.": "libkrb5-3",
    "liblz4.": "liblz4-1",
    "libzstd.": "libzstd1",
    "libxslt.": "libxslt1.1",
    "libossp-uuid.": "libossp-uuid16",
    "libuuid.": "libuuid1",
    "libreadline.so.8": "libreadline8",
    "libldap": "libldap-2.5-0",
    "libz.so": "zlib1g",
    "libcurl.": "libcurl4",
    "liburing.": "liburing2",
    "libnuma.": "libnuma1",
}
ZONES = Path("/usr/share/zoneinfo")
_LDD_TIMEOUT_S = 20.0
_MISSING = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)


def missing(programs: Iterable[Path]) -> list[str]:
    """Names of libraries that these programs do not find; none where there is no ldd."""
    found: dict[str, None] = {}
    for program in programs:
        found |= dict.fromkeys(_MISSING.findall(_ldd(program)))
    return sorted(found)


def needs(program: Path, library: str) -> bool | None:
    """Whether a program is linked with a library such as "libssl"; None where ldd cannot say."""
    said = _ldd(program)
    if "=>" not in said:
        return None
    return re.search(rf"^\s*{re.escape(library)}[.-]", said, re.MULTILINE) is not None


def has_jit(prefix: Path) -> bool:
    """Whether an installation can compile queries: it has the library that does."""
    folders = ("lib", "lib/postgresql", "lib64", "lib64/postgresql")
    return any(any((prefix / folder).glob("llvmjit.*")) for folder in folders)


def packages_of(libraries: Iterable[str]) -> list[str]:
    """Debian's packages that have them, as far as they are known."""
    found: dict[str, None] = {}
    for library in libraries:
        names = (package for start, package in DEBIAN.items() if library.startswith(start))
        found |= dict.fromkeys(names)
    return list(found)


def _ldd(program: Path) -> str:
    ldd = shutil.which("ldd")
    if ldd is None or not program.is_file():
        return ""
    try:
        done = subprocess.run(
            [ldd, str(program)],
            capture_output=True,
            text=True,
            timeout=_LDD_TIMEOUT_S,
            env=server_environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
