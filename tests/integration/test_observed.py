"""What sensors see of real servers: counters, locks, sizes, statements, standbys, a death."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from tests.servers import access_to, postgres_15, standby_of
from tests.unit.sensors import collect, so_far
from tests.waiting import DEADLINE_S

from pgpaces.core.findings import Finding, finding
from pgpaces.database.access import Access, connect
from pgpaces.monitor.counters import GROUPS
from pgpaces.monitor.guard import guarding
from pgpaces.monitor.server import CounterReader, ServerMonitor

pytestmark = pytest.mark.postgres


@contextmanager
def looking(access: Access, dbname: str = "postgres", **more: Any) -> Iterator[ServerMonitor]:
    """A sensor that has begun."""
    with closing(ServerMonitor.of(access.keywords, dbname, **more)) as sensor:
        sensor.begin(time.monotonic())
        yield sensor


def until(true: Callable[[], object], sensor: ServerMonitor) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, (sensor.observed(), sensor.notes())
        time.sleep(0.05)


def seen(sensor: ServerMonitor, name: str, source: str = "") -> list[float]:
    return [s.value for s in so_far(sensor) if s.name == name and source in s.source]


def found_by(sensor: ServerMonitor) -> list[Finding]:
    return sensor.findings(collect(so_far(sensor)))


def until_names(sensor: ServerMonitor, names: set[str]) -> None:
    """Until a sample of each name is more than nothing."""
    until(lambda: names <= {s.name for s in so_far(sensor) if s.value > 0}, sensor)


def test_what_a_load_does_is_seen(access):
    with looking(access) as sensor:
        until_names(sensor, {"connected"})
        with connect(access) as session:
            session.execute("SET work_mem = '64kB'")
            session.execute("CREATE TEMP TABLE s AS SELECT i FROM generate_series(1, 50000) i")
            session.execute("CREATE TABLE sensed AS SELECT i FROM generate_series(1, 50000) i")
            session.execute("SELECT * FROM s ORDER BY i DESC")
            session.execute("DROP TABLE sensed")
            session.execute("CHECKPOINT")
            version = session.info.server_version
        until_names(
            sensor,
            {"temp_written", "temp_files", "cache_hit_ratio", "checkpoints", "requested", "commits",
             "inserted", "records"},
        )  # fmt: skip
        found = so_far(sensor)
        assert sensor.findings(collect(so_far(sensor)))
    # A busy machine is looked at less often, which is a note as well.
    notes = [note for note in sensor.notes() if note.name != "wait-sampling-slowed"]
    # No other-roles-hidden, because the role is a superuser.
    assert [note.name for note in notes] == ["io-timing-off", "statements-uncounted"]
    sources = {sample.source for sample in found}
    assert {"database", "wal", "checkpoints", "transactions", "tuples", "sessions"} <= sources
    assert ("io" in sources) == (version >= 160_000), "what a version has not is no note"
    assert all(s.value >= 0 for s in found)
    moved = {(m.source, m.name): m.value for m in sensor.observed().moved}
    assert moved["checkpoints", "requested"] >= 1
    assert moved["database", "deadlocks"] == 0
    if version >= 160_000:
        assert moved["io", "client_extended"] > 0


def test_every_counter_of_the_version_is_read(access):
    reader = CounterReader(access.keywords, "postgres")
    reading = reader.read()
    assert reader.notes == []
    assert all(isinstance(value, int) for value in reading.values.values())
    with connect(access) as session:
        version = session.info.server_version
    fitting = [group for group in GROUPS if group.query(version, {"track_io_timing": "off"})]
    assert set(reading.values) == {c for group in fitting for c in group.counters}
    assert len(reading.rows) == 3
    reader.snapshot.close()


def test_what_a_role_may_not_read_is_noted_and_the_rest_is_read(pg15):
    right = "EXECUTE ON FUNCTION pg_current_wal_insert_lsn()"
    with pg15.meanwhile(f"REVOKE {right} FROM PUBLIC", f"GRANT {right} TO PUBLIC"):
        reader = CounterReader(access_to(pg15, "u_trust").keywords, "postgres")
        reading = reader.read()
        names = {(counter.source, counter.name) for counter in reading.values}
        assert {("database", "blocks_hit"), ("wal", "records"), ("checkpoints", "written")} < names
        assert ("wal", "written") not in names
        assert {note.name for note in reader.notes} == {"reading-refused"}
        assert {note.values["what"] for note in reader.notes} == {"wal", "replication"}
        assert all("permission denied" in note.values["error"] for note in reader.notes)
        assert finding("other-roles-hidden") in reader.more
        reader.snapshot.close()


def test_a_server_that_is_not_there_is_a_note(pg15):
    with looking(access_to(pg15), "no_such_database") as sensor:
        until(sensor.notes, sensor)
        assert "no_such_database" in sensor.notes()[0].values["error"]
        assert so_far(sensor) == []


def test_a_session_that_broke_is_made_anew(pg15):
    reader = CounterReader(access_to(pg15).keywords, "postgres")
    reader.read()
    pg15.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'pgpaces sensor'"
    )
    with pytest.raises(psycopg.OperationalError):
        reader.read()
    assert reader.read().values
    reader.snapshot.close()


@contextmanager
def row_that_is_locked(access: Access) -> Iterator[psycopg.Connection[Any]]:
    """Three sessions want one row: one has it, one waits for it, one waits for its turn to wait."""
    with connect(access) as session:
        session.execute("DROP TABLE IF EXISTS locked")
        session.execute("CREATE TABLE locked AS SELECT 1 AS id, 0 AS value")
    words = {**access.keywords, "dbname": "postgres"}

    def want() -> None:
        with psycopg.connect(**words, application_name="pgpaces", autocommit=True) as session:
            session.execute("UPDATE locked SET value = value + 1 WHERE id = 1")

    with psycopg.connect(**words, application_name="holder") as holder:
        holder.execute("UPDATE locked SET value = 7 /* the blocker */ WHERE id = 1")
        waiting = [threading.Thread(target=want, daemon=True) for _ in range(2)]
        for thread in waiting:
            thread.start()
        yield holder
        holder.rollback()
        for thread in waiting:
            thread.join(DEADLINE_S)
    with connect(access) as session:
        session.execute("DROP TABLE locked")


def test_who_waits_for_a_row_is_seen_with_who_has_it(access):
    with looking(access) as sensor, row_that_is_locked(access):
        until(lambda: len(sensor.observed().blocked) >= 2, sensor)
        # On a busy machine there are few looks, and each sees what there is at that moment.
        for event in ("Lock:transactionid", "Lock:tuple"):
            until(lambda event=event: seen(sensor, event, "waits"), sensor)
    events = {(e.who, e.kind, e.event): e.sessions for e in sensor.observed().waits.events}
    assert events["load", "Lock", "transactionid"] > 0
    assert events["load", "Lock", "tuple"] > 0
    [pair] = [one for one in sensor.observed().blocked if one.blocking == "holder"]
    assert (pair.waiting, pair.event, pair.mode) == ("load", "Lock:transactionid", "ShareLock")
    assert pair.state == "idle in transaction"
    assert pair.statement.startswith("UPDATE locked SET value = 7 /* the blocker */")
    assert {one.blocking for one in sensor.observed().blocked} == {"holder", "load"}


def test_sessions_of_others_and_our_own_are_told_from_the_load(access):
    """The holder computes; the sensor's own sessions are in none of it."""
    words = {**access.keywords, "dbname": "postgres", "application_name": "somebody"}
    with looking(access) as sensor, psycopg.connect(**words) as session:
        until(lambda: sensor.observed().waits.looks >= 3, sensor)
        until(lambda: session.execute("SELECT pg_sleep(0.3)") and seen(sensor, name), sensor)
    assert {e.who for e in sensor.observed().waits.events} == {"others"}


name = "others Timeout:PgSleep"


def test_a_load_is_recognized_by_a_name_that_its_server_changes(access):
    application = "l\u00f6ad " + 80 * "x"
    words = {**access.keywords, "dbname": "postgres", "application_name": application}
    with (
        looking(access, application=application) as sensor,
        guarding({**access.keywords, "dbname": "postgres"}, application, lambda: None),
        psycopg.connect(**words) as session,
    ):
        until(lambda: sensor.observed().waits.looks >= 3, sensor)
        until(
            lambda: session.execute("SELECT pg_sleep(0.3)") and seen(sensor, "Timeout:PgSleep"),
            sensor,
        )
    assert {e.who for e in sensor.observed().waits.events} == {"load"}


def test_a_role_without_rights_is_told_once_what_would_show_more(pg15):
    with looking(access_to(pg15, "u_trust")) as sensor, row_that_is_locked(access_to(pg15)):
        until(lambda: so_far(sensor) and sensor.observed().waits.looks > 5, sensor)
    notes = sensor.notes()
    assert finding("other-roles-hidden") in notes
    assert "reading-refused" not in {note.name for note in notes}
    assert sensor.observed().waits.events == (), "others are hidden, and so not counted as idle"
    assert [moved for moved in sensor.observed().moved if moved.source == "transactions"]


def test_what_an_insert_script_grows_is_seen(access):
    long = "(SELECT string_agg(md5(i::text || n), '') FROM generate_series(1, 200) n)"
    rows = f"SELECT i, CASE WHEN i <= 50 THEN {long} END FROM generate_series(1, 20000) i"
    with connect(access) as session:
        session.execute("CREATE TABLE grows (id int PRIMARY KEY, text text)")
    with looking(access) as sensor:
        until(lambda: so_far(sensor), sensor)
        with connect(access) as session:
            session.execute(f"INSERT INTO grows {rows}".encode())
            session.execute("DELETE FROM grows WHERE id > 19000")
            # What a session has counted is known to others later, unless it says so.
            session.execute("SELECT pg_stat_force_next_flush()")
    with connect(access) as session:
        session.execute("DROP TABLE grows")
    found = {one.name: one for one in sensor.observed().grown}
    table, index = found["public.grows"], found["public.grows_pkey"]
    assert (table.kind, index.kind) == ("table", "index")
    assert table.before_bytes <= 16384, "with its empty TOAST"
    assert table.after_bytes > 700_000 + 50 * 6000, "the TOAST counts"
    assert index.after_bytes > index.before_bytes
    assert table.dead_after == 1000


def test_settings_that_another_session_changes_are_a_warning(primary):
    access = access_to(primary)
    with looking(access) as sensor, connect(access) as session:
        until(lambda: so_far(sensor), sensor)
        session.execute("ALTER SYSTEM SET enable_indexscan = off")
        session.execute("SELECT pg_reload_conf()")
        until(lambda: primary.execute("SHOW enable_indexscan") == [("off",)], sensor)
    with connect(access) as session:
        session.execute("ALTER SYSTEM RESET enable_indexscan")
        session.execute("SELECT pg_reload_conf()")
    changed = finding("settings-changed", changes=["enable_indexscan on -> off"])
    assert [each for each in found_by(sensor) if each.severity == "caution"] == [changed]


@pytest.fixture(scope="module")
def primary(certificates):
    """A server that counts statements and I/O times, and lets standbys in."""
    settings = {"shared_preload_libraries": "pg_stat_statements", "track_io_timing": "on"}
    for server in postgres_15("pgpaces-primary-", certificates, settings):
        server.execute("CREATE EXTENSION pg_stat_statements SCHEMA public")
        yield server


def test_statements_are_counted_where_the_extension_is(primary):
    access = access_to(primary)
    with looking(access) as sensor, primary.connect() as session:
        until(lambda: so_far(sensor), sensor)
        for number in range(30):
            session.execute(f"SELECT count(*) FROM generate_series(1, {number + 1000})".encode())
    found = {one.text: one for one in sensor.observed().executed}
    [text] = [text for text in found if text.startswith("SELECT count(*) FROM generate_series")]
    assert (found[text].calls, found[text].load) == (30, True)
    assert found[text].total_ms > 0
    assert not [text for text in found if "pgpaces sensor" in text], "our own are not the load's"
    more = {"io-timing-off", "statements-uncounted", "other-roles-hidden"}
    assert not more & {note.name for note in sensor.notes()}


def test_a_server_that_is_killed_is_a_gap_and_is_seen_again(primary):
    with looking(access_to(primary)) as sensor:
        until(lambda: seen(sensor, "connected"), sensor)
        before = sensor.observed().waits.looks
        primary.restart()
        until(lambda: sensor.observed().waits.looks > before + 5, sensor)
        until(lambda: len(seen(sensor, "connected")) > 2, sensor)
    assert "monitor-unanswered" in {note.name for note in sensor.notes()}


@pytest.fixture(scope="module")
def standby(primary):
    with standby_of(primary) as replica:
        yield replica


def test_a_standby_s_lag_is_seen_from_both_ends_and_its_end_is_found(primary, standby):
    with (
        looking(access_to(primary)) as sensor,
        looking(access_to(standby), node="standby1") as other,
    ):
        # Of a standby that has replayed no transaction yet nobody knows when its last one was.
        primary.execute("CREATE TABLE first_of_all ()")
        until(lambda: 0.0 in seen(other, "replay_delay", "standby1/replication"), other)
        standby.wait_until("SELECT to_regclass('first_of_all') IS NOT NULL")
        standby.execute("SELECT pg_wal_replay_pause()")
        primary.execute("CREATE TABLE filled AS SELECT i FROM generate_series(1, 50000) i")
        until(lambda: max(seen(sensor, "standby1 replay_lag"), default=0) > 1e6, sensor)
        until(lambda: max(seen(other, "replay_delay"), default=0) > 0, other)
        standby.execute("SELECT pg_wal_replay_resume()")
        # The known trap: nothing is written any more, and the last transaction gets older.
        until(lambda: seen(other, "replay_delay")[-1] == 0, other)
        standby.program("pg_ctl", "-m", "immediate", "stop")
        until(
            lambda: any(each.name == "standby-lost" for each in found_by(sensor)),
            sensor,
        )
    about = [each.name for each in found_by(sensor) if each.about == "standby1"]
    assert [name for name in about if name != "standby-delay"] == ["standby-lag", "standby-lost"]
    assert {s.source.partition("/")[0] for s in so_far(other)} == {"standby1"}
    assert other.observed().node == "standby1"
    assert {note.about for note in other.notes()} == {"standby1"}
