"""The shipped workloads on real servers: their data, and the plans that they are meant to have."""

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.servers import access_to

import pgpaces
from pgpaces.core.units import SEED_MAX
from pgpaces.database import programs, psql
from pgpaces.database.access import Access, connect
from pgpaces.spec import workload

pytestmark = pytest.mark.postgres

LOG, NEWEST = "ux_sensor_log_reading_date_sensor_id", "ux_sensor_log_sensor_id_reading_date"
ACCOUNT = ("Index Scan using pgbench_accounts_pkey on pgbench_accounts",)
BIG_TEXT = ("Insert on big_text", *("using big_text_pkey on big_text",) * 3)
# For each statement that can be explained alone the way to its rows.
WAYS = {
    "sensor/triggers": ("using sensor_pkey on sensor", "using sensor_pkey on sensor", LOG),
    "sensor/log": (f"Index Scan using {NEWEST}", "Insert on sensor_log", f"Scan using {NEWEST}"),
    "garden": ("using ix_planting_gardener_id_sown", "using ux_destination_gardener_id_name"),
    "bigtext": BIG_TEXT,
    "bigtext/external": BIG_TEXT,
    "select-only": ACCOUNT,
    "simple-update": (*ACCOUNT * 2, "Insert on pgbench_history"),
    "tpcb-like": (
        *ACCOUNT * 2,
        "Update on pgbench_tellers",
        "Update on pgbench_branches",
        "Insert on pgbench_history",
    ),
}
# Read as a whole, because they have a page or less of what is asked for.
SMALL = {"garden": {"kind"}, "tpcb-like": {"pgbench_tellers", "pgbench_branches"}}
SEEDED = (
    "garden", "bigtext", "bigtext/external", "sensor/triggers", "sensor/log", "reporting",
)  # fmt: skip


@pytest.mark.parametrize(
    "access", ["18", pytest.param("15", marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.parametrize("name", WAYS)
def test_each_statement_finds_its_rows_by_the_index_that_is_there_for_it(access, tmp_path, name):
    found = pgpaces.run(
        name,
        target=" ".join(f"{word}={value}" for word, value in access.keywords.items()),
        scale=1,
        transactions=600,
        warmup=0,
        clients=2,
        # Prepared, every parameter must have a type that can be told.
        protocol="prepared",
        store=tmp_path / "r.db",
    )
    assert found.counts.failed == 0
    assert found.counts.due == 1200
    plans = [each.summary for each in found.trial.explained]
    assert len(plans) == len(WAYS[name])
    for plan, way in zip(plans, WAYS[name], strict=True):
        assert way in plan
        assert set(re.findall(r"Seq Scan on (\w+)", plan)) <= SMALL.get(name, set())


@pytest.mark.parametrize("name", SEEDED)
def test_data_is_that_of_its_seed_on_every_server(pg18, request, name):
    pg15 = access_to(request.getfixturevalue("pg15"))
    # The last one at which a hundredfold of it is an integer of 32 bits is 21474836.
    with made(pg15, name, seed=21_474_837) as there, made(pg18, name, seed=21_474_837) as here:
        assert (first := checksums(here)) == checksums(there)
    assert {table for table, found in first.items() if found is None} <= {"sensor_log"}
    with made(pg18, name, seed=SEED_MAX) as another:
        assert checksums(another) != first


def test_a_plant_of_the_garden_is_inserted_by_keys_and_only_within_one_garden(access):
    insert = "SELECT ui.insert_plant(%s, %s, '2017-05-01', 'This is a note', 'Text field')"
    with made(access, "garden", seed=1) as session:
        with session.transaction():
            assert session.execute(insert, (4000, 1000)).fetchone() == (40_001,)
            scanned = session.execute(
                "SELECT relname, seq_scan, idx_scan FROM pg_stat_xact_user_tables"
                " WHERE relname IN ('planting', 'destination') ORDER BY relname"
            ).fetchall()
        # Once to find it, once for the foreign key.
        assert scanned == [("destination", 0, 2), ("planting", 0, 2)]
        with pytest.raises(psycopg.errors.ForeignKeyViolation, match="not of one garden"):
            session.execute(insert, (1, 11))
        for listing, size in (("get_plantings_listing", 40), ("get_plant_destinations", 10)):
            rows = session.execute(f"SELECT * FROM ui.{listing}()").fetchall()
            assert sorted(row[0] for row in rows) == [*range(1, size + 1)]
            others = session.execute(f"SELECT * FROM ui.{listing}(2)").fetchall()
            assert sorted(row[0] for row in others) == [*range(size + 1, 2 * size + 1)]


def test_what_long_texts_take_is_what_the_variant_is_about(pg18):
    sizes = {}
    for name in ("bigtext/default", "bigtext/external"):
        with made(pg18, name, seed=1) as session:
            [row] = session.execute(
                "SELECT min(length(body)), max(length(body)),"
                " max(pg_column_size(body)) FILTER (WHERE length(body) > 2000),"
                " min(pg_column_size(body)) FILTER (WHERE length(body) <= 2000)"
                " FROM big_text"
            ).fetchall()
        shortest, longest, *sizes[name] = row
        assert (shortest, longest) == (56 * 32, 80 * 32)
    long, short = sizes["bigtext/default"]
    assert long < 100, "compressed"
    assert short > 1700, "as it is"
    assert sizes["bigtext/external"] == [80 * 32, short]


@contextmanager
def made(access: Access, name: str, seed: int) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A database with the data of a workload at scale 1, for as long as it is looked at."""
    dbname = f"made_{uuid.uuid4().hex}"
    with connect(access, "postgres") as admin:
        admin.execute(f"CREATE DATABASE {dbname}")
        try:
            way = psql.ClientProgram(access.psql, access.keywords, dbname)
            variables = {"scale": "1", "seed": str(seed)}
            programs.make_data(way, workload.find(name), variables, say=lambda _: None)
            with psycopg.connect(
                **{**access.keywords, "dbname": dbname}, autocommit=True
            ) as session:
                session.execute("SET timezone = 'UTC'")
                yield session
        finally:
            admin.execute(f"DROP DATABASE {dbname}")


def checksums(session: psycopg.Connection[tuple[object, ...]]) -> dict[str, object]:
    """A sum over the rows of each table of ours, in whatever order they are; None of no rows."""
    tables = session.execute(
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE relkind = 'r' AND nspname !~ '^(pg_|information_schema)'"
    ).fetchall()
    found = {}
    for (table,) in tables:
        query = f"SELECT sum(hashtextextended(t::text, 0)::numeric) FROM {table} t"
        [found[str(table)]] = session.execute(query).fetchone()  # type: ignore[misc,arg-type]
    return found
