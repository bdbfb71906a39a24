"""Transactions on PostgreSQL 15 by every protocol and transport: what is left in the database is
what was counted, and whatever goes wrong is counted once and goes on.
"""

import subprocess
import sys
import time
from itertools import product
from typing import Any

import pytest
from tests.waiting import DEADLINE_S

from pgpaces.core.errors import PgpacesError, PlanError, ScriptError, ServerError

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("clean_client")]
SECOND_NS = 1_000_000_000
PROTOCOLS = ("simple", "extended", "prepared")
TRANSPORTS = ("dsn", "tcp", "tls")  # Postgres' methods: socket, TCP, TLS
NAME = "pgpaces protocols"


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def count(server: Any, table: str) -> int:
    [[rows]] = server.execute(f"SELECT count(*) FROM work.{table}")
    return int(rows)


# --- what was counted is there --------------------------------------------------------------

FIVE = """\\set v random(1, 1000)
BEGIN;
INSERT INTO counted VALUES (:client_id, :v);
SELECT sum(v) FROM counted WHERE client = :client_id;
END;
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_count_leaves_exactly_clients_times_transactions_rows(
    server: Any, make: Any, run_load: Any, protocol: str, transport: str
) -> None:
    make("CREATE TABLE counted (client int, v int CHECK (v BETWEEN 1 AND 1000))")
    dsn = getattr(server, transport)()
    done = run_load(dsn, FIVE, clients=5, threads=2, transactions=20, protocol=protocol)
    assert (done.due, done.on_time, done.failed) == (100, 100, {})
    rows = server.execute("SELECT client, count(*) FROM work.counted GROUP BY 1 ORDER BY 1")
    assert rows == [(client, 20) for client in range(5)]


@pytest.mark.parametrize("describe", [True, False])
def test_describing_results_changes_nothing(
    server: Any, make: Any, run_load: Any, describe: bool
) -> None:
    make("CREATE TABLE counted (client int, v int)")
    for protocol in PROTOCOLS:
        done = run_load(
            server.dsn(), FIVE, transactions=10, protocol=protocol, describe=describe
        )  # fmt: skip
        assert done.on_time == 20
    assert count(server, "counted") == 60


def test_one_seed_leaves_the_same_rows_by_every_protocol_and_number_of_threads(
    server: Any, make: Any, run_load: Any
) -> None:
    found = []
    for protocol, threads in (("simple", 1), ("extended", 2), ("prepared", 4)):
        make("CREATE TABLE counted (client int, v int)")
        run_load(server.dsn(), FIVE, clients=4, threads=threads, transactions=5,
                 protocol=protocol, seed=42)  # fmt: skip
        found.append(server.execute("SELECT * FROM work.counted ORDER BY 1, 2"))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 20


def test_several_scripts_are_chosen_by_their_weights(
    server: Any, make: Any, run_load: Any, protocol: str
) -> None:
    make("CREATE TABLE a (x int)", "CREATE TABLE b (x int)", "CREATE TABLE c (x int)")
    scripts = [(t, w, f"INSERT INTO {t} VALUES (1)") for t, w in (("a", 3), ("b", 1), ("c", 0))]
    done = run_load(server.dsn(), scripts, clients=4, transactions=100, protocol=protocol)
    counts = [count(server, table) for table in "abc"]
    assert counts == [done.per_script[script] for script in range(3)]
    assert sum(counts) == done.on_time == 400
    assert counts[2] == 0
    assert 240 <= counts[0] <= 360  # 300, and seven standard deviations


@pytest.mark.parametrize("load", ["open", "paced"])
def test_a_rate_by_count_leaves_exactly_that_many_rows(
    server: Any, make: Any, run_load: Any, load: str
) -> None:
    make("CREATE TABLE counted (client int, v int)")
    done = run_load(
        server.dsn(), FIVE, clients=3, threads=2, transactions=20, load=load, rate=500.0,
        arrivals="poisson",
    )  # fmt: skip
    assert done.due == done.on_time == 60 == count(server, "counted")


def test_every_connection_runs_what_is_to_be_run_on_connecting(
    server: Any, make: Any, run_load: Any, protocol: str
) -> None:
    make("CREATE TABLE connected (pid int)")
    on_connect = [
        "INSERT INTO connected VALUES (pg_backend_pid())",
        "SET work_mem = '3MB'",
        "CREATE TEMP TABLE mine (work_mem text); INSERT INTO mine VALUES ('first')",
    ]
    script = "INSERT INTO mine SELECT 1 / (current_setting('work_mem') = '3MB')::int"
    done = run_load(
        server.dsn(), script, clients=4, transactions=3, protocol=protocol, on_connect=on_connect
    )  # fmt: skip
    assert done.on_time == 12, done
    assert count(server, "connected") == 4


# --- a failed transaction is data -----------------------------------------------------------


def test_every_second_transaction_fails_and_the_others_work(
    server: Any, make: Any, run_load: Any, protocol: str
) -> None:
    make("CREATE SEQUENCE s MINVALUE 0", "CREATE TABLE done (x int)")
    script = """BEGIN;
INSERT INTO done VALUES (0);
INSERT INTO done SELECT 1 / (nextval('s') % 2)::int;
END;
"""
    done = run_load(server.dsn(), script, clients=1, transactions=20, protocol=protocol)
    assert (done.on_time, done.failed) == (10, {"22012": 10})
    assert "division by zero" in done.messages["22012"]
    assert count(server, "done") == 20  # two rows of each that worked, none of the others


def test_a_unique_violation_within_a_block_is_rolled_back_and_counted(
    server: Any, make: Any, run_load: Any, protocol: str
) -> None:
    make("CREATE TABLE once (client int PRIMARY KEY)", "CREATE TABLE before (client int)")
    script = """BEGIN;
INSERT INTO before VALUES (:client_id);
INSERT INTO once VALUES (:client_id);
SELECT 1;
END;
"""
    done = run_load(server.dsn(), script, clients=3, transactions=10, protocol=protocol)
    assert (done.on_time, done.failed) == (3, {"23505": 27})
    assert count(server, "once") == count(server, "before") == 3
    assert done.notes == []  # the block was left by an error, not by the script


def test_a_statement_that_fails_at_its_first_use_works_later(
    server: Any, make: Any, run_load: Any, protocol: str
) -> None:
    """The table does not exist yet: the statement cannot even be parsed."""
    make(
        "CREATE SEQUENCE calls",
        """CREATE FUNCTION third_call_makes() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
        BEGIN IF nextval('work.calls') = 3 THEN CREATE TABLE work.late (v int);
        GRANT ALL ON work.late TO PUBLIC; END IF; END $$""",
    )
    script = "SELECT third_call_makes();\nINSERT INTO late VALUES (:client_id)"
    done = run_load(server.dsn(), script, clients=1, transactions=6, protocol=protocol)
    assert (done.on_time, done.failed) == (4, {"42P01": 2})
    assert count(server, "late") == 4


def test_a_statement_whose_first_values_do_not_fit_works_later(
    server: Any, make: Any, run_load: Any, protocol: str
) -> None:
    """It can be parsed and not bound; in a simple query 1.5 becomes 2."""
    make("CREATE TABLE fits (v int)")
    script = """\\set n :n + 1
\\set v case when :n > 2 then 7 else 1.5 end
INSERT INTO fits VALUES (:v)
"""
    done = run_load(
        server.dsn(), script, clients=1, transactions=5, protocol=protocol,
        variables=[("n", "0")],
    )  # fmt: skip
    assert done.failed == ({} if protocol == "simple" else {"22P02": 2})
    assert count(server, "fits") == done.on_time


def test_deadlocks_and_serialization_failures_keep_their_sqlstate(
    server: Any, make: Any, run_load: Any, protocol: str
) -> None:
    make("CREATE TABLE one (v int)", "INSERT INTO one VALUES (0)")
    script = """BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT v FROM one;
SELECT pg_sleep(0.01);
UPDATE one SET v = v + 1;
END;
"""
    done = run_load(server.dsn(), script, clients=4, transactions=10, protocol=protocol)
    assert set(done.failed) == {"40001"}
    assert done.on_time + done.failed["40001"] == 40
    assert server.execute("SELECT v FROM work.one") == [(done.on_time,)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_block_left_open_is_rolled_back_with_one_note(
    server: Any, make: Any, run_load: Any, protocol: str, transport: str
) -> None:
    make("CREATE TABLE never (v int)")
    done = run_load(
        getattr(server, transport)(), "BEGIN;\nINSERT INTO never VALUES (1);", clients=2,
        transactions=5, protocol=protocol,
    )  # fmt: skip
    assert done.on_time == 10
    assert count(server, "never") == 0
    assert 1 <= len(done.notes) <= 2  # one for each client that met it
    assert all("open" in note and "rolled back" in note for note in done.notes)


def test_a_script_that_cannot_run_as_written_ends_the_run(server: Any, run_load: Any) -> None:
    with pytest.raises(ScriptError, match=r"t:2: .*division by zero"):
        run_load(server.dsn(), "SELECT 1;\n\\set x 1 / 0\nSELECT :x;", transactions=5)


def test_sql_of_a_whole_kind_that_fails_is_counted_under_every_protocol(
    server: Any, run_load: Any, protocol: str
) -> None:
    for script, sqlstate in (
        ("SELECT nosuch", "42703"),
        ("SELEC 1", "42601"),
        ("SELECT * FROM nosuch", "42P01"),
        ("SELECT 1 WHERE :unset = 1", {"simple": "42601"}.get(protocol)),
        ("VACUUM nosuch", "42P01"),
        ("SELECT 1 \\; SELECT 2", {"simple": None}.get(protocol, "42601")),
    ):
        done = run_load(server.dsn(), script, clients=2, transactions=3, protocol=protocol)
        assert done.failed == ({sqlstate: 6} if sqlstate else {}), script


# --- answers of every size and kind ---------------------------------------------------------

MEMORY = """
import sys
from msgspec.structs import replace
sys.path.insert(0, {tests!r})
from conftest import PLAN, Load
from memory import peak_bytes
before = None
for sql in ("SELECT 1", {sql!r}):
    done = Load({dsn!r}, [("t", 1, sql)], replace(PLAN, protocol={protocol!r})).finish()
    assert done.on_time == 2, done
    before = before or peak_bytes()
print(peak_bytes() - before)
"""
LARGE = "SELECT repeat('x', 1000) FROM generate_series(1, 100000)"
WIDE = "SELECT repeat('x', 100000000)"


# Each kind of answer meets each protocol and each transport, and each protocol each transport.
MEETINGS = {
    "simple, many rows": ("simple", "dsn", LARGE),
    "simple, one wide row, TLS": ("simple", "tls", WIDE),
    "extended, one wide row": ("extended", "dsn", WIDE),
    "extended, many rows, TLS": ("extended", "tls", LARGE),
    "prepared, many rows": ("prepared", "dsn", LARGE),
    "prepared, one wide row, TLS": ("prepared", "tls", WIDE),
}


OTHERS = [
    pytest.param(*each, marks=pytest.mark.slow)
    for each in product(("simple", "extended", "prepared"), ("dsn", "tls"), (LARGE, WIDE))
    if each not in MEETINGS.values()
]


@pytest.mark.parametrize(
    ("protocol", "transport", "sql"),
    [*(pytest.param(*each, id=name) for name, each in MEETINGS.items()), *OTHERS],
)
def test_a_large_answer_is_read_in_bounded_memory(
    server: Any, protocol: str, transport: str, sql: str
) -> None:
    tests = __file__.rpartition("/integration/")[0]
    dsn = getattr(server, transport)()
    code = MEMORY.format(tests=tests, sql=sql, dsn=dsn, protocol=protocol)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 50 * 2**20


def test_many_columns_rows_and_empty_answers_are_read(
    server: Any, run_load: Any, protocol: str
) -> None:
    columns = ", ".join(f"{n} AS c{n}" for n in range(1600))
    for script in (
        f"SELECT {columns}",
        "SELECT",
        "SELECT WHERE false",
        "-- only a comment\n;;SELECT 1",
        "/* nothing */ ;",
        "SELECT '' FROM generate_series(1, 100000)",
        "SET synchronous_commit = off; RESET ALL; SHOW ALL;",
        "LISTEN x;\nNOTIFY x, 'y';\nUNLISTEN *;",
    ):
        done = run_load(server.tcp(), script, transactions=3, protocol=protocol)
        assert (done.on_time, done.failed) == (6, {}), script[:40]


@pytest.mark.parametrize(
    ("transport", "size"),
    [
        ("dsn", 1_000_000),
        ("tcp", 1_000_000),
        ("tls", 60_000),
        ("tls", 70_000),
        ("tls", 1_000_000),
    ],
)
def test_a_long_statement_is_sent(
    server: Any, run_load: Any, protocol: str, transport: str, size: int
) -> None:
    script = f"SELECT length('{'x' * size}') / (:client_id + 1)"
    done = run_load(getattr(server, transport)(), script, transactions=2, protocol=protocol)
    assert (done.on_time, done.failed) == (4, {})


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_notices_by_thousands_are_passed_over(
    server: Any, run_load: Any, protocol: str, transport: str
) -> None:
    notices = "DO $$ BEGIN FOR i IN 1..5000 LOOP RAISE NOTICE 'n %', i; END LOOP; END $$"
    done = run_load(getattr(server, transport)(), notices, transactions=2, protocol=protocol)
    assert (done.on_time, done.notes) == (4, [])


def test_copy_to_stdout_is_read(server: Any, run_load: Any, protocol: str) -> None:
    copy = "COPY (SELECT generate_series(1, 50000)) TO STDOUT;\nSELECT 1"
    done = run_load(server.dsn(), copy, transactions=3, protocol=protocol)
    assert (done.on_time, done.failed) == (6, {})


def test_copy_from_stdin_fails_and_the_client_goes_on(
    server: Any, make: Any, run_load: Any, protocol: str
) -> None:
    make("CREATE TABLE copied (v int)", "CREATE TABLE after (v int)")
    scripts = [("copy", 1, "COPY copied FROM STDIN"), ("after", 1, "INSERT INTO after VALUES (1)")]
    done = run_load(server.dsn(), scripts, transactions=None, duration_ns=SECOND_NS // 2,
                    grace_ns=SECOND_NS, protocol=protocol)  # fmt: skip
    assert done.unfinished == 0
    assert done.failed == {"57014": done.per_script[0]}
    assert count(server, "after") == done.on_time == done.per_script[1]


# --- the end --------------------------------------------------------------------------------

OURS = f"FROM pg_stat_activity WHERE application_name = '{NAME}'"
GONE = f"SELECT count(*) = 0 {OURS}"


def asleep(clients: int) -> str:
    return f"SELECT count(*) = {clients} {OURS} AND wait_event = 'PgSleep'"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_runs_when_grace_ends_is_cancelled_on_the_server(
    server: Any, start_load: Any, protocol: str, transport: str
) -> None:
    dsn = getattr(server, transport)(application_name=NAME)
    load = start_load(dsn, "SELECT pg_sleep(1000)", clients=3, transactions=None,
                      duration_ns=SECOND_NS // 2, grace_ns=SECOND_NS // 2,
                      protocol=protocol)  # fmt: skip
    done = load.finish()
    assert (done.due, done.unfinished) == (3, 3)
    server.wait_until(GONE)


def test_a_run_that_is_stopped_serves_what_was_due(
    server: Any, make: Any, start_load: Any, protocol: str
) -> None:
    make("CREATE TABLE served (v int)")
    script = "INSERT INTO served VALUES (1);\nSELECT pg_sleep(0.3)"
    dsn = server.dsn(application_name=NAME)
    load = start_load(dsn, script, clients=3, transactions=None, duration_ns=1000 * SECOND_NS,
                      protocol=protocol)  # fmt: skip
    server.wait_until(asleep(3))
    load.run.stop()
    done = load.finish()
    assert done.due == done.on_time == count(server, "served") >= 3
    server.wait_until(GONE)


def test_a_run_that_is_aborted_cancels_at_once(server: Any, start_load: Any) -> None:
    dsn = server.tcp(application_name=NAME)
    load = start_load(dsn, "SELECT pg_sleep(1000)", clients=3, transactions=None,
                      duration_ns=1000 * SECOND_NS, grace_ns=1000 * SECOND_NS)  # fmt: skip
    server.wait_until(asleep(3))
    load.run.abort()
    assert load.finish().unfinished == 3
    server.wait_until(GONE)


@pytest.mark.parametrize("load", ["open", "paced"])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_would_have_been_due_behind_an_abort_does_not_count(
    server: Any, start_load: Any, load: str, threads: int
) -> None:
    running = start_load(server.dsn(application_name=NAME), "SELECT 1", load=load, rate=2000.0,
                         transactions=None, duration_ns=1000 * SECOND_NS,
                         threads=threads)  # fmt: skip
    assert running.next()
    running.run.abort()
    done = running.finish()
    assert done.unfinished <= done.due < 1000 * 2000
    server.wait_until(GONE)


@pytest.mark.parametrize("end", ["stop", "abort"])
def test_a_run_that_is_ended_in_its_warm_up_does_not_go_on_with_it(
    server: Any, start_load: Any, end: str
) -> None:
    load = start_load(server.dsn(application_name=NAME), "SELECT 1", load="open", rate=100.0,
                      transactions=None, warmup_ns=1000 * SECOND_NS,
                      duration_ns=1000 * SECOND_NS)  # fmt: skip
    assert load.next()
    getattr(load.run, end)()
    assert load.run.end_ns < 0
    assert load.finish().on_time > 0
    server.wait_until(GONE)


def test_a_run_that_is_dropped_leaves_no_backend(server: Any, start_load: Any) -> None:
    dsn = server.dsn(application_name=NAME)
    load = start_load(dsn, "SELECT pg_sleep(1000)", transactions=None, duration_ns=10**12)
    server.wait_until(asleep(2))
    del load.run
    load.run = type("Gone", (), {"abort": staticmethod(lambda: None)})()
    server.wait_until(GONE)


def test_clients_that_finish_say_goodbye(server: Any, run_load: Any, protocol: str) -> None:
    run_load(server.tls(application_name=NAME), "SELECT 1", clients=8, protocol=protocol)
    server.wait_until(GONE)


# --- connections that are lost --------------------------------------------------------------

KILL = f"SELECT pg_terminate_backend(pid) {OURS}"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_terminated_backends_are_failures_and_the_clients_come_back(
    server: Any, make: Any, start_load: Any, protocol: str, transport: str
) -> None:
    make("CREATE TABLE came (pid int)")
    dsn = getattr(server, transport)(application_name=NAME)
    load = start_load(
        dsn, "INSERT INTO came VALUES (pg_backend_pid());\nSELECT pg_sleep(1000)", clients=3,
        threads=2, transactions=None, duration_ns=1000 * SECOND_NS, protocol=protocol,
    )  # fmt: skip
    for turn in (1, 2):
        server.wait_until(asleep(3))
        server.execute(KILL)
        server.wait_until(f"SELECT count(DISTINCT pid) = {3 * turn + 3} FROM work.came")
    server.wait_until(asleep(3))
    load.run.abort()
    done = load.finish()
    assert (done.failed, done.unfinished, done.due) == ({"57P01": 6}, 3, 9)
    assert "terminating connection" in done.messages["57P01"]
    assert done.disconnects == 6


def test_what_is_run_on_connecting_is_run_again_on_connecting_again(
    server: Any, make: Any, start_load: Any, protocol: str
) -> None:
    make("CREATE TABLE hello (pid int)")
    dsn = server.dsn(application_name=NAME)
    load = start_load(
        dsn, "SELECT pg_sleep(1000)", transactions=None, duration_ns=1000 * SECOND_NS,
        protocol=protocol, on_connect=["INSERT INTO hello VALUES (pg_backend_pid())"],
    )  # fmt: skip
    server.wait_until(asleep(2))
    server.execute(KILL)
    server.wait_until("SELECT count(DISTINCT pid) = 4 FROM work.hello")
    load.run.abort()
    assert load.finish().failed == {"57P01": 2}


@pytest.mark.parametrize("load_model", ["closed", "open", "paced"])
def test_a_server_that_crashes_and_comes_back_costs_failures_and_nothing_else(
    server: Any, make: Any, start_load: Any, load_model: str
) -> None:
    make("CREATE TABLE kept (pid int, started timestamptz DEFAULT pg_postmaster_start_time())")
    script = "INSERT INTO kept (pid) VALUES (pg_backend_pid());\nSELECT pg_sleep(0.02)"
    load = start_load(
        server.tcp(application_name=NAME), script, clients=8, threads=2, transactions=None,
        duration_ns=1000 * SECOND_NS, protocol="prepared", load=load_model,
        rate=10.0 if load_model == "paced" else 100.0,
        grace_ns=5 * SECOND_NS,
    )  # fmt: skip
    server.wait_until("SELECT count(*) > 20 FROM work.kept")
    server.restart()
    server.wait_until("SELECT count(*) > 50 FROM work.kept "
                      "WHERE started = pg_postmaster_start_time()")  # fmt: skip
    load.run.stop()
    done = load.finish()
    assert done.unfinished == 0
    assert set(done.failed) <= {"57P01", "57P02", "57P03", "08006"}
    assert done.on_time <= count(server, "kept") <= done.on_time + sum(done.failed.values())
    assert done.disconnects == 8


def test_a_server_that_is_gone_for_good_ends_with_the_run(
    fake_server: Any, start_load: Any
) -> None:
    server = fake_server()
    load = start_load(server.dsn(), "SELECT pg_sleep(0.01)", load="open", rate=50.0,
                      transactions=None, duration_ns=3 * SECOND_NS,
                      grace_ns=SECOND_NS)  # fmt: skip
    load.next()
    server.control("refuse")
    server.control("drop-all")
    done = load.finish()
    assert done.due == 150
    assert done.done >= 1
    assert done.unfinished >= 1
    assert set(done.failed) <= {"08006"}


# --- a server that stands still -------------------------------------------------------------


def test_a_frozen_server_makes_late_what_was_due_while_it_stood(
    fake_server: Any, start_load: Any, protocol: str
) -> None:
    """One interval at least passes frozen: what was due in it waited for the thaw."""
    server = fake_server("--delay-ms", 1)
    load = start_load(
        server.dsn(), "SELECT 1;\nSELECT 2", clients=4, load="open", rate=100.0,
        transactions=None, duration_ns=10 * SECOND_NS, limit_ns=SECOND_NS // 10,
        protocol=protocol,
    )  # fmt: skip
    assert load.next()
    server.control("stall")
    before = -1
    while load.outcome.done > before:
        before = load.outcome.done
        assert load.next()  # the engine tells of seconds in which nothing comes back
    server.control("thaw")
    done = load.finish()
    assert (done.due, done.on_time + done.late, done.failed) == (1000, 1000, {})
    assert done.late >= 80  # a second's worth, but for what was less than the limit before the thaw
    assert done.on_time >= 80  # the first second, at least


def test_what_a_frozen_server_never_answers_stays_unfinished(
    fake_server: Any, start_load: Any
) -> None:
    server = fake_server()
    load = start_load(server.dsn(), "SELECT 1", clients=2, load="open", rate=20.0,
                      transactions=None, duration_ns=2 * SECOND_NS,
                      grace_ns=SECOND_NS)  # fmt: skip
    server.control("stall")
    done = load.finish()
    assert done.due == 40 == done.on_time + done.unfinished
    assert done.unfinished >= 20


def test_a_server_that_is_frozen_at_the_start_is_given_up(fake_server: Any, run_load: Any) -> None:
    server = fake_server()
    server.control("stall")
    with pytest.raises(ServerError, match="no answer in time"):
        run_load(server.dsn(connect_timeout=2), "SELECT 1")


def test_clients_come_back_to_a_server_that_dropped_them(
    fake_server: Any, start_load: Any, protocol: str
) -> None:
    server = fake_server()
    load = start_load(server.dsn(), "SELECT pg_sleep(0.005)", clients=8, threads=2,
                      transactions=None, duration_ns=3 * SECOND_NS,
                      protocol=protocol)  # fmt: skip
    load.next()
    server.control("drop-all")
    load.next()
    done_before = load.outcome.done
    done = load.finish()
    assert done.done > done_before
    assert set(done.failed) == {"08006"}
    assert 1 <= done.failed["08006"] <= 8 == done.disconnects
    assert server.control("stats")["logged_in"] == 1 + 8 + 8  # the search, the start, the return


def test_connections_that_are_made_again_are_counted(fake_server: Any, start_load: Any) -> None:
    server = fake_server()
    load = start_load(server.dsn(), "SELECT pg_sleep(0.005)", clients=8, transactions=None,
                      duration_ns=2 * SECOND_NS)  # fmt: skip
    server.control("drop-all")
    done = load.finish()
    assert done.connects == done.disconnects == 8


@pytest.mark.parametrize(
    "end",
    [
        ("fake_error('40P01')", "40P01"),
        ("fake_error('53200', 'out of memory')", "53200"),
        ("fake_terminate()", "57P01"),
        ("fake_disconnect()", "08006"),
    ],
    ids=lambda end: end[1],
)
def test_errors_and_ends_are_told_apart(
    fake_server: Any,
    run_load: Any,
    protocol: str,
    end: tuple[str, str],
) -> None:
    call, sqlstate = end
    done = run_load(fake_server().dsn(), f"SELECT {call}", transactions=None,
                    duration_ns=SECOND_NS // 2, grace_ns=SECOND_NS, protocol=protocol)  # fmt: skip
    assert (done.unfinished, set(done.failed)) == (0, {sqlstate})


def test_a_password_never_shows_in_what_a_run_says(server: Any, start_load: Any) -> None:
    secret = "s3:cr\\t@/%27' ü"
    dsn = server.tcp("u_scram", password=secret, application_name=NAME)
    load = start_load(dsn, "SELECT pg_sleep(1000)", transactions=None, duration_ns=10**12)
    server.wait_until(asleep(2))
    server.execute("ALTER ROLE u_scram PASSWORD 'another'")
    try:
        server.execute(KILL)
        deadline = time.monotonic() + DEADLINE_S
        while len(load.outcome.notes) < 2 and time.monotonic() < deadline:
            assert load.next(), "ended by itself"
        load.run.abort()
        done = load.finish()
    finally:
        server.execute(f"ALTER ROLE u_scram PASSWORD '{secret.replace(chr(39), chr(39) * 2)}'")
    assert len(done.notes) == 2
    assert all("cannot log in again" in note for note in done.notes)
    assert secret not in repr(done)
    assert done.failed["57P01"] == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clients": 0}, "client"),
        ({"transactions": 0}, "longer than nothing"),
        ({"load": "open", "rate": float("nan")}, "rate"),
        ({"policy": "skip"}, "limit"),
        ({"protocol": "binary"}, "simple, extended, prepared"),
        ({"variables": [("1x", "1")]}, "1x"),
    ],
    ids=str,
)
def test_a_plan_that_cannot_be_is_refused_before_anything_runs(
    server: Any, run_load: Any, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(PgpacesError, match=words) as caught:
        run_load(server.dsn(), "SELECT 1", **changes)
    assert type(caught.value) is PlanError
