"""Trials and their seconds as rows of tables, and back. Knows no connection.

Damaged values raise one of encoding.UNREADABLE; the store turns it into a message.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa
from msgspec import to_builtins
from msgspec.structs import asdict, replace

from pgpaces.core import record
from pgpaces.core.findings import Finding
from pgpaces.core.messages import message
from pgpaces.core.record import Interval, StatementTally, Tally
from pgpaces.core.series import Collection, Series
from pgpaces.spec import facts
from pgpaces.spec.result import Explained, Observed, Place, State, Trial
from pgpaces.store import encoding

Row = sa.RowMapping
# Ordered as the key, so that no rows are sorted.
SAMPLES = """SELECT second, source, name, value, unit FROM sample WHERE trial = ? AND second > ?
 ORDER BY trial, second, source, name"""
ExperimentState = Literal["running", "finished", "interrupted"]


def state(row: Row) -> State:
    """The state; a running trial without a recent heartbeat was interrupted."""
    stored: State = row["state"]
    return "interrupted" if stored == "running" and encoding.silent(row["heartbeat"]) else stored


def new_trial(trial: Trial) -> dict[str, Any]:
    place = trial.place
    return {
        "id": trial.id,
        "state": "running",
        "started_at": trial.started_at,
        "heartbeat": datetime.now(UTC),
        "version": trial.version,
        "plan": to_builtins(trial.plan),
        "workload": to_builtins(trial.workload),
        "server": to_builtins(trial.server),
        "host": to_builtins(trial.host),
        **results_of(trial),
        **({} if place is None else {**asdict(place), "levels": dict(place.levels)}),
    }


def results_of(trial: Trial) -> dict[str, Any]:
    return {
        "notes": [asdict(note) for note in trial.notes],
        "findings": [asdict(finding) for finding in trial.findings],
        "explained": [asdict(explained) for explained in trial.explained],
    }


def second_rows(trial_id: str, interval: Interval) -> dict[str, list[dict[str, Any]]]:
    own = {"trial": trial_id, "second": interval.second}
    return {
        "interval": [{**own, **record.row(interval)}],
        "tally": [{**own, **record.row(tally)} for tally in interval.tallies],
        "statement": [{**own, **record.row(each)} for each in interval.statements],
    }


def observed_row(trial_id: str, observed: Observed) -> dict[str, Any]:
    values = to_builtins(observed, builtin_types=(bytes,))
    waits = values.pop("waits")
    return {"trial": trial_id, **values, **waits}


def observed(observed_rows: Iterable[Row]) -> tuple[Observed, ...]:
    parts = ({str(name): value for name, value in row.items()} for row in observed_rows)
    return tuple(
        facts.read(Observed, {**part, "waits": part}, "what was seen of a server") for part in parts
    )


def trial(row: Row) -> Trial:
    """A trial without its seconds and samples."""
    place = (row["experiment"], row["cell"], row["levels"], row["block"], row["attempt"])
    return Trial(
        id=row["id"],
        state=state(row),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        plan=facts.read(facts.PlanFacts, row["plan"], "its plan"),
        workload=facts.read(facts.WorkloadFacts, row["workload"], "its workload"),
        server=facts.read(facts.ServerFacts, row["server"], "its server"),
        host=facts.read(facts.HostFacts, row["host"], "its host"),
        version=row["version"],
        measured_ns=row["measured_ns"],
        error=row["error"],
        notes=facts.read(tuple[Finding, ...], row["notes"], "its notes"),
        findings=facts.read(tuple[Finding, ...], row["findings"], "its findings"),
        explained=facts.read(tuple[Explained, ...], row["explained"], "its plans of statements"),
        place=None if row["experiment"] is None else Place(*place),
    )


def series(sample_rows: Iterable[tuple[Any, ...]]) -> Collection:
    """The series of rows of `SAMPLES`, as the driver returns them; they are checked."""
    collection = Collection()
    stored: dict[tuple[Any, ...], Series] = {}
    for second, source, name, value, unit in sample_rows:
        key = source, name, unit
        if key not in stored:
            texts = facts.read(tuple[str, str, str], list(key), "a sample")
            stored[key] = collection.of(*(encoding.read_text(text) for text in texts))
        stored[key].add(second, math.nan if value is None else value)
    return collection


def intervals(tables: Mapping[str, Iterable[Row]]) -> tuple[Interval, ...]:
    """A trial's intervals from the rows of three tables, each in order; gaps stay gaps."""
    seconds = {row["second"]: record.of_row(Interval, row) for row in tables["interval"]}
    tallies = _by_second(tables["tally"], Tally, seconds, what="counts")
    statements = _by_second(tables["statement"], StatementTally, seconds, what="statements")
    return tuple(
        replace(interval, tallies=tuple(tallies[second]), statements=tuple(statements[second]))
        for second, interval in seconds.items()
    )


def _by_second(
    part_rows: Iterable[Row], kind: type[Any], seconds: Iterable[int], *, what: str
) -> dict[int, list[Any]]:
    parts: dict[int, list[Any]] = {second: [] for second in seconds}
    for row in part_rows:
        if row["second"] not in parts:
            raise ValueError(message("second-without-interval", second=row["second"], what=what))
        parts[row["second"]].append(record.of_row(kind, row))
    return parts
