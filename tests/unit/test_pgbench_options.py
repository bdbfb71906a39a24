"""pgbench's command line as values; its errors are compared with pgbench in tests/conformance."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pgpaces.cli.pgbench.help import usage
from pgpaces.cli.pgbench.options import (
    OPTIONS,
    AnsweredError,
    OptionHandler,
    Options,
    ScriptOption,
    builtin_text,
    parse,
)
from pgpaces.cli.pgbench.values import OptionError

ENVIRONMENT = {"PGDATABASE": "bench"}


def parsed(*words: str, **environment: str) -> Options:
    return parse(words, ENVIRONMENT | environment)


def refused(*words: str) -> tuple[tuple[str, str], ...]:
    with pytest.raises(OptionError) as caught:
        parse(words, ENVIRONMENT)
    assert caught.value.exit_code == 1
    return caught.value.lines


# --- values ---------------------------------------------------------------------------------


def test_without_words_ten_transactions_of_the_builtin_script_run() -> None:
    found = parsed(PGBENCH_RANDOM_SEED="7")
    assert found == Options(
        seed=7, dbname="bench", scripts=(ScriptOption("tpcb-like", builtin=True),), transactions=10
    )
    assert found.builtin_used


VALUES = [
    ("-c 5", "clients", 5),
    ("--client ' 5 '", "clients", 5),
    ("--cl=+5", "clients", 5),
    ("-c 4 -j 9", "jobs", 4),
    ("-C", "connect_each", True),
    ("-d x", "dbname", "x"),
    ("x", "dbname", "x"),
    ("-h h", "host", "h"),
    ("-p 1", "port", "1"),
    ("-U u", "user", "u"),
    ("-D a=1 -D b=x=y -D a=2", "defines", (("a", "2"), ("b", "x=y"))),
    ("-L 1.5", "limit_us", 1500),
    ("-L 0.0004", "limit_us", 0),
    ("-R 0x10", "rate", 16.0),
    (f"-c {'0' * 5000}5", "clients", 5),
    (f"--random-seed={'9' * 5000}", "seed", 2**64 - 1),
    ("-R 2.5e1x", "rate", 25.0),
    ("-M prepared", "protocol", "prepared"),
    ("-P 3", "progress_s", 3),
    ("-r", "per_command", True),
    ("-s 9", "scale", 9),
    ("-T 5", "duration_s", 5),
    ("-T 5", "transactions", None),
    ("-t 5", "transactions", 5),
    ("-n", "no_vacuum", True),
    ("-v", "vacuum_all", True),
    ("-l --log-prefix=x", "log_prefix", "x"),
    ("-l --sampling-rate=.5", "sampling_rate", 0.5),
    ("-l --aggregate-interval=2 -T 4", "aggregate_s", 2),
    ("--max-tries=4294967297", "max_tries", 1),
    ("--random-seed=-1", "seed", 2**64 - 1),
    ("--continue-on-error", "continue_on_error", True),
    ("--no-store", "store", False),
    ("--report-latencies", "per_command", True),
    ("--report", "per_command", True),
    ("-i -n -I dtgvp", "steps", "dtg p"),
    ("-i -F 50", "fillfactor", 50),
    ("-i --partitions=2 --partition-method=HASH", "partition_method", "hash"),
    ("-f a.sql@3", "scripts", (ScriptOption("a.sql", 3),)),
    (
        "-f a@b.sql@0 -S",
        "scripts",
        (ScriptOption("a@b.sql", 0), ScriptOption("select-only", 1, True)),
    ),
    (
        "-b si@2 -N",
        "scripts",
        (ScriptOption("simple-update", 2, True), ScriptOption("simple-update", 1, True)),
    ),
]


@pytest.mark.parametrize(("line", "name", "value"), VALUES, ids=[v[0][:40] for v in VALUES])
def test_an_option_sets_a_value(line: str, name: str, value: object) -> None:
    import shlex

    assert getattr(parsed(*shlex.split(line)), name) == value


@pytest.mark.parametrize("word", ["-c", "-c-", "-s", "-fa@", "-fa@-", "--max-tries="])
def test_a_number_of_thousands_of_digits_is_out_of_range(word: str) -> None:
    [(level, text), *_] = refused(word + "9" * 5000)
    assert level == "error"
    assert "range" in text or "invalid" in text


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"PGDATABASE": "a", "PGUSER": "b"}, "a"),
        ({"PGDATABASE": "", "PGUSER": "b"}, "b"),
        ({"PGUSER": "b"}, "b"),
    ],
)
def test_the_database_is_named_by_the_environment(environment: dict[str, str], name: str) -> None:
    assert parse([], environment).dbname == name


def test_the_database_is_named_after_who_runs_it_whatever_a_shell_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `runuser` and `setpriv` leave LOGNAME and USER of another one."""
    for name in ("LOGNAME", "USER"):
        monkeypatch.setenv(name, "somebody")
    assert parse([], {}).dbname == pwd.getpwuid(os.geteuid()).pw_name


def test_a_user_whom_the_system_does_not_know_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", absent)
    with pytest.raises(OptionError, match=r"could not look up effective user ID \d+: user does"):
        parse([], {})


@pytest.mark.parametrize("steps", ["dtgvp", "dtgGvpf", "ddd", " ", "d t g", "f"])
def test_known_steps_and_blanks_are_taken_in_any_order_and_number(steps: str) -> None:
    assert parsed("-i", "-I", steps).steps == steps


@pytest.mark.parametrize(("steps", "wrong"), [("dxq", "x"), ("D", "D"), ("d\tt", "\t")])
def test_other_steps_are_refused_in_pgbenchs_words(steps: str, wrong: str) -> None:
    assert refused("-i", "-I", steps) == (
        ("error", f'unrecognized initialization step "{wrong}"'),
        ("detail", 'Allowed step characters are: "dtgGvpf".'),
    )


def test_no_steps_are_refused_in_pgbenchs_words() -> None:
    assert refused("-i", "-I", "") == (("error", "no initialization steps specified"),)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("-i -s 0", "-s/--scale must be in range 1..2147483647"),
        ("-i -s 2147483648", "-s/--scale must be in range 1..2147483647"),
        ("-i -F 9", "-F/--fillfactor must be in range 10..100"),
        ("-i -F 101", "-F/--fillfactor must be in range 10..100"),
        ("-i --partitions=-1", "--partitions must be in range 0..2147483647"),
        (
            "-i --partition-method=list",
            'invalid partition method, expecting "range" or "hash", got: "list"',
        ),
    ],
)
def test_tables_that_pgbench_cannot_make_are_refused(line: str, text: str) -> None:
    assert refused(*line.split()) == (("error", text),)


# --- order ----------------------------------------------------------------------------------


class Ears(OptionHandler):
    def __init__(self) -> None:
        self.heard: list[object] = []

    def seed(self, value: int) -> None:
        self.heard.append(("seed", value))

    def clients(self, count: int) -> None:
        self.heard.append(("clients", count))

    def script(self, script: ScriptOption) -> None:
        self.heard.append(script.name)


def test_options_are_heard_in_their_order_up_to_the_wrong_one() -> None:
    ears = Ears()
    words = ["-f", "a", "--random-seed=1", "-c", "2", "-S", "-j", "x", "-f", "b"]
    with pytest.raises(OptionError, match="invalid value"):
        parse(words, {"PGBENCH_RANDOM_SEED": "5"}, ears)
    assert ears.heard == [("seed", 5), "a", ("seed", 1), ("clients", 2), "select-only"]


def test_what_is_wrong_behind_an_answer_is_never_seen() -> None:
    with pytest.raises(AnsweredError) as caught:
        parse(["-b", "list", "-c", "x"], ENVIRONMENT)
    assert caught.value.stream == "stderr"


def test_an_error_ends_with_a_look_at_the_help_of_the_program_that_was_called() -> None:
    with pytest.raises(OptionError) as caught:
        parse(["-x"], {}, command="pgpaces pgbench")
    hint = ("hint", 'Try "pgpaces pgbench --help" for more information.')
    assert caught.value.lines == (("info", "invalid option -- 'x'"), hint)


def test_an_option_of_ours_is_no_abbreviation() -> None:
    assert parsed("--no").no_vacuum
    assert refused("--no-s")[0][1] == "unrecognized option '--no-s'"


# --- texts ----------------------------------------------------------------------------------


def test_help_tells_of_every_option() -> None:
    text = usage("pgbench")
    for option in OPTIONS:
        if option.long == "report-latencies":  # understood, not recommended
            continue
        shown = rf"-{option.short}, --{option.long}\b" if option.short else rf"  --{option.long}\b"
        assert re.search(shown, text), option.long


def test_the_version_names_pgbenchs_and_ours() -> None:
    with pytest.raises(AnsweredError) as caught:
        parse(["-V"], {})
    version = r"pgbench \(PostgreSQL\) \d+\w*, by pgpaces [\d.]+\S*\n"
    assert re.fullmatch(version, caught.value.text)


@pytest.mark.parametrize("name", ["tpcb-like", "simple-update", "select-only"])
def test_a_builtin_script_begins_with_an_account(name: str) -> None:
    assert builtin_text(name).startswith("\\set aid random(1, 100000 * :scale)\n")


def test_options_are_read_without_importing_anything_heavy() -> None:
    heavy = ("sqlalchemy", "psycopg", "rich", "click", "pgpaces._engine")
    code = (
        "import sys; from pgpaces.cli.pgbench import main\n"
        "main(['-c', 'x'], 'pgbench')\n"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert done.stdout.strip() == "[]"
