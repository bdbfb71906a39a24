"""A separate program: runs commands in sequence, and ends them when pgpaces ends.

Run as `python -I -S watchdog.py` in its own session, so that neither Ctrl-C nor the death of
pgpaces reaches it. Its standard input is a pipe whose other end only pgpaces holds. Lines there:

    {"run": ...}    run this, in its own session: words, variables, folder, timeout_s, polite_s
    stop            let nothing new begin; end the command politely, and by force after polite_s
    kill            the same by force at once
    end of file     pgpaces has ended in any way, or is done: as stop, in a hurry

It answers with JSON lines: {"ready": true} first, {"sent": ns} when a command begins,
{"line": text} every few seconds with its last line, and {"done": ns, ...} when it has ended, with
its last lines. Times are by the monotonic clock that all processes share, so that a reader's delay
does not matter. Its argument is a folder that it removes in the end.

Background processes of a command end with it. Standard library only, without pgpaces: it must start
in milliseconds.
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
from pathlib import Path
from typing import IO, Any

HURRY_S = 1.0  # for what must end because pgpaces has ended
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
REPORT_S = 5.0
TAIL_LINES, LINE_BYTES = 12, 400
READS_MAX = 64  # at the end of a command
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def prctl(option: int, value: int) -> None:
    """Calls Linux's prctl; does nothing elsewhere."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(option, value)


def say(**words: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(1, f"{json.dumps(words)}\n".encode())


class Tail:
    """The last lines that a command writes to a pipe."""

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
        shown = (line[-LINE_BYTES:].decode("utf-8", "replace").strip() for line in lines)
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
    """A running command: its process, its output, and the time of the next signal to it."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.polite_s: float = order["polite_s"]
        self.timed_out = False
        self._killed = False
        sent = time.monotonic_ns()
        self._process = subprocess.Popen(
            order["run"],
            cwd=order["folder"],
            env=order["variables"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=order["files"],
            start_new_session=True,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 (no threads here)
        )
        self._tails = [Tail(self._process.stderr), Tail(self._process.stdout)]
        self.pipes = {tail.pipe.fileno(): tail for tail in self._tails}
        self._deadline: float = sent / 1e9 + order["timeout_s"]
        self._report_at = sent / 1e9 + REPORT_S
        say(sent=sent)

    def wait_s(self) -> float:
        """The time to the next signal or report."""
        return max(0.0, min(self._deadline, self._report_at) - time.monotonic())

    def read(self, descriptor: int) -> None:
        if not self.pipes[descriptor].read():
            del self.pipes[descriptor]

    def end(self, polite_s: float) -> None:
        """Ends it: politely, and by force after polite_s. A repetition never postpones the end."""
        if polite_s > 0:
            self._signal(signal.SIGTERM)
            self._deadline = min(self._deadline, time.monotonic() + polite_s)
        else:
            self._signal(signal.SIGKILL)
            self._deadline = float("inf")
        self._killed = True

    def look(self) -> None:
        """Sends what is due: a report, a signal."""
        now = time.monotonic()
        if now >= self._report_at:
            self._report_at = now + REPORT_S
            say(line=next((tail.lines()[-1] for tail in self._tails if tail.lines()), ""))
        if now < self._deadline:
            return
        if self._killed:
            self.end(0.0)
        else:
            self.timed_out = True
            self._killed = True
            self._signal(signal.SIGTERM)
            self._deadline = time.monotonic() + self.polite_s

    def ended(self) -> bool:
        """Whether it has ended; if so, reaps its children and reports to pgpaces."""
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid == 0:
            return False
        done = time.monotonic_ns()
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        reap_the_rest()
        for tail in self._tails:
            tail.close()
        output = next((lines for tail in self._tails if (lines := tail.lines())), [])
        cpu_s = usage.ru_utime + usage.ru_stime
        timed_out = self.timed_out
        stopped = self._killed and not timed_out
        words = {"timed_out": timed_out, "stopped": stopped, "cpu_s": cpu_s}
        say(done=done, code=code, output="\n".join(output), **words)
        return True

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def reap_the_rest() -> None:
    """Ends the orphans of commands, in other sessions: they are children of this process now."""
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


def signals() -> int:
    """A descriptor that becomes readable when a child has ended."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in IGNORED:  # by a handler: commands would inherit SIG_IGN
        signal.signal(number, lambda *_: None)
    return reader


class Watchdog:
    def __init__(self) -> None:
        self._wakes = signals()
        self._rest = b""
        self._running: Running | None = None
        self._stopping = self._closed = False

    def work(self) -> None:
        while not self._closed or self._running:
            listening = [self._wakes] if self._closed else [0, self._wakes]
            timeout = None
            if self._running:
                listening += self._running.pipes
                timeout = self._running.wait_s()
            ready = select.select(listening, [], [], timeout)[0]
            for descriptor in ready:
                if self._running and descriptor in self._running.pipes:
                    self._running.read(descriptor)
            if self._wakes in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakes, 4096)
            if self._running and self._running.ended():
                self._running = None
            if 0 in ready:
                self._receive(os.read(0, 65536))
            if self._running:
                self._running.look()

    def _receive(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._obey(line)
        if not chunk:
            self._closed = self._stopping = True
            if self._running:
                self._running.end(HURRY_S)

    def _obey(self, line: bytes) -> None:
        if line in (b"stop", b"kill"):
            self._stopping = True
            if self._running:
                self._running.end(self._running.polite_s if line == b"stop" else 0.0)
            return
        order = json.loads(line)
        if self._stopping:
            say(refused=True)
            return
        # Programs may close unknown descriptors: they read the password file from this process.
        variables = order["variables"]
        if (name := variables.get("PGPASSFILE", "")).startswith("/proc/self/fd/"):
            variables["PGPASSFILE"] = name.replace("self", str(os.getpid()), 1)
        try:
            self._running = Running(order)
        except OSError as error:
            say(absent=error.strerror or "it cannot be run")


def main() -> int:
    """Works, and removes the scratch folder."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    watchdog = Watchdog()
    say(ready=True)
    watchdog.work()
    if sys.argv[1]:
        import shutil

        shutil.rmtree(sys.argv[1], ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
