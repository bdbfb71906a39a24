"""Trials made of numbers, for tests of what is computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import to_builtins
from msgspec.structs import replace

from pgpaces._engine import Histogram
from pgpaces.analysis.time_distribution import Distribution, distribution_of
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import Times
from pgpaces.spec import facts
from pgpaces.spec.result import Trial

SECOND_NS = 1_000_000_000


def times(values_ms: Iterable[float]) -> Times:
    return _times(tuple(values_ms))


# Trials of tests have the same seconds again and again.
@lru_cache(maxsize=2000)
def _times(values_ms: tuple[float, ...]) -> Times:
    histogram = Histogram()
    values = [round(float(v) * 1e6) for v in values_ms]
    for value in values:
        histogram.record(value)
    return Times(
        len(values),
        sum(values),
        float(sum(v * v for v in values)),
        max(values, default=0),
        histogram.encode() if values else b"",
    )


# What the record of every trial has.
PLAN = {"clients": 1, "protocol": "simple", "policy": "run", "limit_ns": None, "warmup_ns": 0}
PLAN |= {"seed": 1, "load_text": "open", "model": "open", "spec": {"workload": "w"}}
LEAST: dict[str, tuple[type[facts.Facts], dict[str, Any]]] = {
    "plan": (facts.PlanFacts, PLAN),
    "workload": (facts.WorkloadFacts, {"name": "w", "scripts": []}),
    "server": (facts.ServerFacts, {"version": "18"}),
    "host": (facts.HostFacts, {}),
}


def spread(times: Times, due: int) -> Distribution:
    """The distribution of what succeeded of all `due`, as if transactions were independent."""
    return distribution_of(times, due, np.zeros(0), sums_ns=np.zeros(0))


def known(**parts: Any) -> dict[str, Any]:
    """The parts of a trial as its record has them, of what is given of each."""
    found = dict(parts)
    for name, (kind, least) in LEAST.items():
        if isinstance(given := parts.get(name), Mapping):
            found[name] = facts.read(kind, {**least, **given}, name)
    return found


def like(part: facts.Facts, **given: Any) -> Any:
    """A part of a record with other values, as they are stored."""
    return facts.read(type(part), {**to_builtins(part), **given}, "part")


def trial(tallies: list[Tally], **changes: Any) -> Trial:
    values: dict[str, Any] = {
        "id": "T",
        "state": "finished",
        "started_at": datetime.now(UTC),
        "plan": {"limit_ns": 500_000_000, "policy": "run", "model": "open"},
        "workload": {"scripts": [{"name": "a", "weight": 1, "commands": []}]},
        "server": {},
        "host": {},
        "version": "0",
        "measured_ns": 10 * SECOND_NS,
        "intervals": (Interval(0, tallies=tuple(tallies)),),
    }
    return Trial(**known(**(values | changes)))


def second(number: int, latencies_ms: Sequence[float], script: int = 0, **more: Any) -> Interval:
    """A second in which all that was due succeeded, and more that did not."""
    values = {"due": len(latencies_ms), "on_time": len(latencies_ms)} | more
    measured = times(latencies_ms)
    tally = Tally(number, script, latency=measured, service=measured, **values)
    ended_ns = (number + 1) * SECOND_NS
    return Interval(number, tallies=(tally,), ended_ns=ended_ns, in_flight_ns=measured.sum_ns)


def series(latencies_ms: Sequence[Sequence[float]], first: int = 0, **changes: Any) -> Trial:
    """A trial of these seconds, of which those below 0 are its warm-up."""
    intervals = tuple(second(n, values) for n, values in enumerate(latencies_ms, first))
    length = {"measured_ns": (first + len(latencies_ms)) * SECOND_NS}
    return trial([], intervals=intervals, **(length | changes))


def judged_trial(seconds: int = 20, **changes: Any) -> Trial:
    """A trial that can be summarized."""
    found = series([[1.0, 2.0, 3.0 + s] for s in range(seconds)], **changes)
    return replace(
        found,
        plan=found.plan.but(load_text="open, 3/s", clients=1, warmup_ns=0),
        workload=found.workload.but(name="w"),
        **known(server={}),
    )
