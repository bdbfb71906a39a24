"""Virtual users of one process: each waits for its next action, performs it, records the outcome.

The life of a user is one coroutine. If tasks are coroutines, an event loop runs those of all users.
If tasks are functions, each user has a thread: what the coroutine waits for blocks, so it never
suspends, and `run_blocking` runs it from its beginning to its end. Knows no pipe and no other
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import re
import selectors
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct, field

from pgpaces import _engine
from pgpaces.core.errors import WorkloadError
from pgpaces.load.python_users.order import CODES, ProcessOrder, SharedCounter, hidden
from pgpaces.spec.users import Call, Users, call, describe

T = TypeVar("T")
NEVER_NS = 2**62
# Concurrent set-ups: a server refuses too many connections at once.
_AT_ONCE = 16
# Pauses between attempts to reconnect, which double from the first to the last.
_PAUSE_FIRST_S, _PAUSE_LAST_S = 0.05, 1.0
# Maximum wait for coroutines to give up control.
_TURN_S = 1.0
# As in the engine: after so many failures of these classes in a process, the tasks that never
# succeeded there will not, because of bad values, logins, names, rights or syntax.
HOPELESS_AFTER, _COMES_AGAIN = 50, ("22", "28", "3D", "3F", "42")
_PROBE_NS = 20_000_000


class Stage:
    """The shared schedule, record, clock and end of the users of a process.

    end_ns: nothing falls due then or later, from the start of the measured part; NEVER_NS: it ends
    by count. names: exception classes by their codes in the record. hopeless: the number of the
    task, the SQLSTATE and the message of the failure that showed that the tasks cannot work.
    """

    def __init__(
        self,
        actors: _engine.Actors,
        end_ns: int,
        counter: SharedCounter | None = None,
        *,
        first_code: int = 0,
        failures_max: int = 0,
    ) -> None:
        """failures_max: of tasks that never succeeded; 0: any number."""
        self.actors, self.end_ns = actors, end_ns
        self.moved = threading.Event()  # the end was moved
        self.names: dict[str, str] = {}
        self._counter, self._order = counter, threading.Lock()
        self._over = False
        self._first_code, self._naming = first_code, threading.Lock()
        self._origin_ns = 0
        self.hopeless: tuple[int, str, str] | None = None
        self._works: set[int] = set()
        self._failures: Counter[int] = Counter()
        self._failures_max = failures_max

    def begin(self, origin_ns: int) -> None:
        self._origin_ns = origin_ns

    def now(self) -> int:
        """The time from the start of the measured part, ns."""
        return time.monotonic_ns() - self._origin_ns

    def end_at(self, end_ns: int) -> None:
        self.end_ns = min(self.end_ns, end_ns)
        self.moved.set()

    def close(self) -> None:
        """Nothing is taken any more: what is left is unfinished."""
        with self._order:
            self._over = True

    def next(self, place: int, since_ns: int) -> tuple[int, int] | None:
        """The time and the task of this user's next action; None if there is none."""
        with self._order:  # numbers must increase from call to call
            if self._over:
                return None
            if self._counter is None:
                return self.actors.next(place, since_ns, self.end_ns)
            number = self._counter.take()
            while not self.actors.owns(number):
                number = self._counter.take()
            return self.actors.next(place, since_ns, self.end_ns, number)

    def worked(self, script: int) -> None:
        self._works.add(script)

    def failed(self, script: int, error: BaseException, message: str) -> bytes:
        """Records the message of a failure; returns its SQLSTATE, or a code for its class."""
        state = _sqlstate(error) or self._code(type(error).__name__)
        self.actors.message(state.encode(), message)
        if self._failures_max and state[:2] in _COMES_AGAIN and self.hopeless is None:
            self._failures[script] += 1
            counts = (n for task, n in self._failures.items() if task not in self._works)
            if script not in self._works and sum(counts) >= self._failures_max:
                self.hopeless = script, state, message
                self.end_at(self.now())
        return state.encode()

    def _code(self, name: str) -> str:
        """The code for the name of an exception class; the last code is for all other classes."""
        with self._naming:
            codes = {own: code for code, own in self.names.items()}
            if name not in codes and len(codes) >= CODES - 1:
                name = "Exception"
            code = codes.get(name) or f"~{self._first_code + len(codes):04x}"
            self.names = {**self.names, code: name}
        return code


def _sqlstate(error: BaseException) -> str | None:
    """From psycopg, asyncpg, psycopg2 and SQLAlchemy; None for errors that are not the server's."""
    for one in (error, getattr(error, "orig", None)):
        for name in ("sqlstate", "pgcode"):
            state = None
            with contextlib.suppress(Exception):  # a property of foreign code
                state = getattr(one, name, None)
            if isinstance(state, str) and re.fullmatch("[0-9A-Z]{5}", state):
                return state
    return None


# Attributes of a lost connection in psycopg, asyncpg, psycopg2 (a number) and SQLAlchemy.
_LOST = ("closed", "is_closed", "invalidated")


def _is_true(value: Any, name: str) -> bool:
    with contextlib.suppress(Exception):
        attribute = getattr(value, name, None)
        result = attribute() if callable(attribute) else attribute
        return isinstance(result, int) and bool(result)
    return False


class VirtualUser(Struct):
    """One user. values: arguments of its functions by name; setup: its generator, once begun."""

    stage: Stage
    place: int
    values: dict[str, Any]
    calls: Sequence[Call]
    make: Callable[..., Any]
    describe: Callable[[BaseException], str]
    setup: Any = None
    pause_s: float = 0.0
    acts: bool = False
    done: bool = False
    arguments: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_lost(self) -> bool:
        """Whether it has no connection any more, as far as its set-up shows that."""
        value = self.values["setup"]
        return self.setup is None or any(_is_true(value, name) for name in _LOST)

    async def live(self, performers: Performers) -> None:
        stage, since = self.stage, self.stage.now()
        while (due := stage.next(self.place, since)) is not None:
            at, script = due
            if not await performers.wait(at):
                break
            if not stage.actors.start(self.place, since, stage.now()):
                continue
            self.acts, failure = True, None
            try:
                if self.setup is None:
                    await self.set_up()
                self.values["loop"] += 1
                arguments = self.arguments[script]
                if "loop" in arguments:
                    arguments["loop"] = self.values["loop"]
                result = self.calls[script].function(**arguments)
                if performers.is_async:
                    await result
                stage.worked(script)
            except BaseException as error:
                if performers.are_cancelled():
                    raise  # the run is over
                failure = stage.failed(script, error, self.describe(error))
            since = stage.now()
            stage.actors.end(self.place, since, failure)
            self.acts = False
            if failure is not None and self.is_lost:
                since = await self._renew(since, performers)

    async def _renew(self, since_ns: int, performers: Performers) -> int:
        """Repeats its set-up; returns the time since which it is free."""
        await self.tear_down()
        try:
            await self.set_up()
        except BaseException:
            if performers.are_cancelled():
                raise
            self.pause_s = min(_PAUSE_LAST_S, max(_PAUSE_FIRST_S, 2 * self.pause_s))
            await performers.sleep(self.pause_s)
            return max(since_ns, self.stage.now())
        return since_ns

    async def set_up(self) -> None:
        generator = self.make()
        try:
            is_async = hasattr(generator, "__anext__")
            value = await anext(generator) if is_async else next(generator)
        except (StopIteration, StopAsyncIteration):
            raise WorkloadError("set-up-yields-nothing", user=self.values["number"]) from None
        self.values["setup"] = value
        self.arguments = [each.arguments({**self.values, "loop": 0}) for each in self.calls]
        self.setup, self.pause_s = generator, 0.0

    async def tear_down(self) -> None:
        generator, self.setup = self.setup, None
        with contextlib.suppress(BaseException):
            if hasattr(generator, "__anext__"):
                await anext(generator, None)
            elif generator is not None:
                next(generator, None)

    def refused(self, error: BaseException) -> WorkloadError:
        if isinstance(error, WorkloadError):
            return error
        number, why = self.values["number"], self.describe(error)
        return WorkloadError("set-up-failed", user=number, why=why)


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that blocks where others would suspend."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise AssertionError("it suspended")


class Exact(selectors.DefaultSelector):
    """Waits to the microsecond, where epoll alone would wait for whole milliseconds."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0 and hasattr(self, "fileno"):
            import select

            with contextlib.suppress(ValueError):  # a descriptor beyond what select can name
                select.select([self.fileno()], [], [], timeout)
                timeout = 0
        return super().select(timeout)


def virtual_users(
    users: Users, order: ProcessOrder, stage: Stage, *, first: int, count: int
) -> list[VirtualUser]:
    """The users of a process, numbered from `first`. Raises WorkloadError."""
    tasks, variables = {task.name: task.function for task in users.tasks}, order.way.variables
    calls = [call(tasks[name], variables, task=True) for name, _ in order.scripts]
    if users.setup is not None:
        make = call(users.setup, variables, task=False)
    elif any("setup" in each.sources.values() for each in calls):
        make = call(_connected_async if users.is_async else _connected, {}, task=False)
    else:
        make = call(_nothing, {}, task=False)

    def described(error: BaseException) -> str:
        text = hidden(describe(error, users.path), order.way.secrets)
        return text.encode("utf-8", "backslashreplace").decode()

    made = []
    for place in range(count):
        number = first + place
        rng = random.Random(f"{order.plan.seed}/{number}")
        values = {"dsn": order.way.dsn, "number": number, "rng": rng, "loop": 0, "setup": None}
        begin = partial(make.function, **make.arguments(values))
        made.append(VirtualUser(stage, place, values, calls, begin, described))
    return made


def _connected(dsn: str) -> Any:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


async def _connected_async(dsn: str) -> Any:
    import psycopg

    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


def _nothing() -> Any:
    yield None


class Performers:
    """All users of a process, each in a thread. over: called when all of them are done."""

    name = "Python threads"
    is_async = False

    def __init__(self, users: Sequence[VirtualUser], over: Callable[[], object]) -> None:
        self._users, self._over, self._stage = users, over, users[0].stage
        self._lock = threading.Lock()
        self._late_ns: list[int] = []
        self._begun, self._left = threading.Event(), threading.Event()
        self._slots = threading.Semaphore(_AT_ONCE)
        self._errors: list[WorkloadError] = []
        self._ready = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def set_up(self) -> None:
        for count, user in enumerate(self._users):
            self._threads.append(threading.Thread(target=self._life, args=(user,), daemon=True))
            try:
                self._threads[-1].start()
            except RuntimeError as error:
                raise WorkloadError(
                    "too-few-threads", users=len(self._users), count=count, why=str(error)
                ) from None
        for _ in self._threads:
            self._ready.acquire()
            if self._errors:  # without waiting for the others, which may hang
                raise self._errors[0]

    def begin(self) -> None:
        threading.Thread(target=lambda: run_blocking(self._probe()), daemon=True).start()
        self._begun.set()

    def moved(self) -> None:
        """The end was moved."""

    def end(self, patience_s: float) -> None:
        """Tears down all users that do not hang."""
        for user in self._users:
            if user.acts:
                _cancel(user.values["setup"])
        until = time.monotonic() + patience_s
        self._left.set()
        for user, thread in zip(self._users, self._threads, strict=True):
            if user.done:  # else it hangs, and ends with the process
                thread.join(max(0.0, until - time.monotonic()))

    def are_cancelled(self) -> bool:
        return False

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def _rest(self, seconds: float) -> None:
        """Sleeps, but not for long after the end was moved."""
        if self._stage.moved.is_set():
            time.sleep(seconds)
        else:
            self._stage.moved.wait(seconds)

    def _life(self, user: VirtualUser) -> None:
        try:
            with self._slots:
                run_blocking(user.set_up())
        except BaseException as error:
            self._errors.append(user.refused(error))
        finally:
            self._ready.release()
        self._begun.wait()
        run_blocking(self._live(user))
        self._left.wait()
        run_blocking(user.tear_down())

    async def wait(self, at_ns: int) -> bool:
        """Waits until then; False if the run ends earlier."""
        while (left := at_ns - self._stage.now()) > 0:
            if at_ns >= self._stage.end_ns:
                return False
            await self._rest(left / 1e9)
        return at_ns < self._stage.end_ns

    async def _live(self, user: VirtualUser) -> None:
        try:
            await user.live(self)
        finally:
            with self._lock:
                user.done = True
                if all(each.done for each in self._users):
                    self._over()

    async def _probe(self) -> None:
        """A user that does nothing, fifty times a second: its lateness is that of its process.

        Free users show the lateness themselves when a transaction is due. If all are busy, none
        does, and a process without CPU would look like a slow server. If it sleeps through several
        due times, each is late.
        """
        at_ns = time.monotonic_ns()
        while True:
            at_ns += _PROBE_NS
            await self.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
            self._late_ns.append(max(0, time.monotonic_ns() - at_ns))

    def take_lateness(self) -> list[int]:
        """The lateness of each wake-up of the probe since the last call, ns."""
        late_ns, self._late_ns = self._late_ns, []
        return late_ns


def _cancel(value: Any) -> None:
    """Cancels the query that a driver waits for, if the driver supports that."""
    cancel = getattr(value, "cancel", None)
    with contextlib.suppress(Exception):
        if callable(cancel) and not inspect.iscoroutinefunction(cancel):
            cancel()


class Coroutines(Performers):
    """All users of a process in one event loop."""

    name = "asyncio"
    is_async = True

    def __init__(self, users: Sequence[VirtualUser], over: Callable[[], object]) -> None:
        super().__init__(users, over)
        self._loop = asyncio.SelectorEventLoop(Exact())
        self._sleeping: set[asyncio.Future[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._probing: asyncio.Task[None] | None = None
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def set_up(self) -> None:
        self._wait_for(self._set_up(), None)

    def begin(self) -> None:
        self._loop.call_soon_threadsafe(self._begin)

    def moved(self) -> None:
        self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for woken in tuple(self._sleeping):
            _wake(woken)

    def end(self, patience_s: float) -> None:
        turn = threading.Event()
        self._loop.call_soon_threadsafe(turn.set)
        if not turn.wait(_TURN_S):
            return  # a task blocks all the others: they end with the process
        with contextlib.suppress(TimeoutError):
            self._wait_for(self._end(), patience_s)

    def are_cancelled(self) -> bool:
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _rest(self, seconds: float) -> None:
        woken = self._loop.create_future()
        timer = self._loop.call_later(seconds, _wake, woken)
        self._sleeping.add(woken)
        try:
            await woken
        finally:
            self._sleeping.discard(woken)
            timer.cancel()

    def _wait_for(self, what: Coroutine[Any, Any, None], timeout_s: float | None) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(timeout_s)

    async def _set_up(self) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(user: VirtualUser) -> None:
            async with slots:
                try:
                    await user.set_up()
                except BaseException as error:  # SystemExit would end the loop
                    raise user.refused(error) from None

        await asyncio.gather(*(one(user) for user in self._users))

    def _begin(self) -> None:
        self._probing = self._loop.create_task(self._probe())
        self._tasks = [self._loop.create_task(self._live(user)) for user in self._users]

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(user.tear_down() for user in self._users))


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
