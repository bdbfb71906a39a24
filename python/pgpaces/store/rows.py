"""Trials and their seconds as rows of tables, and back. Knows no connection.

What cannot be read raises one of UNREADABLE (form.py); the store makes a sentence of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from pgpaces.result import (
    Blocked,
    Executed,
    Explained,
    Finding,
    Grown,
    Interval,
    Moved,
    Observed,
    Place,
    Sample,
    State,
    StatementTally,
    Tally,
    Times,
    Trial,
    WaitEvent,
    Waits,
)  # fmt: skip
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


def _times_row(prefix: str, times: Times) -> dict[str, Any]:
    return {
        f"{prefix}_count": times.count,
        f"{prefix}_sum_ns": times.sum_ns,
        f"{prefix}_square_sum": times.square_sum,
        f"{prefix}_max_ns": times.max_ns,
        f"{prefix}_histogram": times.histogram,
    }


def interval_row(trial_id: str, interval: Interval) -> dict[str, Any]:
    """A second without its tallies and statements."""
    return {
        "trial": trial_id,
        "second": interval.second,
        "cpu_ns": list(interval.cpu_ns),
        "in_flight_ns": interval.in_flight_ns,
        "pending_ns": interval.pending_ns,
        "waited_ns": interval.waited_ns,
        "ended_ns": interval.ended_ns,
        "connects": interval.connects,
        "disconnects": interval.disconnects,
        "messages": [list(message) for message in interval.messages],
        "connect_ns": interval.connect_ns,
        "aborted": list(interval.aborted),
        "outages": interval.outages,
        "outage_ns_max": interval.outage_ns_max,
        "down": interval.down,
        "some_down_ns": interval.some_down_ns,
        "all_down_ns": interval.all_down_ns,
        **_times_row("dispatch", interval.dispatch),
    }


def tally_row(trial_id: str, second: int, tally: Tally) -> dict[str, Any]:
    """What became known in a second about a due second and script."""
    return {
        "trial": trial_id,
        "second": second,
        "due_second": tally.due_second,
        "script": tally.script,
        "due": tally.due,
        "on_time": tally.on_time,
        "late": tally.late,
        "skipped": tally.skipped,
        "failed": dict(tally.failed),
        "unfinished": tally.unfinished,
        "retried": tally.retried,
        "retries": tally.retries,
        **_times_row("latency", tally.latency),
        **_times_row("lag", tally.lag),
        **_times_row("service", tally.service),
    }


def statement_row(trial_id: str, second: int, tally: StatementTally) -> dict[str, Any]:
    """The times of one command in a second."""
    return {
        "trial": trial_id,
        "second": second,
        "script": tally.script,
        "command": tally.command,
        "failed": tally.failed,
        "retries": tally.retries,
        **_times_row("times", tally.times),
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
    seconds = {row["second"]: _interval(row) for row in found["interval"]}
    tallies: dict[int, list[Tally]] = {second: [] for second in seconds}
    for row in found["tally"]:
        if row["second"] not in tallies:
            raise ValueError(f"second {row['second']} has counts and no interval")
        tallies[row["second"]].append(_tally(row))
    statements: dict[int, list[StatementTally]] = {second: [] for second in seconds}
    for row in found["statement"]:
        if row["second"] not in statements:
            raise ValueError(f"second {row['second']} has statements and no interval")
        times = _times(row, "times")
        statements[row["second"]].append(
            StatementTally(row["script"], row["command"], row["failed"], times, row["retries"])
        )
    return tuple(
        replace(interval, tallies=tuple(tallies[second]), statements=tuple(statements[second]))
        for second, interval in seconds.items()
    )


def _interval(row: Row) -> Interval:
    return Interval(
        second=row["second"],
        cpu_ns=tuple(row["cpu_ns"]),
        in_flight_ns=row["in_flight_ns"],
        pending_ns=row["pending_ns"],
        waited_ns=row["waited_ns"],
        ended_ns=row["ended_ns"],
        connects=row["connects"],
        disconnects=row["disconnects"],
        messages=tuple((state, text) for state, text in row["messages"]),
        dispatch=_times(row, "dispatch"),
        connect_ns=row["connect_ns"],
        aborted=tuple(row["aborted"]),
        outages=row["outages"],
        outage_ns_max=row["outage_ns_max"],
        down=row["down"],
        some_down_ns=row["some_down_ns"],
        all_down_ns=row["all_down_ns"],
    )


def _tally(row: Row) -> Tally:
    return Tally(
        due_second=row["due_second"],
        script=row["script"],
        due=row["due"],
        on_time=row["on_time"],
        late=row["late"],
        skipped=row["skipped"],
        failed=row["failed"],
        unfinished=row["unfinished"],
        latency=_times(row, "latency"),
        lag=_times(row, "lag"),
        service=_times(row, "service"),
        retried=row["retried"],
        retries=row["retries"],
    )


def _times(row: Row, prefix: str) -> Times:
    return Times(
        row[f"{prefix}_count"],
        row[f"{prefix}_sum_ns"],
        row[f"{prefix}_square_sum"],
        row[f"{prefix}_max_ns"],
        row[f"{prefix}_histogram"],
    )
