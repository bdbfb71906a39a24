"""What people call trials and experiments: the ends of ids, tags, baselines, an experiment's name.

Works on a connection that somebody else opened.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from pgpaces.errors import PlanError
from pgpaces.store.schema import baseline, disk, experiment, tag, trial

_NEWEST = {"last", "latest"}
_LENGTH_MAX = 100


def find(connection: sa.Connection, table: sa.Table, name: str) -> list[str]:
    """The ids that a name may mean, the newest first; one where it is clear which, 3 at most."""
    newest = sa.select(table.c.id).order_by(table.c.started_at.desc(), table.c.id.desc())

    def ids(query: sa.Select[tuple[str]], limit: int) -> list[str]:
        return [str(found) for found in connection.execute(query.limit(limit)).scalars()]

    if name in _NEWEST:
        return ids(newest, 1)
    given = [newest.where(table.c.id.in_(sa.select(b.c.id).where(b.c.name == name)))
             for b in (baseline, tag)]  # fmt: skip
    if table in (experiment, disk):
        given.append(newest.where(table.c.name == name))
    for query in given:
        if found := ids(query, 1):
            return found
    if not (name.isascii() and name.isalnum()):
        return []
    text = name.upper()
    if found := ids(newest.where(table.c.id == text), 1):
        return found
    return ids(newest.where(table.c.id.startswith(text) | table.c.id.endswith(text)), 3)


def checked(name: str) -> str:
    """A name for a tag or baseline. Raises PlanError for one that would not be found by."""
    if not name.strip() or name in _NEWEST or name.startswith("-"):
        raise PlanError(f"'{name}' cannot be a name", "not empty, not 'last', and no dash in front")
    if len(name) > _LENGTH_MAX:
        raise PlanError(f"a name of {len(name)} characters is too long", f"up to {_LENGTH_MAX}")
    return name


def give(connection: sa.Connection, table: sa.Table, name: str, id_: str) -> None:
    """Gives a name. A baseline's is one's alone: whoever had it has it no more."""
    taken = table.c.name == name
    if table is tag:
        taken &= table.c.id == id_
    connection.execute(sa.delete(table).where(taken))
    connection.execute(sa.insert(table), {"name": name, "id": id_})


def untag(connection: sa.Connection, name: str, ids: Iterable[str] | None) -> int:
    """Takes a tag from these, or from all that have it; from how many."""
    taken = tag.c.name == name
    if ids is not None:
        taken &= tag.c.id.in_(list(ids))
    return connection.execute(sa.delete(tag).where(taken)).rowcount


def take(connection: sa.Connection, ids: sa.Select[tuple[str]]) -> None:
    """Takes all names of these away."""
    for table in (tag, baseline):
        connection.execute(sa.delete(table).where(table.c.id.in_(ids)))


def of(connection: sa.Connection, ids: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The names of trials or experiments, baselines first."""
    wanted, found = list(ids), dict[str, tuple[str, ...]]()
    for table in (baseline, tag):
        query = sa.select(table.c.id, table.c.name).where(table.c.id.in_(wanted))
        for id_, name in connection.execute(query.order_by(table.c.name)):
            found[id_] = (*found.get(id_, ()), name)
    return found


def known(connection: sa.Connection, table: sa.Table) -> list[str]:
    """The names that there are: baselines, tags, and those that experiments or disks have."""
    found = [baseline.c.name, tag.c.name, *([] if table is trial else [table.c.name])]
    each = (connection.execute(sa.select(column).distinct()).scalars() for column in found)
    return sorted({str(name) for names in each for name in names})


def missing(table: sa.Table, name: str, ids: list[str], shown: str, near: str = "") -> PlanError:
    """Why a name means nothing, or too much. near: a guess what was meant."""
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
