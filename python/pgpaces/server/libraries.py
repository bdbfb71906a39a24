"""Shared libraries that a program needs and the system lacks, and the packages with them.

Runs ldd, which starts the program's loader and not the program. Downloads nothing.
"""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from pgpaces.server.binaries import output_of

# Prefix of the library's name: package of Debian 12; Ubuntu's differ by a suffix at most.
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
    """Names of the libraries that these programs lack; none where there is no ldd."""
    return sorted({name for program in programs for name in _MISSING.findall(_ldd(program))})


def needs(program: Path, library: str) -> bool | None:
    """Whether a program is linked with a library such as "libssl"; None where ldd fails."""
    output = _ldd(program)
    if "=>" not in output:
        return None
    return re.search(rf"^\s*{re.escape(library)}[.-]", output, re.MULTILINE) is not None


def has_jit(prefix: Path) -> bool:
    folders = ("lib", "lib/postgresql", "lib64", "lib64/postgresql")
    return any(any((prefix / folder).glob("llvmjit.*")) for folder in folders)


def _ldd(program: Path) -> str:
    ldd = shutil.which("ldd")
    if ldd is None or not program.is_file():
        return ""
    return output_of(ldd, program, timeout_s=_LDD_TIMEOUT_S)
