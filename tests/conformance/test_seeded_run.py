"""A seeded run of one client leaves the same data behind as pgbench's."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from tests.needs import PG15_BIN
from tests.servers import Postgres

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("pgpaces_home")]

TABLES = {
    "pgbench_accounts": "aid, bid, abalance, filler",
    "pgbench_branches": "bid, bbalance, filler",
    "pgbench_tellers": "tid, bid, tbalance, filler",
    "pgbench_history": "tid, bid, aid, delta, filler",  # mtime is the time of day
}


def content(server: Postgres) -> dict[str, tuple[object, ...]]:
    """Number of each table's rows, and the sum of their hashes, whatever their order."""
    found = {}
    for table, columns in TABLES.items():
        query = (
            "SELECT count(*), sum(hashtextextended(r::text, 0))"
            f" FROM (SELECT {columns} FROM {table}) r"
        )
        with server.connect() as connection:
            connection.execute("SET search_path = seeded")
            [found[table]] = connection.execute(query).fetchall()
    return found


def run(program: list[str | Path], *words: object) -> None:
    done = subprocess.run([*program, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def server(pg15, monkeypatch):
    """pg15 with a schema of its own for the tables, which both programs see."""
    pg15.execute("CREATE SCHEMA IF NOT EXISTS seeded")
    monkeypatch.setenv("PGHOST", str(pg15.folder))
    monkeypatch.setenv("PGPORT", str(pg15.port))
    monkeypatch.setenv("PGUSER", "postgres")
    monkeypatch.setenv("PGDATABASE", "postgres")
    monkeypatch.setenv("PGOPTIONS", "-c search_path=seeded")
    return pg15


# Every protocol and every script in `make test`, each pair of them in the slow tests.
OFTEN = {("simple", "tpcb-like"), ("extended", "simple-update"), ("prepared", "tpcb-like")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "script"),
    [
        pytest.param(*pair, marks=() if pair in OFTEN else pytest.mark.slow)
        for pair in product(("simple", "extended", "prepared"), ("tpcb-like", "simple-update"))
    ],
)
def test_a_seeded_run_leaves_the_tables_as_pgbench_leaves_them(server, protocol, script):
    theirs: list[str | Path] = [PG15_BIN / "pgbench"]
    ours: list[str | Path] = [sys.executable, "-m", "pgpaces", "pgbench"]
    left = []
    for program in (theirs, ours):
        run(theirs, "-i", "-q", "-s", 2)
        run(program, "-n", "-c", 1, "-t", 300, "-M", protocol, "--random-seed=42", "-b", script)
        left.append(content(server))
    assert left[0]["pgbench_history"][0] == 300
    run(theirs, "-i", "-I", "g", "-s", 2)
    assert content(server)["pgbench_accounts"] != left[0]["pgbench_accounts"], "accounts changed"
    assert left[1] == left[0]
