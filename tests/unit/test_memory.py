"""The memory of a run does not grow with its length: a long trial in a fast loop, traced."""

import random
import tracemalloc
from collections.abc import Iterable
from itertools import islice

import pytest

from pgpaces.analysis.waits import CPU, Event
from pgpaces.core.findings import Notes
from pgpaces.core.record import Interval, Tally
from pgpaces.core.series import Sample
from pgpaces.core.times import Times
from pgpaces.monitor.counters import GROUPS, Counter, CounterReading, Differences
from pgpaces.monitor.host import HostMonitor, HostSample
from pgpaces.monitor.linux import Item
from pgpaces.monitor.server import ServerMonitor
from pgpaces.monitor.waits import Sampler
from pgpaces.spec.result import Observed
from pgpaces.trial.record import Recorder

from .trials import SECOND_NS, times, trial

# The first minutes fill what has a bound, as the blocks of distributions.
FROM_S, TO_S = 600, 1800
HOUR_MAX = 2_000_000
COUNTERS = [each for group in GROUPS if group.query(180_000, {}) for each in group.counters]
EVENTS: list[Event] = [("load", "LWLock", f"event {n}") for n in range(12)]


class Stored:
    """A store that keeps the number of what it takes."""

    def __init__(self) -> None:
        self.seconds = self.samples = 0

    def add(
        self,
        trial_id: str,
        interval: Interval | None,
        samples: Iterable[Sample],
        observed: Iterable[Observed],
    ) -> None:
        self.seconds += interval is not None
        self.samples += len(list(samples))


class Looks:
    """What a server and its machine would tell, second by second."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.second = 0
        self._draw = random.Random(1)

    def read(self) -> CounterReading:
        values: dict[Counter, int | None] = {}
        for n, counter in enumerate(COUNTERS):
            # A third never changes, a third seldom.
            values[counter] = self.second // (100, 1)[n % 3 - 1] if n % 3 else 7
        return CounterReading(self.second + 1.0, values, ("[]", "[]", "[]"))

    def clock_lag_s(self) -> float:
        return 0.0

    def machine(self) -> HostSample:
        items = (Item(f"name {n}", self._draw.random() * 100, "%") for n in range(45))
        return HostSample(self.second + 1.0, tuple(items))

    def sample(self) -> dict[Event, int]:
        return {event: self._draw.randint(1, 4) for event in self._draw.sample(EVENTS, 3)} | {
            ("load", CPU, ""): 1
        }

    def blocked(self) -> list[tuple[str, str, str, str, str, str]]:
        return []


def copied(times: Times) -> Times:
    """Another object with other bytes, as each second has them."""
    histogram = bytes(bytearray(times.histogram))
    return Times(times.count, times.sum_ns, times.square_sum, times.max_ns, histogram)


def interval(second: int, each: Times) -> Interval:
    tally = Tally(
        second, 0, due=each.count, on_time=each.count,
        latency=copied(each), lag=copied(each), service=copied(each),
    )  # fmt: skip
    ended_ns = (second + 1) * SECOND_NS
    return Interval(second, (tally,), cpu_ns=(10**8 + second, 10**8), dispatch=copied(each),
                    ended_ns=ended_ns)  # fmt: skip


@pytest.mark.slow
def test_memory_does_not_grow_with_the_length_of_a_run():
    draw = random.Random(2)
    pool = [times([draw.lognormvariate(1, 0.5) for _ in range(100)]) for _ in range(20)]
    looks, stored = Looks(), Stored()
    sampler = Sampler(looks)
    server, machine = ServerMonitor(looks, sampler), HostMonitor(looks)  # type: ignore[arg-type]
    server._start_s, server._counts = 0.0, Differences(0.0)
    recorder = Recorder(stored, trial([]), print)  # type: ignore[arg-type]

    def run() -> Iterable[int]:
        while True:
            machine._samples.append(looks.machine())
            server._read()
            for tenth in range(10):
                sampler.tally.add(looks.second * 10 + tenth, looks.sample())
            samples = [*server.drain(), *machine.drain()]
            recorder.add(interval(looks.second, draw.choice(pool)), samples)
            looks.second += 1
            yield tracemalloc.get_traced_memory()[0]

    seconds = iter(run())
    tracemalloc.start()
    try:
        first = list(islice(seconds, FROM_S))[-1]
        last = list(islice(seconds, TO_S - FROM_S))[-1]
    finally:
        tracemalloc.stop()
    assert stored.seconds == TO_S
    assert stored.samples > 80 * TO_S
    assert (last - first) * 3600 / (TO_S - FROM_S) < HOUR_MAX
