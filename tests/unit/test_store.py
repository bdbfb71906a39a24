"""The store keeps what it was given, whole, and says what is wrong with it otherwise."""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces import _engine
from pgpaces.analysis.digest import digest
from pgpaces.analysis.summary import as_json, summarize
from pgpaces.cli.main import cli
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.core.record import Interval, StatementTally, Tally
from pgpaces.core.times import Times
from pgpaces.spec.result import Blocked, Observed, Trial, WaitEvent, Waits
from pgpaces.store.listing import ExperimentRow
from pgpaces.store.store import Store, new_id
from tests.errors import raises
from tests.unit import answered, trials
from tests.unit.trials import like
from tests.unit.upgraded import check_upgrade, check_upgrades_at_once


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
    return trials.trial(
        [],
        id=new_id(),
        state="running",
        started_at=started_at or datetime.now(UTC),
        plan={"rate": 1.0},
        workload={"name": "reporting"},
        measured_ns=None,
        intervals=(),
    )


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "results.db")


def test_a_store_of_version_1_is_upgraded_to_version_2(store, monkeypatch):
    begun = trial()
    store.begin(begun)
    store.add(begun.id, INTERVAL)
    store.finish(replace(begun, state="finished"), {})
    check_upgrade(store.path or "", begun.id, monkeypatch)


def test_many_may_upgrade_one_store_at_the_same_time(store):
    check_upgrades_at_once(store, store.path or "")


def test_many_may_make_one_store_at_the_same_time(tmp_path):
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


def test_the_first_readers_of_a_process_may_come_at_once(store):
    begun = trial()
    store.begin(begun)
    store.finish(replace(begun, state="finished"), {}, digest(begun))
    for _ in range(3):
        command = [sys.executable, "-c", READERS, str(store.path), begun.id]
        assert subprocess.run(command, check=False).returncode == 0


def test_observations_of_a_running_trial_replace_those_of_their_kind(store):
    store.begin(trial())
    id_ = trial().id
    waits = Waits(10, (WaitEvent("load", "CPU", "", 3),), b"\0")
    first, second = (Blocked("load", "Lock:tuple", "X", "a", "active", "", n, 0, n) for n in (1, 2))
    store.add(id_, None, observed=[Observed(blocked=(first,)), Observed("standby1")])
    store.add(id_, None, observed=[Observed(waits=waits)])
    store.add(id_, None, observed=[Observed(blocked=(second,))])
    assert store.observed(id_) == (Observed(blocked=(second,), waits=waits), Observed("standby1"))


def test_every_interval_is_synced_to_the_disk(store):
    begun = trial()
    store.begin(begun)
    store.add(begun.id, INTERVAL)
    other = sqlite3.connect(store.path)
    assert other.execute("SELECT count(*) FROM tally").fetchone() == (2,)
    with store._backend.reading() as connection:
        read = [connection.column(f"PRAGMA {name}") for name in ("synchronous", "journal_mode")]
    assert read == [[2], ["wal"]]


def test_a_running_trial_that_has_been_silent_was_interrupted(store):
    begun = trial()
    store.begin(begun)
    # A clock that was set back does not keep a dead trial running.
    for seconds, state in ((0, "running"), (-60, "interrupted"), (3600, "interrupted"),
                           (2, "running")):  # fmt: skip
        beat(store, datetime.now(UTC) + timedelta(seconds=seconds))
        assert Store.open(store.path).trials()[0].state == store.load(begun.id).state == state
    beat(store, datetime.now(UTC) - timedelta(minutes=1))
    store.beat(begun.id)
    assert store.trials()[0].state == "running"


def beat(store: Store, heartbeat: datetime) -> None:
    """Says when the trials last wrote."""
    with sqlite3.connect(store.path) as other:
        text = heartbeat.replace(tzinfo=None).isoformat(" ")
        other.execute("UPDATE trial SET heartbeat = ?", (text,))


def test_a_run_is_found_by_last_a_name_or_an_end_of_its_id(store):
    old = trial(datetime.now(UTC) - timedelta(hours=1))
    run = replace(trial(), id="01AAAAAAAAAAAAAAAAAAAAAAV2")
    for one in (old, run):
        store.begin(one)
    row = ExperimentRow("01BBBBBBBBBBBBBBBBBBBBBBV3", "v2", datetime.now(UTC), None, "running",
                        "0", {})  # fmt: skip
    store.begin_experiment(row)
    for name, found in {"last": run.id, old.id[-8:].lower(): old.id, run.id: run.id}.items():
        assert store.find(name) == store.find_any(name) == found
    # A whole name comes before a part of an id.
    assert [store.find_any(n) for n in ("v2", "av2", row.id.lower())] == [row.id, run.id, row.id]
    with raises(PlanError, "ambiguous-id", ids=[row.id, run.id, old.id]):
        store.find_any("0")
    with raises(PlanError, "ambiguous-id", ids=[run.id, old.id]):
        store.find("0")
    store.tag("v3", run.id)
    assert store.find_any("v3") == run.id
    with raises(PlanError, "not-in-store", what="run or experiment", name="v4"):
        store.find_any("v4")
    for name in ("nothing", "%"):
        with raises(PlanError, "not-in-store", what="run", name=name):
            store.find(name)


@pytest.mark.parametrize("place", [Store.open, Store.existing])
@pytest.mark.parametrize(
    "tables",
    [
        "CREATE TABLE mine (x)",
        "CREATE TABLE trial (id)",
        "CREATE TABLE pgpaces (version)",
        "CREATE TABLE pgpaces (version); INSERT INTO pgpaces VALUES ('1.0')",
    ],
)
def test_a_database_of_something_else_is_left_as_it_is(tmp_path, tables, place):
    path = tmp_path / "x.db"
    path.write_bytes(b"not a database at all, but long enough to look at" * 40)
    with raises(StoreError, "not-a-store", why="file is not a database"):
        place(path)
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.executescript(tables)
        before = list(other.iterdump())
    with raises(StoreError, "store-of-other-program", store=str(path)):
        place(path)
    with closing(sqlite3.connect(path)) as other:
        assert list(other.iterdump()) == before


def test_ids_sort_by_time_and_differ():
    ids = [new_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert all(len(found) == 26 for found in ids)
    assert [i[:10] for i in ids] == sorted(i[:10] for i in ids)


def tables_of(store: Store) -> list[Any]:
    """Tables, columns, and keys of a file, as SQLite understands them."""
    with store._backend.reading() as connection:
        tables = connection.column("SELECT name FROM sqlite_master WHERE type = 'table'")
        return [
            [name, kind, *connection.rows(f"PRAGMA {kind}({name})")]
            for name in sorted(tables)
            for kind in ("table_info", "foreign_key_list", "index_list")
        ]


def test_the_stored_trials_of_tests_have_the_tables_of_a_new_store(tmp_path):
    old, new = Store.existing(answered.unpacked(tmp_path)), Store.open(tmp_path / "new.db")
    assert tables_of(new) == tables_of(old)


SCRIPT = {"name": "one", "weight": 1, "commands": [[n, "SELECT 1", True] for n in range(3)]}
COLUMNS = {
    "trial": ("state", "started_at", "heartbeat", "spec", "setup", "measured_ns",
              "notes", "summary"),
    "interval": ("second", "cpu_ns", "in_flight_ns", "ended_ns", "connects", "messages",
                 "aborted", "dispatch_count", "dispatch_histogram"),
    "tally": ("second", "due_second", "script", "due", "on_time", "late", "failed",
              "latency_count", "latency_sum_ns", "latency_square_sum", "lag_max_ns",
              "service_histogram"),
    "statement": ("second", "script", "command", "failed", "times_count", "times_histogram"),
}  # fmt: skip
PLACES = [(table, column) for table, columns in COLUMNS.items() for column in columns]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The file of a store with one trial of one second."""
    store = Store.open(tmp_path_factory.mktemp("whole") / "results.db")
    begun = trial()
    begun = trials.changed(begun, workload=like(begun.workload, scripts=[SCRIPT, SCRIPT]))
    store.begin(begun)
    tally = Tally(4, 0, 3, on_time=3, latency=TIMES, lag=TIMES, service=TIMES)
    store.add(begun.id, replace(INTERVAL, tallies=(tally,)))
    with sqlite3.connect(store.path) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return store.path


@pytest.fixture
def stored(whole, tmp_path):
    return Store.open(Path(shutil.copy(whole, tmp_path / "results.db")))


def damage(store: Store, table: str, column: str, value: Any) -> None:
    with sqlite3.connect(store.path) as other:
        other.execute("PRAGMA synchronous = OFF")
        other.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))


def read(store: Store) -> str:
    """Reads all there is as the commands do; what is wrong with it."""
    try:
        for row in store.trials():
            if row.damage:
                return f"damaged: {row.damage}"
            json.dumps(as_json(summarize(store.load(row.id))))
    except StoreError as error:
        return str(error)
    return ""


def test_a_store_that_is_whole_is_read(stored):
    assert read(stored) == ""


SETUP = (
    '{"clients": 1, "imported": null, "workload": {"name": "x"}, '
    '"server": {"version": "18"}, "host": {}}'
)
DAMAGES: dict[str, tuple[str, str, Any, str]] = {
    "a second far away": ("tally", "due_second", 1_066_394_331, "too many seconds are missing"),
    "no JSON": ("trial", "spec", "{", "damaged"),
    "JSON of something else": ("trial", "spec", "[1]", "damaged"),
    "options that exclude each other": ("trial", "spec", '{"users": 1}', "--users"),
    "no clients": ("trial", "setup", "{}", "damaged"),
    "JSON without end": ("trial", "notes", "[" * 100_000, "damaged"),
    "no name": ("trial", "setup", SETUP.replace('"name"', '"n"'), "damaged"),
    "no scripts": ("trial", "setup", SETUP, "missing required field `scripts`"),
    "a date that is none": ("trial", "started_at", "yesterday", "damaged"),
    "an unknown state": ("trial", "state", "won", "its state is 'won'"),
    "a negative count": ("tally", "due", -1, "second 4: expected `int` >= 0 - at `$.due`"),
    "a text for a count": ("tally", "late", "many", "got `str` - at `$.late`"),
    "a script that is not there": ("tally", "script", 7, "script 7 does not exist"),
    "no histogram": ("tally", "lag_histogram", "x", "at `$.lag.histogram`"),
    "another count": ("tally", "lag_count", 9, "count of 9, but its histogram has a count of 3"),
    "half a histogram": ("interval", "dispatch_histogram", TIMES.histogram[:-1], "and says"),
    "another histogram": ("interval", "dispatch_histogram", histogram(1), "has a count of 1"),
    "a histogram of 4 GB": (
        "interval", "dispatch_histogram", TIMES.histogram[:4] + b"\xff" * 4, "too few",
    ),
    "infinite squares": ("tally", "lag_square_sum", float("inf"), "at `$.lag.square_sum`"),
    "messages that are no pairs": ("interval", "messages", "[false]", "at `$.messages[0]`"),
    "a message without a text": ("interval", "messages", '[["a"]]', "length 2, got 1"),
    "failures that are a list": ("tally", "failed", "[]", "got `array` - at `$.failed`"),
    "a missing interval": ("interval", "second", 5, "has counts but no interval"),
    "a command that is not there": ("statement", "command", 3, "command 3 does not exist"),
    "a summary that is none": ("trial", "summary", "[]", "damaged"),
    "a share of two": ("trial", "summary", '{"missed_share": [1, 2]}', "at `$.missed_share`"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(stored, name):
    table, column, value, words = DAMAGES[name]
    damage(stored, table, column, value)
    assert words in read(stored)


@pytest.mark.parametrize(
    "command", ["runs", "show last", "export last", "export last --format json"]
)
def test_the_commands_say_it_in_a_sentence(stored, command):
    damage(stored, "trial", "spec", "{")
    done = CliRunner().invoke(cli, [*command.split(), "--store", str(stored.path)])
    assert done.exception is None or done.exception.name == "store-damaged"
    assert "damaged" in (str(done.exception) + done.output)


ANYTHING = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=20).filter(lambda text: "\0" not in text),
    st.binary(max_size=60),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=6,
    ).map(json.dumps),
    st.integers(0, len(TIMES.histogram)).map(lambda end: TIMES.histogram[:end]),
)


@settings(max_examples=200, deadline=None)
@given(place=st.sampled_from(PLACES), value=ANYTHING)
def test_whatever_stands_in_a_row_there_is_no_traceback(whole, place, value):
    path = Path(shutil.copy(whole, whole.with_name("damaged.db")))
    store = Store.open(path)
    damage(store, *place, value)
    read(store)
    store.close()
    for left in path.parent.glob("damaged.db*"):
        left.unlink(missing_ok=True)
