"""A password is a canary: after runs that go well and runs that fail it is found nowhere.

Not in what we print, keep, log or leave behind, and in no argument or environment of a child. It
may be where its owner put it: our own command line and variables, the files that hold it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from tests.errors import sentence
from tests.integration.cages import CANARY, Cage
from tests.servers import PASSWORD, Postgres, quoted

from pgpaces.cli.pgbench.options import Options
from pgpaces.cli.pgbench.run import Setup
from pgpaces.database.access import Access
from pgpaces.load import engine
from pgpaces.spec import load, workload
from pgpaces.spec.target import TargetPlan
from pgpaces.trial.request import Request
from pgpaces.trial.target_server import Site

pytestmark = pytest.mark.postgres

# A client that thinks: nothing here asks how fast a server is.
SECOND = ("--think-time", "20ms", "-T", "1s", "--warmup", "0", "-P", "1", "-c", "1")
QUICK = ("--scale", "1", "--data-seed", "8", *SECOND)


@pytest.fixture(autouse=True)
def _may_make_databases(pg15):
    pg15.execute("ALTER ROLE u_scram CREATEDB")


WAYS = ("PGPASSWORD", "words", "URI", "service", "PGPASSFILE", "passfile")


def often(*names: str) -> list[object]:
    """All ways to give a password: these always, the others in the slow tests.

    Words of a string are as a URI once they are read, and a password file is one however it is
    named. Each way is always tried with one command at least.
    """
    return [pytest.param(n, marks=() if n in names else pytest.mark.slow) for n in WAYS]


def way(name: str, pg15: Postgres, cage: Cage, **more: str) -> tuple[str, dict[str, str]]:
    """A connection string for u_scram and the variables that it needs."""
    words = {"host": "127.0.0.1", "port": str(pg15.port), "user": "u_scram", "dbname": "postgres",
             "sslmode": "disable"} | more  # fmt: skip
    plain = quoted(dict(words))
    secret = cage.given / name
    if name == "words":
        return quoted({**words, "password": PASSWORD}), {}
    if name == "URI":
        user = f"{words['user']}:{quote(PASSWORD, safe='')}"
        place = f"{words['host']}:{words['port']}/{words['dbname']}"
        return f"postgresql://{user}@{place}?sslmode={words['sslmode']}", {}
    if name == "service":
        lines = [f"{k}={v}\n" for k, v in {**words, "password": PASSWORD}.items()]
        secret.write_text("[canary]\n" + "".join(lines))
        return "service=canary", {"PGSERVICEFILE": str(secret)}
    if name in ("PGPASSFILE", "passfile"):
        escaped = PASSWORD.replace("\\", "\\\\").replace(":", "\\:")
        secret.write_text(f"*:*:*:*:{escaped}\n")
        secret.chmod(0o600)
        if name == "passfile":
            return quoted({**words, "passfile": secret}), {}
        return plain, {"PGPASSFILE": str(secret)}
    return plain, {"PGPASSWORD": PASSWORD}


# One command line after the other in one process; it ends with how many of them did not fail.
END = "that was one"
ONE_BY_ONE = f"""
import json, sys
from pgpaces.cli.main import main
good = 0
for sys.argv in json.loads(sys.argv[1]):
    try:
        main()
    except SystemExit as ended:
        good += ended.code in (None, 0)
    print("{END}", file=sys.stderr, flush=True)
sys.exit(good)
"""


@pytest.mark.parametrize("name", often("URI", "passfile"))
def test_a_run_that_goes_well_leaves_no_password_anywhere(cage, pg15, name):
    dsn, variables = way(name, pg15, cage)
    ended = cage.well("run", "tpcb-like", *QUICK, "--target", dsn, "--json", "--fresh", **variables)
    ran = [Path(argv[0]).name for argv, _ in ended.children]
    assert "psql" in ran, "psql made the data, so its arguments and variables were looked at"
    assert (cage.kept / "results.db").exists()
    lines = (("show", "last"), ("export", "last"), ("export", "last", "--format", "json"))
    ended = cage.run(["-c", ONE_BY_ONE, json.dumps([("pgpaces", *words) for words in lines])])
    assert ended.code == len(lines), ended.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "PGPASSWORD",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("URI", "service", "passfile")),
    ],
)
def test_generators_get_a_password_and_show_it_nowhere(cage, pg15, name):
    dsn, variables = way(name, pg15, cage)
    words = ("run", "select-only", *QUICK, "-c", "2", "--generators", "2", "--target", dsn)
    ended = cage.well(*words, **variables)
    assert sum("distributed.cli.dask_spec" in argv for argv, _ in ended.children) == 2
    cage.well("show", "--json")


TELLTALE = """
import sys
from pgpaces import task, user

@user
def own(dsn):
    print(dsn, file=sys.stderr)
    yield dsn

@task
def act(dsn, loop):
    print(dsn, repr(dsn))
    if loop == 2:
        raise ValueError(dsn)
    import psycopg
    with psycopg.connect(dsn) as connection:
        print(connection.info.password, [connection.info.password], connection.info.dsn)
        print(connection.info.get_parameters(), connection.execute("SELECT 1").fetchone())
"""


@pytest.mark.parametrize(
    "name",
    [
        "URI",
        pytest.param("PGPASSWORD", marks=pytest.mark.slow),
        pytest.param("passfile", marks=pytest.mark.slow),
    ],
)
def test_users_that_tell_what_they_were_given_tell_no_password(cage, pg15, name):
    folder = cage.kept / "users"
    folder.mkdir()
    toml = 'description = "d"\ninit = []\nkind = "users"\nusers = "users.py"\n'
    (folder / "workload.toml").write_text(toml)
    (folder / "users.py").write_text(TELLTALE)
    dsn, variables = way(name, pg15, cage)
    ended = cage.well("run", folder, "--trust", "-t", "2", "--target", dsn, **variables)
    assert ended.err.count(b"***") >= 3
    assert b"(ValueError)" in ended.out
    assert any("pgpaces.load.python_users.process" in argv for argv, _ in ended.children)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "words",
        pytest.param("passfile", marks=pytest.mark.slow),
        pytest.param("URI", marks=pytest.mark.slow),
        pytest.param("service", marks=pytest.mark.slow),
    ],
)
def test_a_copy_through_pg_dump_leaves_no_password_anywhere(cage, pg15, name):
    pg15.execute("DROP DATABASE IF EXISTS copied")
    pg15.execute("CREATE DATABASE copied OWNER u_scram")
    script = cage.kept / "s.sql"
    script.write_text("SELECT 1;\n")
    dsn, variables = way(name, pg15, cage, dbname="copied")
    words = ("-f", script, "--target", dsn, "--from-database", dsn, *SECOND)
    ended = cage.well("run", *words, **variables)
    ran = {Path(argv[0]).name for argv, _ in ended.children}
    assert {"pg_dump", "pg_restore"} <= ran
    cage.well("sweep", *words, "--yes", "-o", cage.kept / "page.html", **variables)


# The commands that take a target and a copy's source. The copy has no tables, and the query is
# wrong: a command that says so has logged in to both.
OPEN = ("--rate", "5", "-L", "1s")
NO_TABLE = 'relation "pgbench_accounts" does not exist'
NO_QUERY = sentence("rows-query", query="many", why='syntax error at or near "many"')
LOGGED_IN: dict[str, tuple[tuple[str, ...], str]] = {
    "run": (("select-only", *OPEN), NO_TABLE),
    "sweep": (("select-only", *OPEN, "--clients", "1,2", "--yes"), NO_TABLE),
    "capacity": (("select-only", "-L", "1s"), NO_TABLE),
    "compare": (("clients=1", "clients=2", "--run", "select-only", *OPEN), NO_TABLE),
    "load": (("true", "--rows", "many"), NO_QUERY),
}


@pytest.mark.parametrize("name", often("PGPASSWORD"))
def test_each_command_logs_in_to_the_target_and_to_the_source_of_a_copy(cage, pg15, name):
    pg15.execute("DROP DATABASE IF EXISTS copied")
    pg15.execute("CREATE DATABASE copied OWNER u_scram")
    dsn, variables = way(name, pg15, cage, dbname="copied")
    places = ("--target", dsn, "--from-database", dsn)
    lines = [("pgpaces", command, *words, *places) for command, (words, _) in LOGGED_IN.items()]
    ended = cage.run(["-c", ONE_BY_ONE, json.dumps(lines)], **variables)
    parts = ended.err.decode().split(f"{END}\n")
    for (command, (_, said)), part in zip(LOGGED_IN.items(), parts[:-1], strict=True):
        assert said in " ".join(part.split()), (command, ended.err)


# What another test made as another role is not this one's.
# A seed that no other test has: its role would find their data on the shared server.
OWN_DATA = ("--scale", "1", "--data-seed", "7701")


@pytest.mark.slow
def test_a_sweep_leaves_no_password_anywhere(cage, pg15):
    """Also one whose store is the server, and one whose experiment is a file."""
    pg15.execute("CREATE DATABASE canary OWNER u_scram TEMPLATE template0 ENCODING 'UTF8'")
    uri, _ = way("URI", pg15, cage, dbname="canary")
    (cage.given / "e.toml").write_text(
        "workload = 'select-only'\nscale = 1\ndata_seed = 7701\nrate = '20/s'\nduration = '1s'\n"
        "warmup = '0'\n"
        f"target = 'a'\n[factors]\nclients = [1, 2]\n[targets.a]\ndsn = '{uri}'\n"
    )
    page = ("-o", cage.kept / "page.html")
    secret = quote(PASSWORD, safe="")
    sweeps: list[tuple[tuple[object, ...], set[int]]] = [
        (("select-only", "--target", uri, *page), {0}),
        (("select-only", "--target", f"t={uri}", "--store", uri), {0}),
        (("select-only", "--target", f"postgresql://u:{secret}@127.0.0.1:9/x"), {5, 10}),
        # A copy of what has no tables yet: every transaction fails.
        (("select-only", "--target", uri, "--from-database", uri), {5}),
        (("select-only", "--from-database", f"host=127.0.0.1 port=9 password='{secret}'"), {5, 10}),
        (("select-only", "--target", f"t=host=a'b password={PASSWORD}"), {2, 10}),
        ((cage.given / "e.toml", *page), {0}),
    ]
    try:
        for given, codes in sweeps:
            more = () if "e.toml" in str(given[0]) else (*OWN_DATA, *SECOND)
            ended = cage("sweep", *given, *more)
            assert ended.code in codes, (given, ended.err)
        cage.well("runs", "-E", "--json")
        for table in ("experiment", "trial", "failure"):
            with psycopg.connect(pg15.dsn("postgres", dbname="canary")) as session:
                rows = session.execute(f"SELECT row_to_json(t)::text FROM {table} t").fetchall()
            assert table != "experiment" or len(rows) == 1
            assert not CANARY.search(repr(rows).encode())
    finally:
        pg15.execute("DROP DATABASE canary WITH (FORCE)")


def failures(pg15: Postgres, cage: Cage) -> Iterator[tuple[str, int, list[object], dict[str, str]]]:
    """What fails: name, exit code, words, and changes of the connection."""
    broken = cage.kept / "broken"
    cage("workload", "new", broken)
    (broken / "init.sql").write_text("SELECT 1;\nSELECT nonsense;\n")
    yield "init", 16, ["run", broken, *QUICK], {}
    yield "no database", 12, ["run", "select-only", *QUICK], {"dbname": "nosuch"}
    yield "nobody there", 10, ["run", "select-only", *QUICK], {"port": "1"}
    yield "login refused", 11, ["run", "select-only", *QUICK], {"user": "u_absent"}
    yield "no TLS", 14, ["run", "select-only", *QUICK], {"sslmode": "verify-full"}
    yield "too many", 13, ["run", "select-only", *QUICK, "-c", "500"], {}
    yield "no right", 15, ["run", "select-only", *QUICK], {"user": "u_trust"}
    yield "no store", 20, ["run", "select-only", *QUICK, "--store", "/proc/x/y"], {}
    yield "bad setting", 2, ["run", "select-only", *QUICK, "--set", "nosuch=1"], {}
    failing = cage.kept / "failing.sql"
    failing.write_text("SELECT nonsense;\n")
    yield "statement", 5, ["run", "-f", failing, *QUICK, "--verbose-errors"], {}
    yield "stop", 5, ["run", "-f", failing, *QUICK, "--on-error", "stop"], {}
    yield "on connect", 2, ["run", "-f", failing, *QUICK, "--on-connect", "SELECT nonsense"], {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ("PGPASSWORD", "URI"),
        pytest.param(("URI",), marks=pytest.mark.slow),
        pytest.param(("PGPASSWORD",), marks=pytest.mark.slow),
    ],
    ids=" and ".join,
)
def test_runs_that_fail_leave_no_password_anywhere(cage, pg15, names):
    turns = zip(failures(pg15, cage), itertools.cycle(names), strict=False)
    for (what, code, words, changes), name in turns:
        dsn, variables = way(name, pg15, cage, **changes)
        ended = cage(*words, "--target", dsn, **variables)
        assert ended.code == code, (what, ended.err)
        assert what == "stop" or b"hint: " in ended.err, what
        assert b"Traceback" not in ended.err


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("PGPASSWORD", "trial.digest"),
        ("words", "trial.trial_of"),
        ("URI", "copies.clone"),
        pytest.param("service", "trial.digest", marks=pytest.mark.slow),
        pytest.param("passfile", "copies.clone", marks=pytest.mark.slow),
    ],
)
def test_a_traceback_of_an_error_of_ours_shows_no_password(cage, pg15, name, where):
    dsn, variables = way(name, pg15, cage)
    words = ("run", "tpcb-like", *QUICK, "--target", dsn)
    ended = cage(*words, CANARY_BREAK=where, **variables)
    assert b"Traceback" in ended.err
    assert b"broken on purpose" in ended.err


BAD_STRINGS = [
    f"postgresql://u_scram:{PASSWORD}@127.0.0.1/postgres",
    f"postgresql://u_scram:{PASSWORD}%zz@h/d",
    f"postgresql://u_scram@h/d?password={PASSWORD}=x",
    f"postgresql://u_scram@h/d?password={PASSWORD}%",
    "postgresql://u:s3%3Acr%zz@h/d",
    f"postgresql://u@127.0.0.1:{PASSWORD}/x",
    f"postgresq://u_scram:{quote(PASSWORD, safe='')}@h/d",
    f"u_scram:{PASSWORD}@h/d?x=y",
    f"host=h password={PASSWORD}",
    f"password=x {PASSWORD} host=h",
    f"password=x {PASSWORD}=1 host=h",
    f"password='{PASSWORD}",
    "postgresql://u@[::1x:s3:cr/d?password=s3:cr",
]


@pytest.mark.parametrize(
    "face", [("run", "select-only", *QUICK, "--target"), ("pgbench", "-n")], ids=["run", "face"]
)
def test_a_connection_string_that_cannot_be_read_is_not_quoted(cage, face):
    lines = json.dumps([["pgpaces", *face, dsn] for dsn in BAD_STRINGS])
    ended = cage.run(["-c", ONE_BY_ONE, lines])
    assert ended.code == 0, "each is refused"
    assert ended.err.count(b"error: ") >= len(BAD_STRINGS)
    assert b"Traceback" not in ended.err


def test_the_face_called_pgbench_asks_for_a_password_and_tells_it_to_nobody(cage, pg15):
    script, failing = cage.kept / "s.sql", cage.kept / "f.sql"
    script.write_text("SELECT 1;\n")
    failing.write_text("SELECT nonsense;\n")
    where = ("-n", "-h", "127.0.0.1", "-p", pg15.port, "-U", "u_scram", "-d", "postgres")
    words = ("pgbench", *where[:-2], "-l", "-r", "-P", "1", "-t", "5", "--debug")
    for text, name, code in ((script, PASSWORD, 0), (failing, PASSWORD, 2), (script, "no", 1)):
        ended = cage(*words, "-f", text, "postgres", stdin=f"{name}\n")
        assert ended.code == code, ended.err
        assert b"Password: " in ended.err
    assert list(cage.kept.glob("pgbench_log.*"))


@pytest.mark.parametrize("name", often("PGPASSWORD", "service"))
def test_the_face_called_pgbench_keeps_a_password_to_itself(cage, pg15, name):
    dsn, variables = way(name, pg15, cage)
    for words in (("-i", "-I", "dtG", "-s", "1"), ("-n", "-S", "-t", "5", "-l")):
        cage.well("pgbench", *words, dsn, **variables)
    ended = cage("pgbench", "-n", "-S", "-t", "5", dsn, CANARY_BREAK="trial.trial_of",
                 **variables)  # fmt: skip
    assert b"broken on purpose" in ended.err


def test_nothing_that_holds_a_password_shows_it_in_its_repr():
    secrets = {
        name: PASSWORD
        for name in (
            "password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"
        )
    }  # fmt: skip
    connection = engine.resolve("host=h user=u", password=PASSWORD, sslpassword=PASSWORD)
    target = TargetPlan(dsn=f"password='{PASSWORD}'", overrides=(("password", PASSWORD),))
    access = Access({"host": "h", **secrets}, Path("psql"))
    plan = load.TrialPlan(load.Load("closed"))
    request = Request(workload.find("select-only"), plan, target)
    holders = [
        connection, connection.resolved, target, access, request, Site(access, True),
        Options(1, dbname=f"password='{PASSWORD}'"),
        Setup(None, {"password": PASSWORD}),  # type: ignore[arg-type]
        engine.Connection(secrets, PASSWORD, (), connection.resolved),
    ]  # fmt: skip
    for holder in holders:
        assert not CANARY.search(repr(holder).encode()), type(holder)
        assert not CANARY.search(str(holder).encode()), type(holder)


def test_the_file_that_gives_psql_its_password_has_no_name(cage, pg15, tmp_path):
    folder = cage.kept / "looks"
    cage("workload", "new", folder)
    seen = tmp_path / "seen"
    (folder / "init.sql").write_text(f"\\! ls -A {cage.kept} > {seen}\n")
    dsn, variables = way("PGPASSWORD", pg15, cage)
    files = {path.name for path in cage.kept.iterdir()} | {"results.db", "children"}
    cage("run", folder, "--trust", *QUICK, "--target", dsn, "--script", "read", **variables)
    left = set(seen.read_text().split()) - files - {"results.db-wal", "results.db-shm"}
    assert not left
