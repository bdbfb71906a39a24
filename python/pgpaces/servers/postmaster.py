"""One initdb and one start: how a PostgreSQL process of ours comes to be, and how it ends.

The start is a conversation with supervise.py, which is PostgreSQL's parent: we hold the other
end of its standard input, and when we are gone, by whatever death, it ends the server. Knows
nothing of names, records and who may start what: embedded.py decides that.
"""

import contextlib
import json
import os
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

from msgspec import Struct

from pgpaces.errors import ServerError
from pgpaces.servers import failure
from pgpaces.servers.binaries import Installation, server_environment
from pgpaces.servers.folder import is_ready
from pgpaces.servers.os_user import OsUser, make_private_folder, options_of

SUPERUSER = "postgres"
SILENCE_S_MAX = 60.0  # a start is given up when the log has not grown for so long
PATIENCE_S = 3.0  # then say what it is doing: recovery and a checkpoint can take minutes
POLL_S = 0.01
END_S_MAX = 90.0  # longer than supervise.py takes in the worst case

Say = Callable[[str], None]
_held_pipes: "weakref.WeakSet[IO[bytes]]" = weakref.WeakSet()


def _let_go_after_fork() -> None:
    """A forked child must not hold our end of the pipe: it may outlive us."""
    for pipe in list(_held_pipes):
        pipe.close()


os.register_at_fork(after_in_child=_let_go_after_fork)


def initialize(
    installation: Installation, data_dir: Path, os_user: OsUser | None, lock: int
) -> None:
    """Make a data directory: UTF8, locale C, data checksums on, superuser `postgres`.

    Checksums are asked for, because 18 has them on by itself and older ones off, and versions are
    to be compared. It gets its name when it is complete, so an interrupted initdb leaves no half.
    """
    unfinished = data_dir.with_name(f"{data_dir.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    make_private_folder(unfinished, os_user)
    options = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--data-checksums", "-N")  # no sync
    try:
        words = ("-D", unfinished, "-U", SUPERUSER, *options)
        done = _done(installation.program("initdb"), words, os_user, lock)
        if done.returncode != 0:
            raise failure.refusal(
                f"PostgreSQL {installation.version} could not make its data in {data_dir}",
                done.stdout,
            )
        unfinished.rename(data_dir)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def copy(
    installation: Installation, origin: str, data_dir: Path, os_user: OsUser | None, lock: int
) -> None:
    """Make a standby's data directory: all of a running server's, and where it streams from.

    origin: the server's conninfo, without a password. What is there already is removed.
    """
    shutil.rmtree(data_dir, ignore_errors=True)
    make_private_folder(data_dir, os_user)
    words = ("-D", data_dir, "-d", origin, "-R", "-X", "stream", "-c", "fast", "-N")  # no sync
    done = _done(installation.program("pg_basebackup"), words, os_user, lock)
    if done.returncode != 0:
        shutil.rmtree(data_dir, ignore_errors=True)
        raise failure.refusal(f"no standby could be made in {data_dir}", done.stdout)


def _done(
    program: Path, words: Sequence[str | Path], os_user: OsUser | None, lock: int
) -> subprocess.CompletedProcess[str]:
    """A program that was run as the user to its end; it held the lock meanwhile."""
    return subprocess.run(
        [program, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
        env=server_environment(),
        pass_fds=(lock,),
        check=False,
        **options_of(os_user),
    )


class SupervisorOrder(Struct, frozen=True):
    """What supervise.py is told: what to run, as whom, and what to remove afterwards.

    ending: the signal that ends it politely.
    """

    argv: tuple[str, ...]
    os_user: OsUser | None
    lock: int
    stays: bool
    files: tuple[Path, ...]
    folder: Path
    ending: signal.Signals = signal.SIGINT

    def to_json(self) -> str:
        """The order in one line."""
        return json.dumps(
            {
                "argv": self.argv,
                "uid": self.os_user.uid if self.os_user else None,
                "gid": self.os_user.gid if self.os_user else None,
                "lock_fd": self.lock,
                "stays": self.stays,
                "files": [str(path) for path in self.files],
                "folder": str(self.folder),
                "ending": int(self.ending),
            }
        )


class Postmaster:
    """A PostgreSQL server on its way up, running, or ended; and our end of the pipe."""

    def __init__(self, order: SupervisorOrder, log: Path) -> None:
        """Start supervise.py with its order."""
        self.pid = 0
        self._say: Say = lambda _: None
        self._log = log
        self._heard = b""
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
            _held_pipes.add(self._supervisor.stdin)
            weakref.finalize(self, self._supervisor.stdin.close)  # Popen alone would live on
        self._tell(order.to_json())

    def wait_ready(self, data_dir: Path, what: str, say: Say) -> None:
        """Return when the server accepts connections; ServerError if it ends or says nothing."""
        self.wait(lambda: is_ready(data_dir, self.pid), what, say)

    def wait(self, ready: Callable[[], bool], what: str, say: Say) -> None:
        """Return when it is ready; ServerError if it ends or says nothing.

        say: hears of what takes long, here and when the server is to end.
        """
        self._say = say
        began = quiet_since = time.monotonic()
        size = 0
        while not ready():
            now = time.monotonic()
            if self._hear(POLL_S) == "ended":
                raise failure.refusal(f"{what} did not start", self._written(), str(self._log))
            if (grown := self._log.stat().st_size) != size:
                size, quiet_since = grown, now
                if now - began > PATIENCE_S:
                    say(f"{what} is still starting: {failure.last_lines(self._written(), 1)}")
            if now - quiet_since > SILENCE_S_MAX:
                raise ServerError(
                    f"{what} did not accept connections and wrote nothing for "
                    f"{SILENCE_S_MAX:.0f} s; its last lines: {failure.last_lines(self._written())}",
                    f"the whole log is {self._log}",
                )

    def leave(self) -> None:
        """Let the server go on without us and without a supervisor."""
        self._tell("leave")
        self._finish()

    def stop(self) -> None:
        """End the server politely; return when it is gone and its files are removed."""
        self._tell("stop")
        self._finish()

    def end(self) -> None:
        """End the server within seconds, as our death would."""
        if self._supervisor.stdin is not None:
            self._supervisor.stdin.close()
        self._finish()

    def _tell(self, words: str) -> None:
        """Write a line; a supervisor that is gone is found out by whoever waits for it."""
        if self._supervisor.stdin is None or self._supervisor.stdin.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            self._supervisor.stdin.write(f"{words}\n".encode())

    def _hear(self, timeout_s: float) -> str:
        """Take in what the supervisor says: "running", or "ended" when the server has."""
        if self._supervisor.stdout is None:
            return "ended"
        if not select.select([self._supervisor.stdout], [], [], timeout_s)[0]:
            return "running"
        said = os.read(self._supervisor.stdout.fileno(), 4096)
        self._heard += said
        for line in self._heard.decode().splitlines():
            if line.startswith("pid "):
                self.pid = int(line.split()[1])
        return "running" if said and b"exit" not in self._heard else "ended"

    def _finish(self) -> None:
        """Return when the supervisor has ended; whoever started it hears what takes long."""
        try:
            self._supervisor.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._say(f"{self._ending()}, for at most {END_S_MAX - PATIENCE_S:.0f} s more")
            try:
                self._supervisor.wait(END_S_MAX - PATIENCE_S)
            except subprocess.TimeoutExpired as error:
                raise ServerError(f"PostgreSQL (process {self.pid}) does not end") from error
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe is not None:
                pipe.close()

    def _ending(self) -> str:
        last = failure.last_lines(self._written(), 1)
        return f"waiting for PostgreSQL (process {self.pid}) to end; its log: {last}"

    def _written(self) -> str:
        return self._log.read_text(errors="replace")
