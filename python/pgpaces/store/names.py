"""Names of trials and experiments: parts of ids, tags, baselines, an experiment's name.

Works on an open connection.
"""

from __future__ import annotations

from pgpaces.core.errors import PlanError
from pgpaces.store import encoding
from pgpaces.store.connection import Connection
from pgpaces.store.schema import Table, baseline, experiment, tag, trial

NEWEST = {"last", "latest"}
Tables = tuple[Table, ...]
ANY = (trial, experiment)
_LENGTH_MAX = 100


def find(connection: Connection, tables: Tables, name: str) -> list[str]:
    """The ids in any of the tables that match a name: one if it is unique, else at most 3.

    A part of an id comes after every whole name; of equal matches the newest is taken. `last` is
    the newest of the first table that has any.
    """

    def ids(of: Tables, condition: str, *values: str, most: int = 1) -> list[str]:
        parts = (f"SELECT id, started_at FROM {table.name} WHERE {condition}" for table in of)
        query = f"{' UNION ALL '.join(parts)} ORDER BY 2 DESC, 1 DESC LIMIT {most}"
        return connection.column(query, *(values * len(of)))

    if name in NEWEST:
        return next(filter(None, (ids((table,), "true") for table in tables)), [])
    named = tuple(table for table in tables if table is not trial)
    for of, condition in (
        (tables, "id IN (SELECT id FROM baseline WHERE name = ?)"),
        (tables, "id IN (SELECT id FROM tag WHERE name = ?)"),
        (named, "name = ?"),
    ):
        if of and (matches := ids(of, condition, name)):
            return matches
    if not (name.isascii() and name.isalnum()):
        return []
    text = name.upper()
    parts = ("id LIKE ? OR id LIKE ?", f"{text}%", f"%{text}")
    return ids(tables, "id = ?", text) or ids(tables, *parts, most=3)


def checked(name: str) -> str:
    """The name, if it is valid for a tag or baseline. Raises PlanError."""
    if not name.strip() or name in NEWEST or name.startswith("-"):
        raise PlanError("invalid-name", name=name)
    if len(name) > _LENGTH_MAX:
        raise PlanError("name-too-long", length=len(name), most=_LENGTH_MAX)
    return name


def give(connection: Connection, table: Table, name: str, *, id_: str) -> None:
    """Gives a name. The name of a baseline is unique: it moves from its previous owner."""
    if table is baseline:
        connection.execute("DELETE FROM baseline WHERE name = ?", name)
    connection.insert(table, [{"name": name, "id": id_}], new_only=True)


def existing(connection: Connection, tables: Tables) -> list[str]:
    """All names: baselines, tags, and names of experiments or disks."""
    named = [table.name for table in (baseline, tag, *tables) if table is not trial]
    query = " UNION ".join(f"SELECT name FROM {table}" for table in named)
    return sorted(map(encoding.read_text, connection.column(query)))


def missing(tables: Tables, name: str, ids: list[str], *, store: str, near: str = "") -> PlanError:
    """The error for a name without a match, or with several. near: a suggestion."""
    what, command, make = {
        ("trial",): ("run", "pgpaces runs", "pgpaces run reporting"),
        ("disk",): ("disk", "pgpaces disk --list", "pgpaces disk FOLDER"),
        ("experiment",): ("experiment", "pgpaces runs -E", "pgpaces sweep reporting --clients 1,2"),
        ("trial", "experiment"): (
            "run or experiment",
            "pgpaces runs [-E]",
            "pgpaces run reporting",
        ),
    }[tuple(table.name for table in tables)]
    if ids:
        return PlanError("ambiguous-id", name=name, ids=ids)
    if name in NEWEST:
        return PlanError("none-yet", what=what, store=store, command=make)
    return PlanError("not-in-store", what=what, name=name, store=store, near=near, command=command)
