"""pgbench's command line as values; its errors are compared with pgbench in tests/conformance."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from psycopg import pq

from pgpaces.cli.pgbench.options import (
    AnsweredError,
    OptionError,
    Options,
    ScriptOption,
    parse,
)
from pgpaces.database.pgbench_tables import (
    FillProgress,
    Tables,
    TablesError,
    blocks,
    fill_statements,
    initialize,
    partition_statements,
)
from tests.errors import raises

ENVIRONMENT = {"PGDATABASE": "bench"}


def parsed(*words: str, **environment: str) -> Options:
    return parse(words, ENVIRONMENT | environment)


def refused(*words: str) -> tuple[tuple[str, str], ...]:
    with pytest.raises(OptionError) as caught:
        parse(words, ENVIRONMENT)
    assert caught.value.exit_code == 1
    return caught.value.lines


def test_without_words_ten_transactions_of_the_builtin_script_run():
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
    ("-D a=1 -D b=x=y -D a=2", "defines", {"a": "2", "b": "x=y"}),
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
    ("-i -I 'd t gGvpf'", "steps", "d t gGvpf"),
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
def test_an_option_sets_a_value(line, name, value):
    import shlex

    assert getattr(parsed(*shlex.split(line)), name) == value


@pytest.mark.parametrize("word", ["-c", "-c-", "-s", "-fa@", "-fa@-", "--max-tries="])
def test_a_number_of_thousands_of_digits_is_out_of_range(word):
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
def test_the_database_is_named_by_the_environment(environment, name):
    assert parse([], environment).dbname == name


def test_the_database_is_named_after_who_runs_it_whatever_a_shell_says(monkeypatch):
    """As `runuser` and `setpriv` leave LOGNAME and USER of another one."""
    for name in ("LOGNAME", "USER"):
        monkeypatch.setenv(name, "somebody")
    assert parse([], {}).dbname == pwd.getpwuid(os.geteuid()).pw_name


def test_a_user_whom_the_system_does_not_know_is_said(monkeypatch):
    def absent(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", absent)
    with pytest.raises(OptionError, match=r"could not look up effective user ID \d+: user does"):
        parse([], {})


def test_options_are_told_in_their_order_up_to_the_wrong_one():
    told: list[tuple[str, object]] = []
    words = ["-f", "a", "--random-seed=1", "-c", "2", "-S", "-j", "x", "-f", "b"]
    with pytest.raises(OptionError, match="invalid value"):
        parse(words, {"PGBENCH_RANDOM_SEED": "5"}, lambda *each: told.append(each))
    a, select = ScriptOption("a"), ScriptOption("select-only", builtin=True)
    assert told == [("seed", 5), ("script", a), ("seed", 1), ("clients", 2), ("script", select)]


def test_what_is_wrong_behind_an_answer_is_never_seen():
    with pytest.raises(AnsweredError) as caught:
        parse(["-b", "list", "-c", "x"], ENVIRONMENT)
    assert caught.value.stream == "stderr"


def test_an_error_ends_with_a_look_at_the_help_of_the_program_that_was_called():
    with pytest.raises(OptionError) as caught:
        parse(["-x"], {}, command="pgpaces pgbench")
    hint = ("hint", 'Try "pgpaces pgbench --help" for more information.')
    assert caught.value.lines == (("info", "invalid option -- 'x'"), hint)


def test_an_option_of_ours_is_no_abbreviation():
    assert parsed("--no").no_vacuum
    assert refused("--no-s")[0][1] == "unrecognized option '--no-s'"


def test_the_version_names_pgbenchs_and_ours():
    with pytest.raises(AnsweredError) as caught:
        parse(["-V"], {})
    version = r"pgbench \(PostgreSQL\) \d+\w*, by pgpaces [\d.]+\S*\n"
    assert re.fullmatch(version, caught.value.text)


def test_options_are_read_without_importing_anything_heavy():
    heavy = ("psycopg", "rich", "click", "pgpaces._engine")
    code = (
        "import sys; from pgpaces.cli.pgbench import main\n"
        "main(['-c', 'x'], 'pgbench')\n"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert done.stdout.strip() == "[]"


def bounds(tables: Tables) -> list[tuple[str, str]]:
    """Where each partition begins, and where the next one does."""
    pattern = re.compile(r"for values from \((\w+)\) to \((\w+)\) with")
    found = [pattern.search(statement) for statement in partition_statements(tables)]
    return [(match[1], match[2]) for match in found if match]


@pytest.mark.parametrize("partitions", [1, 2, 7, 100, 100_001])
def test_ranges_leave_no_gap(partitions):
    found = bounds(Tables(scale=1, partitions=partitions))
    assert len(found) == partitions
    assert [behind for _, behind in found[:-1]] == [first for first, _ in found[1:]]


def test_blocks_say_how_many_rows_there_are_so_far():
    done = [rows for rows, _ in blocks("accounts", 1)]
    assert done == list(range(10_000, 100_001, 10_000))
    assert [rows for rows, _ in blocks("tellers", 1001)] == [10_000, 10_010]


def test_blocks_are_large_enough_for_few_writes_and_small_enough_for_memory():
    sizes = [len(block) for _, block in blocks("accounts", 2)]
    assert all(50_000 < size < 1_000_000 for size in sizes)


def test_the_server_is_told_to_make_as_many_rows():
    counts = [s.rsplit("(1, ", 1)[1] for s in fill_statements(Tables(scale=30_000))]
    assert counts == ["30000) as bid", "300000) as tid", "3000000000) as aid"]


def lines(
    seen: list[tuple[int, float]], total: int, *, quiet: bool
) -> list[tuple[str, int]]:  # fmt: skip
    said: list[tuple[str, int]] = []
    fill = FillProgress("pgbench_accounts", total, quiet, lambda *line: said.append(line))
    for done, elapsed_s in seen:
        fill.report(done, elapsed_s)
    fill.ended()
    return said


def test_a_line_comes_each_100000_rows_with_how_long_the_rest_will_take():
    seen = [(n * 50_000, n * 1.0) for n in range(1, 7)]
    first, second, third, wiped = lines(seen, 300_000, quiet=False)
    assert first == (
        "100000 of 300000 tuples (33%) of pgbench_accounts done (elapsed 2.00 s, remaining 4.00 s)",
        0,
    )
    assert second[0].startswith("200000 of 300000 tuples (66%) ")
    assert third[0].endswith(" (elapsed 6.00 s, remaining 0.00 s)")
    assert [width for _, width in (second, third)] == [len(first[0]), len(second[0])]
    assert wiped == ("", len(third[0]))


@pytest.mark.parametrize(
    ("seen", "total", "said"),
    [
        # Behind 5.2 s, 10.4 s, and at the end.
        ([(n * 10_000, n * 1.3) for n in range(1, 11)], 100_000, ["40000", "80000", "100000"]),
        # Lines that were missed in a long wait are not made up for.
        ([(100, 0.1), (200, 17.0), (300, 17.1), (400, 19.9), (500, 20.0)], 1_000, ["200", "500"]),
        ([(10, 0.0)], 10, []),
        ([(100, 0.0)], 100, ["100"]),
    ],
)
def test_under_quiet_a_line_comes_each_five_seconds_and_at_the_end(seen, total, said):
    assert [text.split()[0] for text, _ in lines(seen, total, quiet=True) if text] == said
    assert lines([(10, 0.0)], 10, quiet=False) == []


class Interrupted:
    """A connection on which Ctrl-C comes when the statement is sent and nobody waits for it yet."""

    info = SimpleNamespace(transaction_status=pq.TransactionStatus.ACTIVE)
    pgconn = SimpleNamespace(notice_handler=None)

    def __init__(self) -> None:
        self.cancelled = 0

    def execute(self, _: bytes) -> None:
        raise KeyboardInterrupt

    def cancel_safe(self, *, timeout: float) -> None:
        assert timeout > 0
        self.cancelled += 1


def test_ctrl_c_leaves_no_statement_running_in_the_server():
    connection, said = Interrupted(), list[str]()
    with raises(TablesError, "pgbench-tables") as caught:
        initialize(cast(Any, connection), Tables(), "v", say=said.append, progress=lambda *_: None)
    assert connection.cancelled == 1
    assert said == ["vacuuming...\n", "Cancel request sent\n"]
    assert caught.value.detail == "Query was: vacuum analyze pgbench_branches"
