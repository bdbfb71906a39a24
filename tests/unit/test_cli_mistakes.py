"""Mistakes as people make them: each has a message that names it, a way out, and exit code 2 or so.

What is asked of a server that does not run is in tests/integration/test_run.py.
"""

import shlex
import sys
from functools import partial

import pytest

from pgpaces.cli import main
from pgpaces.core.errors import PlanError, RunError, StoreError, WorkloadError
from pgpaces.store.store import new_id
from tests.errors import sentence
from tests.unit.stored import Kept, keep, opened

no_option, no_choice = partial(PlanError, "unknown-option"), partial(PlanError, "not-a-choice")
no_count = partial(PlanError, "not-an-integer", what="--clients", low=1, high=100000)
TOO_LONG = "x" * 300  # what the system says of it comes as of a folder that may not be entered
NO_HOME = sentence("no-home-of-user", path="~no1", folder="~no1")
NO_FILE = sentence("cannot-read-toml", path="exp.toml", why="No such file or directory")
NO_RUN = sentence("not-in-store", what="run or experiment", name="nightlyy", store="")[:-1]
NO_SCRIPT = sentence("unknown-script", workload="reporting", script="by_fk")
FACTORS = sentence("different-factors", factors=["clients", "set.jit"])
NO_UNIT = sentence("goal-without-unit", goal="p99 <= 50", number="50")
NO_QUANTILE = sentence("not-a-quantile-goal", goal="mean < 5ms")
UNTRUSTED = sentence("script-unconfirmed", path="/a.sql").partition("'")[2]
BARE = "01" + 24 * "B"
LEVELS = ",".join(map(str, range(1, 102)))
FILES = {"a.sql": "\\shell true\nSELECT 1;", "m.sql": "SELECT 1;",
         "open.sql": "BEGIN; SELECT 1;",
         "shell.toml": "files = ['a.sql']\n[factors]\nclients = [1]",
         "many.toml": f"workload = 'select-only'\n[factors]\nclients = {[1] * 10_001}"}  # fmt: skip
NAMED = {
    "rnu reporting": PlanError("unknown-command", command="rnu", near="run"),
    "reporting": PlanError("unknown-command", command="reporting", workload="reporting"),
    **{f"{words} 1": no_option(option=words.split()[1], near=near) for words, near in (
        ("run --latency", "--latency-limit"), ("sweep --cleints", "--clients"),
        ("sweep --sett", "--set"), ("run --command", "--observe-command"),
        ("run -R", "--rate"), ("run --time", "--duration"), ("run --port", "--target"),
        ("run --limit", "--latency-limit"))},
    "run reporting --html x": no_option(option="--html", help="pgpaces run --help-all"),
    "run reporting -L 500 ms": PlanError("unit-apart", unit="ms", number="500"),
    "run --workload x": no_option(option="--workload", usage="pgpaces run [OPTIONS] [WORKLOAD]"),
    "run x y": PlanError("extra-argument", argument="y", usage="pgpaces run [OPTIONS] [WORKLOAD]"),
    "run -c 0": no_count(value="0", example=1), "run -c many": no_count(value="many", example=1),
    "run reporting -c 1,2": no_count(value="1,2", several="1,2"),
    "run -c": PlanError("usage", text="option '-c' requires an argument", about="--clients N: Num"),
    "run --policy ru": no_choice(what="--policy", value="ru", choices="run, skip", near="run"),
    "run -M prep": no_choice(what="--protocol", value="prep", choices="simple", near="prepared"),
    "run reporting -o x.pdf": PlanError("unknown-form", path="x.pdf"),
    "load ' '": PlanError("empty-command"),
    "load bulk-load": PlanError("workload-as-command", workload="bulk-load"),
    "load":
        PlanError("missing-argument", argument="COMMAND", usage="pgpaces load [OPTIONS] [COMMAND]"),
    "sweep x -c 1,,2": PlanError("empty-level", option="--clients", value="1,,2", levels="1,2"),
    "sweep --clients 1": PlanError("levels-without-workload"), "run": PlanError("nothing-to-run"),
    "sweep x --define a": PlanError("not-levels", option="--define", value="a", factor="a"),
    "trend --metric p9": no_choice(what="--metric", value="p9", choices="throughput", near="p99"),
    "compare a b -T 1s": PlanError("only-of-new-pairs", option="--duration"),
    "rehearse": PlanError("migration-missing"),
    "rehearse reporting --rate 1": PlanError("migration-missing"),
    "rehearse none.sql": PlanError("migration-not-found", path="none.sql"),
    "rehearse m.sql -f a.sql --rate 1": PlanError("rehearsal-needs-copy"),
    "rehearse m.sql -f a.sql --rate 1 --target host=h": PlanError("rehearsal-needs-copy"),
    "rehearse m.sql tpcb-like": PlanError("rehearsal-needs-rate"),
    "rehearse m.sql tpcb-like --rate 1 --rows 7": PlanError("not-table-rows", value="7"),
    "rehearse open.sql tpcb-like --rate 1": PlanError("migration-left-open"),
    "rehearse m.sql tpcb-like --event crash":
        PlanError("cannot-combine", options=["--event", "m.sql"]),
    "rehearse tpcb-like --rate 1 --event crash --target host=h":
        PlanError("event-needs-managed", event="crash"),
    "rehearse tpcb-like --rate 1 --event failover":
        PlanError("option-needs", option="--event failover", needed="--standbys 1"),
    "compare a b --run tpcb-like --in a": PlanError("only-of-stored-trials", option="--in"),
    "compare a": PlanError("missing-argument", argument="B", usage="pgpaces compare [OPTIONS] A B"),
    "check --baseline none": PlanError("unusable-baseline", why=NO_RUN.replace("nightlyy", "none")),
    "check": PlanError("missing-option", option="--baseline", about="--baseline NAME: A base"),
    "runs --store /no/x.db": StoreError("store-absent", store="/no/x.db"),
    "runs --store mysql://u:p@x/y": StoreError("store-scheme", scheme="mysql://"),
    "run .": WorkloadError("not-a-workload", folder=".", file="workload.toml"),
    "run reporting -D hot": PlanError("not-a-pair", option="--define", value="hot", key="hot"),
    "workload new a+b": WorkloadError("bad-workload-name", workload="a+b"),
    "run reporting --node a --node b": PlanError("given-twice", what="--node"),
    "compare server.work_mem=4MB a --run tpcb-like":
        PlanError("unknown-factor", factor="server.work_mem", near="server_set.work_mem"),
    "compare variant=a variant=b --run reporting -c 1,2":
        PlanError("level-not-chosen", factor="clients", count=2, level="1"),
    "import x.log": PlanError("cannot-read-log", path="x.log", why="No such file or directory"),
    "export last --format cvs": no_choice(what="--format", value="cvs", choices="csv", near="csv"),
    "sweep reporting --script by_fk1,one_fk1 --script by_fk1":
        PlanError("scripts-given-twice", count=2, scripts="by_fk1,one_fk1 by_fk1"),
    "runs --store elsewhere.db delete last":
        PlanError("option-before-command", option="--store", command="delete"),
    "runs tag '' nightly": PlanError("invalid-name", name=""),
    f"runs tag {TOO_LONG} nightly": PlanError("name-too-long", length=300, most=100),
    "run -f a.sql --own shop --target host=x": PlanError("own-without-workload"),
    f"run --like {BARE}": PlanError("run-without-spec", run=BARE),
    "sweep select-only -T auto -L 1s": PlanError("only-of-a-run", option="-T auto"),
    f"sweep select-only -c {LEVELS} --rate {LEVELS}":
        PlanError("too-many-trials", trials=10201, most=10000),
    "sweep many.toml": PlanError("level-twice", factor="clients", level="1"),
    "run garden/users --script x":
        PlanError("unknown-task", workload="garden/users", script="x", known=["insert_plant"]),
    f"run {TOO_LONG}":
        WorkloadError("unreadable-workload", path=TOO_LONG, why="File name too long"),
    "run select-only --pool pgpool --pool-mode transaction":
        PlanError("pgpool-pool-mode", mode="transaction"),
    "run select-only --pool pgbouncer --pool-size 2 -c 4":
        PlanError("pool-too-small", clients=4, size=2),
    f"export last -o {TOO_LONG}":
        RunError("cannot-write-report", path=TOO_LONG, why="File name too long"),
}  # fmt: skip
# What is typed, the exit code, what is wrong, what to do.
MISTAKES = [
    ("run reportng", 3, sentence("unknown-workload", workload="reportng"), "you mean reporting?"),
    ("run reporting --rate 10/sec", 2, "--rate '10/sec' is not a rate", "30/min"),
    ("run reporting -T 60sec", 2, "--duration '60sec' is not a duration", " in s"),
    ("run reporting -L 500sec", 2, "limit '500sec' is not a duration", " in ms"),
    ("run reporting --missed 5", 2, sentence("not-a-share", what="--missed", value="5"), " 5%"),
    ("run reporting --rate 10,20", 2, "--rate '10,20' is not a rate", "`pgpaces sweep` accepts"),
    (
        "sweep reporting -c 1,2 --missed 0",
        2,
        sentence("zero-share", what="--missed", value="0"),
        "1%",
    ),
    ("run reporting --fail-if 'missed > 5'", 2, "5 in the condition 'missed > 5'", "'5%'"),
    ("run reporting --fail-if ''", 2, sentence("bad-condition", condition=""), "on_time, mean"),
    ("run reporting --fail-if 'p96 > 1s' --fail-if 'p99 > 1s'", 2, "'p96 > 1s'", "write NAME"),
    ("run -f no.sql", 3, sentence("unreadable-script", path="no.sql", why="No such"), "SQL"),
    ("run reporting --script by_fk", 2, NO_SCRIPT, "by_fk1"),
    ("run select-only --script select-only@0", 2, sentence("no-script-runs"), "select-only@1"),
    ("run sensor --variant lag", 3, "variant 'lag'", "did you mean log?"),
    ("run reporting --server ~no1", 2, NO_HOME, "path"),
    ("run ~no1/x", 3, sentence("unknown-workload", workload="~no1/x"), "a directory like ./x"),
    ("run reporting --server-set jit", 2, "--server-set 'jit' ", "--server-set jit=VALUE"),
    ("run reporting --profile pi-4", 2, sentence("unknown-profile", profile="pi-4"), "pi-4gb?"),
    ("run reporting --rate 5 --users 5", 2, "--rate and --users ", "choose one"),
    ("run reporting --target-node pool=x", 2, sentence("node-without-target"), "--standbys"),
    ("sweep exp.toml", 2, NO_FILE, "`pgpaces sweep --new exp.toml`"),
    ("sweep reporting --clients 1-8", 2, "--clients '1-8' ", "levels: 1,8"),
    ("capacity reporting --goal 'p99 <= 50'", 2, NO_UNIT, "'p99 <= 50ms'"),
    ("capacity reporting --goal 'p99 < fast'", 2, "time in --goal 'fast'", "a number with"),
    ("capacity tpcb-like --goal 'p99 < 1s' -L 1s", 2, "--goal and --latency-limit", "choose one"),
    ("capacity reporting --goal 'mean < 5ms'", 2, NO_QUANTILE, "'p99 <= 250ms'"),
    ("compare xyz=4MB a --run tpcb-like", 2, sentence("unknown-factor", factor="xyz"), "set.xyz"),
    ("compare set.jit=on clients=1 --run w", 2, FACTORS, "each factor"),
    ("compare rate=1 rate=1 --run w", 2, sentence("same-levels", levels="rate=1"), "A or B"),
    ("compare rate=1 rate= --run w", 2, sentence("not-factor-level", text="rate="), "=log"),
    ("show nightlyy", 2, NO_RUN, "nightly?"),
    (f"run reporting --profile {TOO_LONG}", 2, "there is no profile", "default, pi-1gb"),
    (f"run reporting --store {TOO_LONG} -T 1s", 20, "unable to open", "PGPACES_HOME"),
    (f"workload new {TOO_LONG}", 3, ": File name too long", "use a directory"),
    ("sweep shell.toml", 6, UNTRUSTED, "--trust"),
    ("disk /nowhere", 2, sentence("disk-folder-missing", path="/nowhere"), "use a directory on"),
] + [(line, each.exit_code, each.message, each.hint) for line, each in NAMED.items()]


@pytest.mark.parametrize(("line", "code", "wrong", "hint"), MISTAKES, ids=lambda v: str(v)[:40])
def test_a_mistake_is_named_with_the_way_out(
    line, code, wrong, hint, tmp_path, monkeypatch, capsys
):
    store = opened(tmp_path)
    keep(store, Kept(run := new_id()))
    store.tag("nightly", run)
    keep(store, Kept(BARE, plan={"imported": {"program": "pgbench"}}))
    monkeypatch.setenv("PGPACES_STORE", str(tmp_path / "results.db"))
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "argv", ["pgpaces", *shlex.split(line)])
    assert main._exit_code() == code
    told = capsys.readouterr().err.splitlines()
    assert [text.partition(": ")[2].partition(": ")[0] for text in told] == ["error", "hint"]
    assert wrong in told[0]
    assert hint in told[1]
    assert "Did you mean" not in told[0]
