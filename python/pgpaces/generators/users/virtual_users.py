"""Virtual users of one process: each waits until something is due, does it, records the outcome.

In threads where tasks are functions, as coroutines where they are that: both go through the same
schedule and record. Knows no pipe and no other process.
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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct, field

from pgpaces import _engine
from pgpaces.errors import WorkloadError
from pgpaces.generators.users.counter import SharedCounter
from pgpaces.generators.users.order import CODES, hidden
from pgpaces.generators.users.probe import WakeProbe
from pgpaces.users import Call, Users, call, told

NEVER_NS = 2**62
# So many set-ups at a time: connections that all come at once are refused.
_AT_ONCE = 16
# A connection that cannot be had again is not tried a thousand times a second.
_PAUSE_FIRST_S, _PAUSE_LAST_S = 0.05, 1.0
# Coroutines that give no turn in this time are not waited for.
_TURN_S = 1.0


class Stage:
    """What the users of a process share: schedule, record, clock, and when it ends.

    end_ns: nothing falls due then or later, from the start of the measured part; NEVER_NS: it ends
    by count.
    names: exception classes by the code that stands for each in the record.
    """

    def __init__(
        self,
        actors: _engine.Actors,
        end_ns: int,
        counter: SharedCounter | None = None,
        first_code: int = 0,
    ) -> None:
        self.actors, self.end_ns = actors, end_ns
        self.moved = threading.Event()  # the end was moved
        self.names: dict[str, str] = {}
        self._counter, self._order = counter, threading.Lock()
        self._first_code, self._naming = first_code, threading.Lock()
        self._origin_ns = 0

    def begin(self, origin_ns: int) -> None:
        """The measured part begins then, by the monotonic clock."""
        self._origin_ns = origin_ns

    def now(self) -> int:
        """The time from the start of the measured part, ns."""
        return time.monotonic_ns() - self._origin_ns

    def end_at(self, end_ns: int) -> None:
        """Ends earlier."""
        self.end_ns = min(self.end_ns, end_ns)
        self.moved.set()

    def next(self, place: int, since_ns: int) -> tuple[int, int] | None:
        """When this user acts next, and which task it is."""
        if self._counter is None:
            return self.actors.next(place, since_ns, self.end_ns)
        with self._order:  # numbers may not fall from call to call
            return self.actors.next(place, since_ns, self.end_ns, self._counter.take())

    def failed(self, error: BaseException, said: str) -> bytes:
        """The class of a failure, whose message is kept: its SQLSTATE, or a code for its name."""
        state = _sqlstate(error) or self._code(type(error).__name__)
        self.actors.message(state.encode(), said)
        return state.encode()

    def _code(self, name: str) -> str:
        """The code for the name of an exception class; the last one is for all that are left."""
        with self._naming:
            codes = {known: code for code, known in self.names.items()}
            if name not in codes and len(codes) >= CODES - 1:
                name = "Exception"
            code = codes.get(name) or f"~{self._first_code + len(codes):04x}"
            self.names = {**self.names, code: name}
        return code


def _sqlstate(error: BaseException) -> str | None:
    """As psycopg, asyncpg, psycopg2 and SQLAlchemy have it; None of what is not the server's."""
    for one in (error, getattr(error, "orig", None)):
        for name in ("sqlstate", "pgcode"):
            state = None
            with contextlib.suppress(Exception):  # somebody else's property
                state = getattr(one, name, None)
            if isinstance(state, str) and re.fullmatch("[0-9A-Z]{5}", state):
                return state
    return None


# What a lost connection says of itself, of psycopg, asyncpg, psycopg2 (in numbers) and SQLAlchemy.
_LOST = ("closed", "is_closed", "invalidated")


def _says(value: Any, name: str) -> bool:
    """Whether a value says that of itself, as a property or a method."""
    with contextlib.suppress(Exception):
        found = getattr(value, name, None)
        said = found() if callable(found) else found
        return isinstance(said, int) and bool(said)
    return False


class VirtualUser(Struct):
    """One user. given: what its functions get by name; setup: its generator, once it is begun."""

    stage: Stage
    place: int
    given: dict[str, Any]
    calls: Sequence[Call]
    make: Callable[..., Any]
    tell: Callable[[BaseException], str]
    setup: Any = None
    pause_s: float = 0.0
    acts: bool = False
    done: bool = False
    arguments: list[dict[str, Any]] = field(default_factory=list)

    def has(self, value: Any) -> None:
        """What set-up gave."""
        self.given["setup"] = value
        self.arguments = [each.arguments({**self.given, "loop": 0}) for each in self.calls]

    def asked(self, script: int) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The function of a task, and what it gets this time."""
        self.given["loop"] += 1
        found, arguments = self.calls[script], self.arguments[script]
        if "loop" in arguments:
            arguments["loop"] = self.given["loop"]
        return found.function, arguments

    def failed(self, error: BaseException) -> bytes:
        """What it did has failed; the class of that."""
        return self.stage.failed(error, self.tell(error))

    @property
    def is_lost(self) -> bool:
        """Whether what it has says that it is closed."""
        if self.setup is None:
            return True
        value = self.given["setup"]
        return any(_says(value, name) for name in _LOST)

    def back_off(self) -> float:
        """How long to wait before what it has is made again, s."""
        self.pause_s = min(_PAUSE_LAST_S, max(_PAUSE_FIRST_S, 2 * self.pause_s))
        return self.pause_s

    def live(self) -> None:
        """Acts as long as something is due, in a thread of its own."""
        stage, since = self.stage, self.stage.now()
        while (due := stage.next(self.place, since)) is not None:
            at, script = due
            if not self._wait(at):
                break
            if not stage.actors.start(self.place, since, stage.now()):
                continue
            self.acts, failure = True, None
            try:
                if self.setup is None:
                    self.set_up()
                function, arguments = self.asked(script)
                function(**arguments)
            except BaseException as error:
                failure = self.failed(error)
            since = stage.now()
            stage.actors.end(self.place, since, failure)
            self.acts = False
            if failure is not None and self.is_lost:
                since = self._renew(since)

    def _wait(self, at_ns: int) -> bool:
        """Until then; false where the run ends before."""
        while (left := at_ns - self.stage.now()) > 0:
            if at_ns >= self.stage.end_ns:
                return False
            if self.stage.moved.is_set():
                time.sleep(left / 1e9)
            else:
                self.stage.moved.wait(left / 1e9)
        return at_ns < self.stage.end_ns

    def _renew(self, since_ns: int) -> int:
        """Makes again what it had; since when it is free."""
        self.tear_down()
        try:
            self.set_up()
        except BaseException:
            self.stage.moved.wait(self.back_off())
            return max(since_ns, self.stage.now())
        return since_ns

    def set_up(self) -> None:
        """Makes what it has. Raises whatever that raises."""
        found = self.make()
        self.has(next(found))
        self.setup, self.pause_s = found, 0.0

    def tear_down(self) -> None:
        """Puts that away."""
        found, self.setup = self.setup, None
        if found is not None:
            with contextlib.suppress(BaseException):
                next(found, None)

    async def live_together(self, alarm: Alarm) -> None:
        """The same as a coroutine."""
        stage, since = self.stage, self.stage.now()
        while (due := stage.next(self.place, since)) is not None:
            at, script = due
            if not await alarm.wait(at):
                break
            if not stage.actors.start(self.place, since, stage.now()):
                continue
            self.acts, failure = True, None
            try:
                if self.setup is None:
                    await self.set_up_together()
                function, arguments = self.asked(script)
                await function(**arguments)
            except BaseException as error:
                if (itself := asyncio.current_task()) is not None and itself.cancelling():
                    raise  # the run is over
                failure = self.failed(error)
            since = stage.now()
            stage.actors.end(self.place, since, failure)
            self.acts = False
            if failure is not None and self.is_lost:
                since = await self._renew_together(since)

    async def _renew_together(self, since_ns: int) -> int:
        await self.tear_down_together()
        try:
            await self.set_up_together()
        except Exception:
            await asyncio.sleep(self.back_off())
            return max(since_ns, self.stage.now())
        return since_ns

    async def set_up_together(self) -> None:
        """Makes what it has. Raises whatever that raises."""
        found = self.make()
        self.has(await anext(found))
        self.setup, self.pause_s = found, 0.0

    async def tear_down_together(self) -> None:
        """Puts that away."""
        found, self.setup = self.setup, None
        if found is not None:
            with contextlib.suppress(BaseException):
                await anext(found, None)


class Exact(selectors.DefaultSelector):
    """Waits to the microsecond, where epoll alone would wait for whole milliseconds."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As any selector."""
        if timeout is not None and timeout > 0 and hasattr(self, "fileno"):
            import select

            with contextlib.suppress(ValueError):  # a descriptor beyond what select can name
                select.select([self.fileno()], [], [], timeout)
                timeout = 0
        return super().select(timeout)


class Alarm:
    """Wakes coroutines, when it is time or when the end is moved."""

    def __init__(self, stage: Stage, loop: asyncio.AbstractEventLoop) -> None:
        self._stage, self._loop = stage, loop
        self._sleeping: set[asyncio.Future[None]] = set()

    async def wait(self, at_ns: int) -> bool:
        """Until then; false where the run ends before."""
        while (left := at_ns - self._stage.now()) > 0:
            if at_ns >= self._stage.end_ns:
                return False
            woken = self._loop.create_future()
            timer = self._loop.call_later(left / 1e9, _wake, woken)
            self._sleeping.add(woken)
            try:
                await woken
            finally:
                self._sleeping.discard(woken)
                timer.cancel()
        return at_ns < self._stage.end_ns

    def ring(self) -> None:
        """Wakes all of them, to look at the end."""
        for woken in tuple(self._sleeping):
            _wake(woken)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


class Cast(Struct, frozen=True):
    """What the users of a process are made from.

    names: of the tasks that run, in the order in which the record numbers them. secrets: what no
    message may repeat.
    """

    users: Users
    names: Sequence[str]
    dsn: str
    variables: Mapping[str, str]
    seed: int
    secrets: tuple[str, ...] = ()

    def calls(self) -> list[Call]:
        """How each task is called. Raises WorkloadError."""
        tasks = {task.name: task for task in self.users.tasks}
        return [call(tasks[name].function, self.variables, task=True) for name in self.names]

    def virtual_users(self, stage: Stage, first: int, count: int) -> list[VirtualUser]:
        """The users, numbered from `first`. Raises WorkloadError."""
        calls = self.calls()
        wanted = any(source == "setup" for each in calls for _, source in each.sources)
        make = self._maker(wanted=wanted)
        found = []
        for place in range(count):
            number = first + place
            rng = random.Random(f"{self.seed}/{number}")
            given = {"dsn": self.dsn, "number": number, "rng": rng, "loop": 0, "setup": None}
            own = make.arguments(given)
            found.append(
                VirtualUser(
                    stage,
                    place,
                    given,
                    [Call(c.function, c.sources, c.fixed) for c in calls],
                    lambda own=own: make.function(**own),
                    self.tell,
                )
            )
        return found

    def tell(self, error: BaseException) -> str:
        """An exception as it may be kept."""
        said = hidden(told(error, self.users.path), self.secrets)
        return said.encode("utf-8", "backslashreplace").decode()

    def _maker(self, *, wanted: bool) -> Call:
        """What makes that which each user has."""
        if self.users.setup is not None:
            return call(self.users.setup, self.variables, task=False)
        usual = (_connected_together, _connected) if wanted else (_nothing_together, _nothing)
        return call(usual[0 if self.users.is_async else 1], {}, task=False)


def _connected(dsn: str) -> Any:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


async def _connected_together(dsn: str) -> Any:
    import psycopg

    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


def _nothing() -> Any:
    yield None


async def _nothing_together() -> Any:
    yield None


class Threads:
    """Users in threads of their own."""

    name = "Python threads"

    def __init__(self, users: Sequence[VirtualUser], over: Callable[[], None]) -> None:
        """over: is called whenever the last of them has nothing more to do."""
        self._users, self._over, self.probe = users, over, WakeProbe()
        self._begun, self._left = threading.Event(), threading.Event()
        self._slots, self._lock = threading.Semaphore(_AT_ONCE), threading.Lock()
        self._errors: list[tuple[VirtualUser, BaseException]] = []
        self._ready = threading.Semaphore(0)
        self._threads = [
            threading.Thread(target=self._life, args=(user,), daemon=True) for user in users
        ]

    def set_up(self) -> None:
        """Makes what all of them have. Raises WorkloadError where one cannot."""
        for count, thread in enumerate(self._threads):
            try:
                thread.start()
            except RuntimeError as error:
                raise WorkloadError(
                    f"{len(self._users)} users of a process need a thread each, and {error} after"
                    f" {count}",
                    "more processes (--threads), fewer users, or coroutines (async def)",
                ) from None
        for _ in self._threads:
            self._ready.acquire()
        if self._errors:
            raise refused(*self._errors[0])

    def begin(self) -> None:
        """Lets them act."""
        self.probe.in_thread()
        self._begun.set()

    def moved(self) -> None:
        """The end was moved."""

    def end(self, patience_s: float) -> None:
        """Puts away what they have, as far as they come to an end by then."""
        for user in self._users:
            if user.acts:
                _cancel(user.given["setup"])
        until = time.monotonic() + patience_s
        self._left.set()
        for user, thread in zip(self._users, self._threads, strict=True):
            if user.done:  # else it hangs, and goes down with the process
                thread.join(max(0.0, until - time.monotonic()))

    def _life(self, user: VirtualUser) -> None:
        try:
            with self._slots:
                user.set_up()
        except BaseException as error:
            self._errors.append((user, error))
        finally:
            self._ready.release()
        self._begun.wait()
        try:
            user.live()
        finally:
            with self._lock:
                user.done = True
                if all(each.done for each in self._users):
                    self._over()
        self._left.wait()
        user.tear_down()


def _cancel(value: Any) -> None:
    """Asks the server to end what a driver waits for, if the driver can."""
    cancel = getattr(value, "cancel", None)
    with contextlib.suppress(Exception):
        if callable(cancel) and not inspect.iscoroutinefunction(cancel):
            cancel()


def refused(user: VirtualUser, error: BaseException) -> WorkloadError:
    """Why a user cannot be set up."""
    number = user.given["number"]
    if isinstance(error, StopIteration | StopAsyncIteration):
        return WorkloadError(
            f"the set-up of user {number} yielded nothing", "it yields once what tasks get"
        )
    return WorkloadError(f"the set-up of user {number} failed: {user.tell(error)}")


class Coroutines:
    """Users as coroutines of one thread."""

    name = "asyncio"

    def __init__(self, users: Sequence[VirtualUser], over: Callable[[], None]) -> None:
        self._users, self._over, self.probe = users, over, WakeProbe()
        self._loop = asyncio.SelectorEventLoop(Exact())
        self._alarm = Alarm(users[0].stage, self._loop)
        self._tasks: list[asyncio.Task[None]] = []
        self._probing: asyncio.Task[None] | None = None
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def set_up(self) -> None:
        """Makes what all of them have. Raises WorkloadError where one cannot."""
        self._wait_for(self._set_up(), None)

    def begin(self) -> None:
        """Lets them act."""
        self._loop.call_soon_threadsafe(self._begin)

    def moved(self) -> None:
        """The end was moved."""
        self._loop.call_soon_threadsafe(self._alarm.ring)

    def end(self, patience_s: float) -> None:
        """Puts away what they have, as far as they come to an end by then."""
        turn = threading.Event()
        self._loop.call_soon_threadsafe(turn.set)
        if not turn.wait(_TURN_S):
            return  # a task holds up all the others: they go down with the process
        with contextlib.suppress(TimeoutError):
            self._wait_for(self._end(), patience_s)

    def _wait_for(self, what: Coroutine[Any, Any, None], timeout_s: float | None) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(timeout_s)

    async def _set_up(self) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(user: VirtualUser) -> None:
            async with slots:
                try:
                    await user.set_up_together()
                except Exception as error:
                    raise refused(user, error) from None

        await asyncio.gather(*(one(user) for user in self._users))

    def _begin(self) -> None:
        self._probing = self._loop.create_task(self.probe.as_coroutine())
        self._tasks = [self._loop.create_task(self._life(user)) for user in self._users]

    async def _life(self, user: VirtualUser) -> None:
        try:
            await user.live_together(self._alarm)
        finally:
            user.done = True
            if all(each.done for each in self._users):
                self._over()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(user.tear_down_together() for user in self._users))


def cost_ns(plan: Any, *, shared: bool = False) -> int:
    """What an action costs beside what it does: the median of the same steps around nothing, ns.

    plan: of one user who acts some hundred times, without a pause. shared: with the number that
    processes share.
    """
    times, counter = list[int](), SharedCounter()
    stage = Stage(_engine.Actors(plan, [1], 0), NEVER_NS)
    stage.begin(time.monotonic_ns())

    def act() -> None:
        if shared:
            counter.take()
        times.append(time.perf_counter_ns())

    clock = Call(act, (), {})
    user = VirtualUser(stage, 0, {"setup": None, "loop": 0}, [clock], _nothing, str)
    user.set_up()
    user.live()
    gaps = sorted(behind - before for before, behind in pairwise(times))
    return gaps[len(gaps) // 2] if gaps else 0
