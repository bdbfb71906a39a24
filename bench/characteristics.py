"""How often sweep, compare and check decide wrongly, and rightly: simulated minutes of known truth.

`python bench/bench.py characteristics` writes the table of docs/internals/coverage.md. Trials go
through the whole summary, with the warm-up it cuts. Of each load 2,000 trials are made, and as many
with service times 10% longer; what is decided is of trials drawn from them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from figures import Finding, Note
from loads import Load, stored, truth
from msgspec.structs import replace
from page import fill
from session import Session

from pgpaces.analysis import cells, compare, crossing
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.summary import summarize
from pgpaces.spec.design import Cell
from pgpaces.spec.result import Place

SECTION = "Operating characteristics"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "internals" / "coverage.md"
SECONDS, TRIALS, DRAWS, BATCH = 60, 2000, 2000, 100
SLOWER = 1.1
# Of what may be missed, where 5% are: the bound, and those that a verdict should tell from it.
BOUND, BELOW, ABOVE = 0.05, 0.035, 0.07
METRICS = ("mean", "p95", "missed")
LOADS = (
    Load("M/M/1", 1, 0.7),
    Load("M/M/4", 4, 0.8),
    Load("M/M/16", 16, 0.85),
    Load("closed, 8 clients, 4 servers", 4, 0.8, users=8, think=1.2),
)
# What was asked, and in how many percent of cases it was decided wrongly, and rightly.
Row = tuple[str, str, str]


def slower(load: Load) -> Load:
    """The same load on servers that take 10% longer, against the same limit."""
    # They think in service times.
    return replace(load, utilization=load.utilization * SLOWER, think=load.think / SLOWER)


def digests(load: Load, limit_ms: float, count: int, seed: int) -> list[Digest]:
    """Trials of a load, of what decisions look at."""
    found = []
    for trial, accumulator in stored(load, SECONDS, count, seed, limit_ms):
        summary = summarize(trial, accumulator)
        found.append(Digest(trial, summary))
    return found


def pool(load: Load, limit_ms: float, count: int, base: int) -> list[Digest]:
    """The same in batches that fit into memory."""
    seeds = range(base, base + -(-count // BATCH))
    return [each for seed in seeds for each in digests(load, limit_ms, BATCH, seed)][:count]


def placed(drawn: Sequence[Digest]) -> list[Digest]:
    """As the trials of one cell."""
    return [
        replace(each, trial=replace(each.trial, place=Place("e", Cell(()).key, {}, block)))
        for block, each in enumerate(drawn, 1)
    ]


def of_sweep(trials: Sequence[Digest], each: int, draw: random.Random) -> Iterator[Row]:
    """A cell of so many trials: claims at the truth itself, and at bounds beside it."""
    seen: dict[float, Counter[str]] = {share: Counter() for share in (BOUND, BELOW, ABOVE)}
    for _ in range(DRAWS):
        row = cells.row(Cell(()), placed(draw.sample(trials, each)))
        for share, counts in seen.items():
            counts[crossing.verdict(row, share)] += 1
    what = f"sweep, {each} trial{'s' if each > 1 else ''}, 5% missed"
    at, below, above = (seen[share] for share in (BOUND, BELOW, ABOVE))
    yield f"{what}, 5% allowed: pass", percent(at["pass"]), "-"
    yield f"{what}, 5% allowed: misses", percent(at["fail"]), "-"
    yield f"{what}, 3.5% allowed", percent(below["pass"]), percent(below["fail"])
    yield f"{what}, 7% allowed", percent(above["fail"]), percent(above["pass"])


def of_pairs(
    a: Sequence[Digest], b: Sequence[Digest], metric: str, draw: random.Random
) -> Counter[str]:
    """Verdicts on 8 pairs of trials."""
    goal, said = compare.ComparisonGoal(metric), Counter[str]()
    for _ in range(DRAWS):
        both = draw.sample(a, 8), draw.sample(b, 8)
        pairs = [
            compare.Pair(n, compare.trial_values(one.summary), compare.trial_values(two.summary))
            for n, (one, two) in enumerate(zip(*both, strict=True), 1)
        ]
        said[compare.compare_pairs(pairs, goal).outcome] += 1
    return said


def of_check(
    a: Sequence[Digest], b: Sequence[Digest], metric: str, draw: random.Random
) -> Counter[str]:
    """Verdicts on one run of b against a baseline of 8 runs of a."""
    goal, said = compare.ComparisonGoal(metric), Counter[str]()
    for _ in range(DRAWS):
        old = [compare.trial_values(each.summary) for each in draw.sample(a, 8)]
        new = [compare.trial_values(each.summary) for each in draw.sample(b, 1)]
        said[compare.compare_trials(old, new, goal, basis="runs").outcome] += 1
    return said


def decided(load: Load, count: int) -> list[Row]:
    """The rows of a load."""
    limit_ms = truth(load, SECONDS).limit_ms
    half = count // 2
    own, other = pool(load, limit_ms, count, 5000), pool(slower(load), limit_ms, count, 7000)
    draw, rows = random.Random(1), [*of_sweep(own, 1, random.Random(2))]
    rows += of_sweep(own, 3, random.Random(3))
    for what, judge in (("compare, 8 pairs", of_pairs), ("check, 1 run against 8", of_check)):
        for metric in METRICS:
            same = judge(own[:half], own[half:], metric, draw)
            wrong = percent(same["better"] + same["worse"])
            rows.append((f"{what}, {metric}, the same", wrong, percent(same["same"])))
            more = judge(own, other, metric, draw)
            wrong = percent(more["better"] + more["same"])
            rows.append((f"{what}, {metric}, 10% slower", wrong, percent(more["worse"])))
    return rows


def percent(count: int) -> str:
    """Of the draws."""
    return f"{100 * count / DRAWS:.1f}"


def table(found: Sequence[Sequence[Row]]) -> Iterator[str]:
    """A line for each question, wrong and right of each load."""
    heads = [f"{load.name.partition(',')[0]} {load.utilization:g}" for load in LOADS]
    yield f"{'wrong / right, %':48}" + "".join(f"{head:>16}" for head in heads)
    for rows in zip(*found, strict=True):
        told = "".join(f"{wrong + ' / ' + right:>16}" for _, wrong, right in rows)
        yield f"{rows[0][0]:48}{told}"


def section(session: Session) -> Iterator[Finding]:
    """The table."""
    count = session.trials or (2 * BATCH if session.quick else TRIALS)
    with ProcessPoolExecutor() as workers:
        lines = list(table(list(workers.map(decided, LOADS, [count] * len(LOADS)))))
    if not session.quick:
        text = "\n".join(lines)
        fill(PAGE, "characteristics", f"\n```text\n{text}\n```\n\n")
    for line in lines:
        yield Note(SECTION, line)
