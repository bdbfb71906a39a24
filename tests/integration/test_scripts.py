"""What scripts do beside SQL, on PostgreSQL 15: results stored in variables, another try,
pipelines, shell commands, a connection for each transaction; beside pgbench where that
says more.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.needs import PG15_BIN

from pgpaces.core.errors import PgpacesError

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("clean_client")]
SECOND_NS = 1_000_000_000
PGBENCH = PG15_BIN / "pgbench"
PROTOCOLS = ("simple", "extended", "prepared")
PIPELINING = ("extended", "prepared")
TRANSPORTS = ("dsn", "tcp", "tls")
NAME = "pgpaces scripts"


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pgbench(server: Any, tmp_path: Path) -> Any:
    """Run pgbench with a script and words of its command line; what it wrote to stderr."""

    def run(script: str, *words: object) -> str:
        path = tmp_path / "pgbench.sql"
        path.write_text(script)
        command = [PGBENCH, "-n", "-f", path, *words, server.dsn()]
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, check=False,
            cwd=tmp_path,
        )  # fmt: skip
        return done.stderr

    return run


def rows(server: Any, sql: str) -> list[tuple[Any, ...]]:
    with server.connect() as connection:
        connection.execute("SET search_path = work")
        found: list[tuple[Any, ...]] = connection.execute(sql.encode()).fetchall()
    return found


# --- \gset and \aset ------------------------------------------------------------------------


def test_a_row_is_stored_in_variables_and_used_by_what_follows(
    server: Any, make: Any, run_load: Any, protocol: str
) -> None:
    make("CREATE TABLE found (a int, b text, c int)")
    script = """SELECT 6 * 7 AS a, 'two words' AS b \\gset
SELECT :a + 1 AS c \\gset of_
\\set c :of_c * 2
INSERT INTO found VALUES (:a, $$:b$$, :c)
"""
    if protocol != "simple":
        script = script.replace("$$:b$$", ":b")
    done = run_load(server.dsn(), script, clients=2, transactions=3, protocol=protocol)
    assert (done.on_time, done.failed) == (6, {})
    assert rows(server, "SELECT DISTINCT * FROM found") == [(42, "two words", 86)]


def test_every_result_of_a_compound_command_is_stored_by_aset(
    server: Any, make: Any, run_load: Any
) -> None:
    make("CREATE TABLE found (a int, b int, c int)")
    script = """\\set c -1
SELECT n AS a FROM generate_series(1, 5) n \\; SELECT 2 AS b \\; SELECT 3 AS c WHERE false \\aset
INSERT INTO found VALUES (:a, :b, :c)
"""
    assert run_load(server.dsn(), script, clients=1, transactions=2).on_time == 2
    assert rows(server, "SELECT DISTINCT * FROM found") == [(5, 2, -1)]


def test_aset_stores_the_last_row_by_every_protocol(
    server: Any, make: Any, run_load: Any, protocol: str
) -> None:
    make("CREATE TABLE found (a int)")
    script = "SELECT n AS a FROM generate_series(1, 5) n \\aset\nINSERT INTO found VALUES (:a)"
    assert run_load(server.dsn(), script, clients=1, protocol=protocol).on_time == 1
    assert rows(server, "SELECT a FROM found") == [(5,)]


def test_null_stays_null(server: Any, make: Any, run_load: Any, protocol: str) -> None:
    make("CREATE TABLE found (a int, told text, seen int)")
    told = "':a'" if protocol == "simple" else ":a"
    script = f"""SELECT NULL::int AS a \\gset
\\set seen CASE WHEN :a IS NULL THEN 1 ELSE 0 END
INSERT INTO found VALUES (:a, {told}, :seen)
"""
    done = run_load(server.dsn(), script, clients=1, protocol=protocol)
    assert (done.on_time, done.failed) == (1, {})
    text = "NULL" if protocol == "simple" else None
    assert rows(server, "SELECT * FROM found") == [(None, text, 1)]


def test_a_megabyte_and_every_byte_of_text_come_through(
    server: Any, make: Any, run_load: Any
) -> None:
    make("CREATE TABLE found (v text)")
    script = """SELECT repeat('ü''"\\:', 200000) AS v \\gset
INSERT INTO found VALUES (:v)
"""
    for protocol in PIPELINING:
        assert run_load(server.tls(), script, clients=1, protocol=protocol).on_time == 1
    expected = [(True,), (True,)]
    assert rows(server, "SELECT v = repeat('ü''\"\\:', 200000) FROM found") == expected


@pytest.mark.parametrize(
    "refused",
    [
        ("SELECT 1 AS a WHERE false \\gset", "expected one row, got 0"),
        ("SELECT n AS a FROM generate_series(1, 3) n \\gset", "expected one row, got 3"),
        ("SELECT 1 AS \"no name\" \\gset", "error storing into variable no name"),
        ("SELECT 1 AS \"1\" \\aset", "error storing into variable 1"),
        ("CREATE TEMP TABLE x () \\gset", "expected one row, got 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_aborts_the_client_in_pgbenchs_words(
    server: Any, run_load: Any, pgbench: Any, protocol: str, refused: tuple[str, str]
) -> None:
    sql, reason = refused
    done = run_load(
        server.dsn(), sql, clients=1, transactions=3, protocol=protocol, exit_on_abort=False,
        continue_on_error=False, recover=False,
    )  # fmt: skip
    assert (done.due, done.failed, done.aborted) == (1, {"38000": 1}, 1)
    [(_, line)] = done.lines
    assert line == f"client 0 script 0 command 0 query 0: {reason}"
    if "storing" not in reason:  # pgbench 15 says which query it is in another way
        assert f"pgbench: error: {line}\n" in pgbench(sql, "-M", protocol, "-t", 3)
    else:
        assert reason in pgbench(sql, "-M", protocol, "-t", 3)


# --- another try ----------------------------------------------------------------------------


def test_serialization_failures_are_tried_again_until_the_sum_is_right(
    server: Any, make: Any, run_load: Any, protocol: str
) -> None:
    make("CREATE TABLE one (v int)", "INSERT INTO one VALUES (0)")
    script = """BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT v FROM one;
SELECT pg_sleep(0.001);
UPDATE one SET v = v + 1;
END;
"""
    done = run_load(
        server.dsn(), script, clients=4, threads=2, transactions=20, protocol=protocol,
        max_tries=10_000,
    )  # fmt: skip
    assert (done.on_time, done.failed) == (80, {})
    assert rows(server, "SELECT v FROM one") == [(80,)]
    assert 0 < done.retried <= done.retries


def test_deadlocks_are_tried_again(server: Any, make: Any, run_load: Any, protocol: str) -> None:
    make("CREATE TABLE two (id int PRIMARY KEY, v int)", "INSERT INTO two VALUES (0, 0), (1, 0)")
    script = """\\set first :client_id % 2
BEGIN;
UPDATE two SET v = v + 1 WHERE id = :first;
SELECT pg_sleep(0.01);
UPDATE two SET v = v + 1 WHERE id = 1 - :first;
END;
"""
    done = run_load(
        server.dsn("postgres", options="-c search_path=work"), script, clients=2, transactions=5,
        protocol=protocol, max_tries=1000, on_connect=["SET deadlock_timeout = '20ms'"],
    )  # fmt: skip
    assert (done.on_time, done.failed) == (10, {})
    assert rows(server, "SELECT v FROM two") == [(10,), (10,)]
    assert done.retries > 0


def test_variables_of_a_failed_try_are_kept_and_dice_thrown_again_as_in_pgbench(
    server: Any, make: Any, run_load: Any, pgbench: Any
) -> None:
    """Both leave the same rows behind, one for each try, for they are written by a sequence."""
    script = """\\set n :n + 1
\\set r random(1, 1000000)
SELECT setval('tries', nextval('tries') + 0 * :n + 0 * :r);
SELECT set_config('work.told', current_setting('work.told', true) || ' :n/:r', false);
DO $$ BEGIN IF nextval('calls') % 3 <> 0 THEN RAISE SQLSTATE '40001'; END IF; END $$;
INSERT INTO told SELECT :client_id, current_setting('work.told');
"""

    def ours() -> None:
        variables = [("n", "0")]
        run_load(
            server.dsn(), script, clients=1, transactions=4, max_tries=5, seed=5,
            variables=variables,
        )  # fmt: skip

    def theirs() -> None:
        pgbench(script, "-t", 4, "--max-tries=5", "--random-seed=5", "-D", "n=0")

    found = []
    for run in (ours, theirs):
        make(
            "CREATE SEQUENCE tries",
            "CREATE SEQUENCE calls",
            "CREATE TABLE told (client int, told text)",
        )
        server.execute("ALTER ROLE u_trust SET work.told = ''")
        run()
        found.append(rows(server, "SELECT told FROM told ORDER BY length(told)"))
    server.execute("ALTER ROLE u_trust RESET work.told")
    assert found[0] == found[1]
    tries = [word.split("/") for word in found[0][-1][0].split()]
    assert [n for n, _ in tries] == [str(n) for n in range(1, 13)]
    dice = [r for _, r in tries]
    assert dice[0] == dice[1] == dice[2] != dice[3]


# --- pipelines ------------------------------------------------------------------------------

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
def test_a_pipeline_does_all_that_is_in_it(
    server: Any, make: Any, run_load: Any, protocol: str, transport: str
) -> None:
    make("CREATE TABLE piped (client int, v int)")
    done = run_load(
        getattr(server, transport)(), PIPELINE, clients=3, transactions=10, protocol=protocol
    )  # fmt: skip
    assert (done.on_time, done.failed) == (30, {})
    sql = "SELECT client, v, count(*) FROM piped GROUP BY 1, 2 ORDER BY 1, 2"
    assert rows(server, sql) == [(c, v, 10) for c in range(3) for v in (1, 2, 3, 4)]


@pytest.mark.parametrize("protocol", PIPELINING)
def test_an_error_in_a_pipeline_undoes_it_up_to_its_sync_and_fails_the_transaction_once(
    server: Any, make: Any, run_load: Any, protocol: str
) -> None:
    make("CREATE TABLE piped (client int, v int)", "CREATE SEQUENCE calls")
    script = PIPELINE.replace("(:client_id, 2)", "(1 / (nextval('calls') % 2)::int, 2)")
    done = run_load(server.dsn(), script, clients=1, transactions=10, protocol=protocol)
    assert (done.on_time, done.failed) == (5, {"22012": 5})
    found = dict(rows(server, "SELECT v, count(*) FROM piped GROUP BY 1"))
    # What is behind the Sync has been sent already when the error is read.
    assert found == {1: 5, 2: 5, 3: 10, 4: 5}


@pytest.mark.parametrize("protocol", PIPELINING)
def test_what_is_synced_is_done_while_the_client_waits_within_its_pipeline(
    server: Any, make: Any, start_load: Any, tmp_path: Path, protocol: str
) -> None:
    make("CREATE TABLE piped (client int, v int)")
    gate = Gate(tmp_path)
    script = PIPELINE.replace("\\syncpipeline\n", f"\\syncpipeline\n{gate.shell}\n")
    load = start_load(server.dsn(), script, clients=1, transactions=1, protocol=protocol)
    server.wait_until("SELECT count(*) = 2 FROM work.piped")
    gate.open()
    assert load.finish().on_time == 1


# --- shell commands -------------------------------------------------------------------------


class Gate:
    """A shell command that ends when `open` is called."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gate"
        subprocess.run(["mkfifo", str(self.path)], check=True)
        self.shell = f"\\shell read x < {self.path}"

    def open(self) -> None:
        self.path.write_text("now\n")


def test_a_shell_command_holds_up_only_its_own_client(
    server: Any, make: Any, start_load: Any, tmp_path: Path
) -> None:
    make("CREATE TABLE done (client int)")
    gate = Gate(tmp_path)
    script = f"""\\if :client_id = 0 AND :n = 0
{gate.shell}
\\endif
\\set n :n + 1
INSERT INTO done VALUES (:client_id)
"""
    load = start_load(
        server.dsn(), script, clients=3, threads=1, transactions=20, variables=[("n", "0")]
    )  # fmt: skip
    server.wait_until("SELECT count(*) = 40 FROM work.done")
    assert rows(server, "SELECT DISTINCT client FROM done ORDER BY 1") == [(1,), (2,)]
    gate.open()
    assert load.finish().on_time == 60


def test_setshell_stores_an_integer_and_variables_are_put_into_its_command(
    server: Any, make: Any, run_load: Any
) -> None:
    make("CREATE TABLE found (client int, a int, b int)")
    script = """\\setshell a expr :client_id + 41
\\setshell b printf ' -%d \\nmore' :a
\\shell test ::x = ':x'
INSERT INTO found VALUES (:client_id, :a, :b)
"""
    done = run_load(server.dsn(), script, clients=3, transactions=2)
    assert done.on_time == 6
    found = rows(server, "SELECT DISTINCT * FROM found ORDER BY 1")
    assert found == [(c, c + 41, -c - 41) for c in range(3)]


def test_of_a_line_without_an_end_setshell_reads_what_an_integer_can_have(
    server: Any, make: Any, run_load: Any
) -> None:
    make("CREATE TABLE found (v int)")
    script = "\\setshell v yes 0 | tr -d '\\n'\nINSERT INTO found VALUES (:v);\n"
    assert run_load(server.dsn(), script, clients=1, transactions=1).on_time == 1
    assert rows(server, "SELECT v FROM found") == [(0,)]


# --- conditions and meta commands -----------------------------------------------------------


def test_a_thousand_conditions_within_each_other(server: Any, make: Any, run_load: Any) -> None:
    make("CREATE TABLE found (v int)")
    depth = 1000
    script = "\\set v 0\n" + "\\if true\n\\set v :v + 1\n" * depth
    script += "INSERT INTO found VALUES (:v);\n"
    script += "\\else\nSELECT 1 / 0;\n\\endif\n" * depth
    assert run_load(server.dsn(), script, clients=2, transactions=2).on_time == 4
    assert rows(server, "SELECT DISTINCT v FROM found") == [(depth,)]


def test_a_loop_of_meta_commands_ends_with_the_run_and_starves_nobody(
    server: Any, make: Any, run_load: Any
) -> None:
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


# --- a connection for each transaction ------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("load", ["closed", "open", "paced"])
def test_each_transaction_has_a_backend_of_its_own(
    server: Any, make: Any, run_load: Any, transport: str, load: str
) -> None:
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


def test_a_role_that_may_not_log_in_any_more_ends_a_run_of_single_connections(
    server: Any, make: Any, start_load: Any
) -> None:
    make("CREATE TABLE backends (pid int)")
    server.execute("DROP ROLE IF EXISTS u_gone")
    server.execute("CREATE ROLE u_gone LOGIN IN ROLE u_trust")
    try:
        load = start_load(
            server.dsn("postgres"), "SELECT pg_sleep(0.001)", clients=2, transactions=None,
            duration_ns=1000 * SECOND_NS, connect_each=True, recover=False, exit_on_abort=False,
            on_connect=["SET SESSION AUTHORIZATION u_gone"],
        )  # fmt: skip
        assert load.next()
        server.execute("DROP ROLE u_gone")
        done = load.finish()
    finally:
        server.execute("DROP ROLE IF EXISTS u_gone")
    assert done.aborted == 2
    assert "aborted while establishing connection" in done.lines[-1][1]


# --- connections that are ended -------------------------------------------------------------

OURS = f"FROM pg_stat_activity WHERE application_name = '{NAME}'"


@pytest.mark.parametrize("recover", [True, False])
def test_a_terminated_backend_is_a_failure_and_where_nothing_recovers_the_end_of_its_client(
    server: Any, make: Any, start_load: Any, protocol: str, recover: bool
) -> None:
    make("CREATE TABLE came (client int, pid int)")
    script = "INSERT INTO came VALUES (:client_id, pg_backend_pid());\nSELECT pg_sleep(0.001)"
    load = start_load(
        server.dsn(application_name=NAME), script, clients=3, transactions=None,
        duration_ns=1000 * SECOND_NS, protocol=protocol, recover=recover, exit_on_abort=False,
        continue_on_error=recover,
    )  # fmt: skip
    server.wait_until("SELECT count(DISTINCT client) = 3 FROM work.came")
    server.execute("SELECT pg_terminate_backend(pid) FROM work.came WHERE client = 1 LIMIT 1")
    before = "SELECT max(pid) FROM work.came WHERE client = 0"
    if recover:
        server.wait_until("SELECT count(DISTINCT pid) = 2 FROM work.came WHERE client = 1")
    else:
        server.wait_until(f"SELECT count(*) = 2 {OURS}")
        server.wait_until(f"SELECT count(*) > 100 FROM work.came WHERE pid = ({before})")
    load.run.stop()
    done = load.finish()
    assert sum(done.failed.values()) <= 1  # it may have been between two transactions
    assert set(done.failed) <= {"57P01", "08006"}
    assert done.aborted == (0 if recover else 1)
    assert done.disconnects == 1


def test_when_all_backends_are_terminated_a_run_that_does_not_recover_is_over(
    server: Any, start_load: Any
) -> None:
    load = start_load(
        server.dsn(application_name=NAME), "SELECT pg_sleep(1000)", clients=4, threads=2,
        transactions=None, duration_ns=1000 * SECOND_NS, recover=False, exit_on_abort=False,
        continue_on_error=False,
    )  # fmt: skip
    server.wait_until(f"SELECT count(*) = 4 {OURS} AND wait_event = 'PgSleep'")
    server.execute(f"SELECT pg_terminate_backend(pid) {OURS}")
    done = load.finish()
    assert (done.due, done.failed, done.aborted) == (4, {"57P01": 4}, 4)


@pytest.mark.parametrize("load", ["open", "paced"])
@pytest.mark.parametrize(
    "stop", [{"transactions": 100_000}, {"transactions": None, "duration_ns": 1000 * SECOND_NS}],
    ids=["count", "time"],
)  # fmt: skip
def test_a_schedule_is_over_too_when_all_its_clients_are_gone(
    server: Any, make: Any, start_load: Any, load: str, stop: dict[str, Any]
) -> None:
    make("CREATE TABLE came (client int)")
    running = start_load(
        server.tcp(application_name=NAME), "INSERT INTO came VALUES (:client_id)", clients=6,
        threads=3, load=load, rate=20.0, arrivals="poisson", recover=False, exit_on_abort=False,
        continue_on_error=False, **stop,
    )  # fmt: skip
    server.wait_until("SELECT count(DISTINCT client) = 6 FROM work.came")
    for client in range(6):
        # One after the other, so that some threads are without clients before the others.
        server.execute(f"SELECT pg_terminate_backend(min(pid)) {OURS}")
        server.wait_until(f"SELECT count(*) = {5 - client} {OURS}")
    done = running.finish()  # which holds what was due against what ended
    assert done.aborted == 6
    [[came]] = rows(server, "SELECT count(*) FROM came")
    assert done.on_time <= came <= done.on_time + sum(done.failed.values())
    assert done.due < 10_000


def test_a_run_that_ends_with_an_abort_raises_and_has_counted_what_was_before(
    server: Any, make: Any, start_load: Any
) -> None:
    make("CREATE TABLE done (client int)", "CREATE SEQUENCE calls")
    script = "INSERT INTO done SELECT 1 / (nextval('calls') < 50)::int"
    load = start_load(
        server.dsn(), script, clients=4, threads=2, transactions=None,
        duration_ns=1000 * SECOND_NS, continue_on_error=False, recover=False,
    )  # fmt: skip
    with pytest.raises(PgpacesError, match="gave up"):
        load.finish()
    done = load.outcome
    # What was in flight in the other thread when the run ended is unfinished, and may be done.
    assert 49 - done.unfinished <= done.on_time <= 49
    assert 1 <= done.failed["22012"] <= 4
    assert done.due == done.on_time + done.failed["22012"] + done.unfinished
