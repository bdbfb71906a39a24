"""Programs that are run, one after the other, under a watchdog (watchdog.py): it ends them with us.

Takes their times and keeps the last lines that they say. Knows no server, no load, no terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

from msgspec import Struct

from pgpaces.errors import RunError
from pgpaces.redaction import Redacted
from pgpaces.units import SECOND_NS

_TAIL_LINES = 12
_LINE_BYTES = 400
_TAIL_PATIENCE_S = 10.0
_WATCHDOG = Path(__file__).with_name("watchdog.py")


class CommandOrder(Redacted, frozen=True):
    """A command as it is run: its name, words, variables, folder, the descriptors that it inherits.

    secret: what is never repeated of what it says.
    """

    REDACTED: ClassVar = ("variables", "secret")
    name: str
    words: tuple[str, ...]
    variables: Mapping[str, str]
    folder: Path
    files: tuple[int, ...] = ()
    timeout_ns: int = 2 * 3600 * SECOND_NS
    polite_ns: int = 5 * SECOND_NS
    succeeds: tuple[int, ...] = (0,)
    secret: str | None = None

    def shown(self, said: str) -> str:
        """What it said, as it may be kept."""
        return said.replace(self.secret, "***") if self.secret else said


class Execution(Struct, frozen=True):
    """One that has ended. Times by the monotonic clock; failed: its class, empty if it did not.

    said: what it said last, where it failed. cpu_s: of it and of all that it waited for.
    """

    due_ns: int
    sent_ns: int
    done_ns: int
    failed: str = ""
    said: str = ""
    cpu_s: float = 0.0


class Tail:
    """The last lines that programs say through a pipe, one program after the other.

    mark: a line that stands behind each of them.
    """

    def __init__(self, file: IO[bytes], mark: bytes) -> None:
        self._lines: deque[bytes] = deque(maxlen=_TAIL_LINES)
        self._whole: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(file, mark), daemon=True).start()

    def _read(self, file: IO[bytes], mark: bytes) -> None:
        rest = b""
        with file:
            while heard := os.read(file.fileno(), 65536):
                data = rest + heard
                if mark not in data:  # so that one who says much is not slowed down by us
                    data = data[-_TAIL_LINES * _LINE_BYTES :]
                # Progress that is rewritten ends its lines with a carriage return.
                *lines, rest = data.replace(b"\r", b"\n").split(b"\n")
                for line in lines:
                    if line == mark:
                        self._whole.put("\n".join(map(_text, self._lines)))
                        self._lines.clear()
                    elif line.strip():
                        self._lines.append(line[-_LINE_BYTES:])
                rest = rest[-_LINE_BYTES:]

    def last(self) -> str:
        """The last line that the program that runs has said."""
        with contextlib.suppress(IndexError):
            return _text(self._lines[-1])
        return ""

    def take(self) -> str:
        """The last lines of a program that has ended. Raises RunError where nobody ended them."""
        try:
            return self._whole.get(timeout=_TAIL_PATIENCE_S)
        except queue.Empty:
            raise _lost() from None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip()


def _lost() -> RunError:
    return RunError(
        "the program that watches over the command has ended", "was it killed? run again"
    )


class Runner:
    """Runs commands, one after the other. Ends with us, whatever ends us."""

    def __init__(self, files: Sequence[int] = (), scratch: Path | None = None) -> None:
        """Starts the watchdog. Raises RunError.

        files: descriptors that commands may inherit. scratch: a folder that is removed at the end.
        """
        reader, writer = os.pipe()
        mark = secrets.token_hex(16)
        try:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_WATCHDOG), str(writer), mark, str(scratch or "")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(writer, *files),
                # What is in them for us is not for others: a password may be.
                env={k: v for k, v in os.environ.items() if not k.startswith("PG")},
                start_new_session=True,
            )
        except OSError as error:
            os.close(reader)
            raise RunError(f"the command's warden does not start: {error.strerror}") from None
        finally:
            os.close(writer)
        assert self._watchdog.stdout is not None
        assert self._watchdog.stderr is not None
        self._answers = self._watchdog.stdout
        self._errors = Tail(self._watchdog.stderr, mark.encode())
        self._output = Tail(os.fdopen(reader, "rb", 0), mark.encode())
        self._answer()  # it is there: its start is not the first command's

    def run(self, order: CommandOrder, due_ns: int) -> Execution | None:
        """Runs a command to its end; None where nothing may begin any more. Raises RunError."""
        words = {
            "run": order.words,
            "variables": dict(order.variables),
            "folder": str(order.folder),
            "files": order.files,
            "timeout_s": order.timeout_ns / 1e9,
            "polite_s": order.polite_ns / 1e9,
        }
        self._tell(json.dumps(words).encode() + b"\n")
        found = self._answer()
        if "refused" in found:
            return None
        if "absent" in found:
            now = time.monotonic_ns()
            return Execution(due_ns, now, now, "exit 127", f"{order.words[0]}: {found['absent']}")
        ended = self._answer()
        errors, output = self._errors.take(), self._output.take()
        failed = _class(ended, order.succeeds)
        said = order.shown(errors or output) if failed else ""
        cpu_s = float(ended["cpu_s"])
        return Execution(due_ns, found["sent"], ended["done"], failed, said, cpu_s)

    @property
    def pid(self) -> int:
        """The watchdog's process."""
        return self._watchdog.pid

    def last(self) -> str:
        """The last line that the command said, if it runs."""
        return self._errors.last() or self._output.last()

    def stop(self) -> None:
        """Lets nothing new begin, and ends politely what runs. Waits for nothing."""
        self._tell(b"stop\n")

    def kill(self) -> None:
        """The same by force."""
        self._tell(b"kill\n")

    def close(self) -> None:
        """Ends it, and whatever it still runs."""
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
        self._watchdog.wait()

    def _tell(self, line: bytes) -> None:
        assert self._watchdog.stdin is not None
        # Whoever waits for an answer hears that nobody listened.
        with contextlib.suppress(OSError, ValueError):
            # Not through a buffer: a handler of signals may tell something in the middle of it.
            while line:
                line = line[os.write(self._watchdog.stdin.fileno(), line) :]

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line.endswith(b"\n"):
            raise _lost()
        found: dict[str, Any] = json.loads(line)
        return found


def _class(ended: Mapping[str, Any], succeeds: Sequence[int]) -> str:
    """How an execution failed; empty if it did not."""
    code = int(ended["code"])
    if ended["timed_out"]:
        return "timeout"
    if code < 0:
        return f"signal {-code}"
    return "" if code in succeeds else f"exit {code}"
