"""Figures of a command in addition to its time: rows, input, WAL; per second, row and byte.

For one trial, from its counts and findings; for cells see cells.py. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from pgpaces.analysis.across import students
from pgpaces.analysis.summary import Summary
from pgpaces.spec.result import Counts, Estimate, Trial, fields

SOURCE = "bulk"
WORK = "command-work"
# How executions fail; no SQLSTATE matches.
_ENDS = re.compile(r"exit \d+|signal \d+|timeout")


class Bulk(Struct, frozen=True, kw_only=True):
    """The executions of a command in a trial, and their totals.

    label: its name. main: it is the trial's own workload, not a background one. seconds: of one
    successful execution; median_s, longest_s: of these. failures: how others ended: `exit 1`,
    `signal 9`, `timeout`.

    The other numbers are those of the finding WORK, if it has them. executions, spent_s: of
    successful executions, also those of the warm-up, which are in the numbers that follow. rows,
    wal_bytes: of all executions; None where unknown. input_bytes: of one. cpu_s: of the program,
    not of the server. others_wrote: other sessions wrote to the server at the time, and are in its
    numbers. broken: failed executions are in them, too.
    """

    label: str
    main: bool
    counts: Counts
    failures: tuple[str, ...]
    seconds: Estimate | None
    median_s: float | None
    longest_s: float | None
    executions: int
    spent_s: float
    rows: float | None = None
    input_bytes: float | None = None
    wal_bytes: float | None = None
    size_before_bytes: float | None = None
    size_after_bytes: float | None = None
    cpu_s: float | None = None
    others_wrote: bool = False
    broken: bool = False

    @property
    def done(self) -> int:
        return self.counts.on_time + self.counts.late

    @property
    def whole(self) -> bool:
        return self.done == self.counts.due > 0

    @property
    def clean(self) -> bool:
        """Whether its numbers are of successful executions alone; others cannot be separated."""
        return self.whole and not self.broken

    @property
    def input_total(self) -> float | None:
        return self.input_bytes and self.input_bytes * self.executions


# Numbers of a trial in which all executions succeeded, as quotients of fields, and their factors.
# They compare inputs of different sizes.
NUMBERS: Mapping[str, tuple[str, str, float]] = {
    "rows_s": ("rows", "spent_s", 1.0),
    "input_s": ("input_total", "spent_s", 1.0),
    "wal_s": ("wal_bytes", "spent_s", 1.0),
    "us_row": ("spent_s", "rows", 1e6),
    "wal_row": ("wal_bytes", "rows", 1.0),
    "wal_byte": ("wal_bytes", "input_total", 1.0),
}
NAMES = ("seconds", *NUMBERS)


def number(bulk: Bulk, name: str) -> Estimate | None:
    """Seconds, or one of NUMBERS, which have no interval in a single trial."""
    if name == "seconds":
        return bulk.seconds
    top, bottom, factor = NUMBERS[name]
    above, below = getattr(bulk, top), getattr(bulk, bottom)
    known = bulk.clean or (name == "input_s" and bulk.whole)
    if not known or above is None or not below:
        return None
    return Estimate.alone(factor * above / below, bulk.executions)


def as_json(bulk: Bulk) -> dict[str, Any]:
    seconds = bulk.seconds
    bounds = seconds if seconds is not None and seconds.estimable else None
    return {
        "label": bulk.label,
        "executions": bulk.counts.due,
        "succeeded": bulk.done,
        "seconds": seconds and seconds.value,
        "seconds_low": bounds and bounds.low,
        "seconds_high": bounds and bounds.high,
        **fields(bulk, "median_s", "longest_s", "rows", "input_bytes", "wal_bytes"),
        "before_bytes": bulk.size_before_bytes,
        "behind_bytes": bulk.size_after_bytes,
        "cpu_s": bulk.cpu_s,
        "shared": bulk.others_wrote,
        **{name: each and each.value for name in NUMBERS for each in (number(bulk, name),)},
    }


def of(trial: Trial, summary: Summary) -> Bulk | None:
    """The figures of the first command of a trial; None without one.

    Its own workload precedes background workloads.
    """
    scripts = trial.workload.scripts
    at = next((n for n, script in enumerate(scripts) if script.is_command), None)
    if at is None or at >= len(summary.scripts):
        return None
    counts, spread = summary.scripts[at].counts, summary.scripts[at].latency
    median = spread.p50.value if spread.p50 and spread.count == counts.due else None
    n, seconds = spread.count, None
    if n and spread.mean is not None:
        seconds = Estimate.alone(spread.mean.value / 1e3, n)
        if n > 1 and spread.sd is not None:
            # Student's t; n - 1, because sd is that of the sample itself.
            half = students(n) * (spread.sd / 1e3 / math.sqrt(n - 1))
            low = max(0.0, seconds.value - half)
            seconds = Estimate(seconds.value, low, seconds.value + half, n)
    work: dict[str, Any] = {"executions": n, "spent_s": seconds.value * n if seconds else 0.0}
    stored = next((each.values for each in trial.findings if each.name == WORK), {})
    known = {*Bulk.__struct_fields__[-len(Bulk.__struct_defaults__) :], *work}
    work |= {k: v for k, v in stored.items() if k in known and (v or k not in work)}
    return Bulk(
        label=scripts[at].name,
        main=at == 0,
        counts=counts,
        failures=tuple(sorted(state for state in summary.failures if _ENDS.fullmatch(state))),
        seconds=seconds,
        median_s=median / 1e3 if median is not None and math.isfinite(median) else None,
        longest_s=None if spread.max is None else spread.max / 1e3,
        **work,
    )
