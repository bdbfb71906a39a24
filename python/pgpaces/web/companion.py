"""The process that follows a load and ends with it: its live page, and its metrics.

The process reads its configuration from standard input, so that no token is in its arguments, and
ends when that is closed: also when pgpaces is killed. It runs with a low priority, and only reads
the store. Its standard output is its start as JSON, then a warning in each line.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from pgpaces.core.errors import PgpacesError, RunError, extra
from pgpaces.core.home import python_path
from pgpaces.core.messages import message
from pgpaces.web.listening import listen, new_token

if TYPE_CHECKING:
    from pgpaces.web.exporters import Port, Sender
    from pgpaces.web.live import ProcessLoad
    from pgpaces.web.metrics import Feed

_NICE = 10
# Readers get the last seconds and the end before the port of the live page closes.
_LAST_S = 10.0
# A slow board takes long to read the program, the more where it is busy.
_START_S = 120.0
_POLL_S = 1.0


class Outputs(Struct, frozen=True):
    """What a load is followed by. prometheus: where to listen. otlp: the URL of a receiver."""

    live: bool = False
    prometheus: tuple[str, int] | None = None
    otlp: str | None = None

    def __bool__(self) -> bool:
        return self.live or self.prometheus is not None or self.otlp is not None


class _Configuration(Struct, frozen=True):
    place: str | None
    pid: int
    token: str
    outputs: Outputs


class _Started(Struct, frozen=True):
    """Addresses without tokens, or the name and the values of an error."""

    live: str = ""
    prometheus: str = ""
    error: str = ""
    values: dict[str, Any] = {}


class Companion:
    """The process. live: the address of its page, with the token. prometheus: that of /metrics."""

    def __init__(self, place: str | None, outputs: Outputs, warn: Callable[[str], None]) -> None:
        """Starts it. place: of the store. warn: prints a warning. Raises RunError."""
        configuration = _Configuration(place, os.getpid(), new_token(), outputs)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pgpaces.web.companion"],
            env={**os.environ, "PYTHONPATH": python_path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # no lock that a thread would hold while pgpaces ends
            start_new_session=True,
        )
        self._closed = False
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(_START_S, self._process.kill)
        timer.start()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.json.encode(configuration) + b"\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            self.close()
            raise RunError("companion-not-started")
        started = msgspec.json.decode(line, type=_Started)
        if started.error:
            self.close()
            raise RunError(started.error, **started.values)
        self.live = f"{started.live}live?token={configuration.token}" if started.live else ""
        self.prometheus = started.prometheus
        reader = threading.Thread(
            target=self._listen, args=(self._process.stdout, warn), daemon=True
        )
        reader.start()

    def _listen(self, lines: IO[bytes], warn: Callable[[str], None]) -> None:
        for line in lines:
            if not self._closed:
                warn(line.decode("utf-8", "replace").rstrip())
        if not self._closed:
            warn(message("companion-ended"))

    def close(self) -> None:
        """Lets it end, without waiting for readers."""
        self._closed = True
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        # Reaped by the system when pgpaces ends.


def main() -> None:
    from pgpaces.web.live import ProcessLoad

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    configuration = msgspec.json.decode(sys.stdin.buffer.readline(), type=_Configuration)
    ended, load = threading.Event(), ProcessLoad(configuration.pid)
    try:
        exporters = _exporters(configuration.outputs)
        live = configuration.outputs.live
        address, serve = _page(configuration, load, ended) if live else ("", None)
    except PgpacesError as error:
        values = {key: str(value) for key, value in error.values.items()}
        _print(msgspec.json.encode(_Started(error=error.name, values=values)).decode())
        return
    # What it takes to start was done while there was no load yet. The priority of this session and
    # thread, and so of all that it starts, becomes lower. Not the idle class: the load's lag was no
    # smaller with it (bench/live.py), and where all CPUs are busy the page may have to wait.
    os.nice(_NICE)
    # Where Linux groups sessions, each has the same share whatever its processes' niceness is.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICE))
    # A thread that was woken does not take the CPU of one that runs.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    for exporter in exporters:
        exporter.start()
    started = _Started(address, next((each.url for each in exporters if each.url), ""))
    _print(msgspec.json.encode(started).decode())
    if exporters:
        from pgpaces.web.metrics import Feed

        feed = Feed(configuration.place, load)
        threading.Thread(target=_export, args=(feed, exporters, ended)).start()

    def wait() -> None:
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    if serve is not None:
        serve()


def _print(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _page(
    configuration: _Configuration, load: ProcessLoad, ended: threading.Event
) -> tuple[str, Callable[[], None]]:
    with extra("web", "pages"):
        from pgpaces.web import app

    def stop() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(configuration.pid, signal.SIGINT)

    opened = listen("127.0.0.1", 0, configuration.token)
    server = app.server(app.Site(configuration.place, load, stop), opened)

    def end() -> None:
        ended.wait()
        threading.Event().wait(_LAST_S)
        server.should_exit = True

    def run() -> None:
        threading.Thread(target=end, daemon=True).start()
        server.run(sockets=[opened.socket])

    return opened.url, run


def _exporters(outputs: Outputs) -> list[Port | Sender]:
    """Those that are asked for, not started. Raises RunError."""
    exporters: list[Port | Sender] = []
    if outputs.prometheus is not None or outputs.otlp is not None:
        with extra("metrics", "metrics"):
            from pgpaces.web.exporters import Port, Sender

            if outputs.prometheus is not None:
                exporters.append(Port(listen(*outputs.prometheus, option="--metrics prometheus=")))
            if outputs.otlp is not None:
                exporters.append(Sender(outputs.otlp, _print))
    return exporters


def _export(feed: Feed, exporters: Sequence[Port | Sender], ended: threading.Event) -> None:
    """Exports each new second, and in the end what is left.

    The reason to stop earlier is a warning.
    """
    try:
        last = False
        while not last:
            last = ended.wait(_POLL_S)
            if feed.read() or last:
                data = feed.metrics()
                for each in exporters:
                    each.put(data)
        feed.close()
        for each in exporters:  # the port first, as the next load may want it
            each.close()
    except Exception as error:
        _print(message("export-ended", error=repr(error)))


if __name__ == "__main__":
    main()
