"""Where results live: a SQLite file by default. The only module that knows the database.

Every interval is committed, with a full sync, before the next is looked at. A trial whose
process died stays in state "running" with an old heartbeat and is read as interrupted: what was
pending then counts as unfinished.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, OperationalError, SQLAlchemyError

from pgpaces.errors import PlanError, StoreError, StoreVersionError
from pgpaces.home import home
from pgpaces.result import Finding, Interval, State, StatementTally, Tally, Times, Trial
from pgpaces.soundness import check, check_summary

HEAD = "0005"
_DAMAGED = "other runs may be whole: `pgpaces show` another one"
# What reading values that are not as they were written raises: SQLAlchemy's conversions and ours.
_UNREADABLE = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip
_STALE = timedelta(seconds=15)
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

Row = sa.RowMapping

_metadata = sa.MetaData()


def _times_columns(prefix: str) -> list[sa.Column[Any]]:
    return [
        sa.Column(f"{prefix}_count", sa.BigInteger),
        sa.Column(f"{prefix}_sum_ns", sa.BigInteger),
        sa.Column(f"{prefix}_square_sum", sa.Double),
        sa.Column(f"{prefix}_max_ns", sa.BigInteger),
        sa.Column(f"{prefix}_histogram", sa.LargeBinary),
    ]


_trial = sa.Table(
    "trial",
    _metadata,
    sa.Column("id", sa.String(26), primary_key=True),
    sa.Column("state", sa.String(12)),
    sa.Column("started_at", sa.DateTime(timezone=True)),
    sa.Column("ended_at", sa.DateTime(timezone=True)),
    sa.Column("heartbeat", sa.DateTime(timezone=True)),
    sa.Column("version", sa.String(40)),
    sa.Column("plan", sa.JSON),
    sa.Column("workload", sa.JSON),
    sa.Column("server", sa.JSON),
    sa.Column("host", sa.JSON),
    sa.Column("measured_ns", sa.BigInteger),
    sa.Column("error", sa.Text),
    sa.Column("notes", sa.JSON),
    sa.Column("findings", sa.JSON),
    sa.Column("summary", sa.JSON),
)
_interval = sa.Table(
    "interval",
    _metadata,
    sa.Column("trial", sa.String(26), primary_key=True),
    sa.Column("second", sa.Integer, primary_key=True),
    sa.Column("cpu_ns", sa.JSON),
    sa.Column("in_flight_ns", sa.BigInteger),
    sa.Column("pending_ns", sa.BigInteger),
    sa.Column("waited_ns", sa.BigInteger),
    sa.Column("ended_ns", sa.BigInteger),
    sa.Column("connects", sa.Integer),
    sa.Column("disconnects", sa.Integer),
    sa.Column("messages", sa.JSON),
    sa.Column("connect_ns", sa.BigInteger),
    sa.Column("aborted", sa.JSON),
    sa.Column("outages", sa.Integer),
    sa.Column("outage_ns_max", sa.BigInteger),
    sa.Column("down", sa.Integer),
    sa.Column("some_down_ns", sa.BigInteger),
    sa.Column("all_down_ns", sa.BigInteger),
    *_times_columns("dispatch"),
)
_tally = sa.Table(
    "tally",
    _metadata,
    sa.Column("trial", sa.String(26), primary_key=True),
    sa.Column("second", sa.Integer, primary_key=True),
    sa.Column("due_second", sa.Integer, primary_key=True),
    sa.Column("script", sa.Integer, primary_key=True),
    sa.Column("due", sa.BigInteger),
    sa.Column("on_time", sa.BigInteger),
    sa.Column("late", sa.BigInteger),
    sa.Column("skipped", sa.BigInteger),
    sa.Column("failed", sa.JSON),
    sa.Column("unfinished", sa.BigInteger),
    sa.Column("retried", sa.BigInteger),
    sa.Column("retries", sa.BigInteger),
    *_times_columns("latency"),
    *_times_columns("lag"),
    *_times_columns("service"),
)
_statement = sa.Table(
    "statement",
    _metadata,
    sa.Column("trial", sa.String(26), primary_key=True),
    sa.Column("second", sa.Integer, primary_key=True),
    sa.Column("script", sa.Integer, primary_key=True),
    sa.Column("command", sa.Integer, primary_key=True),
    sa.Column("failed", sa.BigInteger),
    sa.Column("retries", sa.BigInteger),
    *_times_columns("times"),
)


@dataclass(frozen=True, slots=True)
class TrialRow:
    """A trial without its intervals, as a list of runs shows it."""

    id: str
    state: State
    started_at: datetime
    workload: str
    load: str
    server: str
    summary: Mapping[str, Any] | None


def default_path() -> Path:
    """$PGPACES_STORE, else results.db in pgpaces' home."""
    chosen = os.environ.get("PGPACES_STORE")
    return Path(chosen).expanduser() if chosen else home() / "results.db"


def new_id() -> str:
    """A ULID: 26 characters that sort by time."""
    value = (time.time_ns() // 1_000_000 << 80) | int.from_bytes(os.urandom(10))
    return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))


class _Part(dict[str, Any]):
    """A part of a stored trial: what it should have and has not is a StoreError."""

    def __init__(self, what: str, name: str, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._place = f"{what} is damaged: its {name}"

    def __missing__(self, key: str) -> Any:
        raise StoreError(f"{self._place} has no {key}", _DAMAGED)


class Store:
    """A store that is open. Use `Store.open`."""

    def __init__(self, engine: sa.Engine, path: Path) -> None:
        """`open` makes these."""
        self._engine = engine
        self.path = path

    @classmethod
    def open(cls, path: Path | None = None) -> Store:
        """Opens the store and brings it up to date, or creates it.

        Raises StoreError where that cannot be, StoreVersionError for one of a newer pgpaces.
        """
        path = default_path() if path is None else path
        engine = sa.create_engine(f"sqlite:///{path}")
        sa.event.listen(engine, "connect", _pragmas)
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with engine.connect() as connection:
                _migrate(connection, path)
        return cls(engine, path)

    def size_bytes(self) -> int:
        """What the store takes on its disk, with what SQLite has not moved into the file yet."""
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def begin(self, trial: Trial) -> None:
        """Stores a trial that starts now."""
        row = {
            "id": trial.id,
            "state": "running",
            "started_at": trial.started_at,
            "heartbeat": datetime.now(UTC),
            "version": trial.version,
            "plan": dict(trial.plan),
            "workload": dict(trial.workload),
            "server": dict(trial.server),
            "host": dict(trial.host),
            "notes": list(trial.notes),
            "findings": [asdict(finding) for finding in trial.findings],
        }
        with self._writing() as connection:
            connection.execute(sa.insert(_trial), row)

    def add(self, trial_id: str, interval: Interval) -> None:
        """Stores one interval; it is durable when this returns."""
        with self._writing() as connection:
            connection.execute(sa.insert(_interval), _interval_row(trial_id, interval))
            if interval.tallies:
                rows = [_tally_row(trial_id, interval.second, t) for t in interval.tallies]
                connection.execute(sa.insert(_tally), rows)
            if interval.statements:
                rows = [_statement_row(trial_id, interval.second, s) for s in interval.statements]
                connection.execute(sa.insert(_statement), rows)
            beat = sa.update(_trial).where(_trial.c.id == trial_id)
            connection.execute(beat.values(heartbeat=datetime.now(UTC)))

    def finish(self, trial: Trial, summary: Mapping[str, Any]) -> None:
        """Stores how a trial ended and its summary for lists."""
        with self._writing() as connection:
            ended = sa.update(_trial).where(_trial.c.id == trial.id)
            connection.execute(
                ended.values(
                    state=trial.state,
                    ended_at=trial.ended_at,
                    measured_ns=trial.measured_ns,
                    error=trial.error,
                    notes=list(trial.notes),
                    findings=[asdict(finding) for finding in trial.findings],
                    summary=dict(summary),
                )
            )

    def trials(self, limit: int | None = None) -> list[TrialRow]:
        """The trials, newest first."""
        query = sa.select(_trial).order_by(_trial.c.started_at.desc(), _trial.c.id.desc())
        with self._reading("a run") as connection:
            rows = connection.execute(query.limit(limit)).mappings().all()
            return [_trial_row(row) for row in rows]

    def find(self, name: str) -> str:
        """The id of the trial that `name` means: `last`, an id, or the end or start of one.

        Raises PlanError where none or several fit.
        """
        with _explained(self.path), self._engine.connect() as connection:
            newest = sa.select(_trial.c.id).order_by(_trial.c.started_at.desc(), _trial.c.id.desc())
            if name in {"last", "latest"}:
                ids = list(connection.execute(newest.limit(1)).scalars())
            else:
                text = name.upper()
                fits = _trial.c.id.startswith(text, autoescape=True) | _trial.c.id.endswith(
                    text, autoescape=True
                )
                ids = list(connection.execute(newest.where(fits).limit(3)).scalars())
        if len(ids) == 1:
            return str(ids[0])
        if ids:
            raise PlanError(f"'{name}' fits several runs: {', '.join(ids)}", "write more of the id")
        raise PlanError(f"there is no run '{name}' in {self.path}", "`pgpaces runs` lists them")

    def load(self, trial_id: str) -> Trial:
        """A whole trial. One that was interrupted says so.

        Raises StoreError where what is stored cannot be a trial.
        """
        with self._reading(f"run {trial_id}") as connection:
            row = connection.execute(sa.select(_trial).where(_trial.c.id == trial_id)).mappings()
            trial = _load_trial(row.one(), _load_intervals(connection, trial_id))
            check(trial)
        what = f"run {trial_id}"
        return replace(
            trial,
            plan=_Part(what, "plan", trial.plan),
            workload=_Part(what, "workload", trial.workload),
            server=_Part(what, "server", trial.server),
        )

    @contextlib.contextmanager
    def _reading(self, what: str) -> Iterator[sa.Connection]:
        """A connection; whatever cannot be read from what it gives is a StoreError."""
        try:
            with _explained(self.path), self._engine.connect() as connection:
                yield connection
        except _UNREADABLE as error:
            raise StoreError(f"{what} in {self.path} is damaged: {error}", _DAMAGED) from None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with _explained(self.path), self._engine.begin() as connection:
            yield connection


def _pragmas(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA busy_timeout = 5000")


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns what the database says into a StoreError with the way out."""
    try:
        yield
    except OperationalError as error:
        text = str(error.orig)
        hints = {
            "full": "free some space, or choose another file with --store",
            "readonly": "make it writable, or choose another file with --store",
            "unable to open": "does its folder exist, and may you write there?",
            "locked": "another program holds it; try again",
            "disk I/O": "the disk is full or broken; choose another file with --store",
        }
        hint = next((hint for sign, hint in hints.items() if sign in text), None)
        raise StoreError(f"the store {path} cannot be used: {text}", hint) from None
    except DatabaseError as error:
        raise StoreError(
            f"{path} is not a store of pgpaces: {error.orig}", "choose another file with --store"
        ) from None
    except SQLAlchemyError as error:
        raise StoreError(f"the store {path} cannot be used: {error}") from error
    except OSError as error:
        raise StoreError(
            f"the store {path} cannot be used: {error.strerror or error}",
            "choose another file with --store",
        ) from None


def _version(connection: sa.Connection) -> str | None:
    """The version of the schema; None where there is none yet."""
    current = None
    if sa.inspect(connection).has_table("alembic_version"):
        current = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    connection.rollback()
    return None if current is None else str(current)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keeps others from changing the schema of a store in this folder at the same time."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _migrate(connection: sa.Connection, path: Path) -> None:
    """Brings the schema to HEAD; alembic is imported only where there is something to do."""
    if _version(connection) == HEAD:
        return
    with _alone(path.parent):
        _upgrade(connection, path)


def _upgrade(connection: sa.Connection, path: Path) -> None:
    current = _version(connection)  # somebody may have been quicker
    if current == HEAD:
        return
    if current is None and sa.inspect(connection).get_table_names():
        raise StoreError(f"{path} is a database of something else", "choose another file")
    if current is not None and current > HEAD:
        raise StoreVersionError(
            f"the store {path} was written by a newer pgpaces (version {current}, we know {HEAD})",
            "upgrade pgpaces, or choose another file with --store",
        )
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.commit()


def _times_row(prefix: str, times: Times) -> dict[str, Any]:
    return {
        f"{prefix}_count": times.count,
        f"{prefix}_sum_ns": times.sum_ns,
        f"{prefix}_square_sum": times.square_sum,
        f"{prefix}_max_ns": times.max_ns,
        f"{prefix}_histogram": times.histogram,
    }


def _interval_row(trial_id: str, interval: Interval) -> dict[str, Any]:
    return {
        "trial": trial_id,
        "second": interval.second,
        "cpu_ns": list(interval.cpu_ns),
        "in_flight_ns": interval.in_flight_ns,
        "pending_ns": interval.pending_ns,
        "waited_ns": interval.waited_ns,
        "ended_ns": interval.ended_ns,
        "connects": interval.connects,
        "disconnects": interval.disconnects,
        "messages": [list(message) for message in interval.messages],
        "connect_ns": interval.connect_ns,
        "aborted": list(interval.aborted),
        "outages": interval.outages,
        "outage_ns_max": interval.outage_ns_max,
        "down": interval.down,
        "some_down_ns": interval.some_down_ns,
        "all_down_ns": interval.all_down_ns,
        **_times_row("dispatch", interval.dispatch),
    }


def _tally_row(trial_id: str, second: int, tally: Tally) -> dict[str, Any]:
    return {
        "trial": trial_id,
        "second": second,
        "due_second": tally.due_second,
        "script": tally.script,
        "due": tally.due,
        "on_time": tally.on_time,
        "late": tally.late,
        "skipped": tally.skipped,
        "failed": dict(tally.failed),
        "unfinished": tally.unfinished,
        "retried": tally.retried,
        "retries": tally.retries,
        **_times_row("latency", tally.latency),
        **_times_row("lag", tally.lag),
        **_times_row("service", tally.service),
    }


def _statement_row(trial_id: str, second: int, tally: StatementTally) -> dict[str, Any]:
    return {
        "trial": trial_id,
        "second": second,
        "script": tally.script,
        "command": tally.command,
        "failed": tally.failed,
        "retries": tally.retries,
        **_times_row("times", tally.times),
    }


def _load_trial(found: Row, intervals: tuple[Interval, ...]) -> Trial:
    return Trial(
        id=found["id"],
        state=_state(found),
        started_at=found["started_at"],
        ended_at=found["ended_at"],
        plan=found["plan"],
        workload=found["workload"],
        server=found["server"],
        host=found["host"],
        version=found["version"],
        measured_ns=found["measured_ns"],
        error=found["error"],
        notes=tuple(found["notes"]),
        findings=tuple(Finding(**finding) for finding in found["findings"]),
        intervals=intervals,
    )


def _times(row: Row, prefix: str) -> Times:
    return Times(
        row[f"{prefix}_count"],
        row[f"{prefix}_sum_ns"],
        row[f"{prefix}_square_sum"],
        row[f"{prefix}_max_ns"],
        row[f"{prefix}_histogram"],
    )


def _load_intervals(connection: sa.Connection, trial_id: str) -> tuple[Interval, ...]:
    """A trial's intervals in order; gaps stay gaps."""

    def rows(table: sa.Table) -> Sequence[Row]:
        query = sa.select(table).where(table.c.trial == trial_id).order_by(table.c.second)
        return connection.execute(query).mappings().all()

    found: dict[int, Interval] = {}
    for row in rows(_interval):
        found[row["second"]] = Interval(
            second=row["second"],
            cpu_ns=tuple(row["cpu_ns"]),
            in_flight_ns=row["in_flight_ns"],
            pending_ns=row["pending_ns"],
            waited_ns=row["waited_ns"],
            ended_ns=row["ended_ns"],
            connects=row["connects"],
            disconnects=row["disconnects"],
            messages=tuple((state, text) for state, text in row["messages"]),
            dispatch=_times(row, "dispatch"),
            connect_ns=row["connect_ns"],
            aborted=tuple(row["aborted"]),
            outages=row["outages"],
            outage_ns_max=row["outage_ns_max"],
            down=row["down"],
            some_down_ns=row["some_down_ns"],
            all_down_ns=row["all_down_ns"],
        )
    tallies: dict[int, list[Tally]] = {second: [] for second in found}
    for row in rows(_tally):
        if row["second"] not in tallies:
            raise ValueError(f"second {row['second']} has counts and no interval")
        tallies[row["second"]].append(_load_tally(row))
    statements: dict[int, list[StatementTally]] = {second: [] for second in found}
    for row in rows(_statement):
        if row["second"] not in statements:
            raise ValueError(f"second {row['second']} has statements and no interval")
        times = _times(row, "times")
        statements[row["second"]].append(
            StatementTally(row["script"], row["command"], row["failed"], times, row["retries"])
        )
    return tuple(
        replace(interval, tallies=tuple(tallies[second]), statements=tuple(statements[second]))
        for second, interval in found.items()
    )


def _load_tally(row: Row) -> Tally:
    return Tally(
        due_second=row["due_second"],
        script=row["script"],
        due=row["due"],
        on_time=row["on_time"],
        late=row["late"],
        skipped=row["skipped"],
        failed=row["failed"],
        unfinished=row["unfinished"],
        latency=_times(row, "latency"),
        lag=_times(row, "lag"),
        service=_times(row, "service"),
        retried=row["retried"],
        retries=row["retries"],
    )


def _state(row: Row) -> State:
    """The state; a running trial whose process has been silent was interrupted."""
    state: State = row["state"]
    heartbeat: datetime = row["heartbeat"]
    if heartbeat.tzinfo is None:
        heartbeat = heartbeat.replace(tzinfo=UTC)
    # Either way: a clock that was set back leaves the heartbeat of a dead run in the future.
    if state == "running" and abs(datetime.now(UTC) - heartbeat) > _STALE:
        return "interrupted"
    return state


def _trial_row(row: Row) -> TrialRow:
    started: datetime = row["started_at"]
    check_summary(row["summary"])
    for text in (row["workload"]["name"], row["plan"]["load_text"], row["server"]["version"]):
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text")
    return TrialRow(
        id=row["id"],
        state=_state(row),
        started_at=started.replace(tzinfo=UTC) if started.tzinfo is None else started,
        workload=row["workload"]["name"],
        load=row["plan"]["load_text"],
        server=row["server"]["version"],
        summary=row["summary"],
    )
