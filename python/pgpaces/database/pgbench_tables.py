"""pgbench's four tables: made and filled as by `pgbench -i`, and what a run needs of them.

Drops and overwrites only the tables in TABLES, to which the user consents by `-i`. Messages
go to callbacks. All connections are in psycopg's autocommit mode.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

import psycopg
from msgspec import Struct
from psycopg.pq import DiagnosticField as Field
from psycopg.pq.abc import PGresult

from pgpaces.core.errors import PrepareError, ServerError
from pgpaces.core.sessions import Session
from pgpaces.core.texts import Say, decoded, encoded

Progress = Callable[[str, int], None]
"""Prints a line of progress; its arguments are the text and the length of the previous text.

On a terminal the new text replaces the old one (pad to that length, end with a carriage return),
and an empty text erases it. Elsewhere every text except the empty one is a line.
"""
Complain = Callable[["TablesError"], None]

ACCOUNTS, TELLERS = 100_000, 10  # of each branch; there is one branch for each unit of scale
ROWS_A_BRANCH = {"branches": 1, "tellers": TELLERS, "accounts": ACCOUNTS}
TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_history", "pgbench_tellers")
_BIGINT_SCALE = 20_000  # from this scale on, account numbers need a bigint
_FREEZE_VERSION = 140_000
_ROWS_A_BLOCK = 10_000
_ROWS_A_LINE = 100_000
_SECONDS_A_LINE = 5
_QUIET_ROWS = 100  # under quiet, pgbench reads the clock once in this number of rows
_CANCEL_TIMEOUT_S = 5.0


class TablesError(PrepareError):
    """The tables could not be made; `detail` is the text of pgbench's line `detail:`."""

    @property
    def detail(self) -> str | None:
        return super().hint

    @property
    def hint(self) -> None:
        return None


class Tables(Struct, frozen=True):
    """Specification of the tables. Partitions are of pgbench_accounts; 0: not partitioned."""

    scale: int = 1
    fillfactor: int = 100
    unlogged: bool = False
    foreign_keys: bool = False
    tablespace: str | None = None
    index_tablespace: str | None = None
    partitions: int = 0
    partition_method: str = "range"
    quiet: bool = False


DROP = f"drop table if exists {', '.join(TABLES)}"
TRUNCATE = f"truncate table {', '.join(TABLES)}"
VACUUM = tuple(
    f"vacuum analyze pgbench_{name}" for name in ("branches", "tellers", "accounts", "history")
)
FOREIGN_KEYS = tuple(
    f"alter table pgbench_{table} add constraint pgbench_{table}_{column}_fkey"
    f" foreign key ({column}) references pgbench_{referenced}"
    for table, column, referenced in (
        ("tellers", "bid", "branches"),
        ("accounts", "bid", "branches"),
        ("history", "bid", "branches"),
        ("history", "tid", "tellers"),
        ("history", "aid", "accounts"),
    )
)


def create_statements(tables: Tables) -> list[str]:
    """One statement for each table, in pgbench's order."""
    # Padded as pgbench does, whose errors quote the statement.
    aid = "bigint" if tables.scale >= _BIGINT_SCALE else "   int"
    columns = {
        "history": f"tid int,bid int,aid {aid},delta int,mtime timestamp,filler char(22)",
        "tellers": "tid int not null,bid int,tbalance int,filler char(84)",
        "accounts": f"aid {aid} not null,bid int,abalance int,filler char(84)",
        "branches": "bid int not null,bbalance int,filler char(88)",
    }
    # As in pgbench: a partitioned table cannot be unlogged, so with partitions these alone are
    # unlogged, and not the other three tables either.
    unlogged = " unlogged" if tables.unlogged and not tables.partitions else ""
    statements = []
    for name, definition in columns.items():
        statement = f"create{unlogged} table pgbench_{name}({definition})"
        if name == "accounts" and tables.partitions:
            statement += f" partition by {tables.partition_method} (aid)"
        elif name != "history":
            statement += f" with (fillfactor={tables.fillfactor})"
        if tables.tablespace is not None:
            statement += f" tablespace {_identifier(tables.tablespace)}"
        statements.append(statement)
    return statements


def partition_statements(tables: Tables) -> Iterator[str]:
    """One statement for each partition of pgbench_accounts; together they accept any key."""
    unlogged = " unlogged" if tables.unlogged else ""
    size = -(-ACCOUNTS * tables.scale // (tables.partitions or 1))
    for number in range(1, tables.partitions + 1):
        if tables.partition_method == "hash":
            values = f"with (modulus {tables.partitions}, remainder {number - 1})"
        else:
            first = "minvalue" if number == 1 else str((number - 1) * size + 1)
            end = "maxvalue" if number == tables.partitions else str(number * size + 1)
            values = f"from ({first}) to ({end})"
        yield (
            f"create{unlogged} table pgbench_accounts_{number}\n  partition of pgbench_accounts"
            f"\n  for values {values} with (fillfactor={tables.fillfactor})"
        )


def fill_statements(tables: Tables) -> list[str]:
    """Statements that fill the tables inside the server, with the rows of `blocks`."""
    return [
        "insert into pgbench_branches(bid,bbalance)"
        f" select bid, 0 from generate_series(1, {tables.scale}) as bid",
        "insert into pgbench_tellers(tid,bid,tbalance)"
        f" select tid, (tid - 1) / {TELLERS} + 1, 0"
        f" from generate_series(1, {TELLERS * tables.scale}) as tid",
        "insert into pgbench_accounts(aid,bid,abalance,filler)"
        f" select aid, (aid - 1) / {ACCOUNTS} + 1, 0, ''"
        f" from generate_series(1, {ACCOUNTS * tables.scale}) as aid",
    ]


def primary_key_statements(tables: Tables) -> list[str]:
    where = ""
    if tables.index_tablespace is not None:
        where = f" using index tablespace {_identifier(tables.index_tablespace)}"
    keys = {"branches": "bid", "tellers": "tid", "accounts": "aid"}
    return [
        f"alter table pgbench_{name} add primary key ({key}){where}" for name, key in keys.items()
    ]


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


Block = tuple[int, bytes]


def blocks(table: str, scale: int) -> Iterator[Block]:
    """The rows of a table as COPY reads them; each block with the number of rows so far.

    The filler is null in branches and tellers, and blank in accounts.
    """
    total = ROWS_A_BRANCH[table] * scale
    for first in range(1, total + 1, _ROWS_A_BLOCK):
        last = min(first + _ROWS_A_BLOCK - 1, total)
        numbers = range(first, last + 1)
        if table == "accounts":
            # All rows of a block are of one branch: joining is faster than formatting each
            # row, which would be slower than the server.
            rest = f"\t{(first - 1) // ACCOUNTS + 1}\t0\t\n"
            text = rest.join(map(str, numbers)) + rest
        elif table == "tellers":
            text = "".join(f"{n}\t{(n - 1) // TELLERS + 1}\t0\t\\N\n" for n in numbers)
        else:
            text = "".join(f"{n}\t0\t\\N\n" for n in numbers)
        yield last, text.encode()


class FillProgress(Struct):
    """Reports the progress of filling one table: every 100,000 rows, or every 5 s under quiet."""

    table: str
    total: int
    quiet: bool
    progress: Progress
    _width: int = 0
    _next_s: float = _SECONDS_A_LINE

    def report(self, done: int, elapsed_s: float) -> None:
        if done % (_QUIET_ROWS if self.quiet else _ROWS_A_LINE) != 0:
            return
        if self.quiet and done < self.total and elapsed_s < self._next_s:
            return
        self._next_s = elapsed_s - elapsed_s % _SECONDS_A_LINE + _SECONDS_A_LINE
        remaining_s = (self.total - done) * elapsed_s / done
        text = (
            f"{done} of {self.total} tuples ({done * 100 // self.total}%) of {self.table} done"
            f" (elapsed {elapsed_s:.2f} s, remaining {remaining_s:.2f} s)"
        )
        self.progress(text, self._width)
        self._width = len(text)

    def ended(self) -> None:
        """Erase the line: all rows are sent."""
        if self._width:
            self.progress("", self._width)


class _Work(Struct):
    """A running initialization; `statement` is the last one sent to the server."""

    connection: Session
    tables: Tables
    say: Say
    progress: Progress
    statement: str = ""

    @contextlib.contextmanager
    def sent(self, statement: str) -> Iterator[bytes]:
        """A statement to send; an error is one of it."""
        self.statement = statement
        try:
            yield encoded(statement)
        except psycopg.Error as error:
            raise self.failed(_message_of(self.connection, error)) from None

    def failed(self, message: str) -> TablesError:
        detail = f"Query was: {self.statement}"
        return TablesError("pgbench-tables", text=f"query failed: {message}", detail=detail)

    def execute(self, statements: Iterable[str]) -> None:
        """Execute statements. Raises TablesError for the first that fails."""
        for statement in statements:
            with self.sent(statement) as text:
                self.connection.execute(text)

    def copy(self, name: str) -> None:
        """Fill a table by COPY, with frozen rows where the server can: not below a partitioned."""
        table, freeze = f"pgbench_{name}", ""
        if self.connection.info.server_version >= _FREEZE_VERSION:
            query = "SELECT relkind = 'r' FROM pg_catalog.pg_class WHERE oid = '{}'::regclass"
            with self.sent(query.format(table)) as asked:
                row = self.connection.execute(asked).fetchone()
            freeze = " with (freeze on)" if row == (True,) else ""
        total = ROWS_A_BRANCH[name] * self.tables.scale
        lines = FillProgress(table, total, self.tables.quiet, self.progress)
        self.statement, started = f"copy {table} from stdin{freeze}", 0.0
        try:
            with self.connection.cursor().copy(self.statement.encode()) as copy:
                started = time.monotonic()
                for done, block in blocks(name, self.tables.scale):
                    copy.write(block)
                    lines.report(done, time.monotonic() - started)
                lines.ended()
        except psycopg.Error as error:
            text, why = "PQendcopy failed", _message_of(self.connection, error)
            if started:
                # libpq turns an error at the end of a COPY into a notice, and so does pgbench.
                self.say(f"{why}\n")
            else:
                text = f"unexpected copy in result: {why}"
            raise TablesError("pgbench-tables", text=text) from None


# By letter: the name, the message, and the statements. Truncated and filled in one transaction:
# only then may COPY write frozen rows.
_STEPS: dict[str, tuple[str, str, Callable[[Tables], Iterable[str]]]] = {
    "d": ("drop tables", "dropping old tables", lambda _: (DROP,)),
    "t": ("create tables", "creating tables", create_statements),
    "g": (
        "client-side generate", "generating data (client-side)", lambda _: ("begin", TRUNCATE)
    ),
    "G": (
        "server-side generate", "generating data (server-side)",
        lambda tables: ("begin", TRUNCATE, *fill_statements(tables), "commit"),
    ),
    "v": ("vacuum", "vacuuming", lambda _: VACUUM),
    "p": ("primary keys", "creating primary keys", primary_key_statements),
    "f": ("foreign keys", "creating foreign keys", lambda _: FOREIGN_KEYS),
}  # fmt: skip


def initialize(
    connection: Session, tables: Tables, steps: str, *, say: Say, progress: Progress
) -> None:
    """Run the steps in order, then foreign keys if `tables` has them and no step makes them.

    Raises TablesError with pgbench's message if a step fails, and for KeyboardInterrupt after
    canceling the statement. The connection may then be in a failed transaction: close it.
    """
    if tables.foreign_keys and "f" not in steps:
        steps += "f"
    work = _Work(connection, tables, say, progress)
    times = []
    with notices(connection, say):
        try:
            for letter in steps.replace(" ", ""):
                started = time.monotonic()
                name, text, statements = _STEPS[letter]
                say(f"{text}...\n")
                work.execute(statements(tables))
                if letter == "t" and tables.partitions:
                    say(f"creating {tables.partitions} partitions...\n")
                    work.execute(partition_statements(tables))
                elif letter == "g":
                    for table in ROWS_A_BRANCH:
                        work.copy(table)
                    work.execute(["commit"])
                times.append((name, time.monotonic() - started))
        except KeyboardInterrupt:
            # psycopg cancels the statement too, but only while it waits for the server.
            if connection.info.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
                with contextlib.suppress(psycopg.Error):
                    connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
            say("Cancel request sent\n")
            canceled = "ERROR:  canceling statement due to user request"
            raise work.failed(canceled) from None
    each = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in times)
    say(f"done in {sum(seconds for _, seconds in times):.2f} s ({each}).\n")


def vacuum_before_run(connection: Session, accounts: bool, say: Say, *, complain: Complain) -> None:
    """Vacuum the small tables and empty the history; with `accounts`, vacuum these too.

    Errors go to `complain`, and the next statement follows.
    """
    small = ("vacuum pgbench_branches", "vacuum pgbench_tellers", "truncate pgbench_history")
    steps: dict[str, tuple[str, ...]] = {"starting vacuum...": small}
    if accounts:
        steps["starting vacuum pgbench_accounts..."] = ("vacuum analyze pgbench_accounts",)
    with notices(connection, say):
        for text, statements in steps.items():
            say(text)
            for statement in statements:
                try:
                    connection.execute(statement.encode())
                except psycopg.Error as error:
                    detail = "(ignoring this error and continuing anyway)"
                    why = _message_of(connection, error)
                    complain(TablesError("pgbench-tables", text=why, detail=detail))
            say("end.\n")


def scale_of(connection: Session) -> int:
    """The scale of the tables: the number of branches, 0 for an empty table.

    Raises ServerError if it cannot be read.
    """
    try:
        row = connection.execute("select count(*) from pgbench_branches").fetchone()
    except psycopg.Error as error:
        text = f"could not count number of branches: {_message_of(connection, error)}"
        absent = isinstance(error, psycopg.errors.UndefinedTable)
        advice = _advice(connection) if absent else None
        raise ServerError("pgbench-tables", text=text, detail=advice) from None
    return int(row[0]) if row else 0


_PARTITIONS = """
select k.partstrat,
       (select count(*) from pg_catalog.pg_inherits i where i.inhparent = c.oid)
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
left join pg_catalog.pg_partitioned_table k on k.partrelid = c.oid
where c.relname = 'pgbench_accounts'
  and n.nspname = any (pg_catalog.current_schemas(true))
order by pg_catalog.array_position(pg_catalog.current_schemas(true), n.nspname)
limit 1
"""


def partitions_of(connection: Session) -> tuple[str, int]:
    """The partitioning of the first pgbench_accounts in the search path: none, range or hash.

    With the number of partitions. Raises ServerError for no such table or another method.
    """
    try:
        row = connection.execute(_PARTITIONS.encode()).fetchone()
    except psycopg.Error:
        return "none", 0  # a server from before partitions
    if row is None:
        text = 'no pgbench_accounts table found in "search_path"'
        raise ServerError("pgbench-tables", text=text, detail=_advice(connection))
    strategy, count = row
    methods = {None: "none", "r": "range", "h": "hash"}
    if strategy not in methods:
        raise ServerError("pgbench-tables", text=f'unexpected partition method: "{strategy}"')
    return methods[strategy], count


def _advice(connection: Session) -> str:
    return (
        'Perhaps you need to do initialization ("pgbench -i") in database'
        f' "{connection.info.dbname}".'
    )


@contextlib.contextmanager
def notices(connection: Session, say: Say) -> Iterator[None]:
    """Say the server's notices as libpq prints them, with ends of lines."""

    def handler(notice: PGresult) -> None:
        def words(field: Field) -> str:
            return decoded(notice.error_field(field) or b"")

        lines = {
            words(Field.SEVERITY): words(Field.MESSAGE_PRIMARY),
            "DETAIL": words(Field.MESSAGE_DETAIL),
            "HINT": words(Field.MESSAGE_HINT),
        }
        say("".join(f"{name}:  {text}\n" for name, text in lines.items() if text))

    connection.pgconn.notice_handler, before = handler, connection.pgconn.notice_handler
    try:
        yield
    finally:
        connection.pgconn.notice_handler = before


def _message_of(connection: Session, error: psycopg.Error) -> str:
    """libpq's complete message for an error, with severity, line and hint."""
    result = error.pgresult
    message = result.error_message if result is not None else connection.pgconn.error_message
    return decoded(message).rstrip("\n") or str(error)
