"""Statements, tables and functions of a server, and the workload made of them. No connection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from pgpaces.core.errors import PgpacesError
from pgpaces.core.findings import Finding

# Schema, empty where a statement leaves it to the search_path, and name.
Name = tuple[str, str]


class Entry(Struct, frozen=True):
    """One text of pg_stat_statements in this database, with the calls of all roles.

    rows: the number of rows that its calls returned or changed.
    """

    text: str
    calls: int
    total_ms: float
    rows: int = 0


class Type(Struct, frozen=True):
    """A type: its name as the server writes it, its category (N: a number, S: a text, ...)."""

    name: str
    category: str


class CatalogColumn(Struct, frozen=True):
    """A column of a table and its statistics, as pg_stats has them; values as texts.

    unique: it is a key by itself. has_statistics: the role may see its statistics.
    distinct: as n_distinct: below zero it is a share of the rows. rows: estimated, of the table.
    """

    table: str
    name: str
    type: Type
    unique: bool = False
    has_statistics: bool = False
    null_share: float = 0.0
    distinct: float = 0.0
    rows: float = 0.0
    common: tuple[str, ...] = ()
    frequencies: tuple[float, ...] = ()
    bounds: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.table}.{self.name}"


class CatalogTable(Struct, frozen=True):
    name: str
    columns: dict[str, CatalogColumn]


class Function(Struct, frozen=True):
    """A function: its arguments' names in order, its language and its text."""

    name: Name
    arguments: tuple[str, ...]
    language: str
    definition: str
    body: str


class ServerStatements(Struct, frozen=True):
    """The statements that a server has counted.

    hidden, nested: calls and ms of texts that the role may not see, and of statements in functions.
    at_s: the server's clock at the reading, as seconds since 1970. findings: what the role or the
    server lacks.
    """

    database: str
    version: int
    entries: tuple[Entry, ...]
    hidden: tuple[int, float] = (0, 0.0)
    nested: tuple[int, float] = (0, 0.0)
    at_s: float = 0.0
    findings: tuple[Finding, ...] = ()


class ExcludedStatement(Struct, frozen=True):
    text: str
    reason: PgpacesError
    calls: int
    total_ms: float


class CapturedScript(Struct, frozen=True):
    """A script made of a statement. sources: number of parameters by kind of their values.

    script: in the encoding of the database, bytes of it that are not UTF-8 as surrogates.
    """

    entry: Entry
    name: str
    weight: int
    script: str
    writes: bool
    sources: Mapping[str, int]


class Captured(Struct, frozen=True):
    """The workload that was made. calls, total_ms: of all statements of the application.

    rate: calls of the scripts' statements per second, counted while they were read. None if there
    was none.
    """

    folder: Path
    server: ServerStatements
    scripts: tuple[CapturedScript, ...]
    excluded: tuple[ExcludedStatement, ...]
    calls: int
    total_ms: float
    rate: float | None
    findings: tuple[Finding, ...]
