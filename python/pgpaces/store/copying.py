"""Runs and experiments from one store to another, row by row, with everything; and their deletion.

Works on open connections. A run arrives whole or not at all, so copying may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from pgpaces.store import encoding, names
from pgpaces.store.rows import Row
from pgpaces.store.schema import PARTS, baseline, experiment, failure, tag, trial

# Seconds that are in memory at once.
_ROWS = 500


def uncopied(here: sa.Connection, there: sa.Connection, table: sa.Table) -> set[str]:
    """The ids of what is not `there` as it is `here`, unless that is of an older moment."""
    c = table.c
    query = sa.select(c.id, c.state, c.heartbeat)
    have = {id_: (state, beat) for id_, state, beat in there.execute(query)}
    return {
        id_
        for id_, state, beat in here.execute(query)
        if id_ not in have or (have[id_] != (state, beat) and have[id_][1] <= beat)
    }


def _rows(
    connection: sa.Connection, table: sa.Table, condition: sa.ColumnElement[bool]
) -> Iterator[list[Row]]:
    query = sa.select(table).where(condition).execution_options(yield_per=_ROWS)
    for part in connection.execute(query).mappings().partitions():
        yield list(part)


def _insert(
    here: sa.Connection, there: sa.Connection, table: sa.Table, condition: sa.ColumnElement[bool]
) -> None:
    for part in _rows(here, table, condition):
        there.execute(sa.insert(table), [dict(row) for row in part])


def belonging(connection: sa.Connection, ids: set[str]) -> set[str]:
    """With the runs of the experiments, and the experiments of the runs, among them."""
    t = trial.c
    runs = sa.select(t.id).where(t.experiment.in_(ids))
    whole = sa.select(t.experiment).where(t.id.in_(ids), t.experiment.is_not(None))
    return ids | {id_ for query in (runs, whole) for id_ in connection.execute(query).scalars()}


def copy(here: sa.Connection, there: sa.Connection, id_: str) -> None:
    """Copies a run, or an experiment without its runs, in place of what is there of it."""
    _take_away(there, trial.c.id == id_)
    _insert(here, there, trial, trial.c.id == id_)
    for table in reversed(PARTS):
        _insert(here, there, table, table.c.trial == id_)
    there.execute(sa.delete(failure).where(failure.c.experiment == id_))
    there.execute(sa.delete(experiment).where(experiment.c.id == id_))
    _insert(here, there, experiment, experiment.c.id == id_)
    _insert(here, there, failure, failure.c.experiment == id_)


def copy_names(here: sa.Connection, there: sa.Connection, ids: set[str] | None) -> None:
    """Gives them the names they have here. A baseline that is another's there stays that one's."""
    for table in (tag, baseline):
        query = sa.select(table.c.name, table.c.id)
        have = list(there.execute(query))
        names_there = {name for name, _ in have}
        for name, id_ in here.execute(query):
            free = (name, id_) not in have if table is tag else name not in names_there
            if free and (ids is None or id_ in ids):
                names.give(there, table, name, id_)


def running(connection: sa.Connection, id_: str) -> list[str]:
    """What of a run, or of an experiment and its runs, goes on."""
    t, e = trial.c, experiment.c
    found = []
    for table, condition in (
        (trial, (t.id == id_) | (t.experiment == id_)),
        (experiment, e.id == id_),
    ):
        c = table.c
        query = sa.select(c.id, c.heartbeat).where(condition, c.state == "running")
        found += [name for name, beat in connection.execute(query) if not encoding.silent(beat)]
    return found


def delete(connection: sa.Connection, id_: str) -> None:
    """Deletes a run, or an experiment with its runs, and their names."""
    condition = (trial.c.id == id_) | (trial.c.experiment == id_)
    names.take(connection, sa.select(trial.c.id).where(condition))
    names.take(connection, sa.select(experiment.c.id).where(experiment.c.id == id_))
    _take_away(connection, condition)
    connection.execute(sa.delete(failure).where(failure.c.experiment == id_))
    connection.execute(sa.delete(experiment).where(experiment.c.id == id_))


def _take_away(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> None:
    ids = sa.select(trial.c.id).where(condition)
    for table in PARTS:
        connection.execute(sa.delete(table).where(table.c.trial.in_(ids)))
    connection.execute(sa.delete(trial).where(condition))
