"""A kill switch on a server that others use: it stops a load that holds them up, and no other."""

from __future__ import annotations

import contextlib
import threading

import psycopg
import pytest

import pgpaces as pgpaces_api
from pgpaces.cli.run import KILLED_EXIT

pytestmark = pytest.mark.postgres
HOLD = "BEGIN;\nLOCK TABLE shared IN ACCESS EXCLUSIVE MODE;\nSELECT pg_sleep(600);\nEND;\n"


@pytest.fixture
def neighbour(pg15):
    """Somebody else who reads a table all the time."""
    pg15.execute("CREATE TABLE shared AS SELECT 1 AS x")
    pg15.execute("GRANT ALL ON shared TO PUBLIC")
    ended = threading.Event()

    def read() -> None:
        with contextlib.suppress(psycopg.Error), pg15.connect() as session:
            while not ended.is_set():
                session.execute("SELECT x, pg_sleep(0.02) FROM shared")

    thread = threading.Thread(target=read)
    thread.start()
    yield
    ended.set()
    thread.join()
    pg15.execute("DROP TABLE shared")


@pytest.mark.usefixtures("neighbour")
def test_a_load_that_holds_others_up_is_stopped_and_says_why(pgpaces, pg15, tmp_path):
    script = tmp_path / "hold.sql"
    script.write_text(HOLD)
    words = ("run", "-f", script, "-c", "1", "-T", "10min", "--warmup", "0")
    target = ("--target", pg15.dsn("postgres"), "--grace", "1s")
    ended = pgpaces(*words, *target, "--kill-switch", "4")
    assert ended.code == KILLED_EXIT, ended.err
    said = "kill switch: other sessions' statements took "
    assert said in ended.err
    shown = " ".join(pgpaces("show").out.split())
    assert said in shown
    assert "kill switch: before the load, other sessions' statements" in shown
    stored = pgpaces("show", "last", "--json").json()
    assert stored["state"] == "interrupted"
    assert stored["plan"]["kill_switch"] == 4
    assert stored["counts"]["unfinished"] == stored["counts"]["due"] == 1


@pytest.mark.usefixtures("neighbour")
def test_a_load_that_hurts_nobody_runs_to_its_end(pg15, tmp_path):
    result = pgpaces_api.run(
        "select-only", rate=5, duration=3, warmup=0, scale=1, target=pg15.dsn("postgres"),
        store=tmp_path / "results.db", kill_switch=1000.0,
    )  # fmt: skip
    assert result.trial.state == "finished"
    assert any(note.startswith("kill switch: before") for note in result.trial.notes)


def test_a_role_that_cannot_see_others_is_told_so(pgpaces, pg15, tmp_path):
    script = tmp_path / "one.sql"
    script.write_text("SELECT 1;\n")
    words = ("run", "-f", script, "-c", "1", "-t", "3", "--target", pg15.dsn("u_trust"))
    pgpaces.well(*words, "--kill-switch", "1000")
    assert "grant it pg_read_all_stats" in " ".join(pgpaces("show").out.split())
