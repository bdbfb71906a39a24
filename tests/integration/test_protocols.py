"""Transactions on PostgreSQL 15 by every protocol and transport: what is left in the database is
what was counted, and whatever goes wrong is counted once and goes on.

Then what scripts do beside SQL.
"""

import os
import subprocess
import time
from typing import Any

import pytest
from tests.folders import open_folder
from tests.needs import check, found
from tests.servers import server_user
from tests.waiting import DEADLINE_S, until

from pgpaces.core.errors import PgpacesError, PlanError, ScriptError

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("clean_client")]
SECOND_NS = 1_000_000_000
PROTOCOLS = ("simple", "extended", "prepared")
TRANSPORTS = ("dsn", "tcp", "tls")  # Postgres' methods: socket, TCP, TLS
NAME = "pgpaces protocols"


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    return str(request.param)


def count(server: Any, table: str) -> int:
    [[rows]] = server.execute(f"SELECT count(*) FROM work.{table}")
    return int(rows)


FIVE = """\\set v random(1, 1000)
BEGIN;
INSERT INTO counted VALUES (:client_id, :v);
SELECT sum(v) FROM counted WHERE client = :client_id;
END;
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_count_leaves_exactly_clients_times_transactions_rows(
    server, make, run_load, protocol, transport
):
    make("CREATE TABLE counted (client int, v int CHECK (v BETWEEN 1 AND 1000))")
    dsn = getattr(server, transport)()
    # Whether results are described changes nothing.
    done = run_load(dsn, FIVE, clients=5, threads=2, transactions=20, protocol=protocol,
                    describe=transport != "tcp")  # fmt: skip
    assert (done.due, done.on_time, done.failed) == (100, 100, {})
    rows = server.execute("SELECT client, count(*) FROM work.counted GROUP BY 1 ORDER BY 1")
    assert rows == [(client, 20) for client in range(5)]


def test_one_seed_leaves_the_same_rows_by_every_protocol_and_number_of_threads(
    server, make, run_load
):
    found = []
    for protocol, threads in (("simple", 1), ("extended", 2), ("prepared", 4)):
        make("CREATE TABLE counted (client int, v int)")
        run_load(server.dsn(), FIVE, clients=4, threads=threads, transactions=5,
                 protocol=protocol, seed=42)  # fmt: skip
        found.append(server.execute("SELECT * FROM work.counted ORDER BY 1, 2"))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 20


@pytest.mark.parametrize("load", ["open", "paced"])
def test_a_rate_by_count_leaves_exactly_that_many_rows(server, make, run_load, load):
    make("CREATE TABLE counted (client int, v int)")
    done = run_load(
        server.dsn(), FIVE, clients=3, threads=2, transactions=20, load=load, rate=500.0,
        arrivals="poisson",
    )  # fmt: skip
    assert done.due == done.on_time == 60 == count(server, "counted")


def test_every_connection_runs_what_is_to_be_run_on_connecting(server, make, run_load, protocol):
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


def test_a_unique_violation_within_a_block_is_rolled_back_and_counted(
    server, make, run_load, protocol
):
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


def test_a_statement_that_fails_at_its_first_use_works_later(server, make, run_load, protocol):
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


def test_a_statement_whose_first_values_do_not_fit_works_later(server, make, run_load, protocol):
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


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_block_left_open_is_rolled_back_with_one_note(
    server, make, run_load, protocol, transport
):
    make("CREATE TABLE never (v int)")
    done = run_load(
        getattr(server, transport)(), "BEGIN;\nINSERT INTO never VALUES (1);", clients=2,
        transactions=5, protocol=protocol,
    )  # fmt: skip
    assert done.on_time == 10
    assert count(server, "never") == 0
    assert 1 <= len(done.notes) <= 2  # one for each client that met it
    assert {note[:2] for note in done.notes} == {("transaction-left-open", "script")}


def test_a_script_that_cannot_run_as_written_ends_the_run(server, run_load):
    with pytest.raises(ScriptError, match=r"t:2: .*division by zero"):
        run_load(server.dsn(), "SELECT 1;\n\\set x 1 / 0\nSELECT :x;", transactions=5)


def test_sql_of_a_whole_kind_that_fails_is_counted_under_every_protocol(server, run_load, protocol):
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


def test_answers_of_every_kind_are_read(server, run_load, protocol):
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
        "DO $$ BEGIN FOR i IN 1..5000 LOOP RAISE NOTICE 'n %', i; END LOOP; END $$",
        "COPY (SELECT generate_series(1, 50000)) TO STDOUT;\nSELECT 1",
    ):
        done = run_load(server.tcp(), script, transactions=3, protocol=protocol)
        assert (done.on_time, done.failed, done.notes) == (6, {}, []), script[:40]


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
def test_a_long_statement_is_sent(server, run_load, protocol, transport, size):
    script = f"SELECT length('{'x' * size}') / (:client_id + 1)"
    done = run_load(getattr(server, transport)(), script, transactions=2, protocol=protocol)
    assert (done.on_time, done.failed) == (4, {})


def test_copy_from_stdin_fails_and_the_client_goes_on(server, make, run_load, protocol):
    make("CREATE TABLE copied (v int)", "CREATE TABLE after (v int)")
    scripts = [("copy", 1, "COPY copied FROM STDIN"), ("after", 1, "INSERT INTO after VALUES (1)")]
    done = run_load(server.dsn(), scripts, transactions=100, protocol=protocol)
    assert done.unfinished == 0
    assert done.failed == {"57014": done.per_script[0]}
    assert count(server, "after") == done.on_time == done.per_script[1]


OURS = f"FROM pg_stat_activity WHERE application_name = '{NAME}'"
GONE = f"SELECT count(*) = 0 {OURS}"


def asleep(clients: int) -> str:
    return f"SELECT count(*) = {clients} {OURS} AND wait_event = 'PgSleep'"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_runs_when_grace_ends_is_cancelled_on_the_server(
    server, start_load, protocol, transport
):
    dsn = getattr(server, transport)(application_name=NAME)
    load = start_load(dsn, "SELECT pg_sleep(1000)", clients=3, transactions=None,
                      duration_ns=SECOND_NS // 2, grace_ns=SECOND_NS // 2,
                      protocol=protocol)  # fmt: skip
    done = load.finish()
    assert (done.due, done.unfinished) == (3, 3)
    server.wait_until(GONE)


def test_a_run_that_is_stopped_serves_what_was_due(server, make, start_load, protocol):
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


def test_a_run_that_is_aborted_cancels_at_once(server, start_load):
    dsn = server.tcp(application_name=NAME)
    load = start_load(dsn, "SELECT pg_sleep(1000)", clients=3, transactions=None,
                      duration_ns=1000 * SECOND_NS, grace_ns=1000 * SECOND_NS)  # fmt: skip
    server.wait_until(asleep(3))
    load.run.abort()
    assert load.finish().unfinished == 3
    server.wait_until(GONE)


@pytest.mark.parametrize("load", ["open", "paced"])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_would_have_been_due_behind_an_abort_does_not_count(server, start_load, load, threads):
    running = start_load(server.dsn(application_name=NAME), "SELECT 1", load=load, rate=2000.0,
                         transactions=None, duration_ns=1000 * SECOND_NS,
                         threads=threads)  # fmt: skip
    assert running.next()
    running.run.abort()
    done = running.finish()
    assert done.unfinished <= done.due < 1000 * 2000
    server.wait_until(GONE)


@pytest.mark.parametrize("end", ["stop", "abort"])
def test_a_run_that_is_ended_in_its_warm_up_does_not_go_on_with_it(server, start_load, end):
    load = start_load(server.dsn(application_name=NAME), "SELECT 1", load="open", rate=100.0,
                      transactions=None, warmup_ns=1000 * SECOND_NS,
                      duration_ns=1000 * SECOND_NS)  # fmt: skip
    assert load.next()
    getattr(load.run, end)()
    assert load.run.end_ns < 0
    assert load.finish().on_time > 0
    server.wait_until(GONE)


def test_a_run_that_is_dropped_leaves_no_backend(server, start_load):
    dsn = server.dsn(application_name=NAME)
    load = start_load(dsn, "SELECT pg_sleep(1000)", transactions=None, duration_ns=10**12)
    server.wait_until(asleep(2))
    del load.run
    load.run = type("Gone", (), {"abort": staticmethod(lambda: None)})()
    server.wait_until(GONE)


def test_clients_that_finish_say_goodbye(server, run_load, protocol):
    run_load(server.tls(application_name=NAME), "SELECT 1", clients=8, protocol=protocol)
    server.wait_until(GONE)


KILL = f"SELECT pg_terminate_backend(pid) {OURS}"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_terminated_backends_are_failures_and_the_clients_come_back(
    server, make, start_load, protocol, transport
):
    make("CREATE TABLE came (pid int)", "CREATE TABLE hello (pid int)")
    dsn = getattr(server, transport)(application_name=NAME)
    load = start_load(
        dsn, "INSERT INTO came VALUES (pg_backend_pid());\nSELECT pg_sleep(1000)", clients=3,
        threads=2, transactions=None, duration_ns=1000 * SECOND_NS, protocol=protocol,
        on_connect=["INSERT INTO hello VALUES (pg_backend_pid())"],
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
    assert count(server, "hello") == 9, "what is run on connecting is run on connecting again"


def test_a_server_that_is_gone_for_good_ends_with_the_run(fake_server, start_load):
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


def test_clients_come_back_to_a_server_that_dropped_them(fake_server, start_load, protocol):
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
def test_errors_and_ends_are_told_apart(fake_server, run_load, protocol, end):
    call, sqlstate = end
    done = run_load(
        fake_server().dsn(), f"SELECT {call}", transactions=5, grace_ns=SECOND_NS, protocol=protocol
    )
    assert (done.unfinished, set(done.failed)) == (0, {sqlstate})


@pytest.fixture
def pooled(server):
    """The folder and the port of a pgbouncer before the server."""
    check("pgbouncer")
    with open_folder("pgpaces-pooled-") as folder:
        port = 6432
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={server.folder} port={server.port}\n"
            f"[pgbouncer]\nlisten_port = {port}\nunix_socket_dir = {folder}\n"
            f"auth_type = trust\nauth_file = {folder}/users\npool_mode = transaction\n"
            "ignore_startup_parameters = extra_float_digits,client_encoding\n"
        )
        (folder / "users").write_text('"u_trust" ""')
        for path in (folder, *folder.iterdir()):
            os.chown(path, server_user().get("user", -1), -1)
        command = [found("pgbouncer"), "-q", str(folder / "pgbouncer.ini")]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, **server_user()) as pgbouncer:
            until((folder / f".s.PGSQL.{port}").exists, "a pooler")
            yield {"host": folder, "port": port}
            pgbouncer.kill()


def test_what_runs_at_the_end_is_canceled_behind_a_pooler_too(server, pooled, start_load):
    # A pooler forgets the key of a connection that is closed.
    script = "SELECT pg_sleep(1000) /* to be canceled */"
    load = start_load(server.dsn(**pooled), script, clients=20, transactions=None,
                      duration_ns=10**12)  # fmt: skip
    running = "SELECT count(*) {} FROM pg_stat_activity WHERE query LIKE '%to be canceled */'"
    running += " AND state = 'active' AND pid <> pg_backend_pid()"
    server.wait_until(running.format("= 20"))
    load.run.abort()
    done = load.finish()
    server.wait_until(running.format("= 0"))
    assert (done.unfinished, done.notes) == (20, [])


def test_statements_that_cannot_be_canceled_are_counted(fake_server, start_load):
    fake = fake_server()
    load = start_load(fake.dsn(), "SELECT fake_hang()", clients=3, transactions=None,
                      duration_ns=10**12)  # fmt: skip
    until(lambda: sum(fake.control("stats")["queries"].values()) >= 3, "three statements")
    fake.control("refuse")
    load.run.abort()
    done = load.finish()
    assert done.unfinished == 3
    assert [note[:1] + note[2:] for note in done.notes] == [("statements-left-running", "3")]


def test_a_password_never_shows_in_what_a_run_says(server, start_load):
    secret = "s3:cr\\t@/%27' ü"
    dsn = server.tcp("u_scram", password=secret, application_name=NAME, connect_timeout=2)
    load = start_load(dsn, "SELECT pg_sleep(1000)", transactions=None, duration_ns=10**12)
    server.wait_until(asleep(2))
    role, doubled = "ALTER ROLE u_scram PASSWORD", secret.replace("'", "''")
    with server.meanwhile(f"{role} 'another'", f"{role} '{doubled}'"):
        server.execute(KILL)
        deadline = time.monotonic() + DEADLINE_S
        while len(load.outcome.notes) < 2 and time.monotonic() < deadline:
            assert load.next(), "ended by itself"
        load.run.abort()
        done = load.finish()
    assert len(done.notes) == 2
    assert {note[0] for note in done.notes} == {"client-locked-out"}
    assert secret not in repr(done)
    assert done.failed["57P01"] == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clients": 0}, "client"),
        ({"transactions": 0}, "`duration`"),
        ({"load": "open", "rate": float("nan")}, "rate"),
        ({"policy": "skip"}, "limit"),
        ({"shape": [(0, 0.0, 2.0)]}, "`shape`"),
        ({"limits": [(1, 1)]}, "`limits`"),
        ({"protocol": "binary"}, "`protocol`"),
        ({"variables": [("1x", "1")]}, "1x"),
    ],
    ids=str,
)
def test_a_plan_that_cannot_be_is_refused_before_anything_runs(server, run_load, changes, words):
    with pytest.raises(PgpacesError, match=words) as caught:
        run_load(server.dsn(), "SELECT 1", **changes)
    assert type(caught.value) is PlanError


PIPELINING = ("extended", "prepared")


def rows(server: Any, sql: str) -> list[tuple[Any, ...]]:
    with server.connect() as connection:
        connection.execute("SET search_path = work")
        found: list[tuple[Any, ...]] = connection.execute(sql.encode()).fetchall()
    return found


def test_a_row_is_stored_in_variables_and_used_by_what_follows(server, make, run_load, protocol):
    make("CREATE TABLE found (a int, b text, c int, last int)")
    script = """SELECT 6 * 7 AS a, 'two words' AS b \\gset
SELECT n AS last FROM generate_series(1, 5) n \\aset
SELECT :a + 1 AS c \\gset of_
\\set c :of_c * 2
INSERT INTO found VALUES (:a, $$:b$$, :c, :last)
"""
    if protocol != "simple":
        script = script.replace("$$:b$$", ":b")
    done = run_load(server.dsn(), script, clients=2, transactions=3, protocol=protocol)
    assert (done.on_time, done.failed) == (6, {})
    assert rows(server, "SELECT DISTINCT * FROM found") == [(42, "two words", 86, 5)]


def test_a_megabyte_and_every_byte_of_text_come_through(server, make, run_load):
    make("CREATE TABLE found (v text)")
    script = """SELECT repeat('ü''"\\:', 200000) AS v \\gset
INSERT INTO found VALUES (:v)
"""
    for protocol in PIPELINING:
        assert run_load(server.tls(), script, clients=1, protocol=protocol).on_time == 1
    expected = [(True,), (True,)]
    assert rows(server, "SELECT v = repeat('ü''\"\\:', 200000) FROM found") == expected


PIPELINE = """\\startpipeline
INSERT INTO piped VALUES (:client_id, 1);
INSERT INTO piped VALUES (:client_id, 2);
\\syncpipeline
INSERT INTO piped VALUES (:client_id, 3);
\\endpipeline
INSERT INTO piped VALUES (:client_id, 4);
"""


@pytest.mark.parametrize("protocol", PIPELINING)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_pipeline_does_all_that_is_in_it(server, make, run_load, protocol, transport):
    make("CREATE TABLE piped (client int, v int)")
    done = run_load(
        getattr(server, transport)(), PIPELINE, clients=3, transactions=10, protocol=protocol
    )  # fmt: skip
    assert (done.on_time, done.failed) == (30, {})
    sql = "SELECT client, v, count(*) FROM piped GROUP BY 1, 2 ORDER BY 1, 2"
    assert rows(server, sql) == [(c, v, 10) for c in range(3) for v in (1, 2, 3, 4)]


@pytest.mark.parametrize("protocol", PIPELINING)
def test_an_error_in_a_pipeline_undoes_it_up_to_its_sync_and_fails_the_transaction_once(
    server, make, run_load, protocol
):
    make("CREATE TABLE piped (client int, v int)", "CREATE SEQUENCE calls")
    script = PIPELINE.replace("(:client_id, 2)", "(1 / (nextval('calls') % 2)::int, 2)")
    done = run_load(server.dsn(), script, clients=1, transactions=10, protocol=protocol)
    assert (done.on_time, done.failed) == (5, {"22012": 5})
    found = dict(rows(server, "SELECT v, count(*) FROM piped GROUP BY 1"))
    # What is behind the Sync has been sent already when the error is read.
    assert found == {1: 5, 2: 5, 3: 10, 4: 5}


def test_a_shell_command_holds_up_only_its_own_client(server, make, start_load, tmp_path):
    make("CREATE TABLE done (client int)")
    gate = tmp_path / "gate"
    subprocess.run(["mkfifo", gate], check=True)
    script = f"""\\if :client_id = 0 AND :n = 0
\\shell read x < {gate}
\\endif
\\set n :n + 1
INSERT INTO done VALUES (:client_id)
"""
    load = start_load(
        server.dsn(), script, clients=3, threads=1, transactions=20, variables=[("n", "0")]
    )  # fmt: skip
    server.wait_until("SELECT count(*) = 40 FROM work.done")
    assert rows(server, "SELECT DISTINCT client FROM done ORDER BY 1") == [(1,), (2,)]
    gate.write_text("now\n")
    assert load.finish().on_time == 60


def test_setshell_stores_an_integer_and_variables_are_put_into_its_command(server, make, run_load):
    make("CREATE TABLE found (client int, a int, b int, c int)")
    script = """\\setshell a expr :client_id + 41
\\setshell b printf ' -%d \\nmore' :a
\\setshell c yes 0 | tr -d '\\n'
\\shell test ::x = ':x'
INSERT INTO found VALUES (:client_id, :a, :b, :c)
"""
    done = run_load(server.dsn(), script, clients=3, transactions=2)
    assert done.on_time == 6
    found = rows(server, "SELECT DISTINCT * FROM found ORDER BY 1")
    assert found == [(c, c + 41, -c - 41, 0) for c in range(3)]


def test_a_loop_of_meta_commands_ends_with_the_run_and_starves_nobody(server, make, run_load):
    # What takes a while in the server: else the system decides whose turn it is, and not the
    # engine, by which of its processes share a CPU with the loop.
    make("CREATE TABLE done (client int)")
    script = """\\if :client_id = 0
\\set x random(1, 10)
\\else
SELECT pg_sleep(0.01);
INSERT INTO done VALUES (:client_id);
\\endif
"""
    done = run_load(
        server.dsn(), script, clients=3, threads=1, transactions=None, duration_ns=3 * SECOND_NS
    )
    found = dict(rows(server, "SELECT client, count(*) FROM done GROUP BY 1"))
    assert set(found) == {1, 2}
    assert done.done == done.due > sum(found.values()) > 20
    assert max(found.values()) < 3 * min(found.values())


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("load", ["closed", "open", "paced"])
def test_each_transaction_has_a_backend_of_its_own(server, make, run_load, transport, load):
    make("CREATE TABLE backends (pid int, started timestamptz)")
    script = """INSERT INTO backends
SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid();
SELECT 1"""
    for protocol in PROTOCOLS:
        done = run_load(
            getattr(server, transport)(), script, clients=3, threads=2, transactions=5,
            protocol=protocol, connect_each=True, load=load, rate=100.0,
        )  # fmt: skip
        assert (done.on_time, done.failed, done.disconnects) == (15, {}, 0)
        assert done.connect_ns > 0
    assert rows(server, "SELECT count(*), count(DISTINCT (pid, started)) FROM backends") == [
        (45, 45)
    ]
