"""Runs a workload's SQL files through psql, so that they may use everything that psql has.

And pg_dump into pg_restore. Knows what to call them with and how to end them; nothing of ownership,
load and results.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from pgpaces.errors import PrepareError, ServerError, TrustError
from pgpaces.workload import InitStep

Say = Callable[[str], None]
_TAIL_LINES = 12
_RESTRICT = "\\restrict"
# Files, which libpq looks for from the folder that a program runs in.
_FILES = ("sslrootcert", "sslcert", "sslkey", "passfile")


class Way(Struct, frozen=True):
    """How to get there: the program, libpq keywords (the password among them), the database."""

    program: Path
    keywords: Mapping[str, str]
    dbname: str

    def __repr__(self) -> str:
        """Without the password."""
        return f"Way({self.program}, {self.dbname})"


def run(
    way: Way, step: InitStep, variables: Mapping[str, str], progress: Say, *, trusted: bool = True
) -> None:
    """Runs a file in its folder. progress: is told every few seconds how long it has taken.

    trusted: psql obeys the commands of its own that are in the file, which execute programs and
    read files. Raises PrepareError with psql's last lines, TrustError where it may not obey.
    """
    # Not by the PATH, nor from the file's folder: that may be anybody's.
    words = [str(way.program.absolute()), "-X", "-q", "-v", "ON_ERROR_STOP=1"]
    for name, value in variables.items():
        words += ["-v", f"{name}={value}"]
    if not trusted:
        _check_restricts(way.program)
        words += ["-c", f"{_RESTRICT} {secrets.token_hex(16)}"]
    words += ["-f", f"./{step.path.name}"]
    with environment(way) as given:
        code, errors = _run(words, step.path.parent, given, progress)
    if code != 0:
        tail = "\n".join(errors.strip().splitlines()[-_TAIL_LINES:])
        # In whatever language psql says it, it names the command that it would take.
        if not trusted and "\\unrestrict" in tail:
            raise TrustError(
                f"{step.name} has commands of psql, which may execute programs, and the workload's"
                f" folder was not confirmed:\n{tail}",
                "read them; if you trust the folder, say --trust (in Python: trust=True)",
            )
        raise PrepareError(
            f"making the data failed in {step.name}:\n{tail}",
            "mend the file and run again: what was made so far is thrown away",
        )


def _check_restricts(program: Path) -> None:
    """Raises TrustError where this psql cannot be kept from obeying the commands in a file."""
    if not _restricts(program.absolute()):
        raise TrustError(
            f"{program} does not know {_RESTRICT}, without which SQL of a folder that was not"
            " confirmed may execute programs",
            "install the newest psql of its version (13.22, 14.19, 15.14, 16.10, 17.6 or later);"
            " or if you trust the folder, say --trust (in Python: trust=True)",
        )


@functools.lru_cache(maxsize=8)
def _restricts(program: Path) -> bool:
    """Whether this psql knows it: some got it in a release that fixes errors only."""
    try:
        done = subprocess.run(
            [program, "--help=commands"], env=_not_of_libpq(), capture_output=True, text=True,
            timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return _RESTRICT in done.stdout


def _run(words: list[str], folder: Path, given: Environment, progress: Say) -> tuple[int, str]:
    """psql's exit code and what it said; tells every few seconds that it still runs."""
    started = time.monotonic()
    with subprocess.Popen(
        words,
        cwd=folder,
        env=given.variables,
        pass_fds=given.files,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as psql:
        try:
            while True:
                try:
                    _, errors = psql.communicate(timeout=5)
                    break
                except subprocess.TimeoutExpired:
                    progress(f"{time.monotonic() - started:.0f} s")
        except BaseException:
            # So that psql cancels what the server is doing for it.
            _interrupt(psql)
            raise
    return psql.returncode, errors


_VARIABLES = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "user": "PGUSER",
    "options": "PGOPTIONS",
    "sslmode": "PGSSLMODE",
    "sslnegotiation": "PGSSLNEGOTIATION",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslcertmode": "PGSSLCERTMODE",
    "sslsni": "PGSSLSNI",
    "ssl_min_protocol_version": "PGSSLMINPROTOCOLVERSION",
    "ssl_max_protocol_version": "PGSSLMAXPROTOCOLVERSION",
    "gssencmode": "PGGSSENCMODE",
    "require_auth": "PGREQUIREAUTH",
    "channel_binding": "PGCHANNELBINDING",
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "passfile": "PGPASSFILE",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
    "load_balance_hosts": "PGLOADBALANCEHOSTS",
}


class Environment(Struct, frozen=True):
    """What psql is given: variables, and the descriptors of open files."""

    variables: dict[str, str]
    files: tuple[int, ...] = ()


@contextlib.contextmanager
def environment(way: Way) -> Iterator[Environment]:
    """The variables for a program; a password goes through a private file, never through them.

    Where the system can do that the file has no name, so that not even kill -9 leaves it behind.
    """
    variables = _not_of_libpq()
    keywords = {k: _absolute(v) if k in _FILES else v for k, v in way.keywords.items()}
    variables |= {_VARIABLES[k]: v for k, v in keywords.items() if k in _VARIABLES}
    variables |= {
        "PGDATABASE": way.dbname,
        "PGAPPNAME": "pgpaces init",
        "PGCLIENTENCODING": "UTF8",
    }
    password = way.keywords.get("password")
    if password is None:
        yield Environment(variables)
        return
    escaped = password.replace("\\", "\\\\").replace(":", "\\:")
    line = f"*:*:*:*:{escaped}\n".encode()
    nameless = Path("/proc/self/fd").is_dir()
    make = tempfile.TemporaryFile if nameless else tempfile.NamedTemporaryFile
    with make(prefix="pgpaces-") as file:
        file.write(line)
        file.flush()
        # libpq takes no file that others may read, whatever our umask was.
        os.fchmod(file.fileno(), 0o600)
        name = f"/proc/self/fd/{file.fileno()}" if nameless else file.name
        files = (file.fileno(),) if nameless else ()
        yield Environment(variables | {"PGPASSFILE": str(name)}, files)


def _not_of_libpq() -> dict[str, str]:
    """Our variables without those that libpq reads, of which one may be a password."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PG")}


def _absolute(file: str) -> str:
    """A file by its whole path; what names none stays."""
    return str(Path(file).absolute()) if file and file != "system" else file


def find(preferred: Path | None, candidates: list[Path]) -> Path:
    """psql: the server's own if given, else the one on the PATH, else any of `candidates`.

    Raises ServerError where there is none.
    """
    if preferred is not None:
        return preferred
    on_path = shutil.which("psql")
    if on_path is not None:
        return Path(on_path)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ServerError("psql is not on this machine", "install it (Debian: postgresql-client)")


def dump_programs(program: Path, folders: Sequence[Path], major: int) -> tuple[Path, Path]:
    """pg_dump and pg_restore of one version, the oldest that knows a server of this major.

    The oldest, because newer ones write what older servers do not understand. program: psql, beside
    which they may be. Raises ServerError where there are none.
    """
    on_path = shutil.which("pg_dump")
    places = [program.parent, *folders, *([Path(on_path).parent] if on_path else [])]
    found: dict[Path, int] = {}
    for folder in dict.fromkeys(places):
        if (folder / "pg_restore").is_file() and (known := _major(folder / "pg_dump")) is not None:
            found[folder] = known
    new_enough = [folder for folder in found if found[folder] >= major]
    if not new_enough:
        versions = ", ".join(sorted({str(known) for known in found.values()})) or "none"
        raise ServerError(
            f"copying from PostgreSQL {major} takes a pg_dump that is not older; found: {versions}",
            f"install it (Debian: postgresql-client-{major})",
        )
    folder = min(new_enough, key=lambda folder: found[folder])
    return folder / "pg_dump", folder / "pg_restore"


def _major(program: Path) -> int | None:
    """The major version that a program says it is of; None where it does not run."""
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\(PostgreSQL\) (\d+)", done.stdout)
    return int(found[1]) if found else None


def pipe(source: Way, target: Way, progress: Callable[[float], None]) -> None:
    """pg_dump of one database into pg_restore of another; owners and grants are not taken along.

    progress: is called every few seconds with how long it has taken. Raises PrepareError.
    """
    started = time.monotonic()
    shared = ["--no-owner", "--no-privileges", "--no-tablespaces", "--no-publications"]
    dump = [str(source.program), "--format=custom", "--compress=0", "--no-subscriptions", *shared]
    restore = [str(target.program), "--exit-on-error", *shared, "--dbname", _quoted(target.dbname)]
    with (
        environment(source) as from_there,
        environment(target) as to_here,
        tempfile.TemporaryFile() as dump_said,
        tempfile.TemporaryFile() as restore_said,
        _ended(dump, from_there, stdout=subprocess.PIPE, stderr=dump_said) as first,
        _ended(restore, to_here, stdin=first.stdout, stderr=restore_said) as second,
    ):
        # So that pg_dump hears of it when pg_restore ends.
        if first.stdout is not None:
            first.stdout.close()
        while first.poll() is None or second.poll() is None:
            try:
                (first if first.poll() is None else second).wait(timeout=5)
            except subprocess.TimeoutExpired:
                progress(time.monotonic() - started)
        if first.returncode or second.returncode:
            # Where one fails the other does too, for want of it; the first cause says more.
            tails = [_tail(dump_said), _tail(restore_said)]
            raise PrepareError(
                f"copying {source.dbname} failed:\n" + "\n".join(filter(None, tails)),
                "what was copied so far is thrown away",
            )


@contextlib.contextmanager
def _ended(words: list[str], given: Environment, **more: Any) -> Iterator[subprocess.Popen[Any]]:
    """A program that does not outlive this; interrupted, so that it cancels what it asked for.

    A dump is in the encoding of its database, as there may be bytes in it that are not UTF-8.
    """
    more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL} | more
    variables = {k: v for k, v in given.variables.items() if k != "PGCLIENTENCODING"}
    with subprocess.Popen(words, env=variables, pass_fds=given.files, **more) as program:
        try:
            yield program
        except BaseException:
            _interrupt(program)
            raise


def _interrupt(program: subprocess.Popen[Any]) -> None:
    program.send_signal(signal.SIGINT)
    try:
        program.wait(timeout=5)
    except subprocess.TimeoutExpired:
        program.kill()


def _tail(file: IO[bytes]) -> str:
    """The last lines that a program said."""
    file.seek(0)
    lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return "\n".join(lines[-_TAIL_LINES:])


def _quoted(dbname: str) -> str:
    """A name as a connection string, which a name with a `=` would be taken for."""
    return "dbname='" + dbname.replace("\\", "\\\\").replace("'", "\\'") + "'"
