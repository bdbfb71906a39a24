"""A load of users that are Python functions: starts their processes, and adds up their seconds.

Knows no server, store or terminal.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlencode

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces import _engine
from pgpaces.core.errors import HopelessError, RunError, WorkloadError, hopeless_name
from pgpaces.core.findings import Finding, finding
from pgpaces.core.home import python_path
from pgpaces.core.record import Interval, copied
from pgpaces.core.times import merge, times_of
from pgpaces.load import engine
from pgpaces.load.engine import EnginePlan, short_slice
from pgpaces.load.python_users.order import (
    STUCK,
    ProcessOrder,
    SharedCounter,
    UserConnection,
    hidden,
)
from pgpaces.spec.target import without_secrets
from pgpaces.spec.users import Users

SECOND_NS = 1_000_000_000
# As in the engine: every process has received a new end by then.
_NOTICE_NS = 100_000_000
_HEAD_START_NS = 10_000_000
# A process may be silent for its grace period and this time, before it counts as lost.
_SILENT_S = 10.0
_BYE_S = 7.0
# Python's warning about a coroutine without `await`.
_UNAWAITED = "was never awaited"
_TAIL_LINES, _TAIL_S = 20, 1.0
_HEARD_LINES = 2000
# Frames of pgpaces and Python above those of a task, or of a thread that waits for its turn.
_OURS = re.compile(r'File "[^"]*(/threading|/selectors|/python_users/\w+)\.py"')


class _Process(Struct):
    """One process. batches: its unread seconds. over: it has sent the last one.

    killed: also what its functions had started.
    """

    child: subprocess.Popen[bytes]
    channel: Connection
    tail: ProcessTail
    batches: deque[bytes] = field(default_factory=deque)
    over: bool = False
    lost: bool = False
    killed: bool = False

    @property
    def ended(self) -> bool:
        return (self.over or self.lost) and not self.batches

    def kill(self) -> None:
        """Ends it and the programs that its functions have started."""
        if self.killed:
            return
        self.killed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.kill()
        self.child.wait()


class UsersLoad:
    """A composite.RunningLoad of Python users."""

    notice_ns = _HEAD_START_NS

    def __init__(
        self,
        plan: EnginePlan,
        users: Users,
        scripts: Sequence[tuple[str, int]],
        *,
        way: UserConnection,
    ) -> None:
        """Starts the processes, which set up every user. Raises PgpacesError.

        scripts: names and weights of the tasks that run.
        """
        self.scripts, self.clients = len(scripts), plan.clients
        self.threads = min(plan.threads, plan.clients)
        self._plan, self._names = replace(plan, threads=self.threads, log=None), dict[str, str]()
        self._task_names = [name for name, _ in scripts]
        self._ledger = _engine.Ledger(self._plan, [weight for _, weight in scripts])
        self._counter = SharedCounter() if plan.load == "open" else None
        self._origin_ns: int | None = None
        self.end_ns = 2**62 if plan.duration_ns is None else plan.duration_ns
        self._error: RunError | None = None
        self._stopped = False
        self._unawaited = ""
        self._late_ns: list[int] = []  # of their probes, not in an interval yet
        self.poll = "Python"
        begun = time.monotonic_ns()
        functions = [*(task.function for task in users.tasks), *filter(None, [users.setup])]
        order = ProcessOrder(
            plan=self._plan,
            number=0,
            scripts=tuple(scripts),
            way=way,
            users=replace(users, tasks=(), setup=None) if users.path else None,
            functions=b"" if users.path else pickled(functions),
            modules=tuple(sys.path),
            counter=None if self._counter is None else self._counter.file,
        )
        self._processes: list[_Process] = []
        try:
            with short_slice(plan.load):
                for number in range(self.threads):
                    self._processes.append(_started(replace(order, number=number)))
            for process in self._processes:
                self._ready(process)
        except BaseException:
            self._kill()
            raise
        self.connect_ns = time.monotonic_ns() - begun

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (finding("task-not-awaited", task=self._unawaited),) if self._unawaited else ()

    def begin(self, ahead_ns: int = 0) -> None:
        """Lets the users act ahead_ns from now, or slightly later."""
        ahead = max(ahead_ns, _HEAD_START_NS) + self._plan.warmup_ns
        origin_ns = time.monotonic_ns() + ahead
        self._say("begin", origin_ns)
        self._origin_ns = origin_ns  # now: another thread that stops it must not send its end first
        if self._stopped:
            self.stop()

    def stop(self) -> None:
        self._stopped = True
        if self._origin_ns is not None:
            passed = time.monotonic_ns() - self._origin_ns + _NOTICE_NS
            self.end_ns = min(self.end_ns, passed)
            self._say("end", self.end_ns)

    def abort(self) -> None:
        self.stop()
        if self._origin_ns is None:
            self.end_ns = -self._plan.warmup_ns  # nothing falls due
            self._kill()
            for process in self._processes:
                process.lost = True
        self._say("abort")

    def _say(self, *words: Any) -> None:
        for process in self._processes:
            # The end of a process shows where its output is read.
            with contextlib.suppress(OSError):
                process.channel.send(words)

    def _ready(self, process: _Process) -> None:
        try:
            kind, *words = process.channel.recv()
        except (EOFError, OSError):
            raise self._lost(process) from None
        if kind == "refused":
            (error,) = words
            raise WorkloadError(error.name, **error.values).at(error.about)
        (self.poll,) = words

    def __iter__(self) -> Iterator[Interval]:
        if self._origin_ns is None:
            self.begin()
        try:
            over = False
            while not over:
                batches = [b for process in self._processes for b in self._next(process)]
                over = all(process.ended for process in self._processes)
                yield self._second(batches, over=over)
        finally:
            self._end()
        if self._error is not None:
            raise self._error

    def _second(self, batches: list[bytes], *, over: bool) -> Interval:
        if not over:
            return self._named(self._ledger.interval(batches, self.end_ns))
        count = self._counter.count if self._counter else 0
        lost = any(process.lost for process in self._processes)
        interval = self._ledger.last(batches, self.end_ns, count, lost)
        if self.end_ns >= 2**62:
            self.end_ns = max(0, interval.ended_ns)
        return self._named(interval)

    def _next(self, process: _Process) -> list[bytes]:
        while not process.batches and not process.ended:
            self._receive(process)
        return [process.batches.popleft()] if process.batches else []

    def _receive(self, process: _Process) -> None:
        patience_s = self._plan.grace_ns / 1e9 + _SILENT_S
        if self._origin_ns is not None:  # not before the first second begins
            patience_s += max(0.0, (self._origin_ns - time.monotonic_ns()) / 1e9)
        try:
            if not process.channel.poll(patience_s):
                self._lose(process, silent=True)
                return
            kind, *words = process.channel.recv()
        except (EOFError, OSError):
            self._lose(process)
            return
        if kind in ("second", "last"):
            batches, names, late_ns, hopeless = words
            self._names.update(names)
            self._late_ns += late_ns
            process.batches.extend(batches)
            process.over = kind == "last"
            if hopeless is not None and self._error is None:
                script, state, why = hopeless
                values = {"script": self._task_names[script], "why": why, "sqlstate": state}
                self._error = HopelessError(hopeless_name(state), **values)
                self.abort()

    def _lose(self, process: _Process, *, silent: bool = False) -> None:
        process.lost = True
        process.child.kill()
        error = self._lost(process, silent=silent)
        self._error = self._error or error
        self.abort()

    def _lost(self, process: _Process, *, silent: bool = False) -> RunError:
        process.child.wait()
        process.kill()
        code = process.child.returncode
        output = process.tail.text()
        if (stack := process.tail.stuck()) is not None:
            return RunError("users-stuck", stack=stack)
        output = output and f":\n{output}"
        if silent:
            return RunError("users-silent", output=output)
        if code < 0:
            return RunError("users-killed", signal=-code, output=output)
        return RunError("users-ended", code=code, output=output)

    def _end(self) -> None:
        """Waits for the tear-down of the users, for _BYE_S at most."""
        until = time.monotonic() + _BYE_S
        for process in self._processes:
            with contextlib.suppress(EOFError, OSError):
                left = process.over and not process.lost
                while left and process.channel.poll(max(0.0, until - time.monotonic())):
                    left = process.channel.recv()[0] != "bye"
        self._kill()

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.channel.close()
        if self._counter is not None:
            self._counter.close()
            self._counter = None

    def _named(self, coded: _engine.Interval) -> Interval:
        """An interval with the names of exception classes instead of their codes."""
        interval, late_ns = copied(Interval, coded), self._late_ns
        self._late_ns = []
        warnings = (text for _, text in interval.lines if _UNAWAITED in text)
        self._unawaited = self._unawaited or next(warnings, "").rpartition("Warning: ")[2]
        if interval.dispatch.count < len(late_ns):  # few users were free when a transaction was due
            dispatch = merge([interval.dispatch, times_of(late_ns)])
            interval = replace(interval, dispatch=dispatch)
        if not self._names:
            return interval
        tallies = []
        for tally in interval.tallies:
            failed: Counter[str] = Counter()
            for code, count in tally.failed.items():
                failed[self._names.get(code, code)] += count
            tallies.append(replace(tally, failed=dict(failed)))
        messages = tuple((self._names.get(c, c), text) for c, text in interval.messages)
        return replace(interval, tallies=tuple(tallies), messages=messages)


# libpq's defaults.
_USUAL = {
    "channel_binding": ("prefer",),
    "gssdelegation": ("0",),
    "gssencmode": ("prefer", "disable"),
    "krbsrvname": ("postgres",),
    "load_balance_hosts": ("disable",),
    "ssl_min_protocol_version": ("TLSv1.2",),
    "sslcompression": ("0",),
    "sslmode": ("prefer",),
    "sslnegotiation": ("postgres",),
    "sslsni": ("1",),
    "target_session_attrs": ("any",),
}


def user_connection(connection: engine.Connection, variables: Mapping[str, str]) -> UserConnection:
    keywords = engine.for_driver(connection)
    shown = without_secrets(keywords)
    secrets = tuple(value for name, value in keywords.items() if value and name not in shown)
    return UserConnection(uri(keywords), variables, secrets)


def uri(keywords: dict[str, str]) -> str:
    """A connection as a URI that libpq and drivers with their own parsers understand.

    Without libpq's defaults, because some drivers know fewer keywords.
    """
    rest = {
        name: value
        for name, value in keywords.items()
        if name != "dbname" and value and value not in _USUAL.get(name, ())
    }
    if "password" in rest:
        rest.pop("passfile", None)
    return f"postgresql:///{quote(keywords['dbname'], safe='')}?{urlencode(rest, quote_via=quote)}"


def by_value(users: Users) -> bytes:
    """Users for another machine: those of a file by its text and its modules, others by value.

    Its modules are those that it has imported from its folder. Raises WorkloadError.
    """
    if users.path is None:
        return pickled((users, {}))
    return pickle.dumps((replace(users, tasks=(), setup=None), _modules(users.folder)))


def _modules(folder: Path | None) -> dict[str, bytes]:
    files = (getattr(module, "__file__", None) for module in tuple(sys.modules.values()))
    paths = [Path(file) for file in files if file and folder and file.endswith(".py")]
    inside = (path for path in paths if folder and path.is_relative_to(folder) and path.exists())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in inside if folder}


def from_value(data: bytes, folder: Path) -> Users:
    """Users that came by value; the modules of their file are written to this folder."""
    users: Users
    modules: dict[str, bytes]
    users, modules = pickle.loads(data)
    for name, content in modules.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return users if users.path is None else replace(users, folder=folder)


def pickled(functions: Any) -> bytes:
    """Functions by value, with everything that they use. Raises WorkloadError."""
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(functions)
    except Exception as error:
        raise WorkloadError("tasks-not-sent", why=" ".join(str(error).split())) from None
    return data


def _started(order: ProcessOrder) -> _Process:
    ours, theirs = socket.socketpair()
    files = [theirs.fileno(), *([] if order.counter is None else [order.counter])]
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    variables["PYTHONPATH"] = python_path()
    words = [sys.executable, "-P", "-m", "pgpaces.load.python_users.process", str(files[0])]
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=files,
            env=variables,
            start_new_session=True,
        )
    except OSError as error:
        raise RunError("users-not-started", why=error.strerror) from None
    finally:
        theirs.close()
    assert child.stdout is not None
    process = _Process(
        child, Connection(ours.detach()), ProcessTail(child.stdout, order.way.secrets)
    )
    # The end of a process shows where its output is read.
    with contextlib.suppress(OSError):
        process.channel.send(order)
    return process


class ProcessTail:
    """The last lines of a process's output, apart from the prints of its functions.

    It does not keep the process alive: that ends when its channel is closed.
    """

    def __init__(self, stream: IO[bytes], secrets: tuple[str, ...]) -> None:
        self._lines: deque[str] = deque(maxlen=_HEARD_LINES)
        self._thread = threading.Thread(target=self._keep, args=(stream, secrets), daemon=True)
        self._thread.start()

    def _keep(self, stream: IO[bytes], secrets: tuple[str, ...]) -> None:
        for line in stream:
            self._lines.append(hidden(line.decode("utf-8", "replace").rstrip(), secrets))

    def text(self) -> str:
        self._thread.join(_TAIL_S)  # its children may hold its output open
        return "\n".join(list(self._lines)[-_TAIL_LINES:])

    def stuck(self) -> str | None:
        """The stacks of its functions, if it ended because no thread got a turn; else None."""
        output = "\n".join(self._lines)
        if STUCK not in output:
            return None
        blocks = output.rpartition(STUCK)[2].partition("\n")[2].split("\n\n")
        threads = [block.splitlines()[1:] for block in blocks]
        stacks = [takewhile(lambda frame: not _OURS.search(frame), frames) for frames in threads]
        return "\n".join(line for frames in stacks for line in frames)
