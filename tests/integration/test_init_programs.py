"""Programs that make data, on a real server."""

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Command
from tests.errors import raises
from tests.processes import alive
from tests.servers import PASSWORD, Postgres, access_to
from tests.waiting import until

from pgpaces.core.errors import PgpacesError
from pgpaces.database import data
from pgpaces.database.access import connect
from pgpaces.database.data import DatasetSpec
from pgpaces.spec import workload as workloads

pytestmark = pytest.mark.postgres

LOAD = """run = "psql -Xqc '\\\\copy t from rows.csv'; echo >> seen", input = ["rows.csv"]"""


@pytest.fixture(autouse=True)
def _home_and_nothing_left(pgpaces_home, monkeypatch, pg15):
    monkeypatch.setenv("PGPACES_HOME", str(pgpaces_home))
    yield
    ours = "FROM pg_database WHERE datname LIKE 'pgpaces_made_by_programs_%'"
    for (name,) in pg15.execute(f"SELECT datname {ours}"):
        pg15.execute(f'DROP DATABASE "{name}"')


def folder(tmp_path: Path, program: str) -> Path:
    made = tmp_path / "made-by-programs"
    made.mkdir()
    (made / "table.sql").write_text("CREATE TABLE t (x int);")
    (made / "read.sql").write_text("SELECT 1 / count(*) FROM t;")
    (made / "rows.csv").write_text("1\n2\n")
    (made / "workload.toml").write_text(
        f'description = "d"\nwrites = false\ninit = ["table.sql", {{ {program} }}]\n'
        '[[scripts]]\nfile = "read.sql"\n[variables]\nhot = 5\n'
    )
    return made


def prepare(made: Path, server: Postgres, user: str = "postgres", **more: Any) -> tuple[bool, int]:
    """Whether it was made now, and how many rows are there."""
    variables = {"hot": "5", "cold": "6", **more.pop("variables", {})}
    spec = DatasetSpec(workloads.read(made), 1, 1, variables=variables)
    access = access_to(server, user, **more)
    with data.prepare(access, spec, lambda text: None) as prepared:
        with connect(access, prepared.dbname) as session:
            rows = session.execute("SELECT count(*) FROM t").fetchone()
        return prepared.created, int(rows[0]) if rows else 0


def test_data_made_by_a_program_is_used_again_until_what_it_reads_changes(tmp_path, pg15):
    made = folder(tmp_path, LOAD)
    found = []
    for rows in ("1\n2\n", "1\n2\n", "1\n3\n", "1\n"):
        (made / "rows.csv").write_text(rows)
        found.append(prepare(made, pg15))
    assert found == [(True, 2), (False, 2), (True, 2), (True, 1)]
    assert len((made / "seen").read_text()) == 3


def test_a_program_is_told_what_it_names_and_no_password(tmp_path, pg15):
    script = "env > seen; tr '\\\\0' ' ' < /proc/$$/cmdline >> seen; echo $PGPACES_HOT >> seen"
    made = folder(tmp_path, f"run = \"{script}; psql -Xqc 'insert into t values (1)'\"")
    with pg15.meanwhile("ALTER ROLE u_scram CREATEDB", "ALTER ROLE u_scram NOCREATEDB"):
        way = {"host": "127.0.0.1", "password": PASSWORD}
        assert prepare(made, pg15, "u_scram", **way) == (True, 1)
    seen = (made / "seen").read_text()
    assert PASSWORD not in seen
    assert seen.endswith(" 5\n")
    assert "PGPACES_COLD" not in seen
    for line in ("PGPACES_SCALE=1", "PGPACES_SEED=1", "PGDATABASE=pgpaces_made_by_programs_"):
        assert line in seen


@pytest.mark.parametrize(
    ("program", "name", "values"),
    [
        ('run = "echo so >&2; exit 3"', "data-failed", {"step": "echo", "why": "exit 3\nso"}),
        ('run = ["nowhere-at-all"]', "program-not-found", {"program": "nowhere-at-all"}),
        ('run = ["true", "{hott}"]', "unknown-command-value", {"value": "{hott}"}),
    ],
)
def test_a_program_that_makes_no_data_leaves_no_database(tmp_path, pg15, program, name, values):
    with raises(PgpacesError, name, **values):
        prepare(folder(tmp_path, program), pg15)
    left = pg15.execute("SELECT shobj_description(oid, 'pg_database') FROM pg_database")
    assert not [each for (each,) in left if each and "preparing" in each]


@pytest.mark.parametrize(
    ("error", "name"),
    [("No space left on device", "data-disk-full"), ("nope", "data-failed")],
)
def test_sql_that_fails_has_a_hint_of_its_reason(tmp_path, pg15, error, name):
    folder_ = folder(tmp_path, 'run = "true"')
    (folder_ / "table.sql").write_text(f"DO $$ BEGIN RAISE '{error}'; END $$;")
    with raises(PgpacesError, name, step="table.sql") as raised:
        prepare(folder_, pg15)
    assert "table.sql:1" in raised.value.values["why"]
    assert error in raised.value.values["why"]


def test_a_program_ends_with_us(pgpaces_home, tmp_path, pg15):
    pid = tmp_path / "pid"
    made = folder(tmp_path, f'run = "echo $$ > {pid}; sleep 60"')
    pgpaces = Command(pgpaces_home, tmp_path / "results.db")
    ours = pgpaces.start("run", made, "--trust", "--target", pg15.dsn("postgres"))
    until(lambda: pid.exists() and pid.read_text() != "", "it runs")
    ours.kill()
    ours.wait()
    until(lambda: not alive(int(pid.read_text())), "it has ended")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_sql_that_makes_data_is_canceled_on_the_server_when_pgpaces_ends(
    pgpaces_home, tmp_path, pg15, how
):
    made = folder(tmp_path, 'run = "true"')
    (made / "table.sql").write_text("SELECT pg_sleep(611);")
    pgpaces = Command(pgpaces_home, tmp_path / "results.db")
    ours = pgpaces.start("run", made, "--trust", "--target", pg15.dsn("postgres"))
    runs = (
        "SELECT count(*) = {} FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(611)%'"
        " AND state = 'active'"
    )
    pg15.wait_until(runs.format(1))
    ours.send_signal(how)
    ours.wait()
    pg15.wait_until(runs.format(0))
