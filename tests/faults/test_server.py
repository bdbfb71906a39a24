"""A server that is killed, crashes, restarts, freezes, has no room or no patience: every fault is
an outcome with its SQLSTATE, clients come back, and nothing lasts longer than the grace period.
"""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.faults.breaking import (
    NAME,
    SECOND_NS,
    backends,
    everything,
    going_on,
    lets_in,
    postmaster,
    seconds_until_end,
    session,
    start_again,
    stopped,
)
from tests.needs import lacking
from tests.processes import alive, command_of, frozen
from tests.servers import Postgres
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("clean_client")]
PROTOCOLS = ("simple", "extended", "prepared")
# What a crash and its recovery may be called; the last is the connection that just broke.
CRASHED = {"57P01", "57P02", "57P03", "08006"}
GRACE_S, SLACK = 1, 10
OURS = f"application_name = '{NAME}'"


def served(load: Any, more: int = 20) -> None:
    """Until so many more transactions have succeeded."""
    before = load.outcome.done
    until(lambda: load.next() and load.outcome.done >= before + more, "more that succeeds")


@pytest.mark.parametrize("load_model", [pytest.param("open", marks=pytest.mark.slow), "closed"])
def test_kill_9_of_a_backend_is_a_crash_for_all_and_they_come_back_after_recovery(
    fragile, start_load, load_model
):
    load = going_on(start_load, fragile.tcp(application_name=NAME), load=load_model)
    served(load)
    os.kill(backends(fragile)[0], signal.SIGKILL)
    served(load)
    done = stopped(load)
    assert set(done.failed) <= CRASHED
    assert done.disconnects == done.outages == 4
    assert (done.unfinished, done.down) == (0, 0)
    assert done.all_down_ns > 0
    if load_model == "closed":  # all were in flight; the server says why before it closes
        assert done.failed["57P02"] >= 1, done.failed
        assert "crash of another server process" in done.messages["57P02"]


def test_while_a_server_recovers_it_says_57p03_and_is_asked_again(fragile, start_load):
    """A frozen startup process: recovery lasts until we let it go on.

    Where it ends between two looks there is another crash.
    """
    load = going_on(start_load, fragile.dsn(application_name=NAME))
    served(load)
    with fragile.connect() as admin:
        admin.execute("CREATE TABLE IF NOT EXISTS filler (x text)")
        admin.execute("INSERT INTO filler SELECT repeat('x', 500) FROM generate_series(1, 100000)")
    pid = postmaster(fragile)
    startup: list[int] = []

    def recovering() -> bool:
        for child in everything(fragile)[1:]:
            if b"startup" in command_of(child):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGSTOP)
                    startup.append(child)
        if not startup and lets_in(fragile):
            with contextlib.suppress(psycopg.Error, IndexError, ProcessLookupError):
                os.kill(backends(fragile)[0], signal.SIGKILL)
        return bool(startup) or "57P03" in load.outcome.messages

    until(recovering, "a startup process")
    try:
        until(lambda: load.next() and "57P03" in load.outcome.messages, "57P03")
    finally:
        for child in startup:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGCONT)
    served(load)
    assert postmaster(fragile) == pid
    done = stopped(load)
    assert "database system" in done.messages["57P03"]  # is starting up, in recovery mode, ...
    assert (done.unfinished, done.down) == (0, 0)


def test_kill_9_of_the_postmaster_and_a_new_start_is_an_outage(fragile, start_load):
    load = going_on(start_load, fragile.tcp(application_name=NAME))
    served(load)
    pids = everything(fragile)
    os.kill(pids[0], signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in pids), "the end of the backends")
    start_again(fragile)
    served(load)
    done = stopped(load)
    assert set(done.failed) <= CRASHED
    assert done.disconnects == done.outages == 4
    assert (done.unfinished, done.down) == (0, 0)


@pytest.mark.parametrize(
    ("mode", "load_model"),
    [("fast", "closed"), ("immediate", "closed"), ("immediate", "open"), ("immediate", "paced")],
)
def test_a_restart_amid_the_load_is_an_outage_and_what_was_counted_is_there(
    fragile, start_load, mode, load_model
):
    fragile.execute("DROP TABLE IF EXISTS kept")
    fragile.execute("CREATE TABLE kept (x int); GRANT ALL ON kept TO PUBLIC")
    # So long that somebody is amid one, also on a busy machine: who is between two loses none.
    sleep_s = 0.5 if load_model == "closed" else 0.05
    script = f"INSERT INTO kept VALUES (1);\nSELECT pg_sleep({sleep_s})"
    rate = 10.0 if load_model == "paced" else 50.0
    load = going_on(start_load, fragile.dsn(application_name=NAME), script, load=load_model,
                    rate=rate)  # fmt: skip
    served(load)
    fragile.program("pg_ctl", "-l", fragile.folder / "log", "-w", "-m", mode, "restart")
    served(load)
    done = stopped(load)
    assert set(done.failed) <= CRASHED
    if load_model == "closed":
        assert done.failed["57P01"] >= 1, done.failed  # also an immediate one says so
    assert done.disconnects == done.outages == 4
    assert (done.unfinished, done.down) == (0, 0)
    [[kept]] = fragile.execute("SELECT count(*) FROM kept")
    assert done.on_time <= kept <= done.on_time + sum(done.failed.values())


@contextlib.contextmanager
def one_backend(server: Postgres) -> Iterator[None]:
    with frozen(backends(server)[:1]):
        yield


@contextlib.contextmanager
def all_stopped(server: Postgres) -> Iterator[None]:
    with frozen(everything(server)):
        yield


@contextlib.contextmanager
def freezer(server: Postgres) -> Iterator[None]:
    """A cgroup of its own that is frozen, version 1 or 2."""
    tops = [Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]
    for top in tops:
        group = top / f"pgpaces-faults-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        state = group / "freezer.state"
        switch, on, off = (state, "FROZEN", "THAWED")
        if not state.exists():
            switch, on, off = (group / "cgroup.freeze", "1", "0")
        if switch.exists():
            break
        group.rmdir()
    else:
        lacking("a cgroup that we may freeze")
    homes = {pid: _home(pid, top) for pid in everything(server)}
    try:
        for pid in homes:
            (group / "cgroup.procs").write_text(str(pid))
        switch.write_text(on)
        try:
            yield
        finally:
            switch.write_text(off)
    finally:
        for pid, home in homes.items():
            with contextlib.suppress(OSError):
                (home / "cgroup.procs").write_text(str(pid))
        until(lambda: not (group / "cgroup.procs").read_text().strip(), "an empty group")
        group.rmdir()


def _home(pid: int, top: Path) -> Path:
    """The cgroup of a process in the hierarchy that is mounted at `top`."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if names == ("freezer" if top.name == "freezer" else ""):
            return top / path.lstrip("/")
    return top


SLOW = pytest.mark.slow
AMID = [pytest.param(one_backend, marks=SLOW), pytest.param(all_stopped, marks=SLOW), freezer]
ACROSS = [pytest.param(one_backend, marks=SLOW), all_stopped, pytest.param(freezer, marks=SLOW)]


@pytest.mark.parametrize("freeze", AMID, ids=lambda f: f.__name__)
def test_who_is_frozen_amid_the_load_is_served_at_the_thaw(fragile, start_load, freeze):
    load = going_on(start_load, fragile.tcp(application_name=NAME), limit_ns=SECOND_NS // 5)
    served(load)
    with freeze(fragile):
        threading.Event().wait(1.2)
    served(load)
    done = stopped(load)
    assert (done.failed, done.unfinished, done.disconnects) == ({}, 0, 0)
    # One client alone holds up what it had in flight; all together, everything that fell due.
    assert done.late >= (1 if freeze is one_backend else 30)


@pytest.mark.parametrize("freeze", ACROSS, ids=lambda f: f.__name__)
def test_who_is_frozen_across_the_end_leaves_unfinished_and_nobody_waits_past_grace(
    fragile, start_load, freeze
):
    load = going_on(
        start_load, fragile.dsn(application_name=NAME), duration_ns=4 * SECOND_NS,
        grace_ns=GRACE_S * SECOND_NS,
    )  # fmt: skip
    assert load.next()
    with freeze(fragile):
        done, seconds = seconds_until_end(load)
    assert done.due == 200
    assert done.failed == {}
    assert done.unfinished >= (1 if freeze is one_backend else 40)
    assert seconds < SLACK * (3 + GRACE_S)
    fragile.wait_until(f"SELECT count(*) = 0 FROM pg_stat_activity WHERE {OURS}")


@SLOW
def test_a_frozen_postmaster_with_a_full_queue_holds_nobody(fragile, start_load):
    """Nobody new comes in: the lost stay out, and not even a cancel request gets a place."""
    load = going_on(
        start_load, fragile.dsn(application_name=NAME), "SELECT pg_sleep(1000)", clients=30,
        duration_ns=2 * SECOND_NS, grace_ns=GRACE_S * SECOND_NS,
    )  # fmt: skip
    assert load.next()
    with frozen([postmaster(fragile)]), contextlib.ExitStack() as crowd:
        for _ in range(1000):
            wire = crowd.enter_context(socket.socket(socket.AF_UNIX))
            wire.setblocking(False)
            try:
                wire.connect(f"{fragile.folder}/.s.PGSQL.{fragile.port}")
            except BlockingIOError:
                break
        else:
            raise AssertionError("the queue is never full")
        for pid in busy_backends(fragile)[:15]:
            os.kill(pid, signal.SIGTERM)
        done, seconds = seconds_until_end(load)
    assert (done.due, done.down, done.failed) == (100, 15, {"57P01": 15})
    assert done.unfinished == 85
    assert seconds < SLACK * (1 + GRACE_S)
    until(lambda: lets_in(fragile), "the queue is worked off")
    fragile.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")


def busy_backends(server: Postgres) -> list[int]:
    """By the titles of processes: the postmaster takes no connection to be asked by."""
    found = []
    for pid in everything(server)[1:]:
        with contextlib.suppress(OSError):
            if b"u_trust" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def test_too_many_connections_are_tried_again_until_there_is_room(fragile, start_load):
    # A load before this one may still have the only connection.
    gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'u_limited'"
    fragile.wait_until(gone)
    load = going_on(start_load, fragile.dsn("u_limited", application_name=NAME), clients=1)
    served(load)
    most = "ALTER ROLE u_limited CONNECTION LIMIT"
    with fragile.meanwhile(f"{most} 0", f"{most} 1"):
        fragile.execute(f"SELECT pg_terminate_backend({backends(fragile)[0]})")
        until(lambda: load.next() and "53300" in load.outcome.messages, "53300")
    served(load)
    done = stopped(load)
    assert (done.outages, done.down, done.unfinished) == (1, 0, 0)


def test_one_thread_asks_whether_a_refused_login_succeeds_again_until_the_time_to_connect_is_over(
    fragile, start_load
):
    load = going_on(
        start_load, fragile.dsn(application_name=NAME, connect_timeout=2),
        duration_ns=5 * SECOND_NS, grace_ns=SECOND_NS,
    )  # fmt: skip
    assert load.next()
    log = fragile.folder / "log"
    with fragile.meanwhile("ALTER ROLE u_trust NOLOGIN", "ALTER ROLE u_trust LOGIN"):
        before = log.read_text().count("not permitted to log in")
        for pid in backends(fragile):
            fragile.execute(f"SELECT pg_terminate_backend({pid})")
        done = load.finish()
        # Each client once, and twice a second for all of them.
        assert 4 < log.read_text().count("not permitted to log in") - before <= 4 + 20
    assert len([note for note in done.notes if note[0] == "client-locked-out"]) == 4
    assert (done.due, done.down) == (250, 4)
    assert done.unfinished >= 40
    assert done.messages["28000"]


def test_a_login_that_is_refused_for_a_moment_costs_no_client(fragile, start_load):
    load = going_on(start_load, fragile.dsn(application_name=NAME))
    served(load)
    with fragile.meanwhile("ALTER ROLE u_trust NOLOGIN", "ALTER ROLE u_trust LOGIN"):
        fragile.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")
        until(lambda: load.next() and "28000" in load.outcome.messages, "28000")
    served(load)
    done = stopped(load)
    assert (done.down, done.outages, done.unfinished, done.notes) == (0, 4, 0, [])


def test_after_a_failover_clients_work_on_the_new_primary(fragile, standby, start_load):
    fragile.execute("CREATE TABLE IF NOT EXISTS written (x int)")
    fragile.execute("GRANT ALL ON written TO PUBLIC")
    standby.wait_until("SELECT to_regclass('written') IS NOT NULL")
    # An asynchronous standby may lack the last commits that the primary acknowledged.
    fragile.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    fragile.execute("SELECT pg_reload_conf()")
    both = {
        "host": f"{fragile.folder},{standby.folder}", "port": f"{fragile.port},{standby.port}",
        "target_session_attrs": "read-write", "application_name": NAME,
    }  # fmt: skip
    load = going_on(start_load, fragile.dsn(**both), "INSERT INTO written VALUES (1)")
    served(load)
    fragile.program("pg_ctl", "-w", "-m", "immediate", "stop")
    try:
        until(lambda: load.next() and load.outcome.disconnects == 4, "four lost clients")
        standby.program("pg_ctl", "-w", "promote")
        served(load)
        done = stopped(load)
        assert (done.down, done.outages, done.unfinished) == (0, 4, 0)
        assert [note[0] for note in done.notes] == ["server-moved"]
        # What was due without a primary is counted: it is late, and nothing is missing.
        assert done.due == done.done + sum(done.failed.values())
        ((written,),) = standby.execute("SELECT count(*) FROM written")
        assert written >= done.done
    finally:
        start_again(fragile)
        fragile.execute("ALTER SYSTEM RESET synchronous_standby_names")
        fragile.execute("SELECT pg_reload_conf()")
        fragile.execute("TRUNCATE written")


TIMEOUTS = {
    "statement_timeout": ("57014", "SELECT pg_sleep(30)", False),
    "lock_timeout": ("55P03", "BEGIN;\nLOCK TABLE held;\nEND", False),
    "idle_in_transaction_session_timeout": (
        "25P03", "BEGIN;\nSELECT 1;\n\\sleep 30 s\nSELECT 2;\nEND", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("setting", TIMEOUTS)
def test_a_timeout_is_a_failure_with_its_sqlstate_and_the_client_goes_on(
    fragile, run_load, setting, protocol
):
    sqlstate, script, ends_session = TIMEOUTS[setting]
    fragile.execute("CREATE TABLE IF NOT EXISTS held (x int)")
    fragile.execute("GRANT ALL ON held TO PUBLIC")
    with session(fragile) as holder, holder.transaction():
        holder.execute("LOCK TABLE held")
        done = run_load(
            fragile.dsn(application_name=NAME), script, transactions=3, clients=2,
            protocol=protocol, on_connect=[f"SET {setting} = '30ms'"],
        )  # fmt: skip
    assert done.failed == {sqlstate: 6}
    assert done.notes == []
    # The last loss needs no new connection: nothing more is due.
    assert done.disconnects == (6 if ends_session else 0)


def test_a_session_that_the_server_ends_for_idling_is_made_again(fragile, start_load):
    load = going_on(
        start_load, fragile.dsn(application_name=NAME), rate=4.0, clients=1,
        on_connect=["SET idle_session_timeout = '50ms'"],
    )  # fmt: skip
    served(load, 6)
    done = stopped(load)
    # A statement that is on its way when the server ends the session fails, and may.
    assert set(done.failed) <= {"57P05"}
    assert done.done >= 6
    assert done.unfinished == 0
    assert done.outages >= 3
    assert "57P05" in done.messages


CONFLICT = """BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT v FROM one;
SELECT pg_sleep(0.005);
UPDATE one SET v = v + 1;
END;
"""
# Each locks its own row first, then its neighbour's.
DEADLOCK = """\\set mine :client_id + 1
\\set other 2 - :client_id
BEGIN;
UPDATE two SET v = v + 1 WHERE id = :mine;
SELECT pg_sleep(0.02);
UPDATE two SET v = v + 1 WHERE id = :other;
END;
"""
MAY_PASS = {"serialization": (CONFLICT, 4, "40001"), "deadlock": (DEADLOCK, 2, "40P01")}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("max_tries", [1, 2, 0])
@pytest.mark.parametrize("failure", ["serialization", "deadlock"])
def test_what_may_pass_is_tried_again_as_often_as_allowed(
    fragile, run_load, protocol, max_tries, failure
):
    script, clients, sqlstate = MAY_PASS[failure]
    for sql in (
        "DROP TABLE IF EXISTS one, two",
        "CREATE TABLE one AS SELECT 0 AS v",
        "CREATE TABLE two AS SELECT id, 0 AS v FROM generate_series(1, 2) AS id",
    ):
        fragile.execute(sql)
    done = run_load(
        fragile.dsn("postgres"), script, clients=clients, transactions=6, protocol=protocol,
        max_tries=max_tries, limit_ns=60 * SECOND_NS, on_connect=["SET deadlock_timeout = '5ms'"],
    )  # fmt: skip
    assert set(done.failed) <= {sqlstate}
    assert done.on_time + done.failed[sqlstate] == 6 * clients == done.due
    [[one]] = fragile.execute("SELECT v FROM one")
    [[two]] = fragile.execute("SELECT sum(v) FROM two")
    assert one + two // 2 == done.on_time
    if max_tries == 1:
        assert done.failed[sqlstate] >= 1
        assert done.retries == 0
    if max_tries == 2:
        assert 1 <= done.retries == done.retried
    if max_tries == 0:
        assert done.failed == {}
        assert done.retries >= 1


def test_writes_on_a_standby_fail_and_reads_succeed_and_after_its_promotion_both_do(
    fragile, standby, start_load
):
    fragile.execute("CREATE TABLE IF NOT EXISTS written (x int)")
    fragile.execute("GRANT ALL ON written TO PUBLIC")
    standby.wait_until("SELECT to_regclass('written') IS NOT NULL")
    scripts = [
        ("read", 1, "SELECT count(*) FROM written"),
        ("write", 1, "INSERT INTO written VALUES (1)"),
    ]
    load = start_load(standby.dsn(), scripts, clients=2, load="open", rate=50.0, transactions=None,
                      duration_ns=1000 * SECOND_NS)  # fmt: skip
    until(lambda: load.next() and load.outcome.failed["25006"] >= 10)
    assert load.outcome.done >= 1
    standby.program("pg_ctl", "-w", "promote")
    until(lambda: load.next() and standby.execute("SELECT count(*) > 9 FROM written") == [(True,)])
    done = stopped(load)
    assert set(done.failed) == {"25006"}
    assert "read-only transaction" in done.messages["25006"]
    assert (done.disconnects, done.unfinished) == (0, 0)
