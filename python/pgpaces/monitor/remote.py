"""Samples the machine of an external server: this one, or another by `pgpaces observe` there.

The command prints a line a second about the machine on which it runs.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping

import psutil
import psycopg

from pgpaces.core.errors import ServerError
from pgpaces.core.findings import finding
from pgpaces.core.locality import by_socket, is_local
from pgpaces.monitor import host
from pgpaces.monitor.host import HostSample, HostSource, ThisMachine, postgres_process
from pgpaces.monitor.session import APPLICATION, Reopened, first_line

_PATIENCE_S = 1.0
_LINE_BYTES_MAX = 1 << 16


class RemoteCommand(HostSource):
    """Samples by a command with the output of `pgpaces observe`, such as `ssh pi4 pgpaces observe`.

    Its lines contain its clock. The lag of that is taken from the line with the shortest transfer,
    so a network with varying latency shifts nothing.
    """

    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command
        self._child: subprocess.Popen[bytes] | None = None
        self._clock_lag_s = math.inf

    def observe(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        # Its own session: no terminal for a password prompt, and one process group to end. Without
        # PG* variables, which may hold a password, and are about other connections.
        with subprocess.Popen(
            self._command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={name: text for name, text in os.environ.items() if not name.startswith("PG")},
        ) as child:
            self._child = child
            try:
                yield from self._lines(child, ended)
            finally:
                self.close()

    def _lines(
        self, child: subprocess.Popen[bytes], ended: threading.Event
    ) -> Iterator[HostSample]:
        assert child.stdout is not None
        while not ended.is_set() and (line := child.stdout.readline(_LINE_BYTES_MAX)):
            if (sample := self._sample(line)) is not None:
                yield sample
        if not ended.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(_PATIENCE_S)
                self.notes.add(finding("observe-command-ended", code=code))

    def _sample(self, line: bytes) -> HostSample | None:
        arrived_s = time.monotonic()
        try:
            at_s, items, notes = host.parsed(line)
        except (ValueError, RecursionError):
            text = line.decode(errors="replace").strip()[: host.TEXT_MAX]
            if text and len(self.notes) < 3:
                self.notes.add(finding("observe-command-printed", text=text))
            return None
        self._clock_lag_s = min(self._clock_lag_s, arrived_s - at_s)
        self.notes.add(*notes)
        return HostSample(at_s, items) if items else None

    def clock_lag_s(self) -> float:
        return self._clock_lag_s if math.isfinite(self._clock_lag_s) else 0.0

    def close(self) -> None:
        child = self._child
        if child is None or child.poll() is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_PATIENCE_S)
                return


class NearbySource(HostSource):
    """This machine if the server is on it, else a note. keywords: libpq's.

    It asks the server when it begins. Before that, the load has not opened its connections, and may
    need the one for this.
    """

    def __init__(self, keywords: Mapping[str, str]) -> None:
        super().__init__()
        self._keywords = keywords

    def observe(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        if is_local(self._keywords):
            pids: list[int] = []
            try:
                with contextlib.closing(Reopened(self._keywords, APPLICATION)) as opened:
                    pid = opened.session().info.backend_pid
                    with contextlib.suppress(psutil.Error):
                        pids = [postgres_process(pid).ppid()]  # the postmaster's
            except (psycopg.Error, ServerError) as error:
                self.notes.add(finding("monitor-unanswered", error=first_line(error)))
                return
            # A server with a socket is on this machine, even if its processes are not visible.
            if pids or by_socket(self._keywords):
                source = ThisMachine(pids)
                self.notes = source.notes
                yield from source.observe(ended, start_s)
                return
        self.notes.add(finding("machine-unobserved"))
