"""Measurements of disks: stored, listed, copied. Works on an open connection."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from msgspec import Struct, to_builtins

from pgpaces.analysis.disks import Device, Disk, stored_disk
from pgpaces.core.errors import StoreError
from pgpaces.spec import setup
from pgpaces.spec.setup import HostFacts
from pgpaces.store.rows import Row
from pgpaces.store.schema import disk


class DiskRow(Struct, frozen=True):
    """A measured disk. host: facts of its machine. name: the user's name for it."""

    id: str
    name: str
    started_at: datetime
    version: str
    host: HostFacts
    disk: Disk


def add(connection: sa.Connection, row: DiskRow) -> None:
    """Stores it, unless it is stored already: so it can be repeated."""
    if connection.execute(sa.select(disk.c.id).where(disk.c.id == row.id)).first() is not None:
        return
    values = {name: getattr(row, name) for name in ("id", "name", "started_at", "version")}
    values |= {"host": to_builtins(row.host), "device": row.disk.device.id}
    connection.execute(sa.insert(disk), {**values, "document": row.disk.document()})


def listed(connection: sa.Connection, id_: str | None = None) -> list[DiskRow]:
    """Disks, newest first; or the one. In a list, a damaged one hides no other."""
    query = sa.select(disk).order_by(disk.c.started_at.desc(), disk.c.id.desc())
    if id_ is not None:
        query = query.where(disk.c.id == id_)
    rows = connection.execute(query).mappings()
    return [_row(row) if id_ is not None else _listed(row) for row in rows]


def copy(here: sa.Connection, there: sa.Connection) -> None:
    copied = set(there.execute(sa.select(disk.c.id)).scalars())
    for row in here.execute(sa.select(disk)).mappings():
        if row["id"] not in copied:
            there.execute(sa.insert(disk), dict(row))


def _listed(row: Row) -> DiskRow:
    try:
        return _row(row)
    except (StoreError, TypeError, ValueError):
        nothing = Disk("", Device(""), 0, False, "")
        return DiskRow(
            row["id"], row["name"], row["started_at"], row["version"], HostFacts(), nothing
        )


def _row(row: Row) -> DiskRow:
    if not isinstance(row["document"], dict):
        raise TypeError(f"the disk {row['id']} has no facts")
    return DiskRow(
        row["id"], row["name"], row["started_at"], row["version"],
        setup.read(HostFacts, row["host"], "its host"),
        stored_disk(row["document"]),
    )  # fmt: skip
