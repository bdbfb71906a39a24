"""Load by a command: any program, timed from its start to its end, repeatedly.

One execution is one transaction of a closed load with one client. The program runs under a
supervisor (database/programs.py), which takes the times and ends it with pgpaces.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pgpaces.core.errors import RunError
from pgpaces.core.findings import Finding, finding
from pgpaces.core.messages import message
from pgpaces.core.record import Interval, Tally, summed
from pgpaces.core.texts import Say
from pgpaces.core.times import times_of
from pgpaces.database.programs import CommandOrder, Execution, Runner
from pgpaces.load.engine import EnginePlan

SECOND_NS = 1_000_000_000
FOREVER_NS = 2**62
# Pause after a failure, so that a program that fails at once does not start thousands of times.
PAUSE_NS = SECOND_NS


class CommandLoad:
    """A composite.RunningLoad of a command. ended: executions that have ended by themselves.

    end_ns: when nothing new fell due any more; 2^62 until that is known. cut: the number of those
    that pgpaces ended. then: called, in a separate thread, when the last one has ended.
    input_bytes: of the files that it reads. accompanies: it is a background workload; the execution
    that its end cuts short is not counted.
    """

    scripts = threads = clients = 1
    connect_ns = 0
    findings = ()
    poll = "a child process"
    notice_ns = 0

    def __init__(
        self,
        order: CommandOrder,
        plan: EnginePlan,
        runner: Runner,
        *,
        accompanies: bool = False,
        say: Say = lambda text: None,
    ) -> None:
        self.ended: list[Execution] = []
        self.cut = 0
        self.input_bytes: int | None = None
        self.then: Callable[[], None] = lambda: None
        self._order, self._plan, self._runner, self._say = order, plan, runner, say
        self._accompanies = accompanies
        self._ended = threading.Event()
        # What the books count, and when: each in the interval of its second, however late that is.
        self._events: deque[tuple[int, Callable[[], None]]] = deque()
        self._error: RunError | None = None
        self._stopping = False
        self._origin_ns = self._last_ns = 0
        self.end_ns = FOREVER_NS
        limit_ns = dict(plan.limits).get(0, plan.limit_ns)
        self._books = Books(limit_ns, accompanies=accompanies)

    @property
    def executions(self) -> int:
        return len(self.ended) + self.cut

    def did(self) -> dict[str, Any]:
        good = [each for each in self.ended if not each.failed]
        return {
            "executions": len(good),
            "spent_s": sum(each.done_ns - each.due_ns for each in good) / 1e9,
            "broken": self.executions - len(good) or None,
            "cpu_s": sum(each.cpu_s for each in good),
            "input_bytes": self.input_bytes,
        }

    def begin(self, ahead_ns: int = 0) -> None:
        first = time.monotonic_ns() + ahead_ns
        self._origin_ns = first + self._plan.warmup_ns
        threading.Thread(target=self._work, args=(first,), daemon=True).start()

    def stop(self) -> None:
        """Lets nothing new begin and ends the running execution, which might take hours."""
        self._stopping = True
        self._runner.stop()

    def abort(self) -> None:
        self._stopping = True
        self._runner.kill()

    def _work(self, due_ns: int) -> None:
        """Runs the executions, in a separate thread, so that storing does not delay them."""
        count = 0
        try:
            while not self._over(count, due_ns):
                time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
                if self._stopping:
                    break
                event = partial(self._books.due, due_ns - self._origin_ns)
                self._events.append((due_ns, event))
                execution = self._runner.run(self._order, due_ns)
                if execution is None:
                    break
                # One that pgpaces ended says nothing about the command.
                if execution.stopped:
                    self.cut += 1
                else:
                    self.ended.append(execution)
                self._last_ns = execution.done_ns
                event = partial(self._books.done, execution, self._origin_ns, execution.stopped)
                self._events.append((self._last_ns, event))
                due_ns = execution.done_ns + (PAUSE_NS if execution.failed else 0)
                count += 1
        except RunError as error:
            self._error = error
        self._last_ns = self._last_ns or time.monotonic_ns()
        self._ended.set()
        self.then()

    def _over(self, count: int, due_ns: int) -> bool:
        if self._stopping:
            return True
        if self._plan.transactions is not None:
            return count >= self._plan.transactions
        return due_ns >= self._origin_ns + (self._plan.duration_ns or FOREVER_NS)

    def __iter__(self) -> Iterator[Interval]:
        second, over = -self._plan.warmup_ns // SECOND_NS, False
        while not over:
            spent_ns = time.thread_time_ns()
            until_ns = self._origin_ns + (second + 1) * SECOND_NS
            ended = self._ended.wait(max(0, until_ns - time.monotonic_ns()) / 1e9)
            over, end_ns = ended and self._last_ns <= until_ns, until_ns
            if over:
                end_ns = max(self._last_ns, until_ns - SECOND_NS)
                self.end_ns = max(0, end_ns - self._origin_ns)
            self._report(end_ns)
            cpu_ns = time.thread_time_ns() - spent_ns
            while self._events and (over or self._events[0][0] <= end_ns):
                self._events.popleft()[1]()
            if over:
                self._books.cut()
            yield self._books.close(second, end_ns - self._origin_ns, cpu_ns, last=over)
            second += 1
        if self._error is not None:
            raise self._error

    def _report(self, now_ns: int) -> None:
        seconds = (now_ns - self._origin_ns) / 1e9
        if not self._accompanies and seconds > 0:
            line = self._runner.line or "-"
            values = {"name": self._order.name, "ran_s": seconds, "line": line}
            self._say(message("command-runs", done=len(self.ended), **values))


class Books:
    """Counts executions by the second, so that every second's outcomes add up to its due ones."""

    def __init__(self, limit_ns: int | None, *, accompanies: bool) -> None:
        self._limit_ns, self._accompanies = limit_ns, accompanies
        self._open_ns: int | None = None
        self._tallies: list[Tally] = []
        self._messages: list[tuple[str, str]] = []
        self._notes: list[Finding] = []
        self._flown_ns = self._reported_ns = 0

    def due(self, due_ns: int) -> None:
        """Counts an execution that falls due; times from the start of the measured part."""
        self._open_ns = due_ns
        if not self._accompanies:
            self._tallies.append(Tally(due_ns // SECOND_NS, 0, due=1))

    def done(self, execution: Execution, origin_ns: int, cut: bool) -> None:
        service_ns = execution.done_ns - execution.sent_ns
        # An uncounted execution is in no sum of service times either, see Little's law.
        if not (cut and self._accompanies):
            self._flown_ns += service_ns
        if cut:
            return self.cut(service_ns)
        self._open_ns = None
        second = (execution.due_ns - origin_ns) // SECOND_NS
        due = 1 if self._accompanies else 0
        if execution.failed:
            self._tallies.append(Tally(second, 0, due=due, failed={execution.failed: 1}))
            self._messages.append((execution.failed, execution.output))
            return None
        latency = execution.done_ns - execution.due_ns
        late = self._limit_ns is not None and latency > self._limit_ns
        self._tallies.append(
            Tally(
                second,
                0,
                due=due,
                on_time=int(not late),
                late=int(late),
                latency=times_of([latency]),
                lag=times_of([execution.sent_ns - execution.due_ns]),
                service=times_of([service_ns]),
            )
        )
        return None

    def cut(self, after_ns: int = 0) -> None:
        """Counts the open execution as unfinished; one of a background workload not at all."""
        if self._open_ns is None:
            return
        second, self._open_ns = self._open_ns // SECOND_NS, None
        if self._accompanies:
            self._notes.append(finding("background-cut", ran_s=after_ns / 1e9))
        else:
            self._tallies.append(Tally(second, 0, unfinished=1))

    def close(self, second: int, end_ns: int, cpu_ns: int, *, last: bool) -> Interval:
        flies = self._open_ns is not None and not last and not self._accompanies
        flying_ns = max(0, end_ns - (self._open_ns or 0)) if flies else 0
        flown_ns = max(0, self._flown_ns + flying_ns - self._reported_ns)
        self._reported_ns += flown_ns
        interval = Interval(
            second=second,
            tallies=tuple(sorted(summed(self._tallies), key=lambda tally: tally.due_second)),
            messages=tuple(dict(reversed(self._messages)).items()),
            cpu_ns=(cpu_ns,),
            in_flight_ns=flown_ns,
            ended_ns=end_ns,
            notes=tuple(self._notes),
        )
        self._tallies, self._messages, self._notes = [], [], []
        return interval
