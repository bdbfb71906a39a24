"""Trials and experiments as lists show them, in plain SQL that both databases understand.

Without SQLAlchemy, because importing it takes longer than everything else that `pgpaces runs` does.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

from msgspec import Struct, field

from pgpaces.result import State
from pgpaces.store import address, encoding, sqlite
from pgpaces.validation import check_summary

T = TypeVar("T")


class TrialRow(Struct, frozen=True):
    """A trial without its intervals, as a list of runs shows it.

    load: in words. experiment: the id of the one that it is part of. names: baselines and tags.
    damage: why the rest of it cannot be known; started_at is None then. plan: what tells it from
    another run of the same load.
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
    plan: Mapping[str, Any] = field(default_factory=dict)


class ExperimentLine(Struct, frozen=True):
    """An experiment as a list shows it. runs: how many of its trials are in the store."""

    id: str
    name: str
    state: str
    started_at: datetime
    ended_at: datetime | None
    runs: int
    names: tuple[str, ...] = ()


class RunFilter(Struct, frozen=True):
    """Which trials: at most `limit`, of an experiment (its id), with a tag; single: of none."""

    limit: int | None = None
    experiment: str | None = None
    tag: str | None = None
    single: bool = False


class Cursor(Struct, frozen=True):
    """A cursor of a driver, and how that marks the place of a value."""

    driver: Any
    mark: str

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """What a query gives; `?` stands for a value."""
        self.driver.execute(sql.replace("?", self.mark), tuple(values))
        return list(self.driver.fetchall())


def as_far_as_it_is_text(value: bytes) -> str:
    """For sqlite3, which else refuses all rows for one with bytes that are no text."""
    return value.decode(errors="surrogateescape")


_TRIALS = """SELECT id, state, started_at, heartbeat, CAST(plan AS text), CAST(workload AS text),
 CAST(server AS text), CAST(summary AS text), experiment FROM trial"""
_NEWEST = " ORDER BY started_at DESC, id DESC"
_NAMES = "SELECT 0, id, name FROM baseline UNION ALL SELECT 1, id, name FROM tag ORDER BY 1, 3"


def trials(cursor: Cursor, wanted: RunFilter) -> list[TrialRow]:
    """The trials that are wanted, newest first; those that cannot be read as damaged."""
    conditions: dict[str, object] = {}
    if wanted.experiment is not None:
        conditions["experiment = ?"] = wanted.experiment
    if wanted.tag is not None:
        conditions["id IN (SELECT id FROM tag WHERE name = ?)"] = encoding.text(wanted.tag)
    asked = [*conditions, *(["experiment IS NULL"] if wanted.single else [])]
    where = " WHERE " + " AND ".join(asked) if asked else ""
    limit = {} if wanted.limit is None else {" LIMIT ?": wanted.limit}
    query = _TRIALS + where + _NEWEST + "".join(limit)
    names = _names(cursor)
    found = cursor.rows(query, (*conditions.values(), *limit.values()))
    return [_row(values, names.get(values[0], ())) for values in found]


def _names(cursor: Cursor) -> dict[str, tuple[str, ...]]:
    """Of trials and experiments, baselines first."""
    names: dict[str, tuple[str, ...]] = {}
    for _, id_, name in cursor.rows(_NAMES):
        names[id_] = (*names.get(id_, ()), encoding.read_text(name))
    return names


_STATES = ("running", "finished", "interrupted")
_RUNS = "SELECT {} FROM trial WHERE trial.experiment = experiment.id"
_EXPERIMENTS = f"""SELECT id, state, name, started_at, ended_at, heartbeat,
 ({_RUNS.format("max(heartbeat)")} AND state = 'running'),
 ({_RUNS.format("count(*)")}) FROM experiment ORDER BY started_at DESC, id DESC LIMIT ?"""


def experiments(cursor: Cursor, limit: int) -> list[ExperimentLine]:
    """The newest experiments. Raises form.UNREADABLE where one cannot be read."""
    names = _names(cursor)
    return [_experiment(row, names.get(row[0], ())) for row in cursor.rows(_EXPERIMENTS, (limit,))]


def _experiment(values: tuple[Any, ...], names: tuple[str, ...]) -> ExperimentLine:
    id_, state, name, started, ended, heartbeat, beat, runs = values
    if state not in _STATES:
        raise ValueError(f"the state of experiment {id_} is {state!r}")
    if state == "running":
        # A trial that runs is a sign of life of its experiment.
        signs = [_moment(sign) for sign in (heartbeat, beat) if sign is not None]
        state = "interrupted" if all(encoding.silent(sign) for sign in signs) else state
    until = None if ended is None else _moment(ended)
    return ExperimentLine(
        id_, encoding.read_text(name), state, _moment(started), until, runs, names
    )


def _row(values: tuple[Any, ...], names: tuple[str, ...]) -> TrialRow:
    try:
        return _whole(values, names)
    except encoding.UNREADABLE as error:
        damage = " ".join(str(error).split()[:20])
        return TrialRow(str(values[0]), "failed", None, "?", "?", "?", None, None, names, damage)


def _whole(values: tuple[Any, ...], names: tuple[str, ...]) -> TrialRow:
    id_, state, started, heartbeat, *texts, experiment = values
    plan, workload, server, summary = (json.loads(text or "null") for text in texts)
    check_summary(summary)
    shown = (workload["name"], plan["load_text"], server["version"])
    for text in (id_, *shown):
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text")
    if state not in get_args(State):
        raise ValueError(f"its state is {state!r}")
    if state == "running" and encoding.silent(_moment(heartbeat)):
        state = "interrupted"
    told = {name: plan.get(name) for name in _TOLD}
    return TrialRow(id_, state, _moment(started), *shown, summary, experiment, names, plan=told)


_TOLD = ("model", "clients", "limit_ns", "duration_ns", "protocol", "settings")


def _moment(value: Any) -> datetime:
    return encoding.utc(value if isinstance(value, datetime) else datetime.fromisoformat(value))


def at_once(place: Path | str | None, wanted: RunFilter) -> list[TrialRow] | None:
    """The trials of a store that is there and up to date; None of any other, whatever it lacks."""
    return _asked(place, lambda cursor: trials(cursor, wanted))


def experiments_at_once(place: Path | str | None, limit: int) -> list[ExperimentLine] | None:
    """The same of experiments; None too where one of them cannot be read."""
    with contextlib.suppress(*encoding.UNREADABLE):
        return _asked(place, lambda cursor: experiments(cursor, limit))
    return None


def _asked(place: Path | str | None, ask: Callable[[Cursor], T]) -> T | None:
    found = address.default() if place is None else address.located(place)
    if isinstance(found, Path):
        with contextlib.suppress(sqlite3.Error, OSError), _file(found) as cursor:
            return ask(cursor) if _up_to_date(cursor) else None
        return None
    import psycopg

    with contextlib.suppress(psycopg.Error), _server(found) as cursor:
        return ask(cursor) if _up_to_date(cursor) else None
    return None


def _up_to_date(cursor: Cursor) -> bool:
    return cursor.rows("SELECT version_num FROM alembic_version") == [(encoding.HEAD,)]


_PREPARED = """SELECT CAST(workload AS text) FROM trial WHERE state = 'finished'
 ORDER BY started_at DESC LIMIT ?"""
_RECENT = 500


def sizes_at_once(place: Path | str | None) -> dict[str, int]:
    """What the data of recent trials took, in bytes, by its fingerprint; without making a store."""
    return _asked(place, _sizes) or {}


def _sizes(cursor: Cursor) -> dict[str, int]:
    found: dict[str, int] = {}
    for (text,) in cursor.rows(_PREPARED, (_RECENT,)):
        with contextlib.suppress(*encoding.UNREADABLE):
            prepared = json.loads(text)["prepared"]
            found.setdefault(str(prepared["fingerprint"]), int(prepared["size_bytes"]))
    return found


@contextlib.contextmanager
def _file(path: Path) -> Iterator[Cursor]:
    with contextlib.closing(sqlite.readable(path)) as connection:
        connection.text_factory = as_far_as_it_is_text
        connection.execute("BEGIN")
        yield Cursor(connection.cursor(), "?")


@contextlib.contextmanager
def _server(written: str) -> Iterator[Cursor]:
    import psycopg
    from psycopg.conninfo import make_conninfo

    keywords = {"connect_timeout": "10", **address.parsed(written), "client_encoding": "UTF8"}
    with psycopg.connect(make_conninfo("", **keywords)) as connection:
        yield Cursor(connection.cursor(), "%s")
