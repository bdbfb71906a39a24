"""Commands on a real server: loads that are timed and counted, alone, beside queries, compared."""

from pathlib import Path
from typing import Any

import pytest
from tests.commands import Command
from tests.errors import sentence
from tests.servers import PASSWORD

pytestmark = pytest.mark.postgres
ABSENT = sentence("program-not-found", program="no-such")
BEFORE = sentence("before-failed", workload="loader", why="exit 9", output="because")
SLOW = pytest.mark.slow  # what tests/unit/test_command.py looks at as well, or nearly so


@pytest.fixture
def target(pg15):
    """A server that runs already: starting one of ours is no part of what is looked at."""
    return ("--target", pg15.dsn("postgres"))


def run(pgpaces: Command, *words: object, **more: Any) -> Any:
    return pgpaces("run", *words, "--trust", "-P", "0", "--json", **more).json()


def load(pgpaces: Command, command: str, *words: object) -> Any:
    return pgpaces("load", command, *words, "-P", "0", "--json").json()


def workload(tmp_path: Path, command: str, more: str = "") -> Path:
    made = tmp_path / "loader"
    made.mkdir(exist_ok=True)
    (made / "table.sql").write_text("CREATE TABLE t (x int);")
    text = f'description = "d"\nkind = "command"\ninit = ["table.sql"]\n[command]\n{command}\n'
    (made / "workload.toml").write_text(text + more)
    return made


def test_the_shipped_load_runs_from_one_line_and_counts_what_it_did(pgpaces):
    found = run(pgpaces, "bulk-load", "-s", 1, "-t", 2)
    did = found["bulk"]
    assert (did["executions"], did["succeeded"], did["rows"]) == (2, 2, 200_000)
    assert did["input_bytes"] > 5_000_000
    # Two indexes and the table itself: more WAL than there was input.
    assert did["wal_bytes"] > 2 * did["input_bytes"]
    assert did["behind_bytes"] > did["before_bytes"] + 5_000_000
    assert did["seconds"] == pytest.approx(2e5 / did["rows_s"] / 2)
    assert found["counts"]["on_time"] == 2


@pytest.mark.parametrize(
    "rows", [(), pytest.param(("--rows", "SELECT count(*) FROM t"), marks=SLOW)]
)
def test_any_command_is_timed_without_a_folder(pgpaces, tmp_path, rows):
    file = tmp_path / "rows.csv"
    file.write_text("1\n2\n3\n")
    text = f"psql -Xq -c 'create table t (x int)' -c '\\copy t from {file}'"
    did = load(pgpaces, text, *rows, "--input", tmp_path / "*.csv")["bulk"]
    assert (did["rows"], did["input_bytes"], did["label"]) == (3, 6, "psql")


def test_it_is_told_where_to_go_and_what_was_asked(pgpaces, tmp_path, target):
    made = workload(tmp_path, 'run = ["sh", "load.sh", "{dsn}", "{hot}"]', "[variables]\nhot = 5")
    (made / "load.sh").write_text(
        'psql -Xq "$1" -c "insert into t select $2 from generate_series(1, 7)"\n'
        f"exec > {tmp_path}/seen\nenv | grep ^PG\npwd\n"
    )
    found = run(pgpaces, made, "-D", "hot=6", "-D", "cold=1", "-s", 3, "--data-seed", 4, *target)
    assert found["bulk"]["rows"] == 7
    assert "variable-unused" in [note["name"] for note in found["notes"]]
    seen = (tmp_path / "seen").read_text()
    for line in ("PGPACES_HOT=6", "PGPACES_SCALE=3", "PGPACES_SEED=4", "PGDATABASE=pgpaces_"):
        assert line in seen
    assert "PGPASSWORD" not in seen
    # A copy, so that what changes meanwhile is not executed.
    assert seen.endswith("/loader\n")
    assert not seen.endswith(f"\n{made}\n")


@pytest.mark.parametrize(
    ("query", "name", "answer"),
    [
        ("SELECT count(*) FROM nowhere", "rows-unknown", "does not exist"),
        ("SELECT 1, 2", "rows-not-a-number", "['1', '2']"),
        ("SELECT 'NaN'::float8", "rows-not-a-number", "['nan']"),
        ("SELECT 'Infinity'::float8", "rows-not-a-number", "['inf']"),
        ("SELECT repeat('9', 400)::numeric", "rows-not-a-number", "'99999"),
    ],
)
def test_a_query_for_rows_that_tells_none_is_no_silence(pgpaces, target, query, name, answer):
    found = load(pgpaces, "true", "--rows", query, *target)
    values = {each["name"]: each["values"] for each in found["validity"]["findings"]}
    assert answer in str(values[name])
    assert found["bulk"]["rows"] is None


def test_rows_of_a_command_that_makes_its_table_anew_are_unknown(pgpaces, target):
    command = "psql -qc 'DROP TABLE IF EXISTS again; CREATE TABLE again AS SELECT 1 AS x'"
    found = load(pgpaces, command, "-t", 2, *target)
    assert "rows-remade" in {each["name"] for each in found["validity"]["findings"]}
    assert found["bulk"]["rows"] is None


def test_a_query_for_rows_that_is_no_query_is_refused_before_the_load(pgpaces, target, tmp_path):
    done = pgpaces("load", f"touch {tmp_path}/loaded", "--rows", "many", *target)
    wrong = sentence("rows-query", query="many", why='syntax error at or near "many"')
    assert (done.code, wrong in done.err) == (2, True)
    assert not (tmp_path / "loaded").exists()


@pytest.mark.parametrize(
    ("more", "words", "code", "message"),
    [
        ("", ["--rate", "3"], 2, sentence("command-with-rate", workload="loader")),
        ("", ["--clients", "3"], 2, sentence("command-runs-alone", option="--clients 3")),
        ("", ["--protocol", "prepared"], 2, sentence("scripts-only", option="--protocol")),
        ("", ["-f", "x.sql"], 2, sentence("runs-no-scripts", workload="loader", kind="command")),
        ('input = ["*.pbf"]', [], 5, sentence("input-matches-nothing", pattern="*.pbf")),
        pytest.param('before = ["no-such"]', [], 5, ABSENT, marks=SLOW),
        ('before = "echo because >&2; exit 9"', [], 16, BEFORE),
        pytest.param('before = ["true", "{dns}"]', [], 2, "{dns}", marks=SLOW),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_measured(
    pgpaces, tmp_path, target, more, words, code, message
):
    (tmp_path / "x.sql").write_text("SELECT 1;")
    made = workload(tmp_path, f'run = ["true"]\n{more}')
    done = pgpaces("run", made, *target, "--trust", "-P", "0", *words, cwd=tmp_path)
    assert (done.code, message in done.err) == (code, True), done.err


def test_queries_beside_a_load_end_with_it(pgpaces, target):
    beside = "select-only scale=1 rate=200/s latency_limit=1s"
    found = run(pgpaces, "bulk-load", "-s", 2, "--background", beside, *target)
    names = [script["name"] for script in found["scripts"]]
    assert names == ["psql", "select-only/select-only"]
    load, queries = (script["counts"] for script in found["scripts"])
    assert load["on_time"] == load["due"] == 1, found["messages"]
    assert queries["due"] > 0
    assert found["bulk"]["rows"] == 200_000
    assert not found["bulk"]["shared"]


def test_a_load_beside_queries_is_run_again_until_they_end(pgpaces, tmp_path, target):
    made = workload(tmp_path, "run = \"psql -Xqc 'insert into t select 1'; sleep 0.3\"")
    words = ("select-only", "-s", 1, "--rate", 100, "-T", "2s", "--warmup", "1s", *target)
    found = run(pgpaces, *words, "--background", f"loader workload={made}")
    queries, load = (script["counts"] for script in found["scripts"])
    assert queries["on_time"] == queries["due"] > 50
    assert load["due"] == load["on_time"] > 1


def test_no_password_reaches_the_command_but_by_a_file(pgpaces, tmp_path, pg15):
    pg15.execute("ALTER ROLE u_scram CREATEDB")
    text = (
        f"run = \"exec > {tmp_path}/seen; env; tr '\\\\0' ' ' < /proc/$$/cmdline;"
        " cat $PGPASSFILE >&2; psql -Xqc 'insert into t select 1' && exit 3\""
    )
    made = workload(tmp_path, text)
    environment = {"PGPASSWORD": PASSWORD}
    words = (made, "--trust", "--target", pg15.tcp("u_scram"), "--data-seed", 9)
    done = pgpaces("run", *words, env=environment)
    assert "did not succeed: exit 3" in done.out, (done.out, done.err)  # so it was let in
    for text in (done.out, done.err, (tmp_path / "seen").read_text()):
        assert PASSWORD not in text
    assert PASSWORD.encode() not in pgpaces.store.read_bytes()


def test_a_sweep_of_loads_is_compared_in_bars(pgpaces, tmp_path):
    page = tmp_path / "loads.html"
    words = ("bulk-load", "--scale", 1, "--variant", "two-indexes,no-index", "--trials", 1)
    pgpaces.well("sweep", *words, "-o", page)
    # Which one is the fastest is unknown where a trial is not valid.
    assert '<figure id="rows-s"' in page.read_text()
    assert [bool(trial.workload.about_command) for trial in pgpaces.trials()] == [True] * 2
