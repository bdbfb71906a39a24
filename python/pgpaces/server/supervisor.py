"""The parent of programs that end with pgpaces, however it ends: starts it, and gives it orders.

The parent is a process of its own, which runs supervisor_program.py. pgpaces holds the other end of
its standard input; when pgpaces ends, for whatever reason, the parent ends what runs.
"""

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, ClassVar

import msgspec
from msgspec import field

from pgpaces.core.errors import RunError
from pgpaces.core.hidden_fields import Redacted
from pgpaces.server.binaries import server_environment

_open_pipes: "weakref.WeakSet[IO[bytes]]" = weakref.WeakSet()


def _close_after_fork() -> None:
    """Close the pipes in a forked child, which may outlive pgpaces."""
    for pipe in list(_open_pipes):
        pipe.close()


os.register_at_fork(after_in_child=_close_after_fork)
# Signals, each with the seconds until the next one; the last one is SIGKILL.
Signals = tuple[tuple[int, float], ...]


def readable(file: int, timeout_s: float | None) -> bool:
    """Whether a descriptor has something to read within this time; None: however long.

    By poll, as select knows no descriptor above 1,023, which processes with many clients have.
    """
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else math.ceil(1000 * max(0.0, timeout_s))))


class Order(Redacted, frozen=True, kw_only=True):
    """An order to run a program. files: descriptors that it inherits.

    variables: of its environment; None: those of `server_environment`. user: options of Popen.
    ending: how to end it; hurry: the same when pgpaces has ended. death: the signal if its parent
    is killed, None if it lives on. succeeds: exit codes. service: it runs on, and writes to the
    log.
    """

    REDACTED: ClassVar[tuple[str, ...]] = ("variables",)
    words: tuple[str, ...]
    folder: Path = Path("/")
    variables: Mapping[str, str] | None = None
    files: tuple[int, ...] = ()
    user: Mapping[str, Any] = field(default_factory=dict)
    ending: Signals = ((signal.SIGTERM, 5.0),)
    hurry: Signals = ((signal.SIGTERM, 1.0),)
    death: int | None = signal.SIGKILL
    timeout_s: float = float("inf")
    succeeds: tuple[int, ...] = (0,)
    service: bool = False


class Supervisor:
    """Runs what it is ordered to, in sequence, until it is closed.

    remove: files and folders that it removes in the end. files: descriptors that programs may
    inherit. log: what services write to. Raises RunError.
    """

    def __init__(
        self, remove: Iterable[Path] = (), files: Iterable[int] = (), log: IO[bytes] | None = None
    ) -> None:
        program = Path(__file__).with_name("supervisor_program.py")
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", program, *remove],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd="/",
                env=server_environment(),
                pass_fds=tuple(files),
                start_new_session=True,
            )
        except OSError as error:
            raise RunError("program-failed", program=sys.executable, why=error.strerror) from None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._orders, self._answers = self.process.stdin, self.process.stdout
        _open_pipes.add(self._orders)
        weakref.finalize(self, self._orders.close)  # a Popen object alone stays alive
        self.read()  # its start must not count as time of the first program

    def send(self, order: Order | str) -> None:
        """Sends an order, stop, kill, or leave. If the process is gone, `read` shows it."""
        text = order
        if isinstance(order, Order):
            keys = {name: getattr(order, name) for name in Order.__struct_fields__}
            text = json.dumps(msgspec.to_builtins(keys, enc_hook=str))
        line = f"{text}\n".encode()
        with contextlib.suppress(OSError, ValueError):
            # Unbuffered: a signal handler may send in the middle of another line.
            while line:
                line = line[os.write(self._orders.fileno(), line) :]

    def read(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """The next answer; None if there is none in this time, empty if the process has ended."""
        if not readable(self._answers.fileno(), timeout_s):
            return None
        line = self._answers.readline()
        answer: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
        return answer

    def close(self) -> None:
        """Ends what runs, in a hurry, as the end of pgpaces would. Does not wait."""
        self._orders.close()
