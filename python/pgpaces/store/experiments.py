"""Experiments, the trials in them, and those that never began. Works on an open connection."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, get_args

import sqlalchemy as sa
from msgspec import Meta, Struct

from pgpaces.core.messages import message
from pgpaces.spec import setup
from pgpaces.spec.result import Brief, State
from pgpaces.store import encoding, rows
from pgpaces.store.rows import ExperimentState, Row
from pgpaces.store.schema import experiment, trial


class ExperimentRow(Struct, frozen=True):
    id: str
    name: str
    started_at: datetime
    ended_at: datetime | None
    state: ExperimentState
    version: str
    document: Mapping[str, Any]


class PlacedTrial(Struct, frozen=True):
    id: str
    cell: str
    block: Annotated[int, Meta(ge=1)]
    attempt: Annotated[int, Meta(ge=1)]
    state: State
    brief: Mapping[str, Any] | None


class Failure(Struct, frozen=True):
    """A trial that never began, and why."""

    cell: str
    block: int
    attempt: int
    at: datetime
    error: str


def change(connection: sa.Connection, id_: str, **values: Any) -> None:
    update = sa.update(experiment).where(experiment.c.id == id_)
    connection.execute(update.values(heartbeat=datetime.now(UTC), **values))


def claim(connection: sa.Connection, id_: str) -> bool:
    """Claims an experiment to resume it; false if another pgpaces runs it.

    Of two at once, one succeeds: the first to replace the heartbeat that both have read.
    """
    for row in connection.execute(_with_beats().where(experiment.c.id == id_)).mappings():
        if _row(row).state == "running":
            return False
        same = (experiment.c.id == id_) & (experiment.c.heartbeat == row["heartbeat"])
        values = {"state": "running", "ended_at": None, "heartbeat": datetime.now(UTC)}
        result = connection.execute(sa.update(experiment).where(same).values(values))
        return result.rowcount == 1
    return False


def listed(
    connection: sa.Connection, limit: int | None = None, id_: str | None = None
) -> list[ExperimentRow]:
    """Experiments, newest first; or the one."""
    query = _with_beats()
    query = query.order_by(experiment.c.started_at.desc(), experiment.c.id.desc()).limit(limit)
    if id_ is not None:
        query = query.where(experiment.c.id == id_)
    return [_row(row) for row in connection.execute(query).mappings()]


def _with_beats() -> sa.Select[Any]:
    beats = sa.select(sa.func.max(trial.c.heartbeat, type_=trial.c.heartbeat.type)).where(
        trial.c.experiment == experiment.c.id, trial.c.state == "running"
    )
    return sa.select(experiment, beats.scalar_subquery().label("beat"))


def _row(row: Row) -> ExperimentRow:
    state = row["state"]
    if state not in get_args(ExperimentState):
        raise ValueError(message("experiment-state-unknown", id=row["id"], state=state))
    if not isinstance(row["document"], dict):
        raise TypeError(message("experiment-without-document", id=row["id"]))
    if state == "running" and encoding.silent(row["heartbeat"]):
        # The heartbeat of a running trial is also one of its experiment.
        alive = row["beat"] is not None and not encoding.silent(row["beat"])
        state = "running" if alive else "interrupted"
    return ExperimentRow(
        row["id"], row["name"], row["started_at"], row["ended_at"], state, row["version"],
        row["document"],
    )  # fmt: skip


def placed(connection: sa.Connection, id_: str) -> list[PlacedTrial]:
    """The trials of an experiment in the order in which they started."""
    t = trial.c
    query = sa.select(t.id, t.cell, t.block, t.attempt, t.state, t.heartbeat, t.summary)
    query = query.where(t.experiment == id_).order_by(t.started_at, t.id)
    trials = []
    for row in connection.execute(query).mappings():
        if row["summary"] is not None:
            setup.read(Brief, row["summary"], "its summary")
        own = {name: row[name] for name in ("id", "cell", "block", "attempt")}
        own |= {"state": rows.state(row), "brief": row["summary"]}
        trials.append(setup.read(PlacedTrial, own, "a trial"))
    return trials
