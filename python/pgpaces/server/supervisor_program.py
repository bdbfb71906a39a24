"""A separate program: the parent of programs, which ends them when pgpaces ends.

Run as `python -I -S supervisor_program.py PATH ...` in its own session, so that neither Ctrl-C nor
the death of pgpaces reaches it. Its standard input is a pipe whose other end only pgpaces holds.
Lines there:

    {"words": ...}  run this; the keys are in supervisor.py
    stop            let nothing new begin; end what runs politely, and by force if that takes long
    kill            the same by force at once
    leave           exit, and leave running what runs
    end of file     pgpaces has ended in any way, or is done: as stop, in a hurry

It answers with JSON lines: {"ready": true} first, {"sent_ns": ..., "pid": ...} when a program
begins, {"line": text} every few seconds with its last line, and {"done_ns": ..., ...} when it has
ended, with its last lines. Times are by the monotonic clock that all processes share, so that a
reader's delay does not matter. In the end it removes the PATHs.

Programs run in sequence; what they leave in the background ends with them. A service (PostgreSQL, a
pooler) writes to this program's standard error, which is its log, and this program ends with it.

Standard library only, without pgpaces: it must start in milliseconds, and from a folder that only
root can read.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from functools import cache
from pathlib import Path
from typing import IO, Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
REPORT_S = 5.0
TAIL_LINES, LINE_BYTES = 12, 400
READS_MAX = 64  # at the end of a program
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FOREVER_S = float("inf")


@cache
def c_library() -> Any:
    """Loaded when it is first needed, which takes as long as the rest of the start."""
    import ctypes

    return ctypes.CDLL(None)


def prctl(option: int, value: int) -> None:
    """Calls Linux's prctl; does nothing elsewhere."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        c_library().prctl(option, value)


def say(**words: Any) -> None:
    """Sends a line to pgpaces, if it still runs."""
    with contextlib.suppress(OSError):
        os.write(1, f"{json.dumps(words)}\n".encode())


class Tail:
    """The last lines that a program writes to a pipe."""

    def __init__(self, pipe: "IO[bytes] | None") -> None:
        assert pipe is not None
        self.pipe = pipe
        self._lines: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._rest = b""

    def read(self) -> bool:
        """Reads what is there; false at the end."""
        chunk = os.read(self.pipe.fileno(), 65536)
        # So that reading does not slow down a program with much output.
        data = (self._rest + chunk)[-TAIL_LINES * LINE_BYTES :]
        # Progress that is rewritten ends its lines with a carriage return.
        *lines, self._rest = data.replace(b"\r", b"\n").split(b"\n")
        self._lines.extend(line for line in lines if line.strip())
        return bool(chunk)

    def lines(self) -> list[str]:
        lines = [*self._lines, self._rest][-TAIL_LINES:]
        # Errors say at the beginning where they are, and below it in which column.
        shown = (line[:LINE_BYTES].decode("utf-8", "replace").rstrip() for line in lines)
        return [line for line in shown if line]

    def close(self) -> None:
        """Reads the rest: processes in the background may keep the pipe open."""
        os.set_blocking(self.pipe.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(READS_MAX):  # one that writes without end is not waited for
                if not self.read():
                    break
        self.pipe.close()


class Running:
    """A running program: its process, its output, and the time of the next signal to it.

    A service has one process to which signals go; another program has a session of its own.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self.is_service: bool = order["service"]
        self.order = order
        self._timed_out = self._is_ending = False
        self._signals: list[tuple[int, float]] = []
        output = sys.stderr.fileno() if self.is_service else subprocess.PIPE
        death = order["death"]
        with contextlib.suppress(ImportError, OSError):
            c_library()  # before the fork: the user of a program may not be able to read Python
        sent_ns = time.monotonic_ns()
        self._process = subprocess.Popen(
            order["words"],
            cwd=order["folder"],
            env=order["variables"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            bufsize=0,
            pass_fds=order["files"],
            start_new_session=not self.is_service,
            preexec_fn=(lambda: prctl(PR_SET_PDEATHSIG, death)) if death else None,  # noqa: PLW1509 (no threads here)
            **order["user"],
        )
        pipes = () if self.is_service else (self._process.stderr, self._process.stdout)
        self._tails = [Tail(pipe) for pipe in pipes]
        self.pipes = {tail.pipe.fileno(): tail for tail in self._tails}
        self._deadline = sent_ns / 1e9 + order["timeout_s"]
        self._report_at = FOREVER_S if self.is_service else sent_ns / 1e9 + REPORT_S
        say(sent_ns=sent_ns, pid=self._process.pid)

    def wait_s(self) -> "float | None":
        """The time to the next signal or report; None if none is due."""
        at = min(self._deadline, self._report_at)
        return None if at == FOREVER_S else max(0.0, at - time.monotonic())

    def read(self, descriptor: int) -> None:
        if not self.pipes[descriptor].read():
            del self.pipes[descriptor]

    def end(self, signals: "list[tuple[int, float]]") -> None:
        """Ends it by these signals, each with the time until the next one, and SIGKILL at last.

        A repetition never postpones the end.
        """
        if self._is_ending and len(self._signals) < len(signals):
            return
        self._is_ending = True
        self._signals = [*signals, (signal.SIGKILL, FOREVER_S)]
        self._next_signal(self._deadline)

    def _next_signal(self, deadline: float) -> None:
        number, wait_s = self._signals.pop(0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            (os.kill if self.is_service else os.killpg)(self._process.pid, number)
        self._deadline = min(deadline, time.monotonic() + wait_s) if self._signals else FOREVER_S

    def look(self) -> None:
        """Sends what is due: a report, a signal."""
        now = time.monotonic()
        if now >= self._report_at:
            self._report_at = now + REPORT_S
            say(line=next((tail.lines()[-1].strip() for tail in self._tails if tail.lines()), ""))
        if now < self._deadline:
            return
        if self._is_ending:
            self._next_signal(FOREVER_S)
        else:
            self._timed_out, self._deadline = True, FOREVER_S
            self.end(self.order["ending"])

    def ended(self) -> bool:
        """Whether it has ended; if so, reaps its children and reports to pgpaces."""
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid == 0:
            return False
        done_ns = time.monotonic_ns()
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if not self.is_service:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            reap_the_rest()
        for tail in self._tails:
            tail.close()
        failed, output = self._failure(self._process.returncode), ""
        if failed:
            output = "\n".join(next((t.lines() for t in self._tails if t.lines()), []))
        stopped = self._is_ending and not self._timed_out
        cpu_s = usage.ru_utime + usage.ru_stime
        say(done_ns=done_ns, failed=failed, output=output, cpu_s=cpu_s, stopped=stopped)
        return True

    def _failure(self, code: int) -> str:
        """The class of a failure; empty on success. Some programs that are ended exit with 0."""
        if self._timed_out:
            return "timeout"
        if code < 0:
            return f"signal {-code}"
        if code in self.order["succeeds"]:
            return "stopped" if self._is_ending else ""
        return f"exit {code}"


def reap_the_rest() -> None:
    """Ends the orphans of programs, in other sessions: they are children of this process now."""
    for _ in range(100):  # a child may create others while it ends
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
        with contextlib.suppress(OSError):
            for pid in children.read_text().split():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(pid), signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return


def listen_to_signals() -> int:
    """A descriptor from which the number of each arriving signal can be read."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *ENDING_SIGNALS):  # by a handler: programs would inherit SIG_IGN
        signal.signal(number, lambda *_: None)
    return reader


class Supervisor:
    def __init__(self) -> None:
        self._arrived = listen_to_signals()
        self._rest = b""
        self._running: Running | None = None
        self._stopping = self._closed = False

    def work(self) -> bool:
        """Works until nothing is left to do; whether nothing was left running."""
        while not self._closed or self._running:
            listening = [self._arrived] if self._closed else [0, self._arrived]
            timeout_s = None
            if self._running:
                listening += self._running.pipes
                timeout_s = self._running.wait_s()
            ready = select.select(listening, [], [], timeout_s)[0]
            for descriptor in ready:
                if self._running and descriptor in self._running.pipes:
                    self._running.read(descriptor)
            arrived = set(os.read(self._arrived, 4096)) if self._arrived in ready else set()
            # A load of programs ends by an order alone: it would seem to be complete.
            if arrived & set(ENDING_SIGNALS) and self._running and self._running.is_service:
                self._stop()
            if self._running and self._running.ended():
                self._closed |= self._running.is_service
                self._running = None
            if 0 in ready and not self._receive(os.read(0, 65536)):
                return False
            if self._running:
                self._running.look()
        return True

    def _receive(self, chunk: bytes) -> bool:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line == b"leave":
                return False
            if line == b"stop":
                self._stop()
            elif line == b"kill":
                self._stop([])
            else:
                self._run(json.loads(line))
        if not chunk:
            self._closed = True
            self._stop(self._running.order["hurry"] if self._running else None)
        return True

    def _stop(self, signals: "list[tuple[int, float]] | None" = None) -> None:
        self._stopping = True
        if self._running:
            self._running.end(self._running.order["ending"] if signals is None else signals)

    def _run(self, order: dict[str, Any]) -> None:
        if self._stopping:
            say(refused=True)
            return
        if not order["service"]:  # the orphans of PostgreSQL are init's
            prctl(PR_SET_CHILD_SUBREAPER, 1)
        # Programs may close unknown descriptors: they read the password file from this process.
        variables = order["variables"] or {}
        if (name := variables.get("PGPASSFILE", "")).startswith("/proc/self/fd/"):
            variables["PGPASSFILE"] = name.replace("self", str(os.getpid()), 1)
        try:
            self._running = Running(order)
        except OSError as error:
            now = time.monotonic_ns()
            why = f"{order['words'][0]}: {error.strerror or 'it cannot be run'}"
            if order["service"]:
                os.write(2, f"{why}\n".encode("utf-8", "replace"))
            say(sent_ns=now)
            say(done_ns=now, failed="exit 127", output=why, cpu_s=0.0, stopped=False)


def main() -> int:
    """Works, and removes the paths."""
    supervisor = Supervisor()
    say(ready=True)
    if supervisor.work():
        import shutil

        for path in sys.argv[1:]:
            shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(OSError):
                Path(path).unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
