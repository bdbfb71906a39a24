"""The store keeps what it was given, whole, and says what is wrong with it otherwise."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from pgpaces.core.errors import PlanError, StoreError, StoreVersionError
from pgpaces.spec.result import Blocked, Finding, Observed, WaitEvent, Waits
from pgpaces.store import digests
from pgpaces.store.experiments import ExperimentRow
from pgpaces.store.store import Store, new_id
from tests.unit import answered
from tests.unit.full_second import INTERVAL, trial
from tests.unit.upgraded import check_upgrade, check_upgrades_at_once


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


def test_a_store_of_version_1_is_upgraded_to_version_2(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = trial()
    store.begin(begun)
    store.add(begun.id, INTERVAL)
    store.finish(replace(begun, state="finished"), {})
    check_upgrade(store.path or "", begun.id, monkeypatch)


def test_many_may_upgrade_one_store_at_the_same_time(store: Store) -> None:
    check_upgrades_at_once(store, store.path or "")


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


def test_a_store_of_an_older_layout_is_refused(store: Store) -> None:
    with sqlite3.connect(store.path) as other:
        other.execute("CREATE TABLE alembic_version (version_num)")
        other.execute("DROP TABLE pgpaces")
    with pytest.raises(StoreVersionError, match="written by an older pgpaces") as refused:
        Store.existing(store.path)
    assert "--store" in (refused.value.hint or "")


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to look at" * 40])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a store"):
        Store.open(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("place", [Store.open, Store.existing])
@pytest.mark.parametrize(
    "tables",
    [
        "CREATE TABLE mine (x)",
        "CREATE TABLE alembic_version (version_num); CREATE TABLE trial (id)",
        "CREATE TABLE pgpaces (version)",
        "CREATE TABLE pgpaces (version); INSERT INTO pgpaces VALUES ('1.0')",
    ],
)
def test_a_database_of_something_else_is_left_as_it_is(
    tmp_path: Path, tables: str, place: Callable[[Path], Store]
) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as other:
        other.executescript(tables)
        before = list(other.iterdump())
    with pytest.raises(StoreError, match="another program"):
        place(path)
    with closing(sqlite3.connect(path)) as other:
        assert list(other.iterdump()) == before


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


def test_the_stored_trials_of_tests_have_the_tables_of_a_new_store(tmp_path: Path) -> None:
    old, new = Store.existing(answered.unpacked(tmp_path)), Store.open(tmp_path / "new.db")
    assert tables_of(new._backend.engine) == tables_of(old._backend.engine)
