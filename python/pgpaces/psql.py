"""Runs a workload's SQL files through psql, so that they may use everything that psql has.

Knows what to call it with and how to end it; nothing of marks, load and results.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgpaces.errors import PrepareError, ServerError
from pgpaces.workload import InitStep

Say = Callable[[str], None]
_TAIL_LINES = 12


@dataclass(frozen=True, slots=True)
class Way:
    """How to get there: the program, libpq keywords (the password among them), the database."""

    program: Path
    keywords: Mapping[str, str]
    dbname: str

    def __repr__(self) -> str:
        """Without the password."""
        return f"Way({self.program}, {self.dbname})"


def run(way: Way, steps: Sequence[InitStep], variables: Mapping[str, int], say: Say) -> None:
    """Runs the files one after the other. Raises PrepareError with psql's last lines."""
    with _environment(way) as environment:
        for number, step in enumerate(steps, 1):
            words = [str(way.program), "-X", "-q", "-v", "ON_ERROR_STOP=1"]
            for name, value in variables.items():
                words += ["-v", f"{name}={value}"]
            what = f"{step.name} ({number} of {len(steps)})"
            say(what)
            code, errors = _run([*words, "-f", str(step.path)], environment, what, say)
            if code != 0:
                tail = "\n".join(errors.strip().splitlines()[-_TAIL_LINES:])
                raise PrepareError(
                    f"making the data failed in {step.name}:\n{tail}",
                    "mend the file and run again: what was made so far is thrown away",
                )


def _run(words: list[str], environment: _Environment, what: str, say: Say) -> tuple[int, str]:
    """psql's exit code and what it said; tells every few seconds that it still runs."""
    started = time.monotonic()
    with subprocess.Popen(
        words,
        env=environment.variables,
        pass_fds=environment.files,
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
                    say(f"{what}, {time.monotonic() - started:.0f} s")
        except BaseException:
            # So that psql cancels what the server is doing for it.
            psql.send_signal(signal.SIGINT)
            try:
                psql.wait(timeout=5)
            except subprocess.TimeoutExpired:
                psql.kill()
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


@dataclass(frozen=True, slots=True)
class _Environment:
    """What psql is given: variables, and the descriptors of open files."""

    variables: dict[str, str]
    files: tuple[int, ...] = ()


@contextlib.contextmanager
def _environment(way: Way) -> Iterator[_Environment]:
    """The variables for psql; a password goes through a private file, never through them.

    Where the system can do that the file has no name, so that not even kill -9 leaves it behind.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    environment |= {_VARIABLES[k]: v for k, v in way.keywords.items() if k in _VARIABLES}
    environment |= {
        "PGDATABASE": way.dbname,
        "PGAPPNAME": "pgpaces init",
        "PGCLIENTENCODING": "UTF8",
    }
    password = way.keywords.get("password")
    if password is None:
        yield _Environment(environment)
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
        yield _Environment(environment | {"PGPASSFILE": str(name)}, files)


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
