"""Trials as a list of runs shows them. Works on a connection that somebody else opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from pgpaces.result import State
from pgpaces.soundness import check_summary
from pgpaces.store import rows
from pgpaces.store.schema import tag, trial


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A trial without its intervals, as a list of runs shows it.

    experiment: the id of the one that it is part of. damage: why the rest of it cannot be known.
    """

    id: str
    state: State
    started_at: datetime | None
    workload: str
    load: str
    server: str
    summary: Mapping[str, Any] | None
    experiment: str | None = None
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which trials: at most so many, of an experiment, with a tag."""

    limit: int | None = None
    experiment: str | None = None
    tag: str | None = None

    def of(self, query: sa.Select[Any]) -> sa.Select[Any]:
        """The trials that a query for all of them is to give, newest first."""
        if self.experiment is not None:
            query = query.where(trial.c.experiment == self.experiment)
        if self.tag is not None:
            query = query.where(trial.c.id.in_(sa.select(tag.c.id).where(tag.c.name == self.tag)))
        return query.order_by(trial.c.started_at.desc(), trial.c.id.desc()).limit(self.limit)


_COLUMNS = [
    trial.c[name]
    for name in ("id", "state", "started_at", "heartbeat", "plan", "workload", "server", "summary",
                 "experiment")
]  # fmt: skip


def trials(connection: sa.Connection, wanted: Wanted) -> list[TrialRow]:
    """The trials that are wanted; where one cannot be read, each is read by itself."""
    query = wanted.of(sa.select(*_COLUMNS))
    try:
        return [_row(row) for row in connection.execute(query).mappings()]
    except (*rows.UNREADABLE, SQLAlchemyError):
        connection.rollback()
    ids = list(connection.execute(wanted.of(sa.select(trial.c.id))).scalars())
    found = []
    for id_ in ids:
        try:
            one = sa.select(*_COLUMNS).where(trial.c.id == id_)
            found.append(_row(connection.execute(one).mappings().one()))
        except (*rows.UNREADABLE, SQLAlchemyError) as error:
            damage = " ".join(str(error).split()[:20])
            unknown = TrialRow(str(id_), "failed", None, "?", "?", "?", None, damage=damage)
            found.append(unknown)
    return found


def _row(row: rows.Row) -> TrialRow:
    check_summary(row["summary"])
    texts = (row["workload"]["name"], row["plan"]["load_text"], row["server"]["version"])
    for text in (row["id"], *texts):
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text")
    return TrialRow(
        row["id"], rows.state(row), row["started_at"], *texts, row["summary"], row["experiment"]
    )
