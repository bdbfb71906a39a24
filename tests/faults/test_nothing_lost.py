"""Whatever happens to pgpaces itself, to its disk or to the clock: what was measured is kept."""

from __future__ import annotations

import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from itertools import count as count_from
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from tests.commands import Command, adds_up, interval_count, started
from tests.errors import sentence
from tests.faults.breaking import ENDLESS, fill, postmaster
from tests.integration.sweeps import count, expire
from tests.needs import check, faketime, needs
from tests.servers import Postgres
from tests.waiting import until

from pgpaces.analysis import waits
from pgpaces.store.store import Store

pytestmark = pytest.mark.postgres
SLOW = pytest.mark.slow

QUICK = ("--scale", "1", "--warmup", "0")
# Of those that ask for no rate: a client that does not think takes all that a machine has.
CALM = (*QUICK, "--think-time", "10ms")
# Seeds of data that no test before has made.
UNMADE = count_from(601)


def is_intact(store: Path) -> bool:
    with sqlite3.connect(store) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchone() == ("ok",))


@dataclass
class Watched:
    """A run whose stderr is read as it comes: since when it runs, and what it told."""

    process: subprocess.Popen[str]
    running_since: float | None = None
    told: int = 0

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("running "):
                self.running_since = time.monotonic()
            if found := re.match(r"(\d+) s: ", line):
                self.told = int(found[1])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


def killed_at_random(pgpaces: Command, turn: int, *words: object) -> None:
    """Starts a run, kills it at a moment drawn by `turn`, and looks at what is left."""
    dice = random.Random(turn)
    after_start = turn % 3 > 0
    pause = dice.uniform(0, 10 if after_start else 2.5)
    before = count(pgpaces.store, "trial")
    load = ("-c", "4", "--rate", "200", "-T", "10min", "-P", "1")
    watched = Watched(pgpaces.start("run", "tpcb-like", *QUICK, *load, *words))
    if after_start:
        until(lambda: watched.running_since is not None or watched.process.poll() is not None)
        assert watched.process.poll() is None, "it ended by itself"
    threading.Event().wait(pause)
    killed = time.monotonic()
    watched.kill()
    if count(pgpaces.store, "trial") == before:
        assert watched.told == 0
        return
    expire(pgpaces.store)
    shown = pgpaces("show", "last", "--json").json()
    assert is_intact(pgpaces.store)
    assert (shown["state"], adds_up(shown)) == ("interrupted", True)
    stored = stored_seconds(pgpaces.store)
    assert stored >= watched.told, "a second that was told is stored"
    if watched.running_since is not None:
        # Two seconds, and what a busy machine may be late.
        assert stored > killed - watched.running_since - 4


def stored_seconds(store: Path) -> int:
    with sqlite3.connect(store) as connection:
        query = (
            "SELECT count(*), max(second) FROM interval WHERE trial = (SELECT max(id) FROM trial)"
        )
        seconds, last = connection.execute(query).fetchone()
    assert seconds == 0 or last == seconds - 1, "no second is missing in between"
    return int(seconds)


@pytest.mark.parametrize("turn", [*range(2), *(pytest.param(n, marks=SLOW) for n in range(2, 60))])
def test_kill_9_at_a_random_moment_loses_two_seconds_at_most_and_the_next_run_works(
    pgpaces, pg15, turn
):
    target = ("--target", pg15.dsn("postgres"))
    words = ("run", "tpcb-like", *CALM, "-c", "1", "-T", "1s", "-P", "0", *target, "--json")
    old = pgpaces(*words).json()
    killed_at_random(pgpaces, turn, *target)
    assert pgpaces(*words).json()["state"] == "finished"
    assert pgpaces("show", old["run"], "--json").json()["counts"] == old["counts"]
    left = [name for (name,) in pg15.execute("SELECT datname FROM pg_database")]
    assert not [name for name in left if name.endswith("_run")]


@pytest.fixture(scope="module")
def killed(pgpaces_home, pg15, tmp_path_factory):
    """The store of a run of four clients on one branch that was killed after 14 s."""
    path = tmp_path_factory.mktemp("killed") / "results.db"
    words = ("run", "tpcb-like", *QUICK, "-c", "4", "-T", "10min", "-P", "1")
    command = Command(pgpaces_home, path)
    watched = Watched(command.start(*words, "--target", pg15.dsn("postgres")))
    # The whole is stored first after ten seconds.
    until(lambda: watched.told >= 14 or watched.process.poll() is not None)
    watched.kill()
    return path


def test_kill_9_leaves_the_samples_of_the_seconds_before_it(killed):
    stored = stored_seconds(killed)
    store = Store.existing(killed)
    every = {(s.source, s.name): list(s.seconds) for s in store.load(store.find("last")).samples}
    for name in (("host", "cpu_busy"), ("transactions", "commits")):
        # What ends with a second may be stored with the next one.
        missing = set(range(stored - 1)[-5:]) - set(every[name])
        assert len(missing) <= 2, (name, missing)
        assert every[name] == sorted(set(every[name]))
    # Waits of a slow machine are sampled less often, up to every 1.6 s.
    last = [*every["waits", "CPU"][-4:], stored]
    assert all(0 < after - before <= 3 for before, after in pairwise(last)), last
    [digest] = store.digests([store.find("last")])
    assert {("host", "cpu_busy"), ("waits", "CPU")} <= {(t.source, t.name) for t in digest.tracks}


def test_kill_9_leaves_who_waited_for_whom_and_for_what(killed):
    store = Store.existing(killed)
    [observed] = store.load(store.find("last")).observed
    assert observed.blocked, "four clients update the only branch"
    assert {one.blocking for one in observed.blocked} == {"load"}
    tenths, _ = waits.tenths_of(observed.waits)
    # A slow machine is sampled less often, up to every 1.6 s.
    assert min(tenths) < 20
    assert max(tenths) >= 80


@pytest.fixture
def stuck(pgpaces, pg15, tmp_path):
    """A run whose every transaction takes longer than anybody waits; it ends with the test."""
    begun: list[subprocess.Popen[str]] = []

    def start(*words: object) -> subprocess.Popen[str]:
        (tmp_path / "stuck.sql").write_text(f"{ENDLESS};\n")
        dsn = pg15.dsn("postgres", application_name="pgpaces stuck")
        process = pgpaces.start(
            "run", "-f", tmp_path / "stuck.sql", "-c", "2", "-T", "10min", "--warmup", "0",
            "--target", dsn, *words,
        )  # fmt: skip
        begun.append(process)
        started(process)
        pg15.wait_until(f"SELECT count(*) = 2 FROM pg_stat_activity WHERE query LIKE '{ENDLESS}%'"
                        " AND state = 'active'")  # fmt: skip
        return process

    yield start
    for process in begun:
        process.kill()
        process.wait()


def pending(status: Path, number: int) -> bool:
    """Whether a signal has not been taken yet: two of them would be one."""
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return any(int(fields[name], 16) >> (number - 1) & 1 for name in ("SigPnd", "ShdPnd"))


@needs("Linux")
@pytest.mark.parametrize(
    ("number", "grace", "second"),
    [
        # Once: it waits for what was due as long as grace lasts.
        (signal.SIGINT, "1s", None),
        pytest.param(signal.SIGTERM, "1s", None, marks=SLOW),
        # Twice: it ends at once, also where the second comes before the next look at the load,
        # which is a second away.
        (signal.SIGINT, "10min", "when it says so"),
        (signal.SIGINT, "10min", "at once"),
    ],
)
def test_ctrl_c_keeps_what_there_is(pgpaces, pg15, stuck, number, grace, second):
    process = stuck("--grace", grace)
    status = Path(f"/proc/{process.pid}/status")
    process.send_signal(number)
    if second == "at once":
        until(lambda: not pending(status, number), "the first signal to be taken")
    elif second:
        next(line for line in process.stderr if line.startswith("stopping"))
    if second:
        process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "no-answer: " in out
    shown = pgpaces("show", "last", "--json").json()
    assert (shown["state"], shown["counts"]["unfinished"]) == ("interrupted", 2)
    pg15.wait_until(f"SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE '{ENDLESS}%'")


@pytest.fixture
def on_disk(pgpaces_home, pg15, small_disk):
    """The command with a store on a small disk, the words of a run, and what one answered."""
    pgpaces = Command(pgpaces_home, small_disk / "results.db")
    words = ("run", "select-only", *CALM, "-c", "1", "--target", pg15.dsn("postgres"))
    return pgpaces, words, pgpaces(*words, "-T", "1s", "--json").json()


FULL = sentence("store-full", store="", why="").partition("''")[0]  # the store and why follow


@pytest.mark.parametrize("frees", [True, False], ids=["for a while", "to the end"])
@SLOW
def test_a_full_disk_keeps_results_in_memory_and_old_ones_intact(on_disk, small_disk, frees):
    pgpaces, words, old = on_disk
    process = pgpaces.start(*words, "-T", "3s", "-P", "1", "-v")
    started(process)
    until(lambda: interval_count(pgpaces.store) >= 2)  # one of the old run, one of this
    rest = fill(small_disk)
    for line in process.stderr:
        if "warning: " + FULL in line:
            break
    if frees:
        rest.unlink()
    out, err = process.communicate(timeout=60)
    assert process.returncode == (0 if frees else 20), err
    assert re.search(r"\d\d due: ", out), out
    if frees:
        shown = pgpaces("show", "last", "--json").json()
        assert "store-delayed" in {each["name"] for each in shown["validity"]["findings"]}
        assert (shown["state"], shown["seconds"], adds_up(shown)) == ("finished", 3.0, True)
    else:
        assert "error: " + sentence("result-lost", why=FULL) in err
        assert "full" in err
        assert "details:" not in out
        rest.unlink()
        expire(pgpaces.store)
        assert "end-not-stored: " in pgpaces("show").out
    assert is_intact(pgpaces.store)
    assert pgpaces("show", old["run"], "--json").json()["counts"] == old["counts"]


def test_a_full_disk_ends_the_load_where_the_user_wants_that(on_disk, small_disk):
    pgpaces, words, _ = on_disk
    process = pgpaces.start(*words, "-T", "10min", "--on-store-error", "stop")
    started(process)
    until(lambda: interval_count(pgpaces.store) >= 2)
    rest = fill(small_disk)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 20, err
    assert " tx/s" in out.splitlines()[0]
    assert "ended-early: the trial ended early: " + FULL in " ".join(out.split())
    rest.unlink()
    assert is_intact(pgpaces.store)


@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_store_that_takes_nothing_is_an_error_for_a_run_and_loses_nothing(
    on_disk, small_disk, trouble
):
    pgpaces, words, old = on_disk
    before = pgpaces.store.read_bytes()
    mount = ["mount", str(small_disk), "-o"]
    if trouble == "full":
        rest = fill(small_disk)
    else:
        subprocess.run([*mount, "remount,ro"], check=True)
    ended = pgpaces(*words, "-T", "1s")
    assert ended.code == 20, ended.err
    assert "hint:" in ended.err
    if trouble == "full":
        rest.unlink()
    assert [row["run"] for row in pgpaces("runs", "--json").json()] == [old["run"]]
    assert pgpaces("show", "last", "--json").json()["counts"] == old["counts"]
    if trouble == "read-only":
        subprocess.run([*mount, "remount,rw"], check=True)
        assert pgpaces.store.read_bytes() == before
    assert pgpaces("show", "last", "--json").json()["run"] == old["run"]


@pytest.fixture
def wall_clock(tmp_path):
    """The environment of a program whose wall clock we set, and how: `-3h`, `+3h`, `+0`."""
    check("libfaketime")
    offset = tmp_path / "offset"

    def set_to(shift: str) -> None:
        new = offset.with_suffix(".new")
        new.write_text(f"{shift}\n")
        new.rename(offset)

    set_to("+0")
    # With the monotonic clock as it is, libfaketime refuses sleeps until a moment of it (EINVAL).
    mended = "import select, time\ntime.sleep = lambda s: select.select([], [], [], s)\n"
    (tmp_path / "sitecustomize.py").write_text(mended)
    return {
        "PYTHONPATH": str(tmp_path),
        "LD_PRELOAD": faketime("libfaketimeMT"),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }, set_to


def test_jumps_of_the_wall_clock_change_no_count_and_no_time(pgpaces, pg15, wall_clock):
    environment, set_to = wall_clock
    load = ("-c", "2", "--rate", "50", "--arrivals", "even", "-T", "4s")
    words = ("run", "select-only", *QUICK, *load)
    process = pgpaces.start(*words, "-P", "1", "--target", pg15.tcp("postgres"), env=environment)
    started(process)
    for at, shift in enumerate(("-3h", "+3h"), 1):
        until(lambda at=at: interval_count(pgpaces.store) >= at)
        set_to(shift)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    shown = pgpaces("show", "last", "--json").json()
    assert (shown["state"], shown["seconds"], adds_up(shown)) == ("finished", 4.0, True)
    assert (shown["counts"]["due"], shown["counts"]["failed"]) == (200, 0)
    assert shown["latency"]["max"] < 60_000  # no hour in it
    [row] = pgpaces("runs", "--json").json()
    assert row["state"] == "finished"
    with sqlite3.connect(pgpaces.store) as connection:
        [(begun, beat)] = connection.execute("SELECT started_at, heartbeat FROM trial")
    assert begun[:13] != beat[:13], "the clock did jump"


def test_the_second_pgpaces_on_a_database_is_refused(pgpaces, pg15):
    words = ("run", "select-only", *CALM, "-c", "1", "--target", pg15.dsn("postgres"))
    first = pgpaces.start(*words, "-T", "10min")
    started(first)
    second = pgpaces(*words, "-T", "1s")
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    assert second.code == 10, second.err
    dbname = pgpaces.prepared()["dbname"]
    assert sentence("database-locked", dbname=dbname) in second.err
    pgpaces.well(*words, "-T", "1s")


KILLED = """
import os, signal, sys
from pgpaces.database import ownership
from pgpaces.cli.main import main
set_ownership = ownership.set_ownership
def die(admin, dbname, new):
    if new.state == {state!r} and not {marked}:
        os.kill(os.getpid(), signal.SIGKILL)
    set_ownership(admin, dbname, new)
    if new.state == {state!r}:
        os.kill(os.getpid(), signal.SIGKILL)
ownership.set_ownership = die
sys.argv = ["pgpaces", *{words!r}]
main()
"""


def ours(server: Postgres) -> list[tuple[str, bool]]:
    """The databases whose names begin as ours, and whether they are marked."""
    return [
        (name, marked)
        for name, marked in server.execute(
            "SELECT datname, shobj_description(oid, 'pg_database') IS NOT NULL FROM pg_database"
            " WHERE datname LIKE 'pgpaces%'"
        )
    ]


@pytest.mark.parametrize(
    ("state", "marked", "then"),
    [
        ("copy", False, "--fresh"),
        *(
            pytest.param(state, marked, then, marks=SLOW)
            for state in ("copy", "preparing")
            for marked in (False, True)
            for then in ("", "--fresh", "another workload", "server clean")
            if (state, marked, then) != ("copy", False, "--fresh")
        ),
        pytest.param("ready", False, "", marks=SLOW),
    ],
    ids=str,
)
def test_what_a_kill_left_while_a_database_was_made_is_dropped_by_whoever_comes_next(
    pgpaces, pg15, state, marked, then
):
    target = ("--target", pg15.dsn("postgres"))
    words = ["run", "tpcb-like", *CALM, "-c", "1", "-T", "1s", "--data-seed", "501", *target]
    code = KILLED.format(state=state, marked=marked, words=words)
    pgpaces("server", "clean", *target)
    died = subprocess.run(
        [sys.executable, "-c", code], env=pgpaces.environment(), capture_output=True, check=False
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    if then == "another workload":
        ended = pgpaces("run", "select-only", *CALM, "-c", "1", "-T", "1s", *target)
    elif then == "server clean":
        ended = pgpaces(*then.split(), *target)
    else:
        ended = pgpaces(*words, *then.split())
    assert ended.code == 0, ended.err
    left = [name for name, is_marked in ours(pg15) if not is_marked or name.endswith("_run")]
    assert not left
    assert not [name for name, _ in ours(pg15) if name.startswith("pgpaces_new_")]


@pytest.mark.parametrize(
    "kind",
    [
        "with a comment",
        pytest.param("peopled", marks=SLOW),
        pytest.param("another's", marks=SLOW),
    ],
)
def test_a_database_of_our_name_that_is_somebodys_is_never_touched(pgpaces, pg15, kind):
    target = ("--target", pg15.dsn("postgres"))
    words = ("run", "tpcb-like", *CALM, "-c", "1", "-T", "1s", "--data-seed", "504", *target)
    pgpaces("server", "clean", *target)
    pgpaces.well(*words)
    dbname = pgpaces.prepared()["cloned_from"]
    pg15.execute(f"DROP DATABASE {dbname}")
    owner = "u_trust" if kind == "another's" else "postgres"
    pg15.execute(f"CREATE DATABASE {dbname} OWNER {owner}")
    oid = f"SELECT oid FROM pg_database WHERE datname = '{dbname}'"
    before = pg15.execute(oid)
    try:
        if kind == "peopled":
            with psycopg.connect(pg15.dsn("postgres", dbname=dbname)) as session:
                session.execute("CREATE SEQUENCE mine")
        if kind == "with a comment":
            pg15.execute(f"COMMENT ON DATABASE {dbname} IS 'mine'")
        for more in ((), ("--fresh",)):
            refused = pgpaces(*words, *more)
            assert refused.code == 15, refused.err
            assert sentence("database-not-owned", dbname=dbname) in refused.err
        assert pg15.execute(oid) == before
    finally:
        pg15.execute(f"DROP DATABASE {dbname}")


@SLOW
def test_a_server_that_froze_does_not_hold_the_end_of_a_run(pgpaces, fragile):
    """A copy cannot be dropped there: the run ends all the same, and the next one drops it."""
    from tests.faults.breaking import everything
    from tests.processes import frozen

    words = ("run", "tpcb-like", *CALM, "-c", "2", "--grace", "1s", "--target",
             fragile.dsn("postgres"))  # fmt: skip
    process = pgpaces.start(*words, "-T", "5s")
    started(process)
    until(lambda: interval_count(pgpaces.store) >= 1)
    with frozen(everything(fragile)):
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    shown = pgpaces("show", "last", "--json").json()
    assert shown["counts"]["unfinished"] == 2
    names = {each["name"] for each in shown["validity"]["findings"]}
    assert names & {"last-readings-missing", "server-gone-silent"}, out
    assert "plans-missing" not in names, "it was not asked for them"
    pgpaces.well(*words, "-T", "1s")
    assert postmaster(fragile)


def test_the_report_tells_of_an_outage_how_long_it_lasted(pgpaces, fragile):
    words = ("run", "select-only", *QUICK, "-c", "4", "--rate", "50", "-T", "10s", "--target",
             fragile.tcp("postgres"))  # fmt: skip
    process = pgpaces.start(*words)
    started(process)
    until(lambda: interval_count(pgpaces.store) >= 1)
    fragile.program("pg_ctl", "-l", fragile.folder / "log", "-w", "-m", "fast", "restart")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    told = " ".join(out.split())
    assert re.search(
        r"connections 4 lost, longest outage [\d.]+ m?s,"
        r" no client connected for [\d.]+ m?s, all back after [\d.]+ m?s", told,
    ), told  # fmt: skip
    shown = pgpaces("show", "last", "--json").json()
    outages = shown["outages"]
    assert (outages["count"], outages["down"]) == (4, 0)
    assert 0 < outages["all_down_s"] <= outages["some_down_s"] <= 2 * outages["longest_s"]


@SLOW
def test_data_cannot_be_made_on_a_standby_and_is_read_there_once_it_is(pgpaces, fragile, standby):
    words = ("run", "select-only", *CALM, "-c", "1", "-T", "1s", "--data-seed", str(next(UNMADE)))
    refused = pgpaces(*words, "--target", standby.dsn("postgres"))
    assert refused.code == 16, refused.err
    assert "read-only" in refused.err
    pgpaces.well(*words, "--target", fragile.dsn("postgres"))
    [[lsn]] = fragile.execute("SELECT pg_current_wal_lsn()")
    standby.wait_until(f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'")
    shown = pgpaces(*words, "--target", standby.dsn("postgres"), "--json").json()
    assert shown["counts"]["failed"] == 0


INTERRUPTED = """
import os, signal, sys
from pgpaces.trial import trial
from pgpaces.answers import run
from pgpaces.answers.sweep import report
from pgpaces.cli.main import main
real = {moment}
def interrupted(*words, **more):
    os.kill(os.getpid(), signal.SIGINT)
    return real(*words, **more)
{moment} = interrupted
sys.argv = ["pgpaces", *{words!r}]
main()
"""


@pytest.mark.parametrize(
    ("words", "moment", "answer"),
    [
        (("run", "tpcb-like"), "trial.digest", " tx/s"),
        (("run", "tpcb-like"), "run.section", " tx/s"),
        (("sweep", "tpcb-like", "--trials", "1"), "report.report", "pgpaces report"),
    ],
)
def test_ctrl_c_after_the_load_does_not_cost_the_answer(pgpaces, pg15, words, moment, answer):
    target = ("--target", pg15.dsn("postgres"))
    words = (*words, *QUICK, "-c", "1", "-T", "1s", "--data-seed", "502", *target)
    code = INTERRUPTED.format(words=list(words), moment=moment)
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=pgpaces.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert answer in ended.stdout
    assert not [name for name, _ in ours(pg15) if name.endswith("_run")]
