"""Names of trials and experiments: parts of ids, tags, baselines, an experiment's name.

Works on an open connection.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from pgpaces.errors import PlanError
from pgpaces.store.schema import baseline, disk, experiment, tag, trial

_NEWEST = {"last", "latest"}
_LENGTH_MAX = 100


def find(connection: sa.Connection, table: sa.Table, name: str) -> list[str]:
    """The ids that match a name, the newest first: one if it is unique, else at most 3."""
    newest = sa.select(table.c.id).order_by(table.c.started_at.desc(), table.c.id.desc())

    def ids(query: sa.Select[tuple[str]], limit: int) -> list[str]:
        return [str(id_) for id_ in connection.execute(query.limit(limit)).scalars()]

    if name in _NEWEST:
        return ids(newest, 1)
    queries = [newest.where(table.c.id.in_(sa.select(b.c.id).where(b.c.name == name)))
               for b in (baseline, tag)]  # fmt: skip
    if table in (experiment, disk):
        queries.append(newest.where(table.c.name == name))
    for query in queries:
        if matches := ids(query, 1):
            return matches
    if not (name.isascii() and name.isalnum()):
        return []
    text = name.upper()
    if matches := ids(newest.where(table.c.id == text), 1):
        return matches
    return ids(newest.where(table.c.id.startswith(text) | table.c.id.endswith(text)), 3)


def checked(name: str) -> str:
    """The name, if it is valid for a tag or baseline. Raises PlanError."""
    if not name.strip() or name in _NEWEST or name.startswith("-"):
        raise PlanError(f"'{name}' cannot be a name", "not empty, not 'last', and no dash in front")
    if len(name) > _LENGTH_MAX:
        raise PlanError(f"a name of {len(name)} characters is too long", f"up to {_LENGTH_MAX}")
    return name


def give(connection: sa.Connection, table: sa.Table, name: str, id_: str) -> None:
    """Gives a name. The name of a baseline is unique: it moves from its previous owner."""
    old = table.c.name == name
    if table is tag:
        old &= table.c.id == id_
    connection.execute(sa.delete(table).where(old))
    connection.execute(sa.insert(table), {"name": name, "id": id_})


def untag(connection: sa.Connection, name: str, ids: Iterable[str] | None) -> int:
    """Removes a tag from these, or from all; returns their number."""
    tagged = tag.c.name == name
    if ids is not None:
        tagged &= tag.c.id.in_(list(ids))
    return connection.execute(sa.delete(tag).where(tagged)).rowcount


def remove(connection: sa.Connection, ids: sa.Select[tuple[str]]) -> None:
    """Removes all names of these."""
    for table in (tag, baseline):
        connection.execute(sa.delete(table).where(table.c.id.in_(ids)))


def of(connection: sa.Connection, ids: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The names of trials or experiments, baselines first."""
    id_list, names = list(ids), dict[str, tuple[str, ...]]()
    for table in (baseline, tag):
        query = sa.select(table.c.id, table.c.name).where(table.c.id.in_(id_list))
        for id_, name in connection.execute(query.order_by(table.c.name)):
            names[id_] = (*names.get(id_, ()), name)
    return names


def existing(connection: sa.Connection, table: sa.Table) -> list[str]:
    """All names: baselines, tags, and names of experiments or disks."""
    columns = [baseline.c.name, tag.c.name, *([] if table is trial else [table.c.name])]
    each = (connection.execute(sa.select(column).distinct()).scalars() for column in columns)
    return sorted({str(name) for names in each for name in names})


def missing(table: sa.Table, name: str, ids: list[str], shown: str, near: str = "") -> PlanError:
    """The error for a name without a match, or with several. near: a suggestion."""
    what, command, make = {
        trial: ("run", "pgpaces runs", "pgpaces run reporting"),
        disk: ("disk", "pgpaces disk --list", "pgpaces disk FOLDER"),
        experiment: ("experiment", "pgpaces runs -E", "pgpaces sweep reporting --clients 1,2,4"),
    }[table]
    if ids:
        fits = f"'{name}' fits several {what}s: {', '.join(ids)}"
        return PlanError(fits, "write more of the id")
    if name in _NEWEST:
        return PlanError(f"there is no {what} in {shown} yet", f"`{make}` makes one")
    return PlanError(
        f"there is no {what} '{name}' in {shown}", f"{near} `{command}` lists them".strip()
    )
