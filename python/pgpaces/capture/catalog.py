"""What is read of a server for a workload, and what becomes of it. Values; knows no connection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

# Schema, or nothing where a statement leaves it to the search_path, and name.
Name = tuple[str, str]


class Entry(Struct, frozen=True):
    """One text of pg_stat_statements in this database: every role's calls of it together."""

    text: str
    calls: int
    total_ms: float


class Type(Struct, frozen=True):
    """A type: its name as the server writes it, its category (N: a number, S: a text, ...)."""

    name: str
    category: str


class CatalogColumn(Struct, frozen=True):
    """A column of a table and its statistics, as pg_stats has them; values as texts.

    unique: it alone is a key. known: there are statistics that the role may see.
    distinct: as n_distinct: below zero it is a share of the rows. rows: of the table, by estimate.
    """

    table: str
    name: str
    type: Type
    unique: bool = False
    known: bool = False
    null_share: float = 0.0
    width: int = 0
    distinct: float = 0.0
    rows: float = 0.0
    common: tuple[str, ...] = ()
    frequencies: tuple[float, ...] = ()
    bounds: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Table and column."""
        return f"{self.table}.{self.name}"


class CatalogTable(Struct, frozen=True):
    """A table with its columns, in their order."""

    name: str
    columns: Mapping[str, CatalogColumn]


class Function(Struct, frozen=True):
    """A function: its arguments' names in order, its language and its text."""

    name: Name
    arguments: tuple[str, ...]
    language: str
    definition: str
    body: str


class Seen(Struct, frozen=True):
    """What the server says of its statements.

    hidden, nested: calls and ms of texts that the role may not see, and of statements in functions.
    seconds: since the statistics began; None where that is not known. notes: what the role or the
    server lacks.
    """

    database: str
    version: int
    entries: tuple[Entry, ...]
    hidden: tuple[int, float] = (0, 0.0)
    nested: tuple[int, float] = (0, 0.0)
    seconds: float | None = None
    notes: tuple[str, ...] = ()


class Left(Struct, frozen=True):
    """A statement that is left out, and why."""

    text: str
    reason: str
    calls: int
    total_ms: float


class Taken(Struct, frozen=True):
    """A statement that became a script. sources: how many parameters have which kind of values.

    script: in the encoding of the database, bytes of it that are not UTF-8 as surrogates.
    """

    entry: Entry
    name: str
    weight: int
    script: str
    writes: bool
    sources: Mapping[str, int]


class Captured(Struct, frozen=True):
    """A workload that was made. calls, total_ms: of all statements of the database."""

    folder: Path
    seen: Seen
    taken: tuple[Taken, ...]
    left: tuple[Left, ...]
    calls: int
    total_ms: float
    rate: float | None
    notes: tuple[str, ...]
