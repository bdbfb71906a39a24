"""A connection of a driver, of SQLite or PostgreSQL, by which the store reads and writes.

Statements are SQL that both databases accept, with `?` in place of values.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pgpaces.store import encoding
from pgpaces.store.schema import Table

Row = Mapping[str, Any]
# Rows that are read or written at once.
_ROWS = 1000


class Connection:
    """A connection in autocommit mode: transactions begin and end by statements."""

    def __init__(self, driver: Any, *, sqlite: bool) -> None:
        self.driver, self.sqlite = driver, sqlite

    def execute(self, sql: str, *values: Any) -> Any:
        """The driver's cursor after a statement."""
        return self.driver.execute(self._sql(sql), [self._stored(each) for each in values])

    def each(self, sql: str, *values: Any, stream: bool = False) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, one after the other.

        stream: for many large rows, in a transaction: a server keeps those that are not read yet.
        """
        cursor = self.driver.cursor("pgpaces_rows") if stream and not self.sqlite else None
        stored = [self._stored(each) for each in values]
        cursor = (cursor or self.driver).execute(self._sql(sql), stored)
        with contextlib.closing(cursor):
            while part := cursor.fetchmany(_ROWS):
                yield from part

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(self.each(sql, *values))

    def column(self, sql: str, *values: Any) -> list[Any]:
        """The first value of each row."""
        return [row[0] for row in self.each(sql, *values)]

    def select(
        self, table: Table, rest: str = "", *values: Any, stream: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Rows of a table by the names of columns. rest: a condition; stream: see each."""
        reads = [(name, kind.read) for name, kind in table.columns.items()]
        sql = f"SELECT {', '.join(table.columns)} FROM {table.name} {rest}"
        for row in self.each(sql, *values, stream=stream):
            yield {
                name: value if value is None or read is None else read(value)
                for (name, read), value in zip(reads, row, strict=True)
            }

    def insert(self, table: Table, rows: Iterable[Row], *, new_only: bool = False) -> None:
        """Inserts rows with the same columns. new_only: those whose keys are not stored yet."""
        part: list[list[Any]] = []
        names: list[str] = []
        for row in rows:
            if not names:
                names = list(row)
                values = marks(names)
                sql = self._sql(f"INSERT INTO {table.name} ({', '.join(names)}) VALUES {values}")
                sql += " ON CONFLICT DO NOTHING" if new_only else ""
            part.append([self._stored(row[name]) for name in names])
            if len(part) == _ROWS:
                self.driver.cursor().executemany(sql, part)
                part = []
        if part:
            self.driver.cursor().executemany(sql, part)

    def update(self, table: Table, values: Row, where: str, *more: Any) -> int:
        """Changes the rows that meet the condition; their number."""
        sets = ", ".join(f"{name} = ?" for name in values)
        sql = f"UPDATE {table.name} SET {sets} WHERE {where}"
        return int(self.execute(sql, *values.values(), *more).rowcount)

    def _sql(self, sql: str) -> str:
        return sql if self.sqlite else sql.replace("?", "%s")

    def _stored(self, value: Any) -> Any:
        """A value as the driver takes it."""
        if isinstance(value, str):
            return encoding.text(value)
        if isinstance(value, Mapping | list | tuple):
            return encoding.json_text(value)
        if isinstance(value, datetime):
            moment = encoding.utc(value)
            return f"{moment:%Y-%m-%d %H:%M:%S.%f}" if self.sqlite else moment
        return None if isinstance(value, float) and math.isnan(value) else value


def marks(values: Sequence[Any]) -> str:
    """A list of placeholders for IN; a list without values matches nothing."""
    return f"({', '.join('?' * len(values)) or 'NULL'})"
