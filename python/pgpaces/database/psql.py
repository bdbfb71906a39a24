"""Runs client programs of libpq: psql for a workload's SQL files, pg_dump into pg_restore."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from psycopg.pq import Conninfo

from pgpaces.core.errors import PrepareError, ServerError, TrustError
from pgpaces.server.binaries import output_of, parse_version, running
from pgpaces.server.folder import quoted
from pgpaces.spec.workload import InitStep

_TAIL_LINES = 24
_RESTRICT = "\\restrict"
# Names of files, which libpq resolves in a program's working directory.
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir", "passfile")


class ClientProgram(Struct, frozen=True):
    """A program of libpq, its connection's keywords (the password among them) and database."""

    program: Path
    keywords: Mapping[str, str]
    dbname: str

    def __repr__(self) -> str:
        return f"ClientProgram({self.program}, {self.dbname})"


def words(
    program: Path, step: InitStep, variables: Mapping[str, str], *, trusted: bool
) -> tuple[str, ...]:
    """The command line of a psql that runs a file, in the file's folder.

    trusted: psql executes the meta-commands in the file, which execute programs and read files.
    Raises TrustError if this psql cannot refuse them.
    """
    # By its absolute path: neither from the PATH nor from the file's folder.
    line = [str(program.absolute()), "-X", "-q", "-v", "ON_ERROR_STOP=1"]
    for name, value in variables.items():
        line += ["-v", f"{name}={value}"]
    if not trusted:
        if not _restricts(program.absolute()):
            raise TrustError("psql-without-restrict", psql=program)
        line += ["-c", f"{_RESTRICT} {secrets.token_hex(16)}"]
    return (*line, "-f", f"./{step.path.name}")


@functools.lru_cache(maxsize=8)
def _restricts(program: Path) -> bool:
    """Whether this psql has \\restrict, which old versions got in a minor release."""
    return _RESTRICT in output_of(program, "--help=commands")


# Variables of libpq by keyword, but for a password and what a service has already given.
_VARIABLES = {
    option.keyword.decode(): option.envvar.decode()
    for option in Conninfo.get_defaults()
    if option.envvar and option.keyword not in (b"password", b"service")
}


class Environment(Struct, frozen=True):
    variables: dict[str, str]
    files: tuple[int, ...] = ()

    def options(self) -> dict[str, Any]:
        return {"env": self.variables, "pass_fds": self.files}


@contextlib.contextmanager
def environment(client: ClientProgram) -> Iterator[Environment]:
    """The environment for a client program; a password is in a private file, in no variable.

    Where the system allows it, the file has no name, so that not even kill -9 leaves it.
    """
    # Without variables of libpq, one of which may be a password.
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    for name, value in client.keywords.items():
        if name in _VARIABLES:
            is_file = name in _FILES and value and value != "system"
            variables[_VARIABLES[name]] = str(Path(value).absolute()) if is_file else value
    variables |= {
        "PGDATABASE": client.dbname,
        "PGAPPNAME": "pgpaces init",
        "PGCLIENTENCODING": "UTF8",
    }
    password = client.keywords.get("password")
    if not password:
        yield Environment(variables)
        return
    escaped = password.replace("\\", "\\\\").replace(":", "\\:")
    line = f"*:*:*:*:{escaped}\n".encode()
    nameless = Path("/proc/self/fd").is_dir()
    make = tempfile.TemporaryFile if nameless else tempfile.NamedTemporaryFile
    with make(prefix="pgpaces-") as file:
        file.write(line)
        file.flush()
        # libpq ignores a password file that others may read, so override the umask.
        os.fchmod(file.fileno(), 0o600)
        name = f"/proc/self/fd/{file.fileno()}" if nameless else file.name
        files = (file.fileno(),) if nameless else ()
        yield Environment(variables | {"PGPASSFILE": str(name)}, files)


def find(preferred: Path | None, candidates: list[Path]) -> Path:
    """psql: the preferred one, else the one on the PATH, else the first of `candidates`.

    Raises ServerError if there is none.
    """
    if preferred is not None:
        return preferred
    on_path = shutil.which("psql")
    if on_path is not None:
        return Path(on_path)
    if existing := next(filter(Path.is_file, candidates), None):
        return existing
    raise ServerError("not-installed", program="psql", package="postgresql-client")


def dump_programs(program: Path, folders: Sequence[Path], major: int) -> tuple[Path, Path]:
    """pg_dump and pg_restore of one version, the oldest that supports a server of this major.

    The oldest, because newer ones write syntax that older servers do not know. program: psql, whose
    folder may have them. Raises ServerError if there are none.
    """
    on_path = shutil.which("pg_dump")
    places = [program.parent, *folders, *([Path(on_path).parent] if on_path else [])]
    majors: dict[Path, int] = {}
    for folder in dict.fromkeys(places):
        if (folder / "pg_restore").is_file():
            version = parse_version(output_of(folder / "pg_dump", "--version"))
            if version:
                majors[folder] = version[1]
    new_enough = [folder for folder in majors if majors[folder] >= major]
    if not new_enough:
        versions = sorted({str(number) for number in majors.values()}) or "none"
        raise ServerError("pg-dump-too-old", major=major, versions=versions)
    folder = min(new_enough, key=lambda folder: majors[folder])
    return folder / "pg_dump", folder / "pg_restore"


def pipe(source: ClientProgram, target: ClientProgram, progress: Callable[[float], None]) -> None:
    """Pipes pg_dump of one database into pg_restore of another, without owners and grants.

    progress: gets the elapsed seconds every few seconds. Raises PrepareError.
    """
    started = time.monotonic()
    shared = ["--no-owner", "--no-privileges", "--no-tablespaces", "--no-publications"]
    dump = [str(source.program), "--format=custom", "--compress=0", "--no-subscriptions", *shared]
    # As a connection string, since a name with `=` would be parsed as one.
    dbname = f"dbname={quoted(target.dbname)}"
    restore = [str(target.program), "--exit-on-error", *shared, "--dbname", dbname]
    with contextlib.ExitStack() as stack:
        dumps, restores = (stack.enter_context(environment(each)) for each in (source, target))
        for process in (dumps, restores):
            # A dump is in the encoding of its database, which may have bytes that are not UTF-8.
            del process.variables["PGCLIENTENCODING"]
        # Of both: if one fails, the other does too, and the cause comes first.
        errors = stack.enter_context(tempfile.TemporaryFile())
        first = stack.enter_context(
            running(dump, **dumps.options(), stdout=subprocess.PIPE, stderr=errors)
        )
        second = stack.enter_context(
            running(restore, **restores.options(), stdin=first.stdout, stderr=errors)
        )
        # So that pg_dump gets SIGPIPE when pg_restore ends.
        if first.stdout is not None:
            first.stdout.close()
        while first.poll() is None or second.poll() is None:
            try:
                (first if first.poll() is None else second).wait(timeout=5)
            except subprocess.TimeoutExpired:
                progress(time.monotonic() - started)
        if first.returncode or second.returncode:
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").strip().splitlines()
            why = "\n".join(lines[-_TAIL_LINES:])
            raise PrepareError("copy-failed", dbname=source.dbname, why=why)
