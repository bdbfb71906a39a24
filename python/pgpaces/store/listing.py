"""Trials, experiments, and disks for lists, of which some may be damaged.

Works on an open connection.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from pgpaces.analysis.disks import Device, Disk
from pgpaces.core.errors import PlanError
from pgpaces.core.messages import message
from pgpaces.spec import setup
from pgpaces.spec.load import load_of
from pgpaces.spec.result import Brief, State
from pgpaces.spec.setup import HostFacts
from pgpaces.store import encoding, rows, schema
from pgpaces.store.connection import Connection


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


class DiskRow(Struct, frozen=True):
    """A measured disk. host: facts of its machine. name: the user's name for it."""

    id: str
    name: str
    started_at: datetime
    version: str
    host: HostFacts
    disk: Disk


_TRIALS = "SELECT id, state, started_at, heartbeat, spec, setup, summary, experiment FROM trial"
_NEWEST = " ORDER BY started_at DESC, id DESC"
_NAMES = "SELECT 0, id, name FROM baseline UNION ALL SELECT 1, id, name FROM tag ORDER BY 1, 3"


def trials(
    connection: Connection,
    limit: int | None,
    *,
    experiment: str | None = None,
    tag: str | None = None,
    single: bool = False,
    skip: int = 0,
) -> list[TrialRow]:
    """The trials, newest first; unreadable ones as damaged."""
    conditions: dict[str, object] = {}
    if experiment is not None:
        conditions["experiment = ?"] = experiment
    if tag is not None:
        conditions["id IN (SELECT id FROM tag WHERE name = ?)"] = tag
    if single:
        # Not by the index on experiment: sorting all rows would take longer than the newest ones.
        conditions["coalesce(experiment, '') = ?"] = ""
    stored = _page(connection, _TRIALS, conditions, limit=limit, skip=skip)
    return [_row(*each) for each in stored]


def _page(
    connection: Connection,
    query: str,
    conditions: Mapping[str, object],
    *,
    limit: int | None,
    skip: int,
) -> list[tuple[tuple[Any, ...], tuple[str, ...]]]:
    """The newest rows that meet the conditions, each with its names."""
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    end = {} if limit is None else {" LIMIT ?": limit, " OFFSET ?": skip}
    by_id = names(connection)
    stored = connection.rows(
        f"{query}{where}{_NEWEST}{''.join(end)}", *conditions.values(), *end.values()
    )
    return [(values, by_id.get(values[0], ())) for values in stored]


def names(connection: Connection) -> dict[str, tuple[str, ...]]:
    """The baselines and tags of trials and experiments, by their ids."""
    by_id: dict[str, tuple[str, ...]] = {}
    for _, id_, name in connection.each(_NAMES):
        by_id[id_] = (*by_id.get(id_, ()), encoding.read_text(name))
    return by_id


_STATES = ("running", "finished", "interrupted")
_RUNS = "SELECT {} FROM trial WHERE trial.experiment = experiment.id"
_EXPERIMENTS = f"""SELECT id, state, name, started_at, ended_at, heartbeat,
 ({_RUNS.format("max(heartbeat)")} AND state = 'running'),
 ({_RUNS.format("count(*)")}), version, document FROM experiment"""


def experiments(
    connection: Connection, limit: int | None = None, skip: int = 0, *, id_: str | None = None
) -> list[ExperimentRow]:
    """The newest experiments after those to skip, or the one; unreadable ones as damaged."""
    chosen = {} if id_ is None else {"id = ?": id_}
    stored = _page(connection, _EXPERIMENTS, chosen, limit=limit, skip=skip)
    return [_experiment(*each) for each in stored]


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
            beats = [encoding.moment(each) for each in (heartbeat, beat) if each is not None]
            state = "interrupted" if all(map(encoding.silent, beats)) else state
        until = None if ended is None else encoding.moment(ended)
        title, began = encoding.read_text(name), encoding.moment(started)
        return ExperimentRow(id_, title, began, until, state, version, document, runs, names)
    except encoding.UNREADABLE as error:
        unread = _damage(error)
        return ExperimentRow(str(id_), "?", None, None, "failed", "?", {}, 0, names, unread)


_PLACED = """SELECT id, cell, block, attempt, state, heartbeat, summary FROM trial
 WHERE experiment = ? ORDER BY started_at, id"""


def placed(connection: Connection, experiment: str) -> list[PlacedTrial]:
    """The trials of an experiment in the order in which they started."""
    trials = []
    for *own, stored, heartbeat, summary in connection.each(_PLACED, experiment):
        brief = None if summary is None else json.loads(summary)
        if brief is not None:
            setup.read(Brief, brief, "its summary")
        each = (*own, rows.state(stored, heartbeat), brief)
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
        state, at = rows.state(stored, heartbeat), encoding.moment(started)
        more = {"clients": about["clients"], "spec": spec}
        return TrialRow(id_, state, at, *shown, summary, experiment, names, **more)
    except (PlanError, *encoding.UNREADABLE) as error:
        unknown, unread = ("?", "?", "?"), _damage(error)
        return TrialRow(str(id_), "failed", None, *unknown, None, None, names, unread)


def _damage(error: Exception) -> str:
    return " ".join(str(error).split()[:20])


def disks(connection: Connection, id_: str | None = None) -> list[DiskRow]:
    """Disks, newest first; or the one. In a list, a damaged one hides no other."""
    rest = _NEWEST if id_ is None else "WHERE id = ?"
    found = []
    for row in connection.select(schema.disk, rest, *([] if id_ is None else [id_])):
        try:
            host = setup.read(HostFacts, row["host"], "its host")
            disk = setup.read(Disk, row["document"], "its measurements")
        except (TypeError, ValueError):
            if id_ is not None:
                raise
            host, disk = HostFacts(), Disk("", Device(""), 0, False, "")
        found.append(DiskRow(row["id"], row["name"], row["started_at"], row["version"], host, disk))
    return found
