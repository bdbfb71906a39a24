"""One load of ours, in a process of its own, as the bench wants to look at it from outside.

Takes an Order as JSON, prints a report as JSON. Either the engine alone (`engine`: what callgrind
and system calls are about), or all that `pgpaces run` does, with store and answer (`pipeline`).
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgpaces.core.record import Interval
from pgpaces.core.times import Times, merge, value_at_rank
from pgpaces.core.units import SECOND_NS
from pgpaces.load import engine
from pgpaces.spec.load import trial_plan
from pgpaces.spec.target import TargetPlan


@dataclass(frozen=True)
class Order:
    """What is to be run. rate: a second in all; pace: of each user; neither: a closed load.

    connect_each: each transaction logs in. look: whether distributions are added up in the end,
    which callgrind should not see. observe: sensors look at the server, in a pipeline.
    """

    script: str
    protocol: str
    clients: int
    describe: bool = False
    transactions: int | None = None
    seconds: float | None = None
    connect_each: bool = False
    rate: float | None = None
    pace: float | None = None
    poll: str | None = None
    what: str = "engine"
    look: bool = True
    observe: bool = True
    variables: dict[str, str] = field(default_factory=lambda: {"scale": "10"})

    def spec(self) -> dict[str, Any]:
        """The trial's options by name."""
        values = {
            "users" if self.pace is not None else "clients": self.clients,
            "rate": self.rate and f"{self.rate}/s",
            "pace": self.pace and f"{self.pace}/s",
            "threads": 1,
            "transactions": self.transactions,
            "duration": self.seconds and f"{self.seconds}s",
            "warmup": "0s",
            "protocol": self.protocol,
            "describe": self.describe,
            "connect_each": self.connect_each or None,
            "poll": self.poll,  # only an engine that knows backends is asked for one
            **{f"define.{name}": value for name, value in self.variables.items()},
        }
        return {name: value for name, value in values.items() if value is not None}


class Watch:
    """What the load costs and gives, looked at after each second, so that no start is in it.

    What goes on after its `seconds` is done, and no part of what it costs.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = math.inf if seconds is None else seconds
        self.done = 0
        self.intervals: list[Interval] = []
        self.marks: list[tuple[float, int]] = []

    def see(self, interval: Interval) -> None:
        """A second has passed."""
        self.done += sum(tally.on_time for tally in interval.tallies)
        if interval.second < self._seconds:
            self.marks.append((time.process_time(), self.done))
        self.intervals.append(interval)

    def cpu_us(self) -> float | None:
        """CPU of the whole process a transaction, from the first second's end to the last's."""
        if len(self.marks) < 2:
            return None
        (began, before), (ended, after) = self.marks[0], self.marks[-1]
        return 1e6 * (ended - began) / (after - before) if after > before else None


def memory_kib() -> dict[str, int]:
    """Of this process, resident and its own share of it; empty where /proc does not tell."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return {}
    found = (line.split() for line in lines)
    return {words[0].rstrip(":"): int(words[1]) for words in found if words[0] in ("Rss:", "Pss:")}


def _spread(every: Sequence[Times]) -> dict[str, float | None]:
    """Mean and quantiles in microseconds."""
    times = merge(every)
    if not times.count or times.mean_ns is None:
        return {"count": 0, "mean": None, "p50": None, "p99": None}
    half, most = ((times.count * percent + 99) // 100 for percent in (50, 99))
    p50, p99 = ((value_at_rank(times, rank) or 0) / 1e3 for rank in (half, most))
    return {"count": times.count, "mean": times.mean_ns / 1e3, "p50": p50, "p99": p99}


def _engine(order: Order, watch: Watch) -> tuple[int, dict[str, int]]:
    """The engine alone: what connecting took in ns, memory while everybody is connected."""
    text = (order.script, 1, Path(order.script).read_bytes())
    plan = engine.EnginePlan.of(trial_plan(order.spec()), order.clients, 1, scripts=())
    run = engine.Engine(plan, [text], engine.resolve(""))
    memory: dict[str, int] = {}
    for interval in run:
        if order.look and not memory:
            memory = memory_kib()
        watch.see(interval)
    return run.connect_ns, memory


def _pipeline(order: Order, watch: Watch) -> tuple[int, dict[str, int]]:
    """All of `pgpaces run`; the same two."""
    from pgpaces.spec import workload
    from pgpaces.trial import trial as pipeline
    from pgpaces.trial.listener import Listener
    from pgpaces.trial.request import request_of

    connects: list[int] = []

    class Ear(Listener):
        def started(self, _trial: object, connect_ns: int) -> None:
            connects.append(connect_ns)

        def interval(self, interval: Interval) -> None:
            watch.see(interval)

    script = workload.WorkloadScript(Path(order.script).stem, 1, Path(order.script).read_text())
    scripts = workload.of_scripts("scripts", (script,))
    target = TargetPlan(dsn="")
    request = request_of(order.spec(), scripts, target=target, observe=order.observe)
    outcome = pipeline.run(request, Ear())
    if outcome.error is not None:
        raise outcome.error
    return connects[0], {}


def _failures(watch: Watch) -> Iterator[str]:
    for interval in watch.intervals:
        yield from (text for _, text in interval.messages)


def report(order: Order) -> dict[str, Any]:
    """Runs it, and says what came of it."""
    watch = Watch(order.seconds)
    connect_ns, memory = {"engine": _engine, "pipeline": _pipeline}[order.what](order, watch)
    wanted = order.transactions and order.transactions * order.clients
    if not watch.done or (wanted and watch.done != wanted):
        sys.exit(f"{watch.done} of {wanted} transactions succeeded: {[*_failures(watch)][:3]}")
    found: dict[str, Any] = {"transactions": watch.done, "connect_s": connect_ns / SECOND_NS}
    if order.look:
        tallies = [tally for interval in watch.intervals for tally in interval.tallies]
        found |= {
            "cpu_us": watch.cpu_us(),
            "memory_kib": memory,
            "latency_us": _spread([tally.latency for tally in tallies]),
            "service_us": _spread([tally.service for tally in tallies]),
            "dispatch_us": _spread([interval.dispatch for interval in watch.intervals]),
        }
    return found


if __name__ == "__main__":
    print(json.dumps(report(Order(**json.loads(sys.argv[1])))))
