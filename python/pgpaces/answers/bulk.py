"""What a command did, beside how long it took: rows, input, WAL, by the second, row and byte.

Of one trial, from its counts and from what was found beside it; of cells see cells.py. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pgpaces.answers.across import students
from pgpaces.facts import ScriptFacts
from pgpaces.result import Counts, Estimate, Finding, Trial

if TYPE_CHECKING:
    from pgpaces.answers.summary import Summary

SOURCE = "bulk"
ROWS, INPUT, WAL = "rows", "input", "WAL"
BEFORE, BEHIND, CPU, SHARED = "size before", "size behind", "CPU", "others wrote"
RUNS, SPENT, BROKEN = "executions", "time of executions", "executions without a good end"
# What no SQLSTATE looks like.
_ENDS = re.compile(r"exit \d+|signal \d+|timeout")
_UNITS = {
    ROWS: "rows",
    INPUT: "B",
    WAL: "B",
    BEFORE: "B",
    BEHIND: "B",
    CPU: "s",
    SHARED: "",
    RUNS: "",
    SPENT: "s",
    BROKEN: "",
}


class Bulk(Struct, frozen=True):
    """The executions of a command in a trial, and what they did together.

    label: what it is called. main: it is what the trial is about, and not beside it. seconds: of
    one that succeeded; median_s, longest_s: of these. failures: how others ended: `exit 1`,
    `signal 9`, `timeout`. runs, spent_s: of executions with a good end, also those of the warm-up,
    which are in the numbers that follow. rows, wal_bytes: of all executions; None where not known.
    input_bytes: of one. cpu_s: of the program, not of the server. shared: others wrote to the
    server meanwhile, and are in its numbers. broken: some had no good end, and are in them too.
    """

    label: str
    main: bool
    counts: Counts
    failures: tuple[str, ...]
    seconds: Estimate | None
    median_s: float | None
    longest_s: float | None
    runs: int
    spent_s: float
    rows: float | None = None
    input_bytes: float | None = None
    wal_bytes: float | None = None
    before_bytes: float | None = None
    behind_bytes: float | None = None
    cpu_s: float | None = None
    shared: bool = False
    broken: bool = False

    @property
    def done(self) -> int:
        """How many succeeded, within a latency limit or not."""
        return self.counts.on_time + self.counts.late

    @property
    def whole(self) -> bool:
        """Whether all succeeded."""
        return self.done == self.counts.due > 0

    @property
    def told(self) -> bool:
        """Whether its numbers are of executions with a good end; others cannot be told apart."""
        return self.whole and not self.broken

    @property
    def input_total(self) -> float | None:
        """What all executions with a good end read together, bytes."""
        return self.input_bytes and self.input_bytes * self.runs


def _over(top: str, bottom: str, factor: float = 1.0) -> Callable[[Bulk], float | None]:
    """The quotient of two of its numbers; None where one is not known, or the lower one is 0."""

    def quotient(bulk: Bulk) -> float | None:
        above, below = getattr(bulk, top), getattr(bulk, bottom)
        return None if above is None or not below else factor * above / below

    return quotient


# Numbers of a trial all of whose executions succeeded. They compare inputs of different sizes.
NUMBERS: Mapping[str, Callable[[Bulk], float | None]] = {
    "rows_s": _over("rows", "spent_s"),
    "input_s": _over("input_total", "spent_s"),
    "wal_s": _over("wal_bytes", "spent_s"),
    "us_row": _over("spent_s", "rows", 1e6),
    "wal_row": _over("wal_bytes", "rows"),
    "wal_byte": _over("wal_bytes", "input_total"),
}
NAMES = ("seconds", *NUMBERS)


def number(bulk: Bulk, name: str) -> Estimate | None:
    """One of NAMES: those by the second, row and byte have no interval in one trial alone."""
    if name == "seconds":
        return bulk.seconds
    value = NUMBERS[name](bulk) if bulk.told or (name == "input_s" and bulk.whole) else None
    return None if value is None else Estimate.alone(value, bulk.runs)


def as_json(bulk: Bulk) -> dict[str, Any]:
    """It as plain values: seconds, bytes, and the numbers by the second, row and byte."""
    seconds = bulk.seconds
    known = seconds is not None and seconds.estimable
    return {
        "label": bulk.label,
        "executions": bulk.counts.due,
        "succeeded": bulk.done,
        "seconds": seconds and seconds.value,
        "seconds_low": seconds.low if seconds and known else None,
        "seconds_high": seconds.high if seconds and known else None,
        **{
            name: getattr(bulk, name)
            for name in ("median_s", "longest_s", "rows", "input_bytes", "wal_bytes")
        },
        **{name: getattr(bulk, name) for name in ("before_bytes", "behind_bytes", "cpu_s")},
        "shared": bulk.shared,
        **{name: each and each.value for name in NUMBERS for each in (number(bulk, name),)},
    }


def findings(values: Mapping[str, float | None]) -> Iterator[Finding]:
    """What was seen beside a command, as it is kept with a trial; nothing of what is not known."""
    for name, value in values.items():
        if value is not None:
            yield Finding(SOURCE, "info", name, float(value), _UNITS[name])


def is_command(script: ScriptFacts) -> bool:
    """Whether what a record says of a script is of a command."""
    return script.kind == "command"


def about_command(trial: Trial) -> bool:
    """Whether a trial is about a command: few executions, of which none resembles the next."""
    scripts = trial.workload.scripts
    return any(is_command(script) for script in scripts[:1])


def alone(trial: Trial) -> bool:
    """Whether it is about nothing but a command."""
    return about_command(trial) and len(trial.workload.scripts) == 1


def of(trial: Trial, summary: Summary) -> Bulk | None:
    """What the command of a trial did; of several the first one's, its own before those beside it.

    None where it has none.
    """
    scripts = trial.workload.scripts
    at = next((n for n, script in enumerate(scripts) if is_command(script)), None)
    if at is None or at >= len(summary.scripts):
        return None
    found = summary.scripts[at]
    spread, due = found.latency, found.counts.due
    median = spread.p50.value if spread.p50 and spread.count == due else None
    seen = {f.text: f.value for f in trial.findings if f.source == SOURCE}
    seconds = _seconds(spread.count, spread.mean, spread.stddev)
    runs = seen.get(RUNS) or 0.0
    return Bulk(
        label=scripts[at].name,
        main=at == 0,
        counts=found.counts,
        failures=tuple(sorted(state for state in summary.failures if _ENDS.fullmatch(state))),
        seconds=seconds,
        median_s=median / 1e3 if median is not None and math.isfinite(median) else None,
        longest_s=None if spread.max is None else spread.max / 1e3,
        runs=round(runs) or spread.count,
        spent_s=seen.get(SPENT) or (seconds.value * spread.count if seconds else 0.0),
        rows=seen.get(ROWS),
        input_bytes=seen.get(INPUT),
        wal_bytes=seen.get(WAL),
        before_bytes=seen.get(BEFORE),
        behind_bytes=seen.get(BEHIND),
        cpu_s=seen.get(CPU),
        shared=SHARED in seen,
        broken=bool(seen.get(BROKEN)),
    )


def _seconds(count: int, mean_ms: Estimate | None, stddev_ms: float | None) -> Estimate | None:
    """The mean of so many executions, with Student's t over them; each is one value."""
    if not count or mean_ms is None:
        return None
    value = mean_ms.value / 1e3
    if count < 2 or stddev_ms is None:
        return Estimate.alone(value, count)
    # Of the standard deviation of those that were seen that of those that might be.
    error = stddev_ms / 1e3 / math.sqrt(count - 1)
    half = students(count) * error
    return Estimate(value, max(0.0, value - half), value + half, count)
