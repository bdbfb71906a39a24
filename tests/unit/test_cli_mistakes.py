"""Mistakes as people make them: each has a message that names it, a way out, and exit code 2 or so.

What is asked of a server that does not run is in tests/integration/test_run.py.
"""

import shlex
import sys

import pytest

from pgpaces.cli import main
from pgpaces.store.store import new_id
from tests.errors import sentence
from tests.unit.stored import Kept, keep, opened

TOO_LONG = "x" * 300  # what the system says of it comes as of a folder that may not be entered
NO_HOME = sentence("no-home-of-user", path="~no1", folder="~no1")
NO_FILE = sentence("cannot-read-toml", path="exp.toml", why="No such file or directory")
NO_RUN = sentence("not-in-store", what="run or experiment", name="nightlyy", store="")[:-1]
NO_SCRIPT = sentence("unknown-script", workload="reporting", script="by_fk")
FACTORS = sentence("different-factors", factors=["clients", "set.jit"])
NO_UNIT = sentence("goal-without-unit", goal="p99 <= 50", number="50")
NO_QUANTILE = sentence("not-a-quantile-goal", goal="mean < 5ms")
# What is typed, the exit code, what is wrong, what to do.
MISTAKES = [
    ("rnu reporting", 2, "no such command 'rnu'", "did you mean run?"),
    ("reporting", 2, "no such command 'reporting'", "write: pgpaces run reporting"),
    ("run reportng", 3, sentence("unknown-workload", workload="reportng"), "you mean reporting?"),
    ("run reporting --latency 1s", 2, "no such option '--latency'", "did you mean --latency-limit"),
    ("sweep reporting --cleints 2", 2, "no such option '--cleints'", "did you mean --clients?"),
    ("sweep reporting --set jit=off", 2, "no such option '--set'", "did you mean --server-set?"),
    ("run --command true", 2, "no such option '--command'", "did you mean --observe-command?"),
    ("run reporting -R 100", 2, "no such option '-R'", "did you mean --rate?"),
    ("run reporting --time 60", 2, "no such option '--time'", "did you mean --duration?"),
    ("run reporting --port 5432", 2, "no such option '--port'", "did you mean --target?"),
    ("run reporting --limit 1s", 2, "no such option '--limit'", "did you mean --latency-limit?"),
    ("run reporting --html x", 2, "no such option '--html'", "`pgpaces run --help-all` says what"),
    ("run reporting -L 500 ms", 2, "'ms' is one word too many", "are one word: 500ms"),
    ("run --workload reporting", 2, "no such option '--workload'", "pgpaces run [OPTIONS] [W"),
    ("run reporting sensor", 2, "'sensor' is one word too", "pgpaces run [OPTIONS] [WORKLOAD]"),
    ("run reporting --rate 10/sec", 2, "--rate '10/sec' is not a rate", "30/min"),
    ("run reporting -T 60sec", 2, "--duration '60sec' is not a duration", " in s"),
    ("run reporting -L 500sec", 2, "limit '500sec' is not a duration", " in ms"),
    ("run reporting --missed 5", 2, sentence("not-a-share", what="--missed", value="5"), " 5%"),
    ("run reporting -c 0", 2, "--clients '0' must be an integer from 1 to", "such as --clients 1"),
    ("run reporting -c many", 2, "--clients 'many' must be an integer from 1", "such as --clients"),
    ("run reporting -c 1,2", 2, "--clients '1,2' must be an integer", "`pgpaces sweep`"),
    ("run reporting --rate 10,20", 2, "--rate '10,20' is not a rate", "`pgpaces sweep` takes sev"),
    ("run reporting -c", 2, "option '-c' requires an argument", "--clients N: Connections."),
    ("run reporting --policy drop", 2, "--policy 'drop' is none of run, skip", "What happens"),
    ("run reporting -M prepare", 2, "--protocol 'prepare' is none of", "did you mean prepared?"),
    ("run reporting --fail-if 'missed > 5'", 2, "5 in the condition 'missed > 5'", "'5%'"),
    ("run reporting --fail-if ''", 2, sentence("bad-condition", condition=""), "on time, p50"),
    ("run reporting --fail-if 'p96 > 1s' --fail-if 'p99 > 1s'", 2, "'p96 > 1s'", "write NAME"),
    ("run -f no.sql", 3, sentence("unreadable-script", path="no.sql", why="No such"), "SQL"),
    ("run reporting -o x.pdf", 2, "the ending of 'x.pdf' names no form", "end it with .html"),
    ("run reporting --script by_fk", 2, NO_SCRIPT, "by_fk1"),
    ("run select-only --script select-only@0", 2, sentence("no-script-runs"), "select-only@1"),
    ("run sensor --variant lag", 3, "variant 'lag'", "did you mean log?"),
    ("run reporting -D hot", 2, "--define 'hot' ", "--define hot=VALUE"),
    ("run reporting --server ~no1", 2, NO_HOME, "path"),
    ("run ~no1/x", 3, sentence("unknown-workload", workload="~no1/x"), "a folder like ./x"),
    ("run reporting --server-set jit", 2, "--server-set 'jit' ", "--server-set jit=VALUE"),
    ("run reporting --profile pi-4", 2, sentence("unknown-profile", profile="pi-4"), "pi-4gb?"),
    ("run reporting --rate 5 --users 5", 2, "--rate, --users ", "choose one"),
    ("run reporting --target-node pool=x", 2, sentence("node-without-target"), "--standbys"),
    ("run", 2, "nothing to run was named", "`pgpaces workload list`"),
    ("load ' '", 2, "the command is empty", "such as 'pgbench -i -s 10'"),
    ("load bulk-load", 2, "bulk-load is a workload", "`pgpaces run bulk-load`"),
    ("load", 2, "missing COMMAND", "write: pgpaces load [OPTIONS] COMMAND"),
    ("sweep exp.toml", 2, NO_FILE, "`pgpaces sweep --new exp.toml`"),
    ("sweep reporting --clients 1-8", 2, "clients: level '1-8' ", "levels: 1,8"),
    ("sweep reporting --clients 1,,2", 2, "--clients '1,,2' has an empty level", "such as 1,2"),
    ("capacity reporting --goal 'p99 <= 50'", 2, NO_UNIT, "'p99 <= 50ms'"),
    ("capacity reporting --goal 'p99 < fast'", 2, "time in --goal 'fast'", "a number with"),
    ("capacity tpcb-like --goal 'p99 < 1s' -L 1s", 2, "--goal and --latency-limit", "choose one"),
    ("capacity reporting --goal 'mean < 5ms'", 2, NO_QUANTILE, "'p99 <= 250ms'"),
    ("compare a b --metric p96", 2, "--metric 'p96' is none of rate, mean", "did you mean p99?"),
    ("compare server.work_mem=4MB a --run tpcb-like", 2, "'server.work_mem'", "mean set.work_mem?"),
    ("compare xyz=4MB a --run tpcb-like", 2, sentence("unknown-factor", factor="xyz"), "clients,"),
    ("compare set.jit=on clients=1 --run w", 2, FACTORS, "each factor"),
    ("compare rate=1 rate=1 --run w", 2, sentence("same-levels", levels="rate=1"), "A or B"),
    ("compare rate=1 rate= --run w", 2, sentence("not-factor-level", text="rate="), "=log"),
    ("compare a", 2, "missing B", "write: pgpaces compare [OPTIONS] A B"),
    ("check", 2, "missing option --baseline", "--baseline NAME: A baseline, a tag or a run."),
    ("check --baseline none", 2, "tag, run or experiment 'none'", "`pgpaces runs baseline NAME"),
    ("show nightlyy", 2, NO_RUN, "nightly?"),
    ("import nofile.log", 2, "nofile.log cannot be read: No such file", "files that pgbench wrote"),
    (
        "runs --store /nosuch/x.db",
        20,
        sentence("store-absent", store="/nosuch/x.db"),
        "check the address",
    ),
    (
        "runs --store mysql://u:p@x/y",
        20,
        sentence("store-scheme", scheme="mysql://"),
        "name a file, or",
    ),
    ("export last --format cvs", 2, "--format 'cvs' is none of csv", "did you mean csv?"),
    (f"run {TOO_LONG}", 3, ": File name too long", "pgpaces workload list"),
    (f"run reporting --profile {TOO_LONG}", 2, "there is no profile", "default, pi-1gb"),
    (f"run reporting --store {TOO_LONG} -T 1s", 20, "unable to open", "PGPACES_HOME"),
    (f"export last -o {TOO_LONG}", 5, "cannot be written: File name", "name another file"),
    (f"workload new {TOO_LONG}", 3, ": File name too long", "name a folder"),
    ("disk /nowhere", 2, sentence("disk-folder-missing", path="/nowhere"), "name a folder on"),
]


@pytest.mark.parametrize(("line", "code", "wrong", "hint"), MISTAKES, ids=lambda v: str(v)[:40])
def test_a_mistake_is_named_with_the_way_out(
    line, code, wrong, hint, tmp_path, monkeypatch, capsys
):
    store = opened(tmp_path)
    keep(store, Kept(run := new_id()))
    store.tag("nightly", run)
    monkeypatch.setenv("PGPACES_STORE", str(tmp_path / "results.db"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pgpaces", *shlex.split(line)])
    assert main._exit_code() == code
    told = capsys.readouterr().err.splitlines()
    assert [text.partition(": ")[2].partition(": ")[0] for text in told] == ["error", "hint"]
    assert wrong in told[0]
    assert hint in told[1]
    assert "Did you mean" not in told[0]
