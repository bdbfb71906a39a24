"""The store keeps what it was given, whole, and says what is wrong with it otherwise."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command, op
from alembic.config import Config
from msgspec.structs import replace

import pgpaces
from pgpaces import _engine
from pgpaces.core.errors import PlanError, StoreError, StoreVersionError
from pgpaces.core.record import Interval, StatementTally, Tally
from pgpaces.core.times import Times
from pgpaces.spec.result import Blocked, Finding, Observed, Trial, WaitEvent, Waits
from pgpaces.store import digests
from pgpaces.store.experiments import ExperimentRow
from pgpaces.store.store import Store, new_id
from tests.unit.trials import known

MIGRATIONS = Path(pgpaces.__file__).parent / "migrations"


def histogram(*times_ns: int) -> bytes:
    made = _engine.Histogram()
    for ns in times_ns:
        made.record(ns)
    return made.encode()


TIMES = Times(3, 2**62, 1.5, 9, histogram(7, 8, 9))
INTERVAL = Interval(
    second=4,
    tallies=(
        Tally(4, 0, 3, 1, 1, 0, {"40001": 1}, 0, TIMES, TIMES, TIMES, retried=1, retries=4),
        Tally(3, 1, due=0, on_time=2),
    ),
    statements=(StatementTally(0, 2, 1, TIMES, retries=4),),
    messages=(("40001", "could not serialize"),),
    cpu_ns=(5, 6),
    dispatch=TIMES,
    in_flight_ns=2**62,
    pending_ns=7,
    waited_ns=6,
    ended_ns=5_000_000_000,
    connects=1,
    disconnects=2,
    connect_ns=8,
    aborted=(0, 1),
    outages=2,
    outage_ns_max=3,
    down=1,
    some_down_ns=4,
    all_down_ns=2,
)


def trial(started_at: datetime | None = None) -> Trial:
    return Trial(
        id=new_id(),
        state="running",
        started_at=started_at or datetime.now(UTC),
        version="0.1.0",
        **known(
            plan={"load_text": "open, 1/s"}, workload={"name": "reporting"}, server={}, host={}
        ),
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "results.db")


def test_a_trial_comes_back_as_it_was_stored(store: Store) -> None:
    begun = trial()
    store.begin(begun)
    store.add(begun.id, INTERVAL)
    heat = Finding("temperature", "invalid", "the CPU got hot", 91.5, "°C")
    ended = replace(begun, state="finished", ended_at=datetime.now(UTC), measured_ns=7, error="x")
    store.finish(replace(ended, findings=(heat,)), {"due": 3})
    found = store.load(begun.id)
    assert found.findings == (heat,)
    assert sorted(found.intervals[0].tallies, key=lambda t: t.due_second) == sorted(
        INTERVAL.tallies, key=lambda t: t.due_second
    )
    assert replace(found.intervals[0], tallies=()) == replace(INTERVAL, tallies=())
    assert (found.state, found.measured_ns, found.error) == ("finished", 7, "x")


# What each version of the store added to the one before it: table and column.
ADDED = {
    "0002": (
        ("interval", "connect_ns"), ("interval", "aborted"), ("tally", "retried"),
        ("tally", "retries"), ("statement", "retries"),
    ),
    "0003": (("trial", "findings"),),
    "0004": (
        ("interval", "outages"), ("interval", "outage_ns_max"), ("interval", "down"),
        ("interval", "some_down_ns"), ("interval", "all_down_ns"),
    ),
    "0005": (("interval", "pending_ns"), ("interval", "waited_ns")),
    "0006": tuple(
        ("trial", name)
        for name in ("experiment", "cell", "levels", "block", "attempt", "explained",
                     "digest_version", "digest")
    ),
    "0007": (),
    "0008": (),
}  # fmt: skip
# What takes the rest of it away again.
UNDONE = {
    "0006": """
DROP INDEX trial_place; DROP INDEX trial_newest;
CREATE INDEX ix_trial_started_at ON trial (started_at);
DROP TABLE experiment; DROP TABLE failure; DROP TABLE sample; DROP TABLE tag; DROP TABLE baseline
""",
    "0007": "DROP TABLE disk",
    "0008": "DROP TABLE observed",
}


def make_older(store: Store, version: str) -> None:
    """Makes a store what an earlier version of pgpaces would have made it."""
    with sqlite3.connect(store.path) as other:
        for later in (later for later in ADDED if later > version):
            other.executescript(UNDONE.get(later, ""))
            for table, column in ADDED[later]:
                other.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        other.execute("UPDATE alembic_version SET version_num = ?", (version,))


def test_an_upgrade_that_is_cut_short_is_made_by_the_next_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's driver would commit each table by itself, which is there when it begins anew."""
    begun = trial()
    store.begin(begun)
    make_older(store, "0005")
    create = op.create_table

    def cut(name: str, *columns: Any, **more: Any) -> Any:
        if name == "observed":
            raise KeyboardInterrupt
        return create(name, *columns, **more)

    with monkeypatch.context() as patch:
        patch.setattr(op, "create_table", cut)
        with pytest.raises(KeyboardInterrupt):
            Store.open(store.path)
    assert Store.open(store.path).load(begun.id).observed == ()


@pytest.mark.parametrize("version", ["0001", *list(ADDED)[:-1]])
def test_a_store_of_an_older_version_is_read(store: Store, version: str) -> None:
    begun = trial()
    store.begin(begun)
    store.add(begun.id, INTERVAL)
    make_older(store, version)
    opened = Store.open(store.path)
    loaded = opened.load(begun.id)
    [found] = loaded.intervals
    assert opened.disks() == []
    assert (loaded.place, loaded.samples, loaded.explained) == (None, (), ())
    assert loaded.observed == ()
    if version < "0005":
        assert (found.pending_ns, found.waited_ns) == (0, 0)
    if version < "0004":
        assert (found.outages, found.down) == (0, 0)
    if version < "0003":
        assert loaded.findings == ()
    assert [t.on_time for t in found.tallies] == [t.on_time for t in INTERVAL.tallies[::-1]]
    if version == "0001":
        assert (found.connect_ns, found.aborted, found.statements[0].retries) == (0, (), 0)


def test_many_may_make_one_store_at_the_same_time(tmp_path: Path) -> None:
    code = "import sys, pathlib, pgpaces.store.store as s; s.Store.open(pathlib.Path(sys.argv[1]))"
    path = tmp_path / "results.db"
    words = [sys.executable, "-c", code, str(path)]
    started = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    assert [process.communicate()[1] for process in started] == [""] * 6
    assert Store.open(path).trials() == []


READERS = """
import sys, threading
from pathlib import Path
from pgpaces.store.store import Store

sys.setswitchinterval(1e-6)
stores = [Store.open(Path(sys.argv[1])) for _ in range(4)]
together = threading.Barrier(4)

def read(store):
    together.wait()
    store.head(sys.argv[2])
    store.digests([sys.argv[2]])

threads = [threading.Thread(target=read, args=[store]) for store in stores]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_the_first_readers_of_a_process_may_come_at_once(store: Store) -> None:
    begun = trial()
    store.begin(begun)
    store.finish(replace(begun, state="finished"), {}, digests.compute(begun))
    for _ in range(3):
        command = [sys.executable, "-c", READERS, str(store.path), begun.id]
        assert subprocess.run(command, check=False).returncode == 0


def test_observations_of_a_running_trial_replace_those_of_their_kind(store: Store) -> None:
    store.begin(trial())
    id_ = trial().id
    waits = Waits(10, (WaitEvent("load", "CPU", "", 3),), b"\0")
    first, second = (Blocked("load", "Lock:tuple", "X", "a", "active", "", n, 0, n) for n in (1, 2))
    store.add(id_, None, observed=[Observed(blocked=(first,)), Observed("standby1")])
    store.add(id_, None, observed=[Observed(waits=waits)])
    store.add(id_, None, observed=[Observed(blocked=(second,))])
    assert store.observed(id_) == (Observed(blocked=(second,), waits=waits), Observed("standby1"))


def test_every_interval_is_synced_to_the_disk(store: Store) -> None:
    begun = trial()
    store.begin(begun)
    store.add(begun.id, INTERVAL)
    other = sqlite3.connect(store.path)
    assert other.execute("SELECT count(*) FROM tally").fetchone() == (2,)
    with store._backend.engine.connect() as connection:
        full, wal = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("synchronous", "journal_mode")
        )
    assert (full, wal) == (2, "wal")


def test_a_running_trial_that_has_been_silent_was_interrupted(store: Store) -> None:
    begun = trial()
    store.begin(begun)
    assert store.trials()[0].state == "running"
    beat(store, datetime.now(UTC) - timedelta(minutes=1))
    assert store.trials()[0].state == "interrupted"
    assert store.load(begun.id).state == "interrupted"
    store.beat(begun.id)
    assert store.trials()[0].state == "running"


def test_states_of_trials_are_read_without_the_rest_of_them(store: Store) -> None:
    old, new, bad = (replace(trial(), id=f"01{n}") for n in range(3))
    for one in (old, new, bad):
        store.begin(one)
    store.finish(replace(old, state="finished"), {})
    with sqlite3.connect(store.path) as other:
        other.execute("UPDATE trial SET plan = 'no', workload = 'no' WHERE id = '011'")
        other.execute("UPDATE trial SET heartbeat = 'no' WHERE id = '012'")
    assert store.states() == [("012", "failed"), ("011", "running"), ("010", "finished")]
    assert store.states(1) == [("012", "failed")]
    assert store.states(experiment="none") == []


def beat(store: Store, heartbeat: datetime) -> None:
    """Says when the trials last wrote."""
    with sqlite3.connect(store.path) as other:
        text = heartbeat.replace(tzinfo=None).isoformat(" ")
        other.execute("UPDATE trial SET heartbeat = ?", (text,))


def test_a_clock_that_was_set_back_does_not_keep_a_dead_trial_running(store: Store) -> None:
    store.begin(trial())
    beat(store, datetime.now(UTC) + timedelta(hours=1))
    assert store.trials()[0].state == "interrupted"
    beat(store, datetime.now(UTC) + timedelta(seconds=2))
    assert store.trials()[0].state == "running"


def test_a_run_is_found_by_last_and_by_either_end_of_its_id(store: Store) -> None:
    old, new = trial(datetime.now(UTC) - timedelta(hours=1)), trial()
    for one in (old, new):
        store.begin(one)
    assert store.find("last") == new.id
    assert store.find(old.id[-8:].lower()) == old.id
    assert store.find(new.id) == new.id
    with pytest.raises(PlanError, match="several"):
        store.find("0")
    with pytest.raises(PlanError, match="no run"):
        store.find("nothing")
    with pytest.raises(PlanError, match="no run"):
        store.find("%")


def test_a_whole_name_comes_before_a_part_of_an_id_whichever_has_it(store: Store) -> None:
    run = replace(trial(), id="01AAAAAAAAAAAAAAAAAAAAAAV2")
    store.begin(run)
    row = ExperimentRow("01BBBBBBBBBBBBBBBBBBBBBBV3", "v2", datetime.now(UTC), None, "running",
                        "0", {})  # fmt: skip
    store.begin_experiment(row)
    assert store.find_any("v2") == row.id
    assert store.find_any("av2") == run.id
    assert store.find_any(row.id.lower()) == row.id
    with pytest.raises(PlanError, match="several ids: 01BBB"):
        store.find_any("0")
    store.tag("v3", run.id)
    assert store.find_any("v3") == run.id
    assert store.find_any("last") == run.id
    with pytest.raises(PlanError, match="no run or experiment 'v4'"):
        store.find_any("v4")


def test_a_store_of_a_newer_version_is_refused(store: Store) -> None:
    with sqlite3.connect(store.path) as other:
        other.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreVersionError, match="newer"):
        Store.open(store.path)


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to look at" * 40])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a store"):
        Store.open(path)
    assert path.read_bytes() == content


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreError, match="another program"):
        Store.open(path)


@pytest.mark.parametrize("version", ["0001", "9999", "ae1027a6acf"])
@pytest.mark.parametrize("table", ["mine (x)", "trial (id)"])
def test_a_database_of_something_else_with_alembic_is_left_as_it_is(
    tmp_path: Path, version: str, table: str
) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE alembic_version (version_num)")
        other.execute("INSERT INTO alembic_version VALUES (?)", (version,))
        other.execute(f"CREATE TABLE {table}")
    with pytest.raises(StoreError, match="another program"):
        Store.existing(path)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT version_num FROM alembic_version").fetchall() == [(version,)]
        assert other.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (2,)


def test_a_folder_that_cannot_be_made_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError) as found:
        Store.open(tmp_path / "file" / "results.db")
    assert found.value.hint


def test_opening_an_up_to_date_store_changes_nothing(store: Store) -> None:
    begun = trial()
    store.begin(begun)
    assert Store.open(store.path).trials()[0].id == begun.id


def test_ids_sort_by_time_and_differ() -> None:
    ids = [new_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert all(len(found) == 26 for found in ids)
    assert [i[:10] for i in ids] == sorted(i[:10] for i in ids)


def tables_of(engine: sa.Engine) -> dict[str, Any]:
    found = sa.inspect(engine)
    return {
        name: (
            {c["name"]: (str(c["type"]), c["nullable"]) for c in found.get_columns(name)},
            sorted(found.get_pk_constraint(name)["constrained_columns"]),
            sorted((str(key["referred_table"]), *key["constrained_columns"])
                   for key in found.get_foreign_keys(name)),
            sorted((str(index["name"]), *index["column_names"])
                   for index in found.get_indexes(name)),
        )
        for name in found.get_table_names()
    }  # fmt: skip


def test_a_new_store_has_the_tables_that_migrations_make_of_the_oldest(tmp_path: Path) -> None:
    old = sa.create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with old.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.commit()
    new = Store.open(tmp_path / "new.db")
    assert tables_of(sa.create_engine(f"sqlite:///{new.path}")) == tables_of(old)
