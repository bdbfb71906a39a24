"""How often 95% intervals of a trial hold the truth: simulated loads through the whole summary.

`python bench/bench.py coverage` writes docs/internals/coverage.md's table, a row as each cell is
done; `--only "M/M/16 300"` takes the cells whose first columns have these words, `--trials` another
number of trials; `--quick` takes a hundredth of them and writes nothing. A cell is made by one CPU.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import stopping
from figures import Finding, Note
from loads import QUANTILES, Load, stored, truth
from page import fill
from session import Session

from pgpaces.analysis.summary import summarize
from pgpaces.spec.result import Estimate

SECTION = "Coverage"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "internals" / "coverage.md"
NAMES = ("missed", "throughput", "mean", "p50", "p95", "p99")
TRIALS, TRIALS_OF_AN_HOUR, HOUR_S = 2000, 400, 3600
LENGTHS_S = (30, 60, 300, HOUR_S)
UTILIZATIONS = (0.5, 0.7, 0.8, 0.9)
BATCH = 100
# The rules were chosen with the seeds before.
_SEED = 1001
# A histogram keeps three significant digits, and rounds up: a quantile's lower end may be less.
DIGITS = 0.001
QUEUES = [
    Load(name, servers, utilization, even)
    for name, servers, even in (
        ("M/M/1", 1, False), ("M/D/1", 1, True), ("M/M/4", 4, False), ("M/M/16", 16, False),
    )
    for utilization in UTILIZATIONS
]  # fmt: skip
OTHERS = [
    Load("closed, 8 clients, 4 servers", 4, 0.8, users=8, think=1.2),
    Load("closed, 32 clients, 16 servers", 16, 0.8, users=32, think=1.0),
    Load("paced, 16 users, 4 servers", 4, 0.7, users=16),
    Load("paced, 64 users, 16 servers", 16, 0.8, users=64),
    Load("steps 0.5:1:1.5, M/M/4", 4, 0.6, steps=(0.5, 1.0, 1.5)),
    Load("six bursts, M/M/4", 4, 0.5, steps=(1.0, 1.0, 1.0, 1.0, 1.8) * 6),
]
COLD = [
    Load("cold start, M/M/1", 1, 0.5, cold=0.5),
    Load("cold start, M/D/1", 1, 0.7, True, cold=0.5),
]


@dataclass
class Cell:
    """What trials of one load and length said."""

    load: Load
    seconds: int
    trials: int = 0
    cut: int = 0
    held: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    open: Counter[str] = field(default_factory=Counter)
    shares: list[float] = field(default_factory=list)

    @property
    def relaxations(self) -> float:
        """How many relaxation times of its queue a trial is long."""
        return self.seconds / self.load.relaxation_s

    @property
    def bias(self) -> tuple[float, float]:
        """Of the missed share, relative to 5%, with two standard errors of it."""
        mean = math.fsum(self.shares) / len(self.shares)
        spread = math.fsum((share - mean) ** 2 for share in self.shares) / len(self.shares)
        return mean / 0.05 - 1, 2 * math.sqrt(spread / len(self.shares)) / 0.05

    def row(self) -> tuple[str, ...]:
        """Its line of the table."""
        bias, error = self.bias
        withheld = max(1 - self.told[name] / self.trials for name in NAMES)
        return (
            self.load.name,
            f"{self.load.utilization:g}",
            f"{self.seconds}s",
            f"{self.relaxations:,.0f}",
            str(self.trials),
            f"{100 * self.cut / self.trials:.1f}",
            f"{100 * withheld:.1f}",
            *(f"{100 * self.held[n] / max(1, self.told[n]):.1f}" for n in NAMES),
            f"{100 * self.open['p99'] / self.trials:.0f}",
            f"{100 * bias:+.1f}±{100 * error:.1f}",
        )


HEAD = (
    "load", "busy", "length", "relaxations", "trials", "cut", "withheld",
    *NAMES, "open p99", "bias",
)  # fmt: skip


def batch(load: Load, seconds: int, trials: int, seed: int) -> Cell:
    """Some trials of a cell, each through the whole summary."""
    true, cell = truth(load, seconds), Cell(load, seconds)
    known = {"missed": 0.05} | {name: getattr(true, name) for name in NAMES[1:]}
    for trial, accumulator in stored(load, seconds, trials, seed):
        found = summarize(trial, accumulator)
        said: dict[str, Estimate | None] = {"missed": found.missed, "throughput": found.throughput}
        said |= {name: found.latency.estimate(name) for name in NAMES[2:]}
        cell.trials += 1
        cell.cut += found.cut_s > 0
        cell.shares.append(found.missed.value if found.missed else 0.0)
        for name, estimate in said.items():
            if estimate is not None and estimate.estimable:
                cell.told[name] += 1
                low = estimate.low * (1 - DIGITS if name in QUANTILES else 1)
                cell.held[name] += low <= known[name] <= estimate.high
                cell.open[name] += math.isinf(estimate.high)
    return cell


def measured(load: Load, seconds: int, trials: int) -> Cell:
    """A cell, in batches that fit into memory."""
    size = min(trials, max(4, BATCH * 300 // seconds))
    whole = Cell(load, seconds)
    for seed, start in enumerate(range(0, trials, size), _SEED):
        part = batch(load, seconds, min(size, trials - start), seed)
        whole.trials += part.trials
        whole.cut += part.cut
        whole.shares += part.shares
        for mine, theirs in zip(
            (whole.held, whole.told, whole.open), (part.held, part.told, part.open), strict=True
        ):
            mine.update(theirs)
    return whole


Key = tuple[str, ...]
CELLS: dict[Key, tuple[Load, int]] = {
    (load.name, f"{load.utilization:g}", f"{seconds}s"): (load, seconds)
    for seconds in LENGTHS_S
    for load in (*QUEUES, *OTHERS, *COLD)
    if load not in COLD or seconds == 60
}


STOPPED: dict[Key, Load] = {
    stopping.Tally(load, share, Counter()).key: load
    for share in stopping.SHARES
    for load in (*stopping.LOADS, *stopping.COLD)
}


def keep(row: Sequence[str], part: str, head: Key, keys: Iterable[Key]) -> None:
    """Writes a row into a table of the page, in the order of the keys."""
    text = PAGE.read_text().partition(f"<!-- measured: {part} -->")[2].partition("<!-- end -->")[0]
    lines = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    rows = {tuple(line[:3]): line for line in lines} | {tuple(row[:3]): row}
    shown: list[Sequence[str]] = [head, *(rows[key] for key in keys if key in rows)]
    widths = [max(len(line[at]) for line in shown) for at in range(len(head))]
    table = "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in shown
    )
    fill(PAGE, part, f"\n```text\n{table}\n```\n\n")


def section(session: Session) -> Iterator[Finding]:
    """Both tables, a row as each cell is done."""

    def chosen(key: Key) -> bool:
        return set(session.only.split()) <= set(" ".join(key).split())

    def trials(count: int) -> int:
        count = session.trials or count
        return max(4, count // 100) if session.quick else count

    with ProcessPoolExecutor() as pool:
        waiting: dict[Future[Any], str] = {}
        for key, (load, seconds) in CELLS.items():
            if chosen(key):
                count = trials(TRIALS_OF_AN_HOUR if seconds == HOUR_S else TRIALS)
                waiting[pool.submit(measured, load, seconds, count)] = "coverage"
        for load in (*stopping.LOADS, *stopping.COLD):
            if any(chosen(key) for key, each in STOPPED.items() if each == load):
                waiting[pool.submit(stopping.stopped, load, trials(TRIALS))] = "stopping"
        for done in as_completed(waiting):
            part, found = waiting[done], done.result()
            head, keys = (HEAD, CELLS) if part == "coverage" else (stopping.HEAD, STOPPED)
            for each in found if isinstance(found, list) else [found]:
                if not session.quick:
                    keep(each.row(), part, head, keys)
                yield Note(SECTION, " | ".join(each.row()))
