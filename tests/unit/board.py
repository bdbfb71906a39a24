"""The first article's board in virtual time: a Raspberry Pi 3B, reports, one query a second each.

Four cores that share their memory, so that each is slower the more of them work. A query of N
workers runs as N + 1 processes. Clients as those of pgbench with a latency limit: what is too late
before it begins is skipped. The works of the three queries are chosen so that it answers 5 to 6 of
them a second at the most and misses about what the article's tables say.
"""

import heapq

import numpy as np
from msgspec import Struct

CLIENTS = (1, 2, 4, 5, 6, 8)
WORKERS = (0, 2, 4)
LIMIT_S = 0.5
_CORES = 4
# Seconds of a core that has the memory for itself, of each query, and how much they vary.
_WORKS = (0.65, 0.3, 0.2)
_SPREAD = 0.15
# By how much each other busy core slows one down.
_SHARED = 0.2
# What starting and collecting a worker adds to a query.
_WORKER_S = 0.006


class Ran(Struct, frozen=True):
    """When each transaction was due, and whether it missed. over_s: how long the rest took."""

    due: list[float]
    missed: list[bool]
    over_s: float

    def windows(self, start: float, end: float, size: float = 10.0) -> list[tuple[int, int]]:
        """Missed and due of what was due from start to end, by windows."""
        count, due = max(1, int((end - start) // size)), np.array(self.due)
        inside = (start <= due) & (due < end)
        at = np.minimum(count - 1, (due[inside] - start) // size).astype(np.int64)
        missed = np.bincount(at[np.array(self.missed)[inside]], minlength=count)
        every = np.bincount(at, minlength=count)
        return list(zip(missed.tolist(), every.tolist(), strict=True))


def run(clients: int, workers: int, seconds: float, seed: tuple[int, ...]) -> Ran:
    """A load of one query a second of each client."""
    arrivals, draw = (np.random.default_rng((*seed, part)) for part in (0, 1))
    count = int(clients * seconds + 8 * (clients * seconds) ** 0.5 + 20)
    due = np.cumsum(arrivals.exponential(1 / clients, count))
    due = due[due < seconds]
    works = draw.choice(_WORKS, count) * draw.gamma(_SPREAD**-2, _SPREAD**2, count)
    works = works[: len(due)] + workers * _WORKER_S
    return _served(due.tolist(), works.tolist(), clients, 1 + workers)


def _speed(active: int, processes: int) -> float:
    """Of one of so many queries: seconds of a core in a second."""
    busy = min(_CORES, active * processes)
    return busy / active / (1 + _SHARED * (busy - 1))


def _served(due: list[float], works: list[float], clients: int, processes: int) -> Ran:
    """All that run are equally fast, so one clock of work tells when each of them ends."""
    speeds = [0.0, *(_speed(n, processes) for n in range(1, clients + 1))]
    missed = [False] * len(due)
    running: list[tuple[float, int]] = []
    now = clock = 0.0
    begun = 0
    while begun < len(due) or running:
        speed = speeds[len(running)]
        end = now + (running[0][0] - clock) / speed if running else float("inf")
        free = len(running) < clients and begun < len(due)
        start = max(now, due[begun]) if free else float("inf")
        then = min(start, end)
        clock, now = clock + speed * (then - now), then
        if end <= start:
            done = heapq.heappop(running)[1]
            missed[done] = now - due[done] > LIMIT_S
        elif now - due[begun] > LIMIT_S:
            missed[begun] = True
            begun += 1
        else:
            heapq.heappush(running, (clock + works[begun], begun))
            begun += 1
    return Ran(due, missed, now)
