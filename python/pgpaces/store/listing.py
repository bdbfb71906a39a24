"""Trials and experiments for lists, in SQL for both databases.

Without SQLAlchemy, because its import would take longer than the rest of `pgpaces runs`.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from msgspec import Struct, field

from pgpaces.core.errors import PlanError
from pgpaces.core.messages import message
from pgpaces.spec import setup
from pgpaces.spec.load import load_of
from pgpaces.spec.result import Brief, State
from pgpaces.store import address, encoding, sqlite, upgrades

T = TypeVar("T")


class TrialRow(Struct, frozen=True):
    """A trial without its intervals, for lists of runs.

    load: in words. experiment: the id of its experiment. names: baselines and tags. damage: why it
    cannot be read; then started_at is None. clients: in all. spec: the options by name.
    """

    id: str
    state: State
    started_at: datetime | None
    workload: str
    load: str
    server: str
    summary: Mapping[str, Any] | None
    experiment: str | None = None
    names: tuple[str, ...] = ()
    damage: str | None = None
    clients: int = 0
    spec: Mapping[str, Any] = field(default_factory=dict)


class ExperimentLine(Struct, frozen=True):
    """An experiment for lists. runs: the number of its trials in the store. damage: as of a row."""

    id: str
    name: str
    state: str
    started_at: datetime | None
    ended_at: datetime | None
    runs: int
    names: tuple[str, ...] = ()
    damage: str | None = None


class RunFilter(Struct, frozen=True):
    """At most `limit` trials, of an experiment (its id), with a tag; single: of no experiment.

    skip: the number of newer ones to leave out.
    """

    limit: int | None = None
    experiment: str | None = None
    tag: str | None = None
    single: bool = False
    skip: int = 0


class Cursor(Struct, frozen=True):
    """A cursor of a driver, and its placeholder of a value."""

    driver: Any
    mark: str

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query with `?` as placeholders."""
        return list(self.each(sql, values))

    def each(self, sql: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """The same, one row after the other."""
        self.driver.execute(sql.replace("?", self.mark), tuple(values))
        while part := self.driver.fetchmany(_ROWS):
            yield from part


# Rows that are read from the driver at once.
_ROWS = 1000


def decode_lossless(value: bytes) -> str:
    """A text_factory of sqlite3; the default one rejects all rows for one with invalid UTF-8."""
    return value.decode(errors="surrogateescape")


_TRIALS = """SELECT id, state, started_at, heartbeat, CAST(spec AS text), CAST(setup AS text),
 CAST(summary AS text), experiment FROM trial"""
_NEWEST = " ORDER BY started_at DESC, id DESC"
_NAMES = "SELECT 0, id, name FROM baseline UNION ALL SELECT 1, id, name FROM tag ORDER BY 1, 3"


def trials(cursor: Cursor, chosen: RunFilter) -> list[TrialRow]:
    """The chosen trials, newest first; unreadable ones as damaged."""
    conditions: dict[str, object] = {}
    if chosen.experiment is not None:
        conditions["experiment = ?"] = chosen.experiment
    if chosen.tag is not None:
        conditions["id IN (SELECT id FROM tag WHERE name = ?)"] = encoding.text(chosen.tag)
    # Not by the index on experiment: sorting all rows would take longer than the newest ones.
    alone = ["coalesce(experiment, '') = ''"] if chosen.single else []
    terms = [*conditions, *alone]
    where = " WHERE " + " AND ".join(terms) if terms else ""
    limit = {} if chosen.limit is None else {" LIMIT ?": chosen.limit, " OFFSET ?": chosen.skip}
    query = _TRIALS + where + _NEWEST + "".join(limit)
    names = _names(cursor)
    rows = cursor.rows(query, (*conditions.values(), *limit.values()))
    return [_row(values, names.get(values[0], ())) for values in rows]


def states(
    cursor: Cursor, limit: int | None = None, experiment: str | None = None
) -> list[tuple[str, State]]:
    """Ids of trials with their states, the newest first; an unreadable state is `failed`."""
    where = {} if experiment is None else {" WHERE experiment = ?": experiment}
    end = {} if limit is None else {" LIMIT ?": limit}
    query = f"SELECT id, state, heartbeat FROM trial{''.join(where)}{_NEWEST}{''.join(end)}"
    pairs: list[tuple[str, State]] = []
    for id_, stored, heartbeat in cursor.rows(query, (*where.values(), *end.values())):
        try:
            pairs.append((id_, _state(stored, heartbeat)))
        except encoding.UNREADABLE:
            pairs.append((id_, "failed"))
    return pairs


def _names(cursor: Cursor) -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {}
    for _, id_, name in cursor.rows(_NAMES):
        names[id_] = (*names.get(id_, ()), encoding.read_text(name))
    return names


_STATES = ("running", "finished", "interrupted")
_RUNS = "SELECT {} FROM trial WHERE trial.experiment = experiment.id"
_EXPERIMENTS = f"""SELECT id, state, name, started_at, ended_at, heartbeat,
 ({_RUNS.format("max(heartbeat)")} AND state = 'running'),
 ({_RUNS.format("count(*)")}) FROM experiment ORDER BY started_at DESC, id DESC
 LIMIT ? OFFSET ?"""


def experiments(cursor: Cursor, limit: int, skip: int = 0) -> list[ExperimentLine]:
    """The newest experiments after those to skip; unreadable ones as damaged."""
    names, rows = _names(cursor), cursor.rows(_EXPERIMENTS, (limit, skip))
    return [_experiment(values, names.get(values[0], ())) for values in rows]


def _experiment(values: tuple[Any, ...], names: tuple[str, ...]) -> ExperimentLine:
    id_, state, name, started, ended, heartbeat, beat, runs = values
    try:
        if state not in _STATES:
            raise ValueError(message("experiment-state-unknown", id=id_, state=state))
        if state == "running":
            # The heartbeat of a running trial is also one of its experiment.
            beats = [_moment(each) for each in (heartbeat, beat) if each is not None]
            state = "interrupted" if all(map(encoding.silent, beats)) else state
        until = None if ended is None else _moment(ended)
        title = encoding.read_text(name)
        return ExperimentLine(id_, title, state, _moment(started), until, runs, names)
    except encoding.UNREADABLE as error:
        return ExperimentLine(str(id_), "?", "failed", None, None, 0, names, _damage(error))


def _row(values: tuple[Any, ...], names: tuple[str, ...]) -> TrialRow:
    id_, stored, started, heartbeat, *texts, experiment = values
    try:
        spec, about, summary = (json.loads(text or "null") for text in texts)
        if summary is not None:
            setup.read(Brief, summary, "its summary")
        load = load_of(spec).text((about["imported"] or {}).get("program", ""))
        shown = (about["workload"]["name"], load, about["server"]["version"])
        for text in (id_, *shown):
            if not isinstance(text, str):
                raise TypeError(f"{text!r} is no text")
        state, at = _state(stored, heartbeat), _moment(started)
        more = {"clients": about["clients"], "spec": spec}
        return TrialRow(id_, state, at, *shown, summary, experiment, names, **more)
    except (PlanError, *encoding.UNREADABLE) as error:
        unknown, unread = ("?", "?", "?"), _damage(error)
        return TrialRow(str(id_), "failed", None, *unknown, None, None, names, unread)


def _damage(error: Exception) -> str:
    return " ".join(str(error).split()[:20])


def _state(stored: Any, heartbeat: Any) -> State:
    if stored not in get_args(State):
        raise ValueError(f"its state is {stored!r}")
    silent = stored == "running" and encoding.silent(_moment(heartbeat))
    return "interrupted" if silent else cast("State", stored)


def _moment(value: Any) -> datetime:
    return encoding.utc(value if isinstance(value, datetime) else datetime.fromisoformat(value))


def at_once(place: Path | str | None, chosen: RunFilter) -> list[TrialRow] | None:
    """The trials of a store that exists and is up to date; None for others."""
    return _query(place, lambda cursor: trials(cursor, chosen))


def experiments_at_once(place: Path | str | None, limit: int) -> list[ExperimentLine] | None:
    """The same for experiments; None also for a damaged one."""
    lines = _query(place, lambda cursor: experiments(cursor, limit))
    return None if lines is None or any(line.damage for line in lines) else lines


def _query(place: Path | str | None, query: Callable[[Cursor], T]) -> T | None:
    location = address.located(place)
    if isinstance(location, Path):
        with contextlib.suppress(sqlite3.Error, OSError), _file(location) as cursor:
            return query(cursor) if _up_to_date(cursor) else None
        return None
    import psycopg

    with contextlib.suppress(psycopg.Error), _server(location) as cursor:
        return query(cursor) if _up_to_date(cursor) else None
    return None


def _up_to_date(cursor: Cursor) -> bool:
    return cursor.rows("SELECT version FROM pgpaces") == [(upgrades.newest(),)]


@contextlib.contextmanager
def _file(path: Path) -> Iterator[Cursor]:
    with contextlib.closing(sqlite.readable(path)) as connection:
        connection.text_factory = decode_lossless
        connection.execute("BEGIN")
        yield Cursor(connection.cursor(), "?")


@contextlib.contextmanager
def _server(written: str) -> Iterator[Cursor]:
    import psycopg
    from psycopg.conninfo import make_conninfo

    keywords = {"connect_timeout": "10", **address.parsed(written), "client_encoding": "UTF8"}
    with psycopg.connect(make_conninfo("", **keywords)) as connection:
        yield Cursor(connection.cursor(), "%s")
