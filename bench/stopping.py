"""How often a run that stops as soon as it is certain is wrong, and how long it takes.

`python bench/stopping.py` prints the errors that each look allows, and simulates `sweep --trials
auto`. The coverage section of the bench simulates runs and writes their table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from statistics import NormalDist

import numpy as np
from loads import Load, truth
from msgspec import Struct
from numpy.typing import NDArray

from pgpaces.analysis import across, goal, level_shift, stats
from pgpaces.analysis.stats import Clusters
from pgpaces.analysis.stopping import LOOKS_OF_CELL, LOOKS_OF_RUN, Missed
from pgpaces.core.times import quantile_rank

Numbers = NDArray[np.float64]
Counts = NDArray[np.int64]
# The errors that all looks may spend on FAIL and on PASS, and the exponent of the power family.
FAIL, PASS, EXPONENT = 0.025, 0.0075, 2.0
RUN_S, BATCH, _SEED = LOOKS_OF_RUN.at[-1], 100, 1
ALLOWED = 0.05
# True shares that miss, and the quantile of the latency that is then the limit.
SHARES = {0.05: "p95", 0.03: "p97", 0.08: "p92"}
# A share below these is weighed with what is above this quantile (analysis/time_distribution.py).
_RARER = {0.02: 0.95, 0.005: 0.99}
_NORMAL = NormalDist()
_POINTS, _FAR, _HALVINGS = 1001, 12.0, 50
# If the fastest percent is so far above the limit, and the server succeeds with less than this part
# of what is due in the last third, those near the limit are of another kind (analysis/summary.py).
_ABOVE, _KEEPS_UP = 2.5, 0.95

LOADS = [
    Load(name, servers, utilization, even, users)
    for name, servers, even, users in (
        ("M/M/1", 1, False, 0), ("M/D/1", 1, True, 0), ("M/M/4", 4, False, 0),
        ("M/M/16", 16, False, 0), ("paced, 16 users, 4 servers", 4, False, 16),
    )
    for utilization in (0.5, 0.7, 0.8, 0.9)
]  # fmt: skip
COLD = [
    Load("20 s cold, M/M/1", 1, 0.5, cold=0.5, cold_s=20),
    Load("20 s cold, M/M/4", 4, 0.7, cold=0.5, cold_s=20),
]
HEAD = (
    "load", "busy", "missed", "runs", "pass", "fail", "median", "by 30s", "60s", "120s", "300s",
)  # fmt: skip


def spent(part: float, error: float) -> float:
    """What is spent of an error once this part of the longest run has been seen."""
    return float(error * part**EXPONENT)


def errors(error: float, looks_s: Sequence[int] = LOOKS_OF_RUN.at) -> list[float]:
    """The error of a two-sided interval at each look, if all spend this error on each side.

    An interval excludes the true share on a side at its look, and at none before, with what the
    look spends. The boundaries follow by integration over the density of the walk that no look has
    stopped (Armitage, McPherson and Rowe, Journal of the Royal Statistical Society A 132, 1969).
    """
    found, before, part_before = [], 0.0, 0.0
    walk, weights = np.zeros(1), np.ones(1)
    for part in (look / looks_s[-1] for look in looks_s):
        sd, low, high = math.sqrt(part - part_before), 0.0, _FAR
        wanted = spent(part, error) - before
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            tails = (_NORMAL.cdf((at - middle) / sd) for at in walk.tolist())
            above = float(np.dot(list(tails), weights))
            low, high = (middle, high) if above > wanted else (low, middle)
        found.append(2 * _NORMAL.cdf(-low / math.sqrt(part)))
        points = np.linspace(low - _FAR * math.sqrt(part), low, _POINTS)
        density = np.exp(-np.square((points[:, None] - walk) / sd) / 2) @ weights
        density[[0, -1]] /= 2
        weights = density * (points[1] - points[0]) / (sd * math.sqrt(2 * math.pi))
        walk, before, part_before = points, spent(part, error), part
    return found


class Seconds(Struct, frozen=True):
    """A simulated run by due second, from its warm-up on. first: the second of the first row."""

    first: int
    second: Counts
    latency: Numbers
    due: Counts
    sums: Numbers
    squares: Numbers

    @classmethod
    def of(cls, due: Numbers, latency: Numbers) -> Seconds:
        inside = due < RUN_S
        due, latency = due[inside], latency[inside] * 1000
        first = math.floor(due.min())
        second = np.floor(due).astype(np.int64) - first
        rows = RUN_S - first

        def by_second(weights: Numbers) -> Numbers:
            return np.asarray(np.bincount(second, weights, minlength=rows), dtype=np.float64)

        counts = np.bincount(second, minlength=rows)
        sums, squares = by_second(latency), by_second(latency * latency)
        return cls(first, second, latency, counts, sums, squares)

    def missed(self, look_s: int, limits_ms: Sequence[float], *, cold: bool) -> list[Missed]:
        """What `summary.so_far` finds at a look, for each limit, without histograms.

        cold: whether the test for a longer warm-up is simulated, which takes most of the time.
        """
        end, size, cut = look_s - self.first, 1 if look_s <= 200 else 2, 0
        if cold:
            busy = self.due[:end].nonzero()[0]
            warm_up = level_shift.warm_up(self.sums[busy] / self.due[busy])
            if warm_up is not None and not warm_up.too_short:
                cut = max(0, int(busy[warm_up.points]) + self.first)
        start = -(-cut // size) * size - self.first
        inside = (self.second >= start) & (self.second < end)
        second, latency = self.second[inside] - start, self.latency[inside]
        due, sums = self.due[start:end], self.sums[start:end]
        total, mean = int(due.sum()), float(sums.sum() / due.sum())
        sd = math.sqrt(max(0.0, float(self.squares[start:end].sum()) / total - mean * mean))
        body = stats.clusters(sums, due, sd)

        def above(limit_ms: float) -> Counts:
            return np.bincount(second[latency > limit_ms], minlength=len(due))

        found = []
        fastest = float(np.quantile(latency, 0.01))
        last = len(due) - max(1, len(due) // 3)
        ended = second + latency / 1000
        behind = np.sum((ended >= last) & (ended < len(due))) < _KEEPS_UP * due[last:].sum()
        for limit_ms in limits_ms:
            hits, prior = above(limit_ms), body
            if behind and fastest > _ABOVE * limit_ms:
                prior = stats.INDEPENDENT
            for rarer, q in _RARER.items():
                if hits.sum() / total < rarer:
                    rank = quantile_rank(q, total) - 1
                    begins = np.arange(0, len(due), size)
                    parts = (above(float(np.partition(latency, rank)[rank])), due)
                    tail, tail_due = (np.add.reduceat(each, begins) for each in parts)
                    own = stats.clusters_of(tail, tail_due, prior, is_rarer=q > 0.95)
                    prior = Clusters(own.effect, body.freedom)
            clusters = stats.clusters_of(hits, due, prior)
            found.append(Missed(int(hits.sum()), total, clusters, end - start))
        return found


class Tally(Struct):
    """Verdicts of runs of a load with a true share, and when each was said."""

    load: Load
    share: float
    said: Counter[tuple[str, int]]

    @property
    def key(self) -> tuple[str, str, str]:
        return self.load.name, f"{self.load.utilization:g}", f"{100 * self.share:g}%"

    def row(self) -> tuple[str, ...]:
        """Its line of the table, in percent. The median is that of all runs."""
        runs = self.said.total()
        decided = Counter({each: n for each, n in self.said.items() if each[0] != "unknown"})
        passed = sum(n for (verdict, _), n in decided.items() if verdict == "pass")

        def until(end_s: int) -> int:
            return sum(n for (_, at), n in decided.items() if at <= end_s)

        middle = next((f"{look}s" for look in LOOKS_OF_RUN.at if 2 * until(look) >= runs), "-")
        return (
            *self.key,
            str(runs),
            f"{100 * passed / runs:.1f}",
            f"{100 * (decided.total() - passed) / runs:.1f}",
            middle,
            *(f"{100 * until(end) / runs:.0f}" for end in (30, 60, 120, 300)),
        )


def batch(load: Load, runs: int, seed: int) -> list[Tally]:
    """Some runs of a load, each judged with a limit that each of `SHARES` misses."""
    true = truth(load, RUN_S)
    limits_ms = [getattr(true, name) for name in SHARES.values()]
    tallies = [Tally(load, share, Counter()) for share in SHARES]
    due, latency = load.trials(RUN_S, runs, seed)
    for run in range(runs):
        seconds = Seconds.of(due[:, run], latency[:, run])
        left = dict(enumerate(limits_ms))
        for look in LOOKS_OF_RUN.at:
            found = seconds.missed(look, list(left.values()), cold=load.cold > 0)
            for place, missed in zip(list(left), found, strict=True):
                verdict = goal.verdict(missed.share(look), ALLOWED)
                if verdict != "unknown" or look == RUN_S:
                    tallies[place].said[verdict, look] += 1
                    del left[place]
            if not left:
                break
    return tallies


def stopped(load: Load, runs: int) -> list[Tally]:
    """The same in batches that fit into memory."""
    whole = [Tally(load, share, Counter()) for share in SHARES]
    for seed, start in enumerate(range(0, runs, BATCH), _SEED):
        for mine, part in zip(whole, batch(load, min(BATCH, runs - start), seed), strict=True):
            mine.said.update(part.said)
    return whole


def trials(load: Load, cells: int, seconds: int = 30) -> Iterator[str]:
    """Rows of a table: the verdicts of `--trials auto` on simulated cells, a row for each share."""
    limits_ms = [getattr(truth(load, RUN_S), name) for name in SHARES.values()]
    most, said = LOOKS_OF_CELL.at[-1], [Counter[tuple[str, int]]() for _ in SHARES]
    for seed in range(cells // BATCH):
        due, latency = load.trials(seconds, most * BATCH, _SEED + seed)
        inside = [due[:, run] < seconds for run in range(most * BATCH)]
        every = [
            Seconds.of(due[own, run], latency[own, run]).missed(seconds, limits_ms, cold=False)
            for run, own in enumerate(inside)
        ]
        for at, tally in product(range(0, most * BATCH, most), enumerate(said)):
            own = [found[tally[0]] for found in every[at : at + most]]
            tally[1][_of_trials(own)] += 1
    for share, counts in zip(SHARES, said, strict=True):
        by = Counter[str]()
        for (verdict, _), n in counts.items():
            by[verdict] += n
        mean = sum(look * n for (_, look), n in counts.items()) / cells
        shown = (f"{100 * by[verdict] / cells:.1f}" for verdict in ("pass", "fail"))
        yield "  ".join((load.name, f"{load.utilization:g}", f"{share:g}", *shown, f"{mean:.1f}"))


def _of_trials(found: Sequence[Missed]) -> tuple[str, int]:
    verdict = "unknown"
    for look in LOOKS_OF_CELL.at:
        seen = found[:look]
        counts, within = [(each.missed, each.due) for each in seen], [e.clusters for e in seen]
        share = across.share_at_look(counts, within, LOOKS_OF_CELL.last(look)[1])
        if (verdict := goal.verdict(share, ALLOWED)) != "unknown":
            break
    return verdict, look


if __name__ == "__main__":
    for name, error in (("fail", FAIL), ("pass", PASS)):
        for looks in (LOOKS_OF_RUN.at, LOOKS_OF_CELL.at):
            print(name, *(f"{each:.5f}" for each in errors(error, looks)))
    print("the program", LOOKS_OF_RUN.errors, LOOKS_OF_CELL.errors)
    print("load  busy  missed  pass  fail  trials")
    for load in LOADS:
        print(*trials(load, 500), sep="\n", flush=True)
