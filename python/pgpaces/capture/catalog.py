"""Statements, tables and functions of a server, and the workload made of them: what is taken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from pgpaces.core.errors import PgpacesError
from pgpaces.core.findings import Finding
from pgpaces.core.messages import message

# The largest sum of weights; calls beyond it are scaled down, each statement to at least 1.
WEIGHTS = 1_000_000
# A bulk load or a dump is called at most this often, and moves at least this many rows per call.
_ONCE, _BULK_ROWS = 2, 1000
_MOVES = re.compile(r"\s*(insert|copy|create|update|delete|merge)\b", re.IGNORECASE)
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


class SourceKind(StrEnum):
    """The source of values, the best first."""

    LOG = "from the log"
    STATISTICS = "by statistics"
    NEW = "new"
    ASSUMED = "assumed"
    UNKNOWN = "unknown"
    MISSING = "missing"


# Values that the application sends, or that are as frequent as those.
_REAL = frozenset((SourceKind.LOG, SourceKind.STATISTICS, SourceKind.NEW))


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


def weights(calls: Sequence[int]) -> list[int]:
    """Integers in proportion to the calls; the calls themselves, where they are few."""
    total = sum(calls)
    if total <= WEIGHTS:
        return [max(1, count) for count in calls]
    return [max(1, round(count * WEIGHTS / total)) for count in calls]


def merged(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each text, the sum over roles and whatever else distinguishes entries."""
    sums: dict[str, Entry] = {}
    for entry in entries:
        one = sums.get(entry.text, Entry(entry.text, 0, 0.0))
        calls, total_ms = one.calls + entry.calls, one.total_ms + entry.total_ms
        sums[entry.text] = Entry(entry.text, calls, total_ms, one.rows + entry.rows)
    return list(sums.values())


def is_bulk(entry: Entry) -> bool:
    """Whether it loaded or dumped data at one time, which no application does all day."""
    rows = entry.rows / entry.calls if entry.calls else 0
    return bool(_MOVES.match(entry.text)) and entry.calls <= _ONCE and rows >= _BULK_ROWS


def ordered(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with calls, by the larger of their shares of calls and time, largest first."""
    calls = sum(entry.calls for entry in entries) or 1
    total_ms = sum(entry.total_ms for entry in entries) or 1.0

    def rank(entry: Entry) -> tuple[float, str]:
        return (-max(entry.calls / calls, entry.total_ms / total_ms), entry.text)

    return sorted((entry for entry in entries if entry.calls > 0), key=rank)


def share(part: float, of: float) -> float:
    """A share in percent; 0 of 0."""
    return 100 * part / of if of else 0.0


def coverage(workload: Captured) -> tuple[float, float]:
    """The shares of calls and of time of scripts whose values are all real, in percent."""
    entries = [each.entry for each in workload.scripts if _REAL.issuperset(each.sources)]
    calls, total_ms = sum(e.calls for e in entries), sum(e.total_ms for e in entries)
    return share(calls, workload.calls), share(total_ms, workload.total_ms)


def sources(workload: Captured) -> dict[str, float]:
    """The share of time by the source of values, in percent; of a script, its worst source."""
    times: dict[str, float] = {kind: 0.0 for kind in SourceKind}
    for script in workload.scripts:
        kinds = [kind for kind in SourceKind if kind in script.sources]
        kind = kinds[-1] if kinds else "without parameters"
        times[kind] = times.get(kind, 0.0) + script.entry.total_ms
    times["left out"] = workload.total_ms - sum(times.values())
    return {kind: share(time, workload.total_ms) for kind, time in times.items() if time > 0}


def summary(workload: Captured) -> list[str]:
    """What is covered, the sources of its values, and the rate; a sentence each."""
    calls, time = coverage(workload)
    shares = [f"{kind} {part:.1f}%" for kind, part in sources(workload).items()]
    rate = workload.rate
    return [
        message("scripts-cover", calls_percent=calls, time_percent=time),
        message("values-by-time", shares=shares),
        message("no-rate-counted") if rate is None else message("rate-counted", rate=rate),
    ]


def by_reason(excluded: Iterable[ExcludedStatement]) -> list[tuple[str, int, int, float]]:
    """Each reason with its statements, calls and ms, by calls."""
    reasons: dict[str, tuple[int, int, float]] = {}
    for each in excluded:
        reason = each.reason.message
        count, calls, total_ms = reasons.get(reason, (0, 0, 0.0))
        reasons[reason] = (count + 1, calls + each.calls, total_ms + each.total_ms)
    rows = [(reason, *sums) for reason, sums in reasons.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def script_name(order: int, kind: str, names: Sequence[Name]) -> str:
    """The name of a script: its place, its kind, and its first relation or function."""
    about = re.sub(r"[^a-z0-9]+", "_", names[0][1].lower()).strip("_") if names else ""
    return "_".join(part for part in (f"{order:02}", kind, about[:40]) if part)
