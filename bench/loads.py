"""Loads whose true answer is known, simulated: open, closed, paced and shaped. numpy alone.

Many trials of a load beside each other, as arrays of due times and latencies; and what is true of
it in the long run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from decimal import Decimal, localcontext
from functools import cache
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from pgpaces._engine import Histogram
from pgpaces.analysis.accumulator import Accumulator
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import Times
from pgpaces.spec.result import Trial

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.unit.queues import sorted_servers
from tests.unit.trials import SECOND_NS, trial

Numbers = NDArray[np.float64]
RATE = 100.0
MISSED = 0.05
QUANTILES = {"p50": 0.5, "p92": 0.92, "p95": 0.95, "p97": 0.97, "p99": 0.99}
# How long a truth is simulated, where no formula has it: beside each other, and how many seconds.
_BESIDE, _LONG_S = 1000, 200


class Load(Struct, frozen=True):
    """100 transactions a second in the mean on `servers` that are busy for `utilization` of it.

    users: 0, or so many users; think: they wait for so many mean service times in the mean after
    each transaction (closed), or each has a schedule of its own (paced). steps: multipliers of the
    rate, one after the other. cold: so much slower at first, until cold_s or decaying over 40 s.
    """

    name: str
    servers: int
    utilization: float
    even: bool = False
    users: int = 0
    think: float = 0.0
    steps: tuple[float, ...] = (1.0,)
    cold: float = 0.0
    cold_s: float = 0.0

    @property
    def service_s(self) -> float:
        """The mean service time."""
        return self.utilization * self.servers / RATE

    @property
    def relaxation_s(self) -> float:
        """The relaxation time of its M/M/c queue (Morse 1958)."""
        rate = 1 / self.service_s
        return (math.sqrt(self.servers * rate) - math.sqrt(RATE)) ** -2

    def trials(self, seconds: float, count: int, seed: int) -> tuple[Numbers, Numbers]:
        """Due times from the start of the measured part on, and latencies, in s, a column each."""
        rng, warm = np.random.default_rng(seed), min(30.0, 0.1 * seconds)
        if self.users:
            due, latency = self._of_users(rng, seconds + warm, count)
        else:
            due = self._due(rng, seconds, warm, count)
            service = self._service(rng, due.shape)
            if self.cold:
                cold = due < warm + self.cold_s if self.cold_s else np.exp(-due / 40)
                service *= 1 + self.cold * cold
            latency = _first_come(due, service, self.servers)
        return due - warm, latency

    def _due(self, rng: np.random.Generator, seconds: float, warm: float, count: int) -> Numbers:
        """Poisson arrivals; those of a shape by the inverse of the integral of its rate."""
        most = RATE * (seconds + warm) * max(1.0, float(np.mean(self.steps)))
        gaps = rng.standard_exponential((int(most + 6 * most**0.5 + 10), count))
        work = np.cumsum(gaps, axis=0) / RATE
        edges = warm + np.arange(len(self.steps) + 1) * seconds / len(self.steps)
        at = np.concatenate([[0.0], edges, [edges[-1] + 1e6]])
        slopes = np.array([1.0, *self.steps, self.steps[-1]])
        passed = np.concatenate([[0.0], np.cumsum(np.diff(at) * slopes)])
        due: Numbers = np.interp(work, passed, at)
        return due

    def _service(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Numbers:
        if self.even:
            return np.full(shape, self.service_s)
        return rng.standard_exponential(shape) * self.service_s

    def _of_users(
        self, rng: np.random.Generator, length_s: float, count: int
    ) -> tuple[Numbers, Numbers]:
        """Users who wait for their own transaction, served in the order in which they are ready."""
        free, base = np.zeros((count, self.servers)), np.arange(count) * self.servers
        users = np.arange(count) * self.users
        own = RATE / self.users
        due = rng.standard_exponential((count, self.users)) / own
        ready = due.copy()
        # Closed ones of these loads do 118 transactions a second.
        shape = int(RATE * length_s * 1.3 + 200), count
        service, pause = self._service(rng, shape), rng.standard_exponential(shape)
        dues, latencies = np.empty(shape), np.empty(shape)
        for n in range(shape[0]):
            user, server = ready.argmin(axis=1) + users, free.argmin(axis=1) + base
            meant = due.reshape(-1)[user]
            end = np.maximum(free.reshape(-1)[server], ready.reshape(-1)[user]) + service[n]
            free.reshape(-1)[server] = end
            dues[n], latencies[n] = meant, end - meant
            later = end + pause[n] * self.think * self.service_s if self.think else meant
            due.reshape(-1)[user] = later if self.think else meant + pause[n] / own
            ready.reshape(-1)[user] = np.maximum(end, due.reshape(-1)[user])
        return dues, latencies


def _first_come(due: Numbers, service: Numbers, servers: int) -> Numbers:
    """Latencies of a queue in the order of arrival."""
    if servers == 1:
        step = np.zeros_like(due)
        step[1:] = service[:-1] - np.diff(due, axis=0)
        walk = np.cumsum(step, axis=0)
        waits: Numbers = walk - np.minimum.accumulate(np.minimum(walk, 0), axis=0)
        return waits + service
    return sorted_servers(due, service, servers) - due


class Truth(Struct, frozen=True):
    """What is so in the long run: latencies in ms, throughput in 1/s. limit_ms: 5% miss it."""

    mean: float
    p50: float
    p92: float
    p95: float
    p97: float
    p99: float
    throughput: float

    @property
    def limit_ms(self) -> float:
        """The limit that 5% of what is due miss."""
        return self.p95


@cache
def truth(load: Load, seconds: float) -> Truth:
    """The truth of a load; of one whose rate changes it is that of trials of this length."""
    if load.steps != (1.0,):
        # Of long ones fewer: they have to fit into memory.
        return _seen(*load.trials(seconds, min(2000, int(600_000 / seconds)), 77), seconds)
    if load.even:
        return _even(load)
    if load.users:
        return _seen(*load.trials(_LONG_S, _BESIDE, 77), _LONG_S)
    cdf = np.vectorize(lambda t: 1 - _longer(load, t))
    times = np.linspace(0, 60 * (load.service_s + load.relaxation_s), 2_000_001)
    below = cdf(times[::200])
    values = np.interp(list(QUANTILES.values()), below, times[::200]) * 1000
    rate, busy = 1 / load.service_s, load.servers * load.utilization
    wait = _erlang_c(load.servers, busy) / (load.servers * rate - RATE)
    quantiles = dict(zip(QUANTILES, map(float, values), strict=True))
    return Truth(mean=1000 * (wait + load.service_s), throughput=RATE, **quantiles)


def _even(load: Load) -> Truth:
    """Of M/D/1: the mean by Pollaczek and Khinchine (1930), quantiles by Erlang's sum (1909)."""
    with localcontext() as context:
        context.prec = 80  # its terms alternate, and are as large as exp(t)
        busy = Decimal(str(load.utilization))

        def below(services: Decimal) -> Decimal:
            """P(wait <= so many service times)."""
            terms = ((n - services) * busy for n in range(int(services) + 1))
            return (1 - busy) * sum(
                (x**n if n else Decimal(1)) / math.factorial(n) * (-x).exp()
                for n, x in enumerate(terms)
            )

        def quantile(share: float) -> float:
            low, high = Decimal(0), Decimal(100)
            if below(low) >= Decimal(str(share)):
                return load.service_s
            for _ in range(50):
                middle = (low + high) / 2
                low, high = (middle, high) if below(middle) < share else (low, middle)
            return load.service_s * (1 + float(high))

        mean = load.service_s * (1 + load.utilization / 2 / (1 - load.utilization))
        quantiles = {name: 1000 * quantile(q) for name, q in QUANTILES.items()}
        return Truth(mean=1000 * mean, throughput=RATE, **quantiles)


def _seen(due: Numbers, latency: Numbers, seconds: float) -> Truth:
    inside = (due >= 0) & (due < seconds)
    found = latency[inside] * 1000
    ranks = [math.ceil(q * len(found)) - 1 for q in QUANTILES.values()]
    found.partition(ranks)
    ended = int(((due + latency >= 0) & (due + latency < seconds)).sum())
    rate = ended / seconds / due.shape[1]
    quantiles = {name: float(found[rank]) for name, rank in zip(QUANTILES, ranks, strict=True)}
    return Truth(mean=float(found.mean()), throughput=rate, **quantiles)


def _erlang_c(servers: int, busy: float) -> float:
    """How likely an arrival waits (Erlang 1917)."""
    last = busy**servers / math.factorial(servers) * servers / (servers - busy)
    return last / (sum(busy**n / math.factorial(n) for n in range(servers)) + last)


def _longer(load: Load, t: float) -> float:
    """P(latency > t) of M/M/c: with probability C there is an exponential wait before service."""
    rate, busy = 1 / load.service_s, load.servers * load.utilization
    waits, drain = _erlang_c(load.servers, busy), load.servers * rate - RATE
    if math.isclose(drain, rate):
        return math.exp(-rate * t) * (1 + waits * rate * t)
    both = (drain * math.exp(-rate * t) - rate * math.exp(-drain * t)) / (drain - rate)
    return (1 - waits) * math.exp(-rate * t) + waits * both


def stored(
    load: Load, seconds: int, count: int, seed: int, limit_ms: float | None = None
) -> Iterator[tuple[Trial, Accumulator]]:
    """Trials of a load as the engine tells of them: an interval for each second.

    limit_ms: the latency limit; None: the one that 5% miss.
    """
    limit_ns = round((limit_ms or truth(load, seconds).limit_ms) * 1e6)
    plan = {"limit_ns": limit_ns, "policy": "run", "model": "open"}
    if load.steps != (1.0,):
        plan["shape"] = "steps:" + ":".join(f"{step:g}" for step in load.steps)
    due, latency = load.trials(seconds, count, seed)
    for column in range(count):
        accumulator = Accumulator()
        for interval in _intervals(due[:, column], latency[:, column], seconds, limit_ns):
            accumulator.add(interval)
        made = trial([], plan=plan, measured_ns=seconds * SECOND_NS, intervals=())
        yield replace(made, intervals=()), accumulator


def intervals_of(load: Load, seconds: int, seed: int, limit_ms: float) -> Iterator[Interval]:
    """The seconds of one trial of a load, one after the other."""
    due, latency = load.trials(seconds, 1, seed)
    return _intervals(due[:, 0], latency[:, 0], seconds, round(limit_ms * 1e6))


def _intervals(due: Numbers, latency: Numbers, seconds: int, limit_ns: int) -> Iterator[Interval]:
    order = np.argsort(due, kind="stable")
    due, ns = due[order], np.rint(latency[order] * 1e9).astype(np.int64)
    first = math.floor(due[0])
    edges = np.searchsorted(due, np.arange(first, seconds + 1))
    squares, lates = np.square(ns.astype(float)), (ns > limit_ns).astype(np.int64)
    totals = [np.concatenate([[0], np.cumsum(each)]) for each in (ns, squares, lates)]
    sums, square_sums, late = (np.diff(total[edges]).tolist() for total in totals)
    values, cuts = ns.tolist(), edges.tolist()
    for n, second in enumerate(range(first, seconds)):
        part = values[cuts[n] : cuts[n + 1]]
        histogram = Histogram()
        record = histogram.record
        for value in part:
            record(value)
        found = Times(
            len(part),
            sums[n],
            square_sums[n],
            max(part, default=0),
            histogram.encode() if part else b"",
        )
        tally = Tally(second, 0, len(part), len(part) - late[n], late[n], latency=found)
        yield Interval(second, tallies=(tally,), ended_ns=(second + 1) * SECOND_NS)
