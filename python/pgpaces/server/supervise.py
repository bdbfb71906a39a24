"""A separate program: the parent of one postmaster or pooler, which ends it when pgpaces ends.

Run as `python -I -S supervise.py` in its own session, so that neither Ctrl-C nor the
death of pgpaces reaches it. Its standard input is a pipe whose other end only pgpaces holds:

    first line   the order, as JSON: argv, os_user, lock, stays, files, folder, ending
    "leave"      exit, and leave the server running: it stays
    "stop"       end the server cleanly, with a checkpoint
    end of file  pgpaces has ended, for whatever reason: end the server within seconds

Its standard output is "pid N" once, and "exit N" when the postmaster has ended; its standard error
is the server's log. Imports only the standard library: it must start in milliseconds, and from a
folder that only root can read.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CLEAN_S = 60.0  # for the checkpoint of a fast shutdown, while pgpaces waits
FAST_S = 3.0  # for the same after the end of pgpaces
IMMEDIATE_S = 8.0  # the postmaster kills its children itself 5 s after SIGQUIT
PR_SET_PDEATHSIG = 1  # linux/prctl.h
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def read_line(descriptor: int) -> bytes:
    """One line from a pipe, unbuffered, so that select() sees what follows it."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(descriptor, 1)):
        line += byte
    return line


def say(words: str) -> None:
    """Send a line to pgpaces, if it still runs."""
    with contextlib.suppress(OSError):
        os.write(1, f"{words}\n".encode())


def end_with_us(ending: int) -> Callable[[], object] | None:
    """A preexec function that ends the postmaster when this program is killed (Linux)."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return lambda: prctl(PR_SET_PDEATHSIG, ending)


def launch(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start the postmaster; it inherits the lock and holds it as long as it runs."""
    user: dict[str, Any] = {}
    if order["os_user"] is not None:
        names = {"user": "uid", "group": "gid"}
        user = {word: order["os_user"][name] for word, name in names.items()}
        user["extra_groups"] = []
    return subprocess.Popen(
        order["argv"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        stderr=sys.stderr.fileno(),
        pass_fds=(order["lock"],),
        preexec_fn=None if order["stays"] else end_with_us(order["ending"]),  # noqa: PLW1509 (no threads here)
        **user,
    )


def listen_to_signals() -> int:
    """A descriptor from which the number of each arriving signal can be read."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *ENDING_SIGNALS):
        signal.signal(number, lambda *_: None)
    return reader


def next_word(process: subprocess.Popen[bytes], signals: int, timeout_s: float | None) -> str:
    """The next event: "ended", "leave", "stop", "gone" (end of file), or "late" (timeout)."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while process.poll() is None:
        wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = select.select([0, signals], [], [], wait_s)[0]
        if not ready:
            return "late"
        if signals in ready and any(n in ENDING_SIGNALS for n in os.read(signals, 64)):
            return "stop"
        if 0 in ready:
            return read_line(0).decode().strip() or "gone"
    return "ended"


def end(process: subprocess.Popen[bytes], ending: int) -> None:
    """End it fast, then immediately, then by SIGKILL; reap it in every case."""
    for number, wait_s in ((ending, FAST_S), (signal.SIGQUIT, IMMEDIATE_S)):
        process.send_signal(number)
        try:
            process.wait(wait_s)
            return
        except subprocess.TimeoutExpired:
            pass
    process.kill()
    process.wait()


def clean(order: dict[str, Any]) -> None:
    """Remove the files of a running server: its record, its password, its sockets."""
    with contextlib.suppress(OSError):
        for entry in Path(order["folder"]).iterdir():
            entry.unlink()
        Path(order["folder"]).rmdir()
    for path in order["files"]:
        with contextlib.suppress(OSError):
            Path(path).unlink()


def main() -> int:
    signals = listen_to_signals()
    order = json.loads(read_line(0) or b"null")
    if order is None:
        return 1
    process = launch(order)
    say(f"pid {process.pid}")
    word = next_word(process, signals, None)
    if word == "leave":
        return 0
    if word == "stop":
        process.send_signal(order["ending"])
        next_word(process, signals, CLEAN_S)
    if process.poll() is None:
        end(process, order["ending"])
    clean(order)
    say(f"exit {process.returncode}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
