"""A rehearsal is killed or stopped: no transaction stays open, and no copy stays for good."""

import signal

import pytest
from tests.servers import access_to, quoted
from tests.waiting import until

from pgpaces.database.access import connect
from pgpaces.database.migration import APPLICATION, HOLDER

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
# What a session of the rehearsal does when its program is killed, and how to see that.
MOMENTS = {
    "copying": "query LIKE 'CREATE DATABASE%'",
    "before the migration": "application_name = 'pgpaces' AND query LIKE 'UPDATE%'",
    "in the migration": f"application_name = '{APPLICATION}' AND query LIKE '%pg_sleep%'",
    "behind the open transaction": f"application_name = '{HOLDER}' AND state LIKE 'idle in%'",
}
OURS = "SELECT datname FROM pg_database WHERE datname LIKE 'pgpaces%'"
OPEN = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgpaces%'"


@pytest.fixture
def rehearsing(pg15, pgpaces, tmp_path):
    """Starts a rehearsal whose migration takes 30 s."""
    pg15.execute("CREATE DATABASE shop")
    access = access_to(pg15)
    with connect(access, "shop") as session:
        session.execute("CREATE TABLE orders AS SELECT i, 0 AS n FROM generate_series(1, 300000) i")
    script, sql = tmp_path / "load.sql", tmp_path / "m.sql"
    script.write_text("UPDATE orders SET n = 1 WHERE i = 7;\n")
    sql.write_text("BEGIN; LOCK TABLE orders; SELECT pg_sleep(30); COMMIT")

    def start(*options):
        load = ("-f", script, "--rate", "50", "-c", "4", "-L", "100ms", "--no-guard")
        where = ("--target", quoted(access.keywords), "--from-database", "shop")
        return pgpaces.start("rehearse", sql, *load, *where, "--no-safer", *options)

    yield start
    with connect(access) as admin:
        for (name,) in admin.execute(f"{OURS} OR datname = 'shop'".encode()).fetchall():
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_stays_open_and_the_next_rehearsal_drops_what_stayed(
    rehearsing, pg15, moment, number
):
    process = rehearsing("--open-transaction", "20s")
    try:
        seen = f"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE {MOMENTS[moment]})"
        until(lambda: pg15.execute(seen)[0][0], moment)
        process.send_signal(number)
        until(lambda: pg15.execute(f"{OPEN} AND state LIKE '%in transaction%'")[0][0] == 0)
        process.wait(60)
        until(lambda: pg15.execute(OPEN)[0][0] == 0, "its sessions end")
        if number == signal.SIGKILL:
            process = rehearsing("--open-transaction", "0", "--timeout", "1s")
            assert process.wait(120) == 32, process.communicate()
        assert pg15.execute(OURS) == []
    finally:
        process.kill()
