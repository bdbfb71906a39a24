"""Validation of a trial that was read from a file: every value has its type, no count is negative,
every histogram is readable and agrees with its count.

`analysis/summary.py` checks the sums of a trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, get_args, get_origin

from pgpaces.core import record
from pgpaces.core.record import Interval, StatementTally, Tally
from pgpaces.core.times import counted
from pgpaces.spec.result import State, Trial

# Seconds of a trial that may be missing in all: more than a day.
_GAPS_MAX_S = 100_000
# Excess of the measured time over the seconds: a table of this length still fits in memory.
_MEASURED_MAX_S = 1_000_000


def check(trial: Trial) -> None:
    """Raises ValueError, which describes the defect, for an invalid trial."""
    if trial.state not in get_args(State):
        raise ValueError(f"its state is {trial.state!r}")
    _expect(trial.started_at, (datetime,), "its start")
    _expect(trial.error, (str, type(None)), "its error")
    if trial.measured_ns is not None:
        _count(trial.measured_ns, "how long it measured")
        if trial.measured_ns > (len(trial.intervals) + _MEASURED_MAX_S) * 1_000_000_000:
            raise ValueError(f"it measured for {trial.measured_ns} ns, and has no such seconds")
    if trial.place is not None:
        _expect(trial.place.experiment, (str,), "its experiment")
        check_place(trial.place.cell, trial.place.block, trial.place.attempt)
        levels: Mapping[Any, Any] = _expect(trial.place.levels, (dict,), "its levels")
        _texts(levels.values(), "a level")
    commands = [len(script.commands) for script in trial.workload.scripts]
    for interval in trial.intervals:
        second = f"second {_expect(interval.second, (int,), 'a second')}"
        _record(interval, second)
        scripts = len(commands) if commands else None
        for tally in interval.tallies:
            _record(tally, second)
            _within(tally.script, scripts, f"{second}: script")
        for statement in interval.statements:
            _record(statement, second)
            _within(statement.script, scripts, f"{second}: script")
            count = commands[statement.script] if commands else None
            _within(statement.command, count, f"{second}: command")
    seconds = [interval.second for interval in trial.intervals]
    seconds += [tally.due_second for interval in trial.intervals for tally in interval.tallies]
    if seconds and max(seconds) - min(seconds) > len(trial.intervals) + _GAPS_MAX_S:
        raise ValueError(f"its seconds are from {min(seconds)} to {max(seconds)}")


def check_summary(summary: object) -> None:
    """As `check`, for the summary that lists of runs show."""
    if summary is None:
        return
    values = _expect(summary, (dict,), "its summary")
    share = values.get("missed_share")
    if share is not None:
        _expect(share, (list,), "its missed share")
        if len(share) != 3:
            raise ValueError(f"its missed share is {share!r}, expected three numbers")
    for number in (values.get("due"), values.get("p99_ms"), *(share or ())):
        if isinstance(number, float) and not math.isfinite(number):
            raise ValueError(f"its summary holds {number!r}")
        if not isinstance(number, str):  # "> limit"
            _expect(number, (int, float, type(None)), "a number of its summary")


def check_place(cell: object, block: object, attempt: object) -> None:
    """As `check`, for the place of a trial in an experiment."""
    _expect(cell, (str,), "its cell")
    for number, what in ((block, "its block"), (attempt, "its attempt")):
        if _expect(number, (int,), what) < 1:
            raise ValueError(f"{what} is {number}, and the first is 1")


def _expect(value: Any, kinds: tuple[type, ...], what: str) -> Any:
    if not isinstance(value, kinds):
        expected = " or ".join("nothing" if k is type(None) else k.__name__ for k in kinds)
        raise ValueError(f"{what} is {_shown(value)}, expected {expected}")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _count(value: object, what: str) -> None:
    if _expect(value, (int,), what) < 0:
        raise ValueError(f"{what} is {value}, and cannot be negative")


def _texts(values: Iterable[object], what: str) -> None:
    for value in values:
        _expect(value, (str,), what)


def _record(part: Interval | Tally | StatementTally, second: str) -> None:
    for one in record.declared(type(part)):
        value, what = getattr(part, one.name), f"{second}: {one.name}"
        if one.is_times:
            for name in ("count", "sum_ns", "max_ns"):
                _count(getattr(value, name), f"{what} {name}")
            squares = _expect(value.square_sum, (int, float), f"{what} squares")
            if not (math.isfinite(squares) and squares >= 0):
                raise ValueError(f"{what} squares are {squares}")
            _expect(value.histogram, (bytes,), f"{what} histogram")
            try:
                count = counted(value)
            except ValueError as error:
                raise ValueError(f"{what} is {error}") from None
            if count != value.count:
                raise ValueError(f"{what} counts {value.count} times, and its histogram {count}")
        elif one.type is int:
            if _expect(value, (int,), what) < 0 and not one.rule.signed:
                raise ValueError(f"{what} is {value}, and cannot be negative")
        else:
            _several(value, one.type, what)


def _several(value: Any, kind: Any, what: str) -> None:
    """Checks counts by name, or a list of its type: counts, texts, or pairs of texts."""
    if get_origin(kind) is Mapping:
        counts: Mapping[Any, Any] = _expect(value, (dict,), what)
        for name, count in counts.items():
            _count(count, f"{what} with {name}")
        return
    inner = get_args(kind)[0]
    for each in _expect(value, (tuple,), what):
        if inner is int:
            _count(each, what)
        elif inner is str:
            _texts((each,), what)
        elif len(_expect(each, (tuple,), what)) != len(get_args(inner)):
            raise ValueError(f"{what} has {_shown(each)}, expected a pair")
        else:
            _texts(each, what)


def _within(number: object, count: int | None, what: str) -> None:
    _count(number, what)
    if count is not None and isinstance(number, int) and number >= count:
        raise ValueError(f"{what} {number} does not exist, the trial has {count}")
