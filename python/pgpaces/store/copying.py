"""Copies complete runs and experiments from one store to another, row by row; deletes them.

Works on open connections. Copies of a run are atomic, so copying may be repeated.
"""

from __future__ import annotations

from pgpaces.store import encoding, names
from pgpaces.store.connection import Connection
from pgpaces.store.schema import PARTS, Table, baseline, experiment, failure, tag, trial


def uncopied(here: Connection, there: Connection, table: Table) -> set[str]:
    """The ids of rows that `there` lacks, or has in an older state."""
    query = f"SELECT id, state, heartbeat FROM {table.name}"
    read = encoding.moment
    have = {id_: (state, read(beat)) for id_, state, beat in there.each(query)}
    return {
        id_
        for id_, state, beat in here.each(query)
        if id_ not in have or (have[id_] != (state, read(beat)) and have[id_][1] <= read(beat))
    }


def copy(here: Connection, there: Connection, id_: str) -> None:
    """Copies a run, or an experiment without its runs; replaces an earlier copy."""
    _delete_trials(there, "id = ?", id_)
    there.insert(trial, here.select(trial, "WHERE id = ?", id_))
    for table in reversed(PARTS):
        there.insert(table, here.select(table, "WHERE trial = ?", id_, stream=True))
    _delete_experiment(there, id_)
    there.insert(experiment, here.select(experiment, "WHERE id = ?", id_))
    there.insert(failure, here.select(failure, "WHERE experiment = ?", id_))


def copy_names(here: Connection, there: Connection, ids: set[str] | None) -> None:
    """Copies their names. A baseline of another run or experiment there stays."""
    for table in (tag, baseline):
        have = {row["name"] for row in there.select(baseline)} if table is baseline else set()
        for row in list(here.select(table)):
            if row["name"] not in have and (ids is None or row["id"] in ids):
                names.give(there, table, row["name"], id_=row["id"])


def running(connection: Connection, id_: str) -> list[str]:
    """The running ones among a run, or an experiment and its runs."""
    beats = connection.rows(
        "SELECT id, heartbeat FROM trial WHERE (id = ? OR experiment = ?) AND state = 'running'"
        " UNION ALL SELECT id, heartbeat FROM experiment WHERE id = ? AND state = 'running'",
        *(id_, id_, id_),
    )
    return [name for name, beat in beats if not encoding.silent(encoding.moment(beat))]


def delete(connection: Connection, id_: str) -> None:
    ids = "(SELECT id FROM trial WHERE experiment = ?)"
    for table in (tag, baseline):
        connection.execute(f"DELETE FROM {table.name} WHERE id = ? OR id IN {ids}", id_, id_)
    _delete_trials(connection, "id = ? OR experiment = ?", id_, id_)
    _delete_experiment(connection, id_)


def _delete_experiment(connection: Connection, id_: str) -> None:
    connection.execute("DELETE FROM failure WHERE experiment = ?", id_)
    connection.execute("DELETE FROM experiment WHERE id = ?", id_)


def _delete_trials(connection: Connection, condition: str, *values: str) -> None:
    ids = f"(SELECT id FROM trial WHERE {condition})"
    for table in PARTS:
        connection.execute(f"DELETE FROM {table.name} WHERE trial IN {ids}", *values)
    connection.execute(f"DELETE FROM trial WHERE {condition}", *values)
