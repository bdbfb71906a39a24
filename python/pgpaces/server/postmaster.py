"""Runs initdb and pg_basebackup, starts and ends one PostgreSQL process, and names its errors.

The parent of PostgreSQL is supervise.py. pgpaces holds the other end of its standard input; when
pgpaces ends, for whatever reason, supervise.py ends the server.
"""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from pgpaces.core.errors import ServerError
from pgpaces.core.messages import message
from pgpaces.core.texts import Say
from pgpaces.server.binaries import Installation, run, server_environment
from pgpaces.server.os_user import OsUser, make_private_folder, options_of

LINES_SHOWN = 5
# The name of an error, and what PostgreSQL writes; its groups are values of the error. The first
# that matches anywhere in the output wins, so causes precede their consequences.
_CAUSES = {
    "disk-full": r"No space left on device|Disk quota exceeded",
    "permission-denied": r"Permission denied",
    "read-only-disk": r"Read-only file system",
    "data-of-other-build": r"unrecognized configuration parameter \"[^\"]+\" in file"
    r"|database files are incompatible with server",
    "no-such-setting": r"unrecognized configuration parameter \"(?P<setting>[^\"]+)\"",
    "bad-value-of-setting": (
        r"(?:invalid value for|valid range for|FATAL: ) *parameter \"(?P<setting>[^\"]+)\""
    ),
    "no-such-module": r"could not (?:access file|load library) \"(?P<library>[^\"]+)\"",
    "memory-too-small": (
        r"could not map anonymous shared memory|could not create shared memory segment"
    ),
    "port-in-use": r"could not (?:bind|create listen socket)[^\n]*Address already in use",
    "data-used-by-process": (
        r"lock file \"postmaster\.pid\" already exists"
        r"[\s\S]*\(PID (?P<pid>\d+)\)[^\"]*\"(?P<folder>[^\"]+)\""
    ),
    "data-used-by-earlier-server": r"pre-existing shared memory block",
    "data-of-other-user": r"has wrong ownership",
    "data-permissions": r"has invalid permissions",
    "library-missing": r"error while loading shared libraries: (?P<library>\S+):",
    "data-damaged": r"could not locate a valid checkpoint record|PANIC:",
}
_OF_DATA = ("data-of-other-build", "data-of-other-user", "data-permissions", "data-damaged")

_PREFIX = re.compile(r"^.*?(?=\b(?:FATAL|PANIC|LOG|DETAIL|HINT): )")
_FATAL = re.compile(
    r"\b(?:FATAL|PANIC):(?!\s*the database system is)"
    r"|^\S*(?:initdb|postgres)\S*: (?:error: )?(?!warning)"
)
_REASON = re.compile(r"\bLOG: +could not |\bDETAIL: |\bHINT: +(?:Available|Valid|Value)")
SUPERUSER = "postgres"
# Every copy of a primary has one of these, also an incomplete one.
OF_COPIES = ("standby.signal", "recovery.conf", "backup_label")
SILENCE_S_MAX = 60.0  # longest time without a new line in the log before a start has failed
PATIENCE_S = 3.0  # after it, report the last line of the log: recovery can take minutes
POLL_S = 0.01
END_S_MAX = 90.0  # longer than the worst case of supervise.py
_open_pipes: "weakref.WeakSet[IO[bytes]]" = weakref.WeakSet()


def refusal(program: str, output: str, place: Path, *, data: Path | None) -> ServerError:
    """The error of a program that failed, with PostgreSQL's own line.

    output: all of it. place: the file with it, or the folder that it should fill. data: the folder
    of the server's data.
    """
    values = {"program": program, "why": reason(output)}
    for name, pattern in _CAUSES.items():
        if match := re.search(pattern, output):
            own = match.groupdict() | ({"data": data} if name in _OF_DATA else {})
            return ServerError(name, **values, **own).at(str(place))
    return ServerError("program-failed", **values).at(str(place))


def reason(output: str) -> str:
    """The fatal line with the line that explains it; without a fatal line the last lines."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    fatal = next((line for line in lines if _FATAL.search(line)), None)
    if fatal is None:
        return last_lines(output)
    detail = next((f" ({_bare(line)})" for line in lines if _REASON.search(line)), "")
    return _bare(fatal) + detail


def last_lines(output: str, count: int = LINES_SHOWN) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " | ".join(lines[-count:]) or "it wrote nothing"


def _bare(line: str) -> str:
    return _PREFIX.sub("", line).replace(":  ", ": ", 1)


def _close_after_fork() -> None:
    """Close the pipes in a forked child, which may outlive pgpaces."""
    for pipe in list(_open_pipes):
        pipe.close()


os.register_at_fork(after_in_child=_close_after_fork)


def initialize(
    installation: Installation, data_dir: Path, os_user: OsUser | None, *, lock: int
) -> None:
    """Make a data directory: UTF8, locale C, data checksums on, superuser `postgres`.

    Checksums are explicit because their default is on in 18 and off before, and versions are to
    be compared. The directory gets its name when initdb has completed.
    """
    unfinished = data_dir.with_name(f"{data_dir.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    make_private_folder(unfinished, os_user)
    options = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--data-checksums", "-N")  # no sync
    try:
        words = ("-D", unfinished, "-U", SUPERUSER, *options)
        done = _run(installation.program("initdb"), words, os_user, lock=lock)
        if done.returncode != 0:
            program = f"initdb {installation.version}"
            raise refusal(program, done.stdout, data_dir, data=data_dir)
        unfinished.rename(data_dir)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def copy(
    installation: Installation, dsn: str, data_dir: Path, *, os_user: OsUser | None, lock: int
) -> None:
    """Make a standby's data directory: a copy of a running server's, which streams from it.

    dsn: the conninfo of that server, without a password. The directory of an earlier copy is
    removed. Raises ServerError where there is that of another server.
    """
    is_copy = any((data_dir / name).exists() for name in OF_COPIES)
    if (data_dir / "PG_VERSION").exists() and not is_copy:
        raise ServerError("data-not-of-standby", path=data_dir)
    shutil.rmtree(data_dir, ignore_errors=True)
    make_private_folder(data_dir, os_user)
    words = ("-D", data_dir, "-d", dsn, "-R", "-X", "stream", "-c", "fast", "-N")  # no sync
    done = _run(installation.program("pg_basebackup"), words, os_user, lock=lock)
    if done.returncode != 0:
        shutil.rmtree(data_dir, ignore_errors=True)
        raise refusal("pg_basebackup", done.stdout, data_dir, data=data_dir)


def _run(
    program: Path, words: Sequence[str | Path], os_user: OsUser | None, *, lock: int
) -> subprocess.CompletedProcess[str]:
    argv, options = [program, *words], options_of(os_user)
    return run(argv, stderr=subprocess.STDOUT, cwd="/", pass_fds=(lock,), **options)


class SupervisorOrder(Struct, frozen=True):
    """The command and user for supervise.py, and the files to remove afterwards.

    ending: the signal for a clean shutdown.
    """

    argv: tuple[str, ...]
    os_user: OsUser | None
    lock: int
    stays: bool
    files: tuple[Path, ...]
    folder: Path
    ending: signal.Signals = signal.SIGINT


class Postmaster:
    def __init__(self, order: SupervisorOrder, log: Path) -> None:
        self.pid = 0
        self._say: Say = lambda _: None
        self._log = log
        self._output = b""
        with log.open("ab") as log_file:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", Path(__file__).with_name("supervise.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                bufsize=0,
                cwd="/",
                env=server_environment(),
                pass_fds=(order.lock,),
                start_new_session=True,
            )
        if self._supervisor.stdin is not None:
            _open_pipes.add(self._supervisor.stdin)
            weakref.finalize(self, self._supervisor.stdin.close)  # a Popen object alone stays alive
        self._send(json.dumps(msgspec.to_builtins(order, enc_hook=str)))

    def wait(
        self, ready: Callable[[], bool], what: str, say: Say, *, data: Path | None = None
    ) -> None:
        """Return when it is ready; ServerError if it ends or hangs.

        say: gets messages about long waits, here and when the server ends. data: its folder.
        """
        self._say = say
        started = quiet_since = time.monotonic()
        size = 0
        while not ready():
            now = time.monotonic()
            if self._has_ended(POLL_S):
                raise refusal(what, self._log_text(), self._log, data=data)
            if (new_size := self._log.stat().st_size) != size:
                size, quiet_since = new_size, now
                if now - started > PATIENCE_S:
                    line = last_lines(self._log_text(), 1)
                    say(message("program-starting", program=what, line=line))
            if now - quiet_since > SILENCE_S_MAX:
                values = {"why": last_lines(self._log_text()), "silence_s": SILENCE_S_MAX}
                raise ServerError("starting-server-silent", program=what, log=self._log, **values)

    def leave(self) -> None:
        """Let the server run on without pgpaces and without a supervisor."""
        self._send("leave")
        self._finish()

    def stop(self) -> None:
        """Shut the server down cleanly; return when it has ended and its files are removed."""
        self._send("stop")
        self._finish()

    def end(self) -> None:
        """End the server within seconds, as the end of pgpaces would."""
        if self._supervisor.stdin is not None:
            self._supervisor.stdin.close()
        self._finish()

    def _send(self, line: str) -> None:
        """Send a line to the supervisor; `_finish` notices if that has ended."""
        if self._supervisor.stdin is None or self._supervisor.stdin.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            self._supervisor.stdin.write(f"{line}\n".encode())

    def _has_ended(self, timeout_s: float) -> bool:
        """Read the supervisor's output: the pid, and whether the server has ended."""
        if self._supervisor.stdout is None:
            return True
        if not select.select([self._supervisor.stdout], [], [], timeout_s)[0]:
            return False
        chunk = os.read(self._supervisor.stdout.fileno(), 4096)
        self._output += chunk
        for line in self._output.decode().splitlines():
            if line.startswith("pid "):
                self.pid = int(line.split()[1])
        return not chunk or b"exit" in self._output

    def _finish(self) -> None:
        try:
            self._supervisor.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            values = {"line": last_lines(self._log_text(), 1), "pid": self.pid}
            self._say(message("server-ending", wait_s=END_S_MAX - PATIENCE_S, **values))
            try:
                self._supervisor.wait(END_S_MAX - PATIENCE_S)
            except subprocess.TimeoutExpired as error:
                raise ServerError("process-does-not-end", pid=self.pid) from error
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe is not None:
                pipe.close()

    def _log_text(self) -> str:
        return self._log.read_text(errors="replace")
