"""Servers of known capacity in virtual time, many searches beside each other. numpy alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from pgpaces.analysis.capacity.answer import Capacity, judge
from pgpaces.analysis.capacity.curve import CapacityGoal, Points, TrialPoint
from pgpaces.analysis.capacity.search import NextLoad, cost_s, next_trial

Numbers = NDArray[np.float64]
Counts = NDArray[np.int64]
# Service times of so many transactions in so many searches.
Service = Callable[[np.random.Generator, tuple[int, int]], Numbers]


class Queue(Struct, frozen=True):
    """First come, first served, policy run. always: a share that misses at any load.

    later: so much later each is answered, by a generator that is late itself; forgiven: of what
    missed, what took so much longer than the limit at the most is excused.
    """

    service: Service
    servers: int
    limit: float
    even: bool = False
    always: float = 0.0
    later: float = 0.0
    forgiven: float = 0.0

    def trial(
        self, rng: np.random.Generator, rate: Numbers, seconds: Numbers, speed: Numbers
    ) -> tuple[Counts, Counts, Counts]:
        """Missed, due and excused of each search by 10 s windows: arrays, windows x searches."""
        warm = np.minimum(30, 0.1 * seconds)
        most = float((rate * (seconds + warm)).max())
        shape = (int(most + 6 * most**0.5 + 10), len(rate))
        due = np.ones(shape) if self.even else rng.standard_exponential(shape)
        due /= rate
        np.cumsum(due, axis=0, out=due)
        latency = self._latencies(due, self.service(rng, shape) / speed)
        latency += self.later
        inside = (due >= warm) & (due < seconds + warm)
        windows, searches = int(np.ceil(seconds.max() / 10)), len(rate)
        size, shaped = windows * searches, (windows, searches)
        due -= warm
        due /= 10
        place = due.astype(np.int64) * searches + np.arange(searches)
        place[~inside] = size  # where nobody looks
        late = latency > self.limit
        excused = place[late & (latency <= self.limit + self.forgiven)]
        if self.always:
            late[inside] |= rng.random(int(inside.sum())) < self.always
        missed, every, spared = (
            np.bincount(places, minlength=size + 1)[:size].reshape(shaped)
            for places in (place[late], place.reshape(-1), excused)
        )
        return missed, every, spared

    def _latencies(self, due: Numbers, service: Numbers) -> Numbers:
        if self.servers == 1:
            step = np.zeros_like(due)
            step[1:] = service[:-1] - np.diff(due, axis=0)
            walk = np.cumsum(step, axis=0)
            waits: Numbers = walk - np.minimum.accumulate(np.minimum(walk, 0), axis=0)
            return waits + service
        return sorted_servers(due, service, self.servers) - due


def sorted_servers(due: Numbers, service: Numbers, servers: int) -> Numbers:
    """When each is served, first come, first served: a column each (Kiefer and Wolfowitz 1955).

    free: when servers are free again, in ascending order; who is served takes its new place.
    """
    free, ends = np.zeros((servers, due.shape[1])), np.empty_like(due)
    moved = np.empty_like(free)
    for at, works, end in zip(due, service, ends, strict=True):
        np.maximum(free[0], at, out=end)
        np.add(end, works, out=end)
        np.maximum(free, end, out=moved)
        np.minimum(free[1:], moved[:-1], out=free[:-1])
        free[-1] = moved[-1]
    return ends


def exponential(rate: float) -> Service:
    """Exponential service times of a mean of 1 / rate."""
    return lambda rng, shape: rng.standard_exponential(shape) / rate


def constant(seconds: float) -> Service:
    """All the same."""
    return lambda rng, shape: np.full(shape, seconds)


class Searches(Struct, frozen=True):
    """What many searches found, an element each; no pass is 0, no fail infinite."""

    found: list[Capacity]
    points: list[list[TrialPoint]]

    @property
    def passes(self) -> Numbers:
        return np.array([found.passes or 0.0 for found in self.found])

    @property
    def fails(self) -> Numbers:
        return np.array([found.fails or np.inf for found in self.found])

    @property
    def minutes(self) -> Numbers:
        return np.array([sum(cost_s(p.seconds) for p in points) / 60 for points in self.points])

    def above(self, load: float) -> float:
        """How often more than this load is claimed to hold."""
        return float((self.passes > load).mean())

    def inside(self, load: float) -> float:
        """How often the load is between the highest pass and the lowest fail."""
        return float(((self.passes <= load) & (load <= self.fails)).mean())

    def flagged(self, flag: str) -> float:
        return float(np.mean([flag in (f.name for f in found.findings) for found in self.found]))


def search(queue: Queue, goal: CapacityGoal, noise: Sequence[float], seed: int) -> Searches:
    """A search for each element of noise: the sd of the log of the server's speed by trial."""
    rng = np.random.default_rng(seed)
    spread = np.array(noise)
    points: list[list[TrialPoint]] = [[] for _ in noise]
    found: dict[int, Capacity] = {}
    while len(found) < len(points):
        asks: dict[int, NextLoad] = {}
        for i in range(len(points)):
            if i not in found:
                if (said := next_trial(Points(points[i], goal))) is not None:
                    asks[i] = said
                else:
                    found[i] = judge(Points(points[i], goal))
        for role in ("short", "long"):
            ids = [i for i, ask in asks.items() if ask.role == role]
            if ids:
                _run(rng, queue, spread[ids], [(points[i], asks[i]) for i in ids])
    return Searches([found[i] for i in range(len(points))], points)


def _run(
    rng: np.random.Generator,
    queue: Queue,
    noise: Numbers,
    trials: list[tuple[list[TrialPoint], NextLoad]],
) -> None:
    rate = np.array([ask.load for _, ask in trials])
    seconds = np.array([ask.seconds for _, ask in trials])
    speed = np.exp(noise * rng.standard_normal(len(trials)))
    missed, due, excused = queue.trial(rng, rate, seconds, speed)
    for i, (points, ask) in enumerate(trials):
        windows = int(np.ceil(ask.seconds / 10))
        pairs = tuple(zip(missed[:windows, i].tolist(), due[:windows, i].tolist(), strict=True))
        sums = (sum(n for _, n in pairs), sum(k for k, _ in pairs))
        spared = int(excused[:windows, i].sum())
        found = TrialPoint(ask.load, ask.role, *sums, ask.seconds, pairs, excused=spared)
        points.append(found)


def queue(rng: np.random.Generator, load: float, per_s: float, length_s: int) -> np.ndarray:
    """When each was due (s), and its latency (ms), of an M/M/1 in its steady state."""
    warm_s = 60
    n = int(per_s * (length_s + warm_s) * 1.2) + 100
    due = np.cumsum(rng.exponential(1 / per_s, n))
    service = rng.exponential(load / per_s, n)
    walk = np.concatenate([[0], np.cumsum(service[:-1] - np.diff(due))])
    latency = (walk - np.minimum.accumulate(walk) + service) * 1000
    kept = (due >= warm_s) & (due < warm_s + length_s)
    return np.stack([due[kept] - warm_s, latency[kept]])
