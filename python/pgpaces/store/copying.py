"""Copies complete runs and experiments from one store to another, row by row; deletes them.

Works on open connections. Copies of a run are atomic, so copying may be repeated.
"""

from __future__ import annotations

import sqlalchemy as sa

from pgpaces.store import encoding, names
from pgpaces.store.schema import PARTS, baseline, experiment, failure, tag, trial

# Rows in memory at once.
_ROWS = 500


def uncopied(here: sa.Connection, there: sa.Connection, table: sa.Table) -> set[str]:
    """The ids of rows that `there` lacks, or has in an older state."""
    c = table.c
    query = sa.select(c.id, c.state, c.heartbeat)
    have = {id_: (state, beat) for id_, state, beat in there.execute(query)}
    return {
        id_
        for id_, state, beat in here.execute(query)
        if id_ not in have or (have[id_] != (state, beat) and have[id_][1] <= beat)
    }


def _insert(
    here: sa.Connection, there: sa.Connection, table: sa.Table, *, condition: sa.ColumnElement[bool]
) -> None:
    query = sa.select(table).where(condition).execution_options(yield_per=_ROWS)
    for part in here.execute(query).mappings().partitions():
        there.execute(sa.insert(table), [dict(row) for row in part])


def copy(here: sa.Connection, there: sa.Connection, id_: str) -> None:
    """Copies a run, or an experiment without its runs; replaces an earlier copy."""
    _delete_trials(there, trial.c.id == id_)
    _insert(here, there, trial, condition=trial.c.id == id_)
    for table in reversed(PARTS):
        _insert(here, there, table, condition=table.c.trial == id_)
    there.execute(sa.delete(failure).where(failure.c.experiment == id_))
    there.execute(sa.delete(experiment).where(experiment.c.id == id_))
    _insert(here, there, experiment, condition=experiment.c.id == id_)
    _insert(here, there, failure, condition=failure.c.experiment == id_)


def copy_names(here: sa.Connection, there: sa.Connection, ids: set[str] | None) -> None:
    """Copies their names. A baseline of another run or experiment there stays."""
    for table in (tag, baseline):
        query = sa.select(table.c.name, table.c.id)
        have = list(there.execute(query))
        names_there = {name for name, _ in have}
        for name, id_ in here.execute(query):
            free = (name, id_) not in have if table is tag else name not in names_there
            if free and (ids is None or id_ in ids):
                names.give(there, table, name, id_=id_)


def running(connection: sa.Connection, id_: str) -> list[str]:
    """The running ones among a run, or an experiment and its runs."""
    t, e = trial.c, experiment.c
    queries = (
        sa.select(t.id, t.heartbeat).where(
            (t.id == id_) | (t.experiment == id_), t.state == "running"
        ),
        sa.select(e.id, e.heartbeat).where(e.id == id_, e.state == "running"),
    )
    beats = (row for query in queries for row in connection.execute(query))
    return [name for name, beat in beats if not encoding.silent(beat)]


def delete(connection: sa.Connection, id_: str) -> None:
    condition = (trial.c.id == id_) | (trial.c.experiment == id_)
    names.remove(connection, sa.select(trial.c.id).where(condition))
    names.remove(connection, sa.select(experiment.c.id).where(experiment.c.id == id_))
    _delete_trials(connection, condition)
    connection.execute(sa.delete(failure).where(failure.c.experiment == id_))
    connection.execute(sa.delete(experiment).where(experiment.c.id == id_))


def _delete_trials(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> None:
    ids = sa.select(trial.c.id).where(condition)
    for table in PARTS:
        connection.execute(sa.delete(table).where(table.c.trial.in_(ids)))
    connection.execute(sa.delete(trial).where(condition))
