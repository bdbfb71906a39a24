"""The live page of a load, in a process of its own that ends with the load.

The process reads its configuration from standard input, so that no token is in its arguments, and
ends when that is closed: also when pgpaces is killed. It runs with a low priority.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

import msgspec
from msgspec import Struct

from pgpaces.errors import RunError
from pgpaces.web.guard import new_token

_NICE = 10
# Readers get the last seconds and the end before the port closes.
_LAST_S = 3.0
_START_S = 20.0


class _Configuration(Struct, frozen=True):
    place: str | None
    pid: int
    token: str


class Companion:
    """The process with the live page. url: its address, with the token."""

    def __init__(self, place: str | None) -> None:
        """Starts it. place: of the store. Raises RunError."""
        configuration = _Configuration(place, os.getpid(), new_token())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pgpaces.web.companion"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(_START_S, self._process.kill)
        timer.start()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.json.encode(configuration) + b"\n")
            self._process.stdin.flush()
        address = self._process.stdout.readline().decode().strip()
        timer.cancel()
        if not address:
            self.close()
            raise RunError("the live page could not be started", "leave out --live")
        self.url = f"{address}live?token={configuration.token}"

    def close(self) -> None:
        """Lets it end, without waiting for readers."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        # Reaped by the system when pgpaces ends.


def main() -> None:
    """The process: prints its address, and serves until standard input ends."""
    from pgpaces.web import serve
    from pgpaces.web.app import Site

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    configuration = msgspec.json.decode(sys.stdin.buffer.readline(), type=_Configuration)

    def stop() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(configuration.pid, signal.SIGINT)

    listening = serve.listen("127.0.0.1", 0, configuration.token)
    server = serve.server(Site(configuration.place, stop), listening)

    def end() -> None:
        sys.stdin.buffer.read()
        threading.Event().wait(_LAST_S)
        server.should_exit = True

    threading.Thread(target=end, daemon=True).start()
    sys.stdout.write(f"{listening.url}\n")
    sys.stdout.flush()
    server.run(sockets=[listening.socket])


if __name__ == "__main__":
    main()
