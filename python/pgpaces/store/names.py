"""Names of trials and experiments: parts of ids, tags, baselines, an experiment's name.

Works on an open connection.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from pgpaces.core.errors import PlanError
from pgpaces.store.schema import baseline, disk, experiment, tag, trial

NEWEST = {"last", "latest"}
Tables = tuple[sa.Table, ...]
ANY = (trial, experiment)
_LENGTH_MAX = 100


def find(connection: sa.Connection, tables: Tables, name: str) -> list[str]:
    """The ids in any of the tables that match a name: one if it is unique, else at most 3.

    A part of an id comes after every whole name; of equal matches the newest is taken. `last` is
    the newest of the first table that has any.
    """

    def ids(of: Tables, test: Callable[[sa.Table], sa.ColumnElement[bool]], n: int) -> list[str]:
        parts = [sa.select(table.c.id, table.c.started_at).where(test(table)) for table in of]
        every = sa.union_all(*parts).subquery()
        newest = sa.select(every.c.id).order_by(every.c.started_at.desc(), every.c.id.desc())
        return [str(id_) for id_ in connection.execute(newest.limit(n)).scalars()]

    def names(of: sa.Table) -> Callable[[sa.Table], sa.ColumnElement[bool]]:
        return lambda table: table.c.id.in_(sa.select(of.c.id).where(of.c.name == name))

    if name in NEWEST:
        return next(filter(None, (ids((table,), lambda _: sa.true(), 1) for table in tables)), [])
    matches = ids(tables, names(baseline), 1) or ids(tables, names(tag), 1)
    if not matches and (own := tuple(table for table in tables if table is not trial)):
        matches = ids(own, lambda table: table.c.name == name, 1)
    if matches or not (name.isascii() and name.isalnum()):
        return matches
    text = name.upper()
    return ids(tables, lambda table: table.c.id == text, 1) or ids(
        tables, lambda table: table.c.id.startswith(text) | table.c.id.endswith(text), 3
    )


def checked(name: str) -> str:
    """The name, if it is valid for a tag or baseline. Raises PlanError."""
    if not name.strip() or name in NEWEST or name.startswith("-"):
        raise PlanError("invalid-name", name=name)
    if len(name) > _LENGTH_MAX:
        raise PlanError("name-too-long", length=len(name), most=_LENGTH_MAX)
    return name


def give(connection: sa.Connection, table: sa.Table, name: str, *, id_: str) -> None:
    """Gives a name. The name of a baseline is unique: it moves from its previous owner."""
    old = table.c.name == name
    if table is tag:
        old &= table.c.id == id_
    connection.execute(sa.delete(table).where(old))
    connection.execute(sa.insert(table), {"name": name, "id": id_})


def remove(connection: sa.Connection, ids: sa.Select[tuple[str]]) -> None:
    for table in (tag, baseline):
        connection.execute(sa.delete(table).where(table.c.id.in_(ids)))


def existing(connection: sa.Connection, tables: Tables) -> list[str]:
    """All names: baselines, tags, and names of experiments or disks."""
    columns = [table.c.name for table in (baseline, tag, *tables) if table is not trial]
    each = (connection.execute(sa.select(column).distinct()).scalars() for column in columns)
    return sorted({str(name) for names in each for name in names})


def missing(tables: Tables, name: str, ids: list[str], *, store: str, near: str = "") -> PlanError:
    """The error for a name without a match, or with several. near: a suggestion."""
    what, command, make = {
        (trial,): ("run", "pgpaces runs", "pgpaces run reporting"),
        (disk,): ("disk", "pgpaces disk --list", "pgpaces disk FOLDER"),
        (experiment,): ("experiment", "pgpaces runs -E", "pgpaces sweep reporting --clients 1,2,4"),
        ANY: ("run or experiment", "pgpaces runs [-E]", "pgpaces run reporting"),
    }[tables]
    if ids:
        return PlanError("ambiguous-id", name=name, ids=ids)
    if name in NEWEST:
        return PlanError("none-yet", what=what, store=store, command=make)
    return PlanError("not-in-store", what=what, name=name, store=store, near=near, command=command)
