"""Measurements of disks: stored, listed, copied. Works on an open connection."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, to_builtins

from pgpaces.analysis.disks import Device, Disk
from pgpaces.spec import setup
from pgpaces.spec.setup import HostFacts
from pgpaces.store.connection import Connection, Row
from pgpaces.store.schema import disk


class DiskRow(Struct, frozen=True):
    """A measured disk. host: facts of its machine. name: the user's name for it."""

    id: str
    name: str
    started_at: datetime
    version: str
    host: HostFacts
    disk: Disk


def add(connection: Connection, row: DiskRow) -> None:
    """Stores it, unless it is stored already: so it can be repeated."""
    values = {name: getattr(row, name) for name in ("id", "name", "started_at", "version")}
    values |= {"host": to_builtins(row.host), "device": row.disk.device.id}
    connection.insert(disk, [{**values, "document": to_builtins(row.disk)}], new_only=True)


def listed(connection: Connection, id_: str | None = None) -> list[DiskRow]:
    """Disks, newest first; or the one. In a list, a damaged one hides no other."""
    if id_ is not None:
        return [_row(row) for row in connection.select(disk, "WHERE id = ?", id_)]
    return [_listed(row) for row in connection.select(disk, "ORDER BY started_at DESC, id DESC")]


def copy(here: Connection, there: Connection) -> None:
    there.insert(disk, here.select(disk), new_only=True)


def _listed(row: Row) -> DiskRow:
    try:
        return _row(row)
    except (TypeError, ValueError):
        nothing = Disk("", Device(""), 0, False, "")
        return DiskRow(
            row["id"], row["name"], row["started_at"], row["version"], HostFacts(), nothing
        )


def _row(row: Row) -> DiskRow:
    return DiskRow(
        row["id"], row["name"], row["started_at"], row["version"],
        setup.read(HostFacts, row["host"], "its host"),
        setup.read(Disk, row["document"], "its measurements"),
    )  # fmt: skip
