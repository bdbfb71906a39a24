"""What runs in each process of users: performs them, and tells every second what became of it.

Started as `python -P -m pgpaces.generators.users.process FD`, where FD is one end of a socket whose
other end pgpaces holds. It hears pickled tuples there: an `ProcessOrder` first, then

    ("begin", ns)   the measured part begins then, by the monotonic clock that all processes share
    ("end", ns)     nothing falls due then or later, from the start of the measured part
    ("abort",)      ends at once

and tells `("refused", message, hint)` or `("ready", poll, ns an action costs)`, then `("second",
[bytes], names, [ns late])` for seconds that are over, `("last", ...)` alike, and `("bye",)` when
what users had is put away. When nobody listens any more it ends, whatever its users do; also where
one of them holds the interpreter, so that nothing here has its turn.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait

from pgpaces import _engine, users
from pgpaces.errors import PgpacesError, WorkloadError
from pgpaces.generators.engine import EnginePlan
from pgpaces.generators.users.counter import SharedCounter
from pgpaces.generators.users.order import CODES, ProcessOrder, hidden
from pgpaces.generators.users.virtual_users import (
    NEVER_NS,
    Cast,
    Coroutines,
    Stage,
    Threads,
    VirtualUser,
    cost_ns,
)
from pgpaces.plan import Load, TrialPlan

SECOND_NS = 1_000_000_000
# Threads that wait for the interpreter get it so soon: else what is due waits for what is done.
_SWITCH_S = 0.0005
_PUT_AWAY_S = 5.0
_TURN_S = 0.1
# So much longer than its grace nothing here may have its turn; and so long while users are set up.
_STUCK_S, _STUCK_SET_UP_S = 3.0, 60.0
_CALIBRATED = 500


class _Said(io.TextIOBase):
    """What functions print: whole lines, to the record."""

    def __init__(self, actors: _engine.Actors, secrets: tuple[str, ...]) -> None:
        self._actors, self._secrets = actors, secrets
        self._begun: dict[int, str] = {}

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Keeps lines apart by threads."""
        thread = threading.get_ident()
        *lines, rest = (self._begun.pop(thread, "") + text).split("\n")
        if rest:
            self._begun[thread] = rest
        for line in lines:
            self._say(line)
        return len(text)

    def end(self) -> None:
        """What was begun and is no whole line is one now."""
        for line in [self._begun.pop(thread) for thread in tuple(self._begun)]:
            self._say(line)

    def _say(self, line: str) -> None:
        shown = hidden(line, self._secrets)
        self._actors.say(shown.encode("utf-8", "backslashreplace").decode())


class PipeWriter:
    """Tells pgpaces, in a thread of its own: one that does not listen for a while keeps nobody."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        self._waiting: queue.SimpleQueue[tuple[object, ...] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def tell(self, *words: object) -> None:
        """Waits for nothing."""
        self._waiting.put(words)

    def end(self) -> None:
        """Waits until all is told."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        try:
            while (words := self._waiting.get()) is not None:
                self._channel.send(words)
        except OSError:
            os._exit(1)  # nobody listens any more


class Process:
    """The users of one process, and what is told of them."""

    def __init__(self, channel: Connection, order: ProcessOrder) -> None:
        """Raises WorkloadError, PlanError."""
        plan = order.plan
        self._channel, self._order = channel, order
        self._actors = _engine.Actors(plan, list(order.weights), order.number)
        # Before anything of theirs is run: what logs keeps what it finds there.
        self._said = sys.stdout = sys.stderr = _Said(self._actors, order.secrets)
        self._cast = Cast(
            _users(order), order.names, order.dsn, order.variables, plan.seed, order.secrets
        )
        end_ns = NEVER_NS if plan.duration_ns is None else plan.duration_ns
        counter = None if order.counter is None else SharedCounter(order.counter)
        self._stage = Stage(self._actors, end_ns, counter, order.number * CODES)
        first, count = self._actors.users
        self._users: list[VirtualUser] = self._cast.virtual_users(self._stage, first, count)
        self._wake_read, self._wake = os.pipe()
        kind = Coroutines if self._cast.users.is_async else Threads
        self._performers: Threads | Coroutines = kind(self._users, self._over)
        self._cpu_ns = 0
        self._teller = PipeWriter(channel)

    def set_up(self) -> None:
        """Makes what users have, and says that they are ready. Raises WorkloadError."""
        trial = TrialPlan(Load("closed"), duration_ns=None, transactions=_CALIBRATED)
        cost = cost_ns(EnginePlan.of(trial, 1, 1, ["act"]), shared=self._order.counter is not None)
        with self._watched():
            self._performers.set_up()
        self._teller.tell("ready", self._performers.name, cost)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Ends the process when pgpaces ends meanwhile, or wants nothing of it any more."""
        ready = threading.Event()

        def watch() -> None:
            while not ready.is_set():
                _has_turn(_STUCK_SET_UP_S)
                if self._channel.poll(_TURN_S):
                    os._exit(1)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ready.set()
            thread.join()
            # What comes next may be long in coming: others set up as well.
            faulthandler.cancel_dump_traceback_later()

    def run(self) -> None:
        """Performs them to the end, and tells every second."""
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
            behind = SECOND_NS - now % SECOND_NS
            until = min(behind, max(0, (end_ns if now < end_ns else end_ns + grace_ns) - now))
            for ready in wait([self._channel, self._wake_read], until / 1e9):
                if ready == self._wake_read:
                    os.read(self._wake_read, 1)
                elif self._hear():
                    grace_ns = 0
            cpu_ns = time.process_time_ns()
            if batches := self._actors.fetch(self._stage.now(), cpu_ns - self._cpu_ns):
                self._cpu_ns = cpu_ns
                self._tell("second", batches)
        _has_turn(_PUT_AWAY_S + _STUCK_S)
        now = self._stage.now()
        self._stage.moved.set()
        self._said.end()
        self._actors.abandon(now, self._stage.end_ns)
        spent_ns = time.process_time_ns() - self._cpu_ns
        self._tell("last", self._actors.fetch_last(max(now, self._stage.now()), spent_ns))
        self._performers.end(_PUT_AWAY_S)
        self._teller.tell("bye")
        faulthandler.cancel_dump_traceback_later()
        self._teller.end()

    def _hear(self) -> bool:
        """What pgpaces says; whether it ends at once: when nothing falls due any more."""
        kind, *words = self._channel.recv()
        if kind == "end":
            self._stage.end_at(words[0])
            self._performers.moved()
        return bool(kind == "abort")

    def _tell(self, kind: str, batches: list[bytes]) -> None:
        names, late_ns = dict(self._stage.names), self._performers.probe.told()
        self._teller.tell(kind, batches, names, late_ns)

    def _over(self) -> None:
        os.write(self._wake, b".")


def _has_turn(next_s: float) -> None:
    """Ends the process, and says where each thread is, unless this is called again by then.

    No other way comes through where a task holds the interpreter.
    """
    faulthandler.dump_traceback_later(next_s, exit=True, file=2)


def _users(order: ProcessOrder) -> users.Users:
    if order.path is not None and order.folder is not None:
        found = users.of_text(order.text, order.path, order.folder)
        sys.path.insert(0, str(order.folder))  # for what functions import
        return found
    import pickle

    try:
        functions = pickle.loads(order.functions)
    except Exception as error:
        raise WorkloadError(
            f"the tasks cannot be made again in another process: {users.told(error)}",
            "they and what they use must be importable there, or defined beside them",
        ) from None
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
        channel.send(("refused", error.message, error.hint))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        # Threads that hang may not keep it.
        os._exit(code)


if __name__ == "__main__":
    main()
