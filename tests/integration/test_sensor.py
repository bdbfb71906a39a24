"""The sensor beside real servers, old and new."""

from __future__ import annotations

import time

import pytest
from tests.servers import Postgres, access_to
from tests.unit.sensors import collect, so_far

from pgpaces.database.access import Access, connect
from pgpaces.monitor.counters import PARTS
from pgpaces.monitor.server import CounterReader, Sensor, sensing

pytestmark = pytest.mark.postgres


def until_names(sensor: Sensor, names: set[str]) -> None:
    """Until a sample of each name is more than nothing."""
    deadline = time.monotonic() + 60
    while not names <= {s.name for s in so_far(sensor) if s.value > 0}:
        assert time.monotonic() < deadline, so_far(sensor)
        time.sleep(0.05)


def test_what_a_load_does_is_seen(access: Access) -> None:
    with sensing(access.keywords, "postgres") as sensor:
        sensor.begin(time.monotonic())
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
    [more, cost] = [note for note in sensor.notes() if "looking at wait events" not in note]
    assert "track_io_timing" in more
    assert "pg_stat_statements" in more
    assert "pg_read_all_stats" not in more, "a superuser has it"
    assert cost.endswith("% on the server")
    sources = {sample.source for sample in found}
    assert {"database", "wal", "checkpoints", "transactions", "tuples", "sessions"} <= sources
    assert ("io" in sources) == (version >= 160_000), "what a version has not is no note"
    assert all(s.value >= 0 for s in found)
    moved = {(m.source, m.name): m.value for m in sensor.observed().moved}
    assert moved["checkpoints", "requested"] >= 1
    assert moved["database", "deadlocks"] == 0
    if version >= 160_000:
        assert moved["io", "client_extended"] > 0


def test_every_counter_of_the_version_is_read(access: Access) -> None:
    reader = CounterReader(access.keywords, "postgres")
    reading = reader.read()
    assert reader.notes == {}
    assert all(isinstance(value, int) for value in reading.values.values())
    with connect(access) as session:
        version = session.info.server_version
    fitting = [part for part in PARTS if part.fits(version, {"track_io_timing": "off"})]
    assert set(reading.values) == {c for part in fitting for c in part.counters}
    assert len(reading.rows) == 3
    reader.close()


def test_what_a_role_may_not_read_is_noted_and_the_rest_is_read(pg15: Postgres) -> None:
    pg15.execute("REVOKE EXECUTE ON FUNCTION pg_current_wal_insert_lsn() FROM PUBLIC")
    try:
        reader = CounterReader(access_to(pg15, "u_trust").keywords, "postgres")
        reading = reader.read()
        names = {(counter.source, counter.name) for counter in reading.values}
        assert {("database", "blocks_hit"), ("wal", "records"), ("checkpoints", "written")} < names
        assert ("wal", "written") not in names
        assert {note.split(": permission denied")[0] for note in reader.notes} == {
            "sensor: no wal", "sensor: no replication",
        }  # fmt: skip
        [more] = [each for each in reader.more if "pg_read_all_stats" in each]
        assert more.startswith("GRANT")
        reader.close()
    finally:
        pg15.execute("GRANT EXECUTE ON FUNCTION pg_current_wal_insert_lsn() TO PUBLIC")


def test_a_server_that_is_not_there_is_a_note(pg15: Postgres) -> None:
    with sensing(access_to(pg15).keywords, "no_such_database") as sensor:
        sensor.begin(time.monotonic())
        deadline = time.monotonic() + 60
        while not sensor.notes():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "no_such_database" in sensor.notes()[0]
        assert so_far(sensor) == []


def test_a_session_that_broke_is_made_anew(pg15: Postgres) -> None:
    import psycopg

    reader = CounterReader(access_to(pg15).keywords, "postgres")
    reader.read()
    pg15.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'pgpaces sensor'"
    )
    with pytest.raises(psycopg.OperationalError):
        reader.read()
    assert reader.read().values
    reader.close()
