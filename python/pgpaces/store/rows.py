"""Trials and their seconds as rows of tables, and back.

Damaged values raise one of encoding.UNREADABLE; the store turns it into a message.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, cast, get_args, get_type_hints

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from pgpaces.core import record
from pgpaces.core.errors import PlanError
from pgpaces.core.messages import message
from pgpaces.core.record import Interval, StatementTally, Tally
from pgpaces.core.series import Collection, Series
from pgpaces.core.times import counted
from pgpaces.core.units import SECOND_NS
from pgpaces.spec import setup
from pgpaces.spec.result import Observed, Place, State, Trial
from pgpaces.store import encoding, schema
from pgpaces.store.connection import Connection, Row

R = TypeVar("R", Interval, Tally, StatementTally)
# Smaller than every second of a trial.
BEFORE_ALL = -(2**31)
# Columns of a trial that are fields with the same name.
_OF_TRIAL = (
    *("id", "started_at", "ended_at", "spec", "setup", "version"),
    *("measured_ns", "error", "notes", "findings", "explained", "rehearsed"),
)
# Seconds of a trial that may be missing in all: more than a day.
_GAPS_MAX_S = 100_000
# Excess of the measured time over the seconds: a table of this length still fits in memory.
_MEASURED_MAX_S = 1_000_000
ExperimentState = Literal["running", "finished", "interrupted"]


def state(stored: Any, heartbeat: Any) -> State:
    """The state; a running trial without a recent heartbeat was interrupted."""
    if stored not in get_args(State):
        raise ValueError(f"its state is {stored!r}")
    silent = stored == "running" and encoding.silent(encoding.moment(heartbeat))
    return "interrupted" if silent else cast("State", stored)


def new_trial(trial: Trial) -> dict[str, Any]:
    place = trial.place
    return {
        "id": trial.id,
        "state": "running",
        "started_at": trial.started_at,
        "heartbeat": datetime.now(UTC),
        "version": trial.version,
        "spec": to_builtins(trial.spec),
        "setup": to_builtins(trial.setup),
        **results_of(trial),
        **({} if place is None else {**asdict(place), "levels": dict(place.levels)}),
    }


def results_of(trial: Trial) -> dict[str, Any]:
    return {
        "notes": [asdict(note) for note in trial.notes],
        "findings": [asdict(finding) for finding in trial.findings],
        "explained": [asdict(explained) for explained in trial.explained],
        "rehearsed": None if trial.rehearsed is None else to_builtins(trial.rehearsed),
    }


def observed_row(trial_id: str, observed: Observed) -> dict[str, Any]:
    values = to_builtins(observed, builtin_types=(bytes,))
    waits = values.pop("waits")
    return {"trial": trial_id, **values, **waits}


def observed(connection: Connection, trial_id: str) -> tuple[Observed, ...]:
    stored = connection.select(schema.observed, "WHERE trial = ? ORDER BY node", trial_id)
    what = "what was seen of a server"
    return tuple(setup.read(Observed, {**row, "waits": row}, what) for row in stored)


def trial(row: Row) -> Trial:
    """A trial without its seconds and samples."""
    place = None
    if row["experiment"] is not None:
        place = {name: row[name] for name in Place.__struct_fields__}
    stored = {
        **{n: row[n] for n in _OF_TRIAL},
        "state": state(row["state"], row["heartbeat"]),
        "place": place,
    }
    values = {n: setup.read(_kinds()[n], each, f"its {n}") for n, each in stored.items()}
    found = Trial(**values)
    try:
        found.plan  # noqa: B018 - is computed and checked here
    except PlanError as error:
        raise ValueError(f"its spec: {error.message}") from None
    return found


@functools.cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(Trial, include_extras=True)


def check(trial: Trial) -> None:
    """Raises ValueError for a trial that is damaged, although every value has its type.

    Each histogram has the count that stands beside it, the workload has each script and
    command, and the seconds fit into a table. analysis/summary.py checks the sums.
    """
    if (trial.measured_ns or 0) > (len(trial.intervals) + _MEASURED_MAX_S) * SECOND_NS:
        raise ValueError(message("seconds-missing", measured_ns=trial.measured_ns))
    commands = [len(script.commands) for script in trial.workload.scripts]
    seconds = []
    for interval in trial.intervals:
        seconds += [second := interval.second, *(tally.due_second for tally in interval.tallies)]
        parts: list[Tally | StatementTally] = [*interval.tallies, *interval.statements]
        _check_histograms(interval)
        for each in parts:
            if commands and each.script >= len(commands):
                raise ValueError(message("second-of-no-script", second=second, script=each.script))
        for own in interval.statements:
            if commands and own.command >= commands[own.script]:
                raise ValueError(
                    message("second-of-no-command", second=second, command=own.command)
                )
    if seconds and max(seconds) - min(seconds) > len(trial.intervals) + _GAPS_MAX_S:
        raise ValueError(message("seconds-apart", first=min(seconds), last=max(seconds)))


def _check_histograms(interval: Interval) -> None:
    for part in (interval, *interval.tallies, *interval.statements):
        for one in record.declared(type(part)):
            if one.is_times and (times := getattr(part, one.name)).count != counted(times):
                values = {"count": times.count, "counted": counted(times)}
                values |= {"second": interval.second, "name": one.name}
                raise ValueError(message("second-of-other-histogram", **values))


def series(connection: Connection, trial_id: str, after: int = BEFORE_ALL) -> Collection:
    """The samples of a trial after a second; they are checked."""
    # Ordered as the key, so that no rows are sorted.
    query = (
        "SELECT second, source, name, value, unit FROM sample WHERE trial = ? AND second > ?"
        " ORDER BY trial, second, source, name"
    )
    collection = Collection()
    stored: dict[tuple[Any, ...], Series] = {}
    for second, source, name, value, unit in connection.each(query, trial_id, after):
        key = source, name, unit
        if key not in stored:
            texts = setup.read(tuple[str, str, str], list(key), "a sample")
            stored[key] = collection.of(*(encoding.read_text(text) for text in texts))
        stored[key].add(second, math.nan if value is None else value)
    return collection


def intervals(
    connection: Connection, trial_id: str, after: int = BEFORE_ALL
) -> tuple[Interval, ...]:
    """A trial's intervals after a second, in order; gaps stay gaps."""

    def records(table: schema.Table, kind: type[R]) -> Iterator[tuple[int, R]]:
        rest = f"WHERE trial = ? AND second > ? ORDER BY {', '.join(table.key)}"
        for row in connection.select(table, rest, trial_id, after):
            values = record.of_row(kind, row)
            yield row["second"], setup.read(kind, values, f"second {row['second']}")

    seconds = dict(records(schema.interval, Interval))
    tallies: dict[int, list[Any]] = {second: [] for second in seconds}
    statements: dict[int, list[Any]] = {second: [] for second in seconds}
    parts: tuple[tuple[schema.Table, Any, dict[int, list[Any]], str], ...] = (
        (schema.tally, Tally, tallies, "counts"),
        (schema.statement, StatementTally, statements, "statements"),
    )
    for table, kind, by_second, what in parts:
        for second, each in records(table, kind):
            if second not in by_second:
                raise ValueError(message("second-without-interval", second=second, what=what))
            by_second[second].append(each)
    return tuple(
        replace(each, tallies=tuple(tallies[second]), statements=tuple(statements[second]))
        for second, each in seconds.items()
    )
