"""Load by a command: any program, timed from its start to its end, again and again.

One execution is one transaction of a closed load with one client. The program runs under a watchdog
(programs/), which takes the times and ends it when we end. Knows no server, no store, no terminal.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from pgpaces.errors import RunError
from pgpaces.programs import CommandOrder, Execution, Runner
from pgpaces.record import Interval, Tally
from pgpaces.times import merge, times_of

SECOND_NS = 1_000_000_000
FOREVER_NS = 2**62
# A program that fails at once is not begun a thousand times a second.
PAUSE_NS = SECOND_NS


class Executions(Struct, frozen=True):
    """How often a command is run, and how it is judged.

    transactions: so many times; None: as long as something new falls due, that is for duration_ns.
    accompanies: it ends with others. What is cut short by that is nobody's failure and not counted.
    """

    transactions: int | None = 1
    duration_ns: int | None = None
    warmup_ns: int = 0
    limit_ns: int | None = None
    accompanies: bool = False


class CommandLoad:
    """A load: `begin` it, iterate over it, `stop` or `abort` it from a signal handler.

    A generators.together.Load. ended: executions that have ended, but for those that we ended; cut:
    how many these are. then: is called, in a thread of its own, at the moment when the last one has
    ended.
    """

    scripts = threads = clients = 1
    connect_ns = 0
    findings = ()
    poll = "a child process"

    def __init__(
        self,
        order: CommandOrder,
        asked: Executions,
        runner: Runner,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.ended: list[Execution] = []
        self.cut = 0
        self.then: Callable[[], None] = lambda: None
        self._order, self._asked, self._runner, self._say = order, asked, runner, say
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._stopping = False
        self._origin_ns = self._last_ns = 0
        self._end_ns: int | None = None
        self._books = Books(asked)

    @property
    def end_ns(self) -> int:
        """When nothing new fell due any more; 2^62 until that is known."""
        return FOREVER_NS if self._end_ns is None else self._end_ns

    def begin(self, ahead_ns: int = 0) -> None:
        """Lets the first execution begin so many nanoseconds from now."""
        first = time.monotonic_ns() + ahead_ns
        self._origin_ns = first + self._asked.warmup_ns
        threading.Thread(target=self._work, args=(first,), daemon=True).start()

    def stop(self) -> None:
        """Lets nothing new begin and ends what runs: it may be hours from its own end."""
        self._stopping = True
        self._runner.stop()

    def abort(self) -> None:
        """Ends at once."""
        self._stopping = True
        self._runner.kill()

    def _work(self, due_ns: int) -> None:
        """Runs the executions, in a thread of its own: no second that is stored delays them."""
        count = 0
        try:
            while not self._over(count, due_ns):
                time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
                self._events.put(("due", due_ns))
                found = self._runner.run(self._order, due_ns)
                self._events.put(("done", found))
                if found is None:
                    break
                due_ns = found.done_ns + (PAUSE_NS if found.failed else 0)
                count += 1
        except RunError as error:
            self._events.put(("lost", error))
        else:
            self._events.put(("over", time.monotonic_ns()))
        self.then()

    def _over(self, count: int, due_ns: int) -> bool:
        asked = self._asked
        if self._stopping:
            return True
        if asked.transactions is not None:
            return count >= asked.transactions
        return due_ns >= self._origin_ns + (asked.duration_ns or FOREVER_NS)

    def __iter__(self) -> Iterator[Interval]:
        """One interval a second until the load is over; then raises why it ended early."""
        second = -self._asked.warmup_ns // SECOND_NS
        over: RunError | int | None = None
        while over is None:
            spent_ns = time.thread_time_ns()
            until_ns = self._origin_ns + (second + 1) * SECOND_NS
            over = self._take(until_ns)
            end_ns = until_ns
            if over is not None:
                end_ns = min(max(self._last_ns, until_ns - SECOND_NS), until_ns)
                self._end_ns = max(0, end_ns - self._origin_ns)
            self._tell(end_ns)
            cpu_ns = time.thread_time_ns() - spent_ns
            yield self._books.close(second, end_ns - self._origin_ns, cpu_ns, over is not None)
            second += 1
        if isinstance(over, RunError):
            raise over

    def _take(self, until_ns: int) -> RunError | int | None:
        """What happened until then; how the load ended, if it did."""
        while (left := until_ns - time.monotonic_ns()) > 0:
            try:
                kind, value = self._events.get(timeout=left / 1e9)
            except queue.Empty:
                break
            if kind in ("over", "lost"):
                self._books.cut()
                self._last_ns = self._last_ns or time.monotonic_ns()
                found: RunError | int = value
                return found
            if kind == "due":
                self._books.due(value - self._origin_ns)
            elif value is not None:
                # What we ended ourselves says nothing of the command, unless it was done anyway.
                cut = self._stopping and bool(value.failed)
                if cut:
                    self.cut += 1
                else:
                    self.ended.append(value)
                self._last_ns = value.done_ns
                self._books.done(value, self._origin_ns, cut)
        return None

    def _tell(self, now_ns: int) -> None:
        """How far it is, and what it said last."""
        seconds = (now_ns - self._origin_ns) / 1e9
        if not self._asked.accompanies and seconds > 0:
            done = f" ({len(self.ended)} done)" if self.ended else ""
            said = self._order.shown(self._runner.last())
            self._say(f"{self._order.name} runs{done}, {seconds:.0f} s: {said or '-'}")


class Books:
    """Counts executions by the second, so that every second's outcomes add up to what was due."""

    def __init__(self, asked: Executions) -> None:
        self._asked = asked
        self._open_ns: int | None = None
        self._tallies: list[Tally] = []
        self._messages: list[tuple[str, str]] = []
        self._notes: list[str] = []
        self._flown_ns = self._told_ns = 0

    def due(self, due_ns: int) -> None:
        """One has fallen due; times from the start of the measured part."""
        self._open_ns = due_ns
        if not self._asked.accompanies:
            self._tallies.append(Tally(due_ns // SECOND_NS, 0, due=1))

    def done(self, found: Execution, origin_ns: int, cut: bool) -> None:
        """It has ended. cut: we have ended it."""
        # What is not counted is in no sum of service times either, see Little's law.
        if not (cut and self._asked.accompanies):
            self._flown_ns += found.done_ns - found.sent_ns
        if cut:
            return self.cut(found.done_ns - found.sent_ns)
        self._open_ns = None
        second = (found.due_ns - origin_ns) // SECOND_NS
        due = 1 if self._asked.accompanies else 0
        if found.failed:
            self._tallies.append(Tally(second, 0, due=due, failed={found.failed: 1}))
            self._messages.append((found.failed, found.said))
            return None
        latency = found.done_ns - found.due_ns
        limit = self._asked.limit_ns
        late = limit is not None and latency > limit
        self._tallies.append(
            Tally(
                second,
                0,
                due=due,
                on_time=int(not late),
                late=int(late),
                latency=times_of([latency]),
                lag=times_of([found.sent_ns - found.due_ns]),
                service=times_of([found.done_ns - found.sent_ns]),
            )
        )
        return None

    def cut(self, after_ns: int = 0) -> None:
        """What is still open has no outcome, and gets none any more."""
        if self._open_ns is None:
            return
        second, self._open_ns = self._open_ns // SECOND_NS, None
        if self._asked.accompanies:
            text = f"was ended after {after_ns / 1e9:.1f} s with the rest, and is not counted"
            self._notes.append(f"the last execution of the command beside {text}")
        else:
            self._tallies.append(Tally(second, 0, unfinished=1))

    def close(self, second: int, end_ns: int, cpu_ns: int, last: bool) -> Interval:
        """The second as it is known now. end_ns: its end."""
        flies = self._open_ns is not None and not last and not self._asked.accompanies
        flying_ns = max(0, end_ns - (self._open_ns or 0)) if flies else 0
        flown_ns = max(0, self._flown_ns + flying_ns - self._told_ns)
        self._told_ns += flown_ns
        made = Interval(
            second=second,
            tallies=_by_due_second(self._tallies),
            messages=tuple(dict(reversed(self._messages)).items()),
            cpu_ns=(cpu_ns,),
            in_flight_ns=flown_ns,
            ended_ns=end_ns,
            notes=tuple(self._notes),
        )
        self._tallies, self._messages, self._notes = [], [], []
        return made


def _by_due_second(tallies: Sequence[Tally]) -> tuple[Tally, ...]:
    """The same counts with one tally for each due second."""
    groups: dict[int, list[Tally]] = {}
    for tally in tallies:
        groups.setdefault(tally.due_second, []).append(tally)
    found = []
    for second, group in sorted(groups.items()):
        failed: dict[str, int] = {}
        for tally in group:
            for state, count in tally.failed.items():
                failed[state] = failed.get(state, 0) + count
        names = ("due", "on_time", "late", "unfinished")
        sums = {name: sum(getattr(tally, name) for tally in group) for name in names}
        kinds = ("latency", "lag", "service")
        times = {kind: merge(getattr(tally, kind) for tally in group) for kind in kinds}
        found.append(Tally(second, 0, failed=failed, **sums, **times))  # type: ignore[arg-type]
    return tuple(found)
