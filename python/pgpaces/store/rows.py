"""Trials and their seconds as rows of tables, and back. Knows no connection.

What cannot be read raises one of UNREADABLE (form.py); the store makes a sentence of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from pgpaces import record
from pgpaces.record import Interval, StatementTally, Tally
from pgpaces.result import (
    Blocked,
    Executed,
    Explained,
    Finding,
    Grown,
    Moved,
    Observed,
    Place,
    Sample,
    State,
    Trial,
    WaitEvent,
    Waits,
)
from pgpaces.store import form

Row = sa.RowMapping
ExperimentState = Literal["running", "finished", "interrupted"]


def state(row: Row) -> State:
    """The state; a running trial whose process has been silent was interrupted."""
    found: State = row["state"]
    return "interrupted" if found == "running" and form.silent(row["heartbeat"]) else found


def new_trial(trial: Trial) -> dict[str, Any]:
    """A trial that starts."""
    return {
        "id": trial.id,
        "state": "running",
        "started_at": trial.started_at,
        "heartbeat": datetime.now(UTC),
        "version": trial.version,
        "plan": dict(trial.plan),
        "workload": dict(trial.workload),
        "server": dict(trial.server),
        "host": dict(trial.host),
        **found_of(trial),
        **_place_row(trial.place),
    }


def found_of(trial: Trial) -> dict[str, Any]:
    """What was found out about a trial, as its columns."""
    return {
        "notes": list(trial.notes),
        "findings": [asdict(finding) for finding in trial.findings],
        "explained": [asdict(explained) for explained in trial.explained],
    }


def _place_row(place: Place | None) -> dict[str, Any]:
    return {} if place is None else {**asdict(place), "levels": dict(place.levels)}


def second_rows(trial_id: str, interval: Interval) -> dict[str, list[dict[str, Any]]]:
    """A second as rows of its tables, by name."""
    own = {"trial": trial_id, "second": interval.second}
    return {
        "interval": [{**own, **record.row(interval)}],
        "tally": [{**own, **record.row(tally)} for tally in interval.tallies],
        "statement": [{**own, **record.row(each)} for each in interval.statements],
    }


def sample_row(trial_id: str, sample: Sample) -> dict[str, Any]:
    """What a sensor read."""
    return {"trial": trial_id, **asdict(sample)}


def observed_row(trial_id: str, observed: Observed) -> dict[str, Any]:
    """What else was seen of a server."""
    values = asdict(observed)
    waits = values.pop("waits")
    return {"trial": trial_id, **values, **waits}


def observed(found: Iterable[Row]) -> tuple[Observed, ...]:
    """What else was seen of each server."""
    return tuple(
        Observed(
            row["node"],
            tuple(Moved(**each) for each in row["moved"]),
            tuple(Executed(**each) for each in row["executed"]),
            tuple(Grown(**each) for each in row["grown"]),
            tuple(Blocked(**each) for each in row["blocked"]),
            Waits(
                row["looks"],
                tuple(WaitEvent(**each) for each in row["events"]),
                row["tenths"],
            ),
        )
        for row in found
    )


def trial(row: Row) -> Trial:
    """A trial without its seconds and samples."""
    return Trial(
        id=row["id"],
        state=state(row),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        plan=row["plan"],
        workload=row["workload"],
        server=row["server"],
        host=row["host"],
        version=row["version"],
        measured_ns=row["measured_ns"],
        error=row["error"],
        notes=tuple(row["notes"]),
        findings=tuple(Finding(**finding) for finding in row["findings"]),
        explained=tuple(Explained(**explained) for explained in row["explained"]),
        place=_place(row),
    )


def _place(row: Row) -> Place | None:
    if row["experiment"] is None:
        return None
    return Place(row["experiment"], row["cell"], row["levels"], row["block"], row["attempt"])


def samples(found: Iterable[Row]) -> tuple[Sample, ...]:
    """What sensors read."""
    return tuple(
        Sample(row["second"], row["source"], row["name"], row["value"], row["unit"])
        for row in found
    )


def intervals(found: Mapping[str, Iterable[Row]]) -> tuple[Interval, ...]:
    """A trial's intervals from the rows of three tables, each in order; gaps stay gaps."""
    seconds = {row["second"]: record.of_row(Interval, row) for row in found["interval"]}
    tallies = _by_second(found["tally"], Tally, seconds, "counts")
    statements = _by_second(found["statement"], StatementTally, seconds, "statements")
    return tuple(
        replace(interval, tallies=tuple(tallies[second]), statements=tuple(statements[second]))
        for second, interval in seconds.items()
    )


def _by_second(
    found: Iterable[Row], kind: type[Any], seconds: Iterable[int], what: str
) -> dict[int, list[Any]]:
    parts: dict[int, list[Any]] = {second: [] for second in seconds}
    for row in found:
        if row["second"] not in parts:
            raise ValueError(f"second {row['second']} has {what} and no interval")
        parts[row["second"]].append(record.of_row(kind, row))
    return parts
