"""Experiments whose store, server, user or rival does the worst at the worst moment."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Command
from tests.errors import sentence
from tests.faults.breaking import ENDLESS, fill, postmaster, start_again
from tests.faults.network import Proxy
from tests.integration.sweeps import count, expire
from tests.waiting import until

from pgpaces.store.store import Store

pytestmark = pytest.mark.postgres

QUICK = ("--scale", "1", "--duration", "1s", "--warmup", "0", "--grace", "1s", "-P", "1")
CELLS = ("--clients", "1,2", "--rate-per-client", "20/s", "-L", "1s")
Proxies = Callable[[str, int], Proxy]


def finished(store: Path | str) -> list[dict[tuple[str, int], int]]:
    """Of each experiment, how often each cell finished in each block."""
    opened = Store.open(store)
    return [
        Counter((p.cell, p.block) for p in opened.placed(row.id) if p.state == "finished")
        for row in opened.experiments()
    ]


def hear(process: subprocess.Popen[str], *words: str) -> str:
    """What it says until it says one of these."""
    assert process.stderr is not None
    heard = ""
    for line in process.stderr:
        heard += line
        if any(word in line for word in words):
            return heard
    raise AssertionError(f"it never said {words}, but:\n{heard}")


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=120)
    return process.returncode, err


def sweep(pgpaces: Command, *words: object, **more: Any) -> subprocess.Popen[str]:
    """A sweep of two cells that has run a trial."""
    process = pgpaces.start("sweep", "select-only", *CELLS, *QUICK, *words, **more)
    hear(process, "p99")
    return process


def all_ran(process: subprocess.Popen[str] | None, store: Path, count: int = 6) -> None:
    """It ends well, and each cell finished once in each block."""
    if process is not None:
        code, err = ended(process)
        assert code == 0, err
    [cells] = finished(store)
    assert (len(cells), set(cells.values())) == (count, {1})


@contextlib.contextmanager
def locked(store: Path) -> Iterator[None]:
    """Somebody else writes to the store, and does not come to an end."""
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("PRAGMA busy_timeout = 60000")
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextlib.contextmanager
def full(store: Path) -> Iterator[None]:
    """The disk of the store has no room."""
    rest = fill(store.parent)
    yield
    rest.unlink()


@pytest.mark.parametrize("trouble", [locked, pytest.param(full, marks=pytest.mark.slow)])
def test_a_store_that_takes_nothing_for_a_while_costs_no_trial(
    pgpaces_home, pg15, small_disk, trouble
):
    pgpaces = Command(pgpaces_home, small_disk / "results.db")
    process = sweep(pgpaces, "--trials", "3", "--target", pg15.tcp("postgres"))
    with trouble(pgpaces.store):
        hear(process, "pgpaces will retry")
    all_ran(process, pgpaces.store)


@pytest.mark.slow  # that a sweep waits for its store is tested above
def test_ctrl_c_ends_the_wait_for_a_store_and_the_rest_can_be_run_later(pgpaces, pg15):
    process = sweep(pgpaces, "--trials", "3", "--target", pg15.tcp("postgres"))
    with locked(pgpaces.store):
        hear(process, "pgpaces will retry")
        process.send_signal(signal.SIGINT)
        code, err = ended(process)
        assert code == 20, err
    expire(pgpaces.store)
    pgpaces.well("sweep", "--resume")
    all_ran(None, pgpaces.store)


@pytest.mark.slow
def test_two_sweeps_write_to_one_store_on_a_server_at_once(pgpaces, pg15):
    pg15.execute("CREATE DATABASE sweeps ENCODING 'UTF8' TEMPLATE template0")
    store = pg15.dsn("postgres", dbname="sweeps")
    target = ("--target", pg15.tcp("postgres"), "--store", store, "--trials", "2")
    both = [
        pgpaces.start("sweep", "select-only", *CELLS, *QUICK, *target, "--data-seed", seed)
        for seed in ("11", "12")
    ]
    try:
        assert [ended(process)[0] for process in both] == [0, 0]
        cells = finished(store)
        assert [len(found) for found in cells] == [4, 4]
        assert all(set(found.values()) == {1} for found in cells)
    finally:
        pg15.execute("DROP DATABASE sweeps WITH (FORCE)")


def test_a_server_that_dies_and_comes_back_costs_no_cell(pgpaces, fragile):
    process = sweep(pgpaces, "--trials", "3", "--target", fragile.tcp("postgres"))
    os.kill(postmaster(fragile), signal.SIGKILL)
    try:
        hear(process, "waiting for the server")
    finally:
        start_again(fragile)
    all_ran(process, pgpaces.store)


@pytest.mark.slow
def test_our_server_that_dies_is_started_again(pgpaces):
    process = sweep(pgpaces, "--trials", "3")
    pid_file = next(pgpaces.home.glob("servers/pg18*/**/postmaster.pid"))
    os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)
    all_ran(process, pgpaces.store)
    assert not list(pgpaces.home.glob("servers/pg18*/**/postmaster.pid"))


@pytest.mark.slow
def test_a_machine_whose_network_is_silent_does_not_hold_the_others(pgpaces, pg15, fragile, proxy):
    way = proxy("127.0.0.1", fragile.port)
    slow = (
        f"slow=host=::ffff:127.0.0.1 port={way.port} user=postgres dbname=postgres sslmode=disable"
    )
    process = pgpaces.start(
        "sweep", "select-only", *CELLS, *QUICK, "--trials", "3",
        "--target", f"fast={pg15.tcp('postgres')}", "--target", slow,
    )  # fmt: skip
    heard = hear(process, "target=slow: 1 s")
    way.silence()
    fast = 0
    while fast < 6:
        heard += hear(process, "p99")
        fast = sum("target=fast" in line and "p99" in line for line in heard.splitlines())
    way.speak()
    all_ran(process, pgpaces.store, 12)


def test_ctrl_c_twice_ends_every_trial_at_once_and_leaves_nothing_on_the_server(
    pgpaces, pg15, tmp_path
):
    (tmp_path / "stuck.sql").write_text(f"{ENDLESS};\n")
    dsn = pg15.dsn("postgres", application_name="pgpaces stuck")
    process = pgpaces.start(
        "sweep", "simple-update", "-f", tmp_path / "stuck.sql", "--clients", "2,3", "--scale", "1",
        "--duration", "10min", "--warmup", "0", "--grace", "10min", "--target", dsn,
    )  # fmt: skip
    running = (
        f"FROM pg_stat_activity WHERE query LIKE '{ENDLESS}%' AND state = 'active'"
        " AND application_name = 'pgpaces stuck'"
    )
    pg15.wait_until(f"SELECT count(*) >= 2 {running}")
    process.send_signal(signal.SIGINT)
    hear(process, "stopping")
    process.send_signal(signal.SIGINT)
    code, err = ended(process)
    assert code == 130, err
    assert "--resume" in err
    pg15.wait_until(f"SELECT count(*) = 0 {running}")
    assert pg15.execute("SELECT datname FROM pg_database WHERE datname LIKE '%\\_run'") == []
    store = Store.open(pgpaces.store)
    [row] = store.experiments()
    assert row.state == "interrupted"
    assert [placed.state for placed in store.placed(row.id)] == ["interrupted"]
    assert store.failures(row.id) == []


def test_ctrl_c_ends_the_making_of_data_before_any_load(pgpaces, pg15, tmp_path):
    folder = tmp_path / "endless"
    folder.mkdir()
    (folder / "workload.toml").write_text(
        "description = 'never made'\nscale = 1\nwrites = false\ninit = ['init.sql']\n"
        "[[scripts]]\nfile = 'one.sql'\n[load]\nrate = '10/s'\n"
    )
    (folder / "init.sql").write_text("SELECT pg_sleep(1000) AS never_made;\n")
    (folder / "one.sql").write_text("SELECT 1;\n")
    process = pgpaces.start("sweep", folder, *QUICK, "--target", pg15.tcp("postgres"))
    making = "FROM pg_stat_activity WHERE query LIKE '%never_made%' AND state = 'active'"
    others = f"{making} AND pid <> pg_backend_pid()"
    pg15.wait_until(f"SELECT count(*) = 1 {others}")
    process.send_signal(signal.SIGINT)
    code, err = ended(process)
    assert code == 130, err
    pg15.wait_until(f"SELECT count(*) = 0 {others}")
    store = Store.open(pgpaces.store)
    [row] = store.experiments()
    assert (row.state, store.placed(row.id), store.failures(row.id)) == ("interrupted", [], [])


def test_a_terminal_that_is_gone_ends_it_like_ctrl_c(pgpaces):
    # A child inherits an ignored signal, as from tests that nohup started.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)}
    process = sweep(pgpaces, "--trials", "9", **heard)
    process.send_signal(signal.SIGHUP)
    code, err = ended(process)
    assert code == 130, err
    assert not list(pgpaces.home.glob("servers/pg18*/**/postmaster.pid"))
    assert Store.open(pgpaces.store).experiments()[0].state == "interrupted"


def test_a_terminal_that_is_gone_is_nothing_to_what_nohup_started(pgpaces, pg15):
    nohup = 'trap \'\' HUP; exec "$0" "$@"'
    words = ("sweep", "select-only", *CELLS, *QUICK, "--target", pg15.tcp("postgres"))
    process = subprocess.Popen(
        ["sh", "-c", nohup, sys.executable, "-m", "pgpaces", *words],
        env=pgpaces.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    hear(process, "p99")
    process.send_signal(signal.SIGHUP)
    code, err = ended(process)
    assert code == 0, err


def test_an_experiment_that_runs_is_not_gone_on_with(pgpaces, pg15):
    words = ("--scale", "1", "--duration", "10min", "--warmup", "0", "--grace", "1s")
    process = pgpaces.start("sweep", "select-only", *words, "--target", pg15.tcp("postgres"))
    try:
        until(lambda: count(pgpaces.store, "interval") > 0, "a second of a trial")
        rival = pgpaces("sweep", "--resume")
        running = sentence("experiment-running", experiment="select-only")
        assert (rival.code, running in rival.err) == (2, True)
    finally:
        process.send_signal(signal.SIGINT)
        assert ended(process)[0] == 130


@pytest.mark.slow
def test_of_two_that_go_on_at_once_one_does(pgpaces, pg15):
    process = sweep(pgpaces, "--trials", "3", "--target", pg15.tcp("postgres"))
    process.kill()
    process.communicate()
    expire(pgpaces.store)
    both = [pgpaces.start("sweep", "--resume") for _ in range(2)]
    found = sorted(ended(rival) for rival in both)
    assert [code for code, _ in found] == [0, 2], found
    assert sentence("experiment-running", experiment="select-only") in found[1][1]
    all_ran(None, pgpaces.store)
