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
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

from msgspec import Meta, Struct, field

from pgpaces.core.errors import PlanError
from pgpaces.core.messages import message
from pgpaces.spec import setup
from pgpaces.spec.load import load_of
from pgpaces.spec.result import Brief, State
from pgpaces.store import address, encoding, upgrades

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


class ExperimentRow(Struct, frozen=True):
    """An experiment. runs: the number of its trials in the store. names, damage: as of a trial."""

    id: str
    name: str
    started_at: datetime | None
    ended_at: datetime | None
    state: Literal["running", "finished", "interrupted", "failed"]
    version: str
    document: Mapping[str, Any]
    runs: int = 0
    names: tuple[str, ...] = ()
    damage: str | None = None


class PlacedTrial(Struct, frozen=True):
    """A trial of an experiment."""

    id: str
    cell: str
    block: Annotated[int, Meta(ge=1)]
    attempt: Annotated[int, Meta(ge=1)]
    state: State
    brief: Mapping[str, Any] | None


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
    by_id, rows = names(cursor), cursor.rows(query, (*conditions.values(), *limit.values()))
    return [_row(values, by_id.get(values[0], ())) for values in rows]


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


def names(cursor: Cursor) -> dict[str, tuple[str, ...]]:
    """The baselines and tags of trials and experiments, by their ids."""
    by_id: dict[str, tuple[str, ...]] = {}
    for _, id_, name in cursor.rows(_NAMES):
        by_id[id_] = (*by_id.get(id_, ()), encoding.read_text(name))
    return by_id


_STATES = ("running", "finished", "interrupted")
_RUNS = "SELECT {} FROM trial WHERE trial.experiment = experiment.id"
_EXPERIMENTS = f"""SELECT id, state, name, started_at, ended_at, heartbeat,
 ({_RUNS.format("max(heartbeat)")} AND state = 'running'),
 ({_RUNS.format("count(*)")}), version, CAST(document AS text) FROM experiment"""


def experiments(
    cursor: Cursor, limit: int | None = None, skip: int = 0, *, id_: str | None = None
) -> list[ExperimentRow]:
    """The newest experiments after those to skip, or the one; unreadable ones as damaged."""
    where = {} if id_ is None else {" WHERE id = ?": id_}
    end = {} if limit is None else {" LIMIT ?": limit, " OFFSET ?": skip}
    query = f"{_EXPERIMENTS}{''.join(where)}{_NEWEST}{''.join(end)}"
    by_id, rows = names(cursor), cursor.rows(query, (*where.values(), *end.values()))
    return [_experiment(values, by_id.get(values[0], ())) for values in rows]


def _experiment(values: tuple[Any, ...], names: tuple[str, ...]) -> ExperimentRow:
    id_, state, name, started, ended, heartbeat, beat, runs, version, text = values
    try:
        document = json.loads(text)
        if state not in _STATES:
            raise ValueError(message("experiment-state-unknown", id=id_, state=state))
        if not isinstance(document, dict):
            raise TypeError(message("experiment-without-document", id=id_))
        if state == "running":
            # The heartbeat of a running trial is also one of its experiment.
            beats = [_moment(each) for each in (heartbeat, beat) if each is not None]
            state = "interrupted" if all(map(encoding.silent, beats)) else state
        until = None if ended is None else _moment(ended)
        title, began = encoding.read_text(name), _moment(started)
        return ExperimentRow(id_, title, began, until, state, version, document, runs, names)
    except encoding.UNREADABLE as error:
        unread = _damage(error)
        return ExperimentRow(str(id_), "?", None, None, "failed", "?", {}, 0, names, unread)


_PLACED = """SELECT id, cell, block, attempt, state, heartbeat, CAST(summary AS text) FROM trial
 WHERE experiment = ? ORDER BY started_at, id"""


def placed(cursor: Cursor, experiment: str) -> list[PlacedTrial]:
    """The trials of an experiment in the order in which they started."""
    trials = []
    for *own, stored, heartbeat, summary in cursor.rows(_PLACED, (experiment,)):
        brief = None if summary is None else json.loads(summary)
        if brief is not None:
            setup.read(Brief, brief, "its summary")
        each = (*own, _state(stored, heartbeat), brief)
        values = dict(zip(PlacedTrial.__struct_fields__, each, strict=True))
        trials.append(setup.read(PlacedTrial, values, "a trial"))
    return trials


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


def experiments_at_once(place: Path | str | None, limit: int) -> list[ExperimentRow] | None:
    """The same for experiments; None also for a damaged one."""
    lines = _query(place, lambda cursor: experiments(cursor, limit))
    return None if lines is None or any(line.damage for line in lines) else lines


def _query(place: Path | str | None, query: Callable[[Cursor], T]) -> T | None:
    """The answer of a store that is up to date; None from others."""
    location = address.located(place)
    if isinstance(location, Path):
        with (
            contextlib.suppress(sqlite3.Error, OSError),
            contextlib.closing(address.readable(location)) as connection,
        ):
            connection.text_factory = decode_lossless
            connection.execute("BEGIN")
            return _answer(Cursor(connection.cursor(), "?"), query)
        return None
    import psycopg
    from psycopg.conninfo import make_conninfo

    keywords = {"connect_timeout": "10", **address.parsed(location), "client_encoding": "UTF8"}
    with (
        contextlib.suppress(psycopg.Error),
        psycopg.connect(make_conninfo("", **keywords)) as connection,
    ):
        return _answer(Cursor(connection.cursor(), "%s"), query)
    return None


def _answer(cursor: Cursor, query: Callable[[Cursor], T]) -> T | None:
    up_to_date = cursor.rows("SELECT version FROM pgpaces") == [(upgrades.newest(),)]
    return query(cursor) if up_to_date else None
