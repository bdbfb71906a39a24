"""The main program of a process of users: runs them, and sends their outcomes every second.

Started as `python -P -m pgpaces.load.python_users.process FD`, where FD is one end of a socket
whose other end pgpaces holds. It receives pickled values there: a `ProcessOrder` first, then tuples

    ("begin", ns)   the measured part begins then, by the monotonic clock that all processes share
    ("end", ns)     nothing falls due then or later, from the start of the measured part
    ("abort",)      ends at once

and sends `("refused", error)` or `("ready", poll)`, then `("second",
[bytes], names, [ns late], hopeless)` for seconds that are over, `("last", ...)` alike, and
`("bye",)` after the tear-down of the users. It ends when pgpaces ends, whatever its users do, even
if one of them holds the interpreter, so that no other thread gets a turn. Programs that they
started end with it, unless they are in a session of their own, or a task that holds the interpreter
outlives pgpaces.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import NoReturn

from pgpaces import _engine
from pgpaces.core.errors import PgpacesError, WorkloadError
from pgpaces.load.python_users.order import CODES, ProcessOrder, SharedCounter, hidden
from pgpaces.load.python_users.virtual_users import (
    HOPELESS_AFTER,
    NEVER_NS,
    Coroutines,
    Performers,
    Stage,
    virtual_users,
)
from pgpaces.spec import users

SECOND_NS = 1_000_000_000
# The switch interval of the interpreter: with a longer one, due actions wait for running ones.
_SWITCH_S = 0.0005
_PUT_AWAY_S = 5.0
_TURN_S = 0.1
# Maximum time without a turn of any thread: after the grace period, and during set-up.
_STUCK_S, _STUCK_SET_UP_S = 3.0, 60.0
# The characters of an incomplete line, as each print copies them.
_LINE_MAX = 4000


class _Prints(io.TextIOBase):
    """Receives the prints of functions, and adds them to the record line by line."""

    def __init__(self, actors: _engine.Actors, secrets: tuple[str, ...]) -> None:
        self._actors, self._secrets = actors, secrets
        self._begun: dict[int, str] = {}

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        thread = threading.get_ident()
        *lines, rest = (self._begun.pop(thread, "") + text).split("\n")
        if len(rest) > _LINE_MAX:
            lines, rest = [*lines, rest], ""
        if rest:
            self._begun[thread] = rest
        for line in lines:
            self._say(line)
        return len(text)

    def end(self) -> None:
        for thread in tuple(self._begun):
            if line := self._begun.pop(thread, ""):  # none if its thread has ended it meanwhile
                self._say(line)

    def _say(self, line: str) -> None:
        shown = hidden(line, self._secrets)
        self._actors.say(shown.encode("utf-8", "backslashreplace").decode())


class PipeWriter:
    """Sends to pgpaces in a separate thread, so that a slow reader does not block the users."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        self._waiting: queue.SimpleQueue[tuple[object, ...] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def send(self, *words: object) -> None:
        self._waiting.put(words)

    def end(self) -> None:
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        try:
            while (words := self._waiting.get()) is not None:
                self._channel.send(words)
        except OSError:
            _end_all()


class Process:
    def __init__(self, channel: Connection, order: ProcessOrder) -> None:
        """Raises WorkloadError, PlanError."""
        plan = order.plan
        self._channel, self._order = channel, order
        self._actors = _engine.Actors(plan, [weight for _, weight in order.scripts], order.number)
        # Before any code of the users runs: loggers keep the streams that they find.
        self._prints = sys.stdout = sys.stderr = _Prints(self._actors, order.way.secrets)
        loaded = _users(order)
        end_ns = NEVER_NS if plan.duration_ns is None else plan.duration_ns
        counter = None if order.counter is None else SharedCounter(order.counter)
        self._stage = Stage(
            self._actors,
            end_ns,
            counter,
            first_code=order.number * CODES,
            failures_max=0 if plan.keep_going else HOPELESS_AFTER,
        )
        first, count = self._actors.users
        self._users = virtual_users(loaded, order, self._stage, first=first, count=count)
        self._wake_read, wake = os.pipe()
        kind = Coroutines if loaded.is_async else Performers
        self._performers = kind(self._users, lambda: os.write(wake, b"."))
        self._cpu_ns = 0
        self._writer = PipeWriter(channel)

    def set_up(self) -> None:
        """Sets up the users, and reports that they are ready. Raises WorkloadError."""
        with self._watched():
            self._performers.set_up()
        self._writer.send("ready", self._performers.name)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Ends the process if pgpaces ends meanwhile, or closes the channel."""
        ready = threading.Event()

        def watch() -> None:
            while not ready.is_set():
                _has_turn(_STUCK_SET_UP_S)
                if self._channel.poll(_TURN_S):
                    _end_all()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ready.set()
            thread.join()
            # The next message may take long: other processes set up as well.
            faulthandler.cancel_dump_traceback_later()

    def run(self) -> None:
        kind, *words = self._channel.recv()
        if kind != "begin":
            return
        self._cpu_ns = time.process_time_ns()
        self._stage.begin(words[0])
        self._performers.begin()
        grace_ns = self._order.plan.grace_ns
        while True:
            _has_turn(grace_ns / 1e9 + _STUCK_S)
            now, end_ns = self._stage.now(), self._stage.end_ns
            done = all(user.done for user in self._users)
            if (done and (now >= end_ns or end_ns >= NEVER_NS)) or now >= end_ns + grace_ns:
                break
            rest_ns = SECOND_NS - now % SECOND_NS
            until = min(rest_ns, max(0, (end_ns if now < end_ns else end_ns + grace_ns) - now))
            for ready in wait([self._channel, self._wake_read], until / 1e9):
                if ready == self._wake_read:
                    os.read(self._wake_read, 1)
                elif self._receive():
                    grace_ns = 0
            if self._stage.hopeless is not None:
                self._performers.moved()
            cpu_ns = time.process_time_ns()
            if batches := self._actors.fetch(self._stage.now(), cpu_ns - self._cpu_ns):
                self._cpu_ns = cpu_ns
                self._send("second", batches)
        _has_turn(_PUT_AWAY_S + _STUCK_S)
        now = self._stage.now()
        self._stage.moved.set()
        self._stage.close()
        self._prints.end()
        self._actors.abandon(now, self._stage.end_ns)
        spent_ns = time.process_time_ns() - self._cpu_ns
        self._send("last", self._actors.fetch_last(max(now, self._stage.now()), spent_ns))
        self._performers.end(_PUT_AWAY_S)
        self._writer.send("bye")
        faulthandler.cancel_dump_traceback_later()
        self._writer.end()

    def _receive(self) -> bool:
        """Handles a message of pgpaces; whether the load ends at once."""
        kind, *words = self._channel.recv()
        if kind == "end":
            self._stage.end_at(words[0])
            self._performers.moved()
        return bool(kind == "abort")

    def _send(self, kind: str, batches: list[bytes]) -> None:
        names, late_ns = dict(self._stage.names), self._performers.take_lateness()
        self._writer.send(kind, batches, names, late_ns, self._stage.hopeless)


def _end_all() -> NoReturn:
    """Ends this process and the programs of its tasks: pgpaces, which would do it, has ended."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _has_turn(next_s: float) -> None:
    """Ends the process with the stacks of its threads, unless this is called again by then.

    Nothing else works while a task holds the interpreter.
    """
    faulthandler.dump_traceback_later(next_s, exit=True, file=2)


def _users(order: ProcessOrder) -> users.Users:
    read = order.users
    if read is not None and read.path is not None and read.folder is not None:
        loaded = users.of_text(read.text, read.path, read.folder)
        sys.path.insert(0, str(read.folder))  # for imports within functions
        return loaded
    import pickle

    try:
        functions = pickle.loads(order.functions)
    except Exception as error:
        raise WorkloadError("tasks-not-loaded", why=users.describe(error)) from None
    return users.of_functions(functions)


def main() -> None:
    """Ends with the process that started it, whatever happens."""
    channel = Connection(int(sys.argv[1]))
    code = 1
    try:
        order = channel.recv()
        sys.path[:] = order.modules or sys.path
        sys.setswitchinterval(_SWITCH_S)
        process = Process(channel, order)
        process.set_up()
        process.run()
        code = 0
    except PgpacesError as error:
        channel.send(("refused", error))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        _end_all()
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        # Without waiting for threads that hang.
        os._exit(code)


if __name__ == "__main__":
    main()
