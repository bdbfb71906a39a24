"""Runs initdb and pg_basebackup, starts and ends one PostgreSQL process, and names its errors.

Its parent is a supervisor, which ends it when pgpaces ends, for whatever reason.
"""

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pgpaces.core.errors import ServerError
from pgpaces.core.messages import message
from pgpaces.core.texts import Say
from pgpaces.server.binaries import Installation, run
from pgpaces.server.os_user import OsUser, make_private_folder, options_of
from pgpaces.server.supervisor import Order, Supervisor

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
# Every copy of a primary has one of these, also an incomplete one; the last one also when promoted.
OF_COPIES = ("standby.signal", "recovery.conf", "backup_label", "pgpaces.standby")
SILENCE_S_MAX = 60.0  # longest time without a new line in the log before a start has failed
PATIENCE_S = 3.0  # after it, report the last line of the log: recovery can take minutes
POLL_S = 0.01
END_S_MAX = 90.0  # longer than the worst case of the signals below
CLEAN_S = 60.0  # for the checkpoint of a fast shutdown, while pgpaces waits
FAST_S = 3.0  # for the same after the end of pgpaces
IMMEDIATE_S = 8.0


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


def service(
    argv: tuple[str, ...],
    os_user: OsUser | None,
    *,
    lock: int,
    stays: bool = False,
    ending: signal.Signals = signal.SIGINT,
) -> Order:
    """The order to run PostgreSQL or a pooler. ending: the signal for a clean shutdown.

    It inherits the lock and holds it as long as it runs.
    """
    return Order(
        words=argv,
        files=(lock,),
        user=options_of(os_user),
        # PostgreSQL itself kills its children 5 s after SIGQUIT.
        ending=((ending, CLEAN_S), (signal.SIGQUIT, IMMEDIATE_S)),
        hurry=((ending, FAST_S), (signal.SIGQUIT, IMMEDIATE_S)),
        death=None if stays else ending,
        service=True,
    )


class Postmaster:
    """A running service. remove: files and folders that are removed when it has ended."""

    def __init__(self, order: Order, log: Path, remove: Iterable[Path]) -> None:
        self.pid = 0
        self._say: Say = lambda _: None
        self._log = log
        with log.open("ab") as log_file:
            self._supervisor = Supervisor(remove, order.files, log_file)
        self._supervisor.send(order)

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
            if (answer := self._supervisor.read(POLL_S)) is not None:
                self.pid = answer.get("pid", self.pid)
                if not answer or "done_ns" in answer:
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
        self._supervisor.send("leave")
        self._finish()

    def stop(self) -> None:
        """Shut the server down cleanly; return when it has ended and its files are removed."""
        self._supervisor.send("stop")
        self._finish()

    def end(self) -> None:
        """End the server within seconds, as the end of pgpaces would."""
        self._supervisor.close()
        self._finish()

    def _finish(self) -> None:
        process = self._supervisor.process
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            values = {"line": last_lines(self._log_text(), 1), "pid": self.pid}
            self._say(message("server-ending", wait_s=END_S_MAX - PATIENCE_S, **values))
            try:
                process.wait(END_S_MAX - PATIENCE_S)
            except subprocess.TimeoutExpired as error:
                raise ServerError("process-does-not-end", pid=self.pid) from error
        self._supervisor.close()

    def _log_text(self) -> str:
        return self._log.read_text(errors="replace")
