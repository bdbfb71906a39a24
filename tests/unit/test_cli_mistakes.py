"""Mistakes as people make them: each has a message that names it, a way out, and exit code 2 or so.

What is asked of a server that does not run is in tests/integration/test_run.py.
"""

import shlex
import sys
from functools import partial

import pytest

from pgpaces.cli import main
from pgpaces.core.errors import PlanError, RunError
from pgpaces.store.store import new_id
from tests.unit.stored import Kept, keep, opened

no_option, no_choice = partial(PlanError, "unknown-option"), partial(PlanError, "not-a-choice")
no_count = partial(PlanError, "not-a-count", what="--clients", low=1, high=100000)
TOO_LONG = "x" * 300  # what the system says of it comes as of a folder that may not be entered
NAMED = {
    "rnu reporting": PlanError("unknown-command", command="rnu", near="run"),
    "reporting": PlanError("unknown-command", command="reporting", workload="reporting"),
    **{f"{words} 1": no_option(option=words.split()[1], near=near) for words, near in (
        ("run --latency", "--latency-limit"), ("sweep --cleints", "--clients"),
        ("sweep --set", "--server-set"), ("run --command", "--observe-command"),
        ("run -R", "--rate"), ("run --time", "--duration"), ("run --port", "--target"),
        ("run --limit", "--latency-limit"))},
    "run reporting --html x": no_option(option="--html", help="pgpaces run --help-all"),
    "run reporting -L 500 ms": PlanError("unit-apart", unit="ms", number="500"),
    "run --workload x": no_option(option="--workload", usage="pgpaces run [OPTIONS] [WORKLOAD]"),
    "run x y": PlanError("extra-argument", argument="y", usage="pgpaces run [OPTIONS] [WORKLOAD]"),
    "run -c 0": no_count(value="0", example=1), "run -c many": no_count(value="many", example=1),
    "run reporting -c 1,2": no_count(value="1,2", levels="1,2"),
    "run -c": PlanError("usage", text="option '-c' requires an argument", about="--clients N: Con"),
    "run --policy ru": no_choice(what="--policy", value="ru", choices="run, skip", near="run"),
    "run -M prep": no_choice(what="--protocol", value="prep", choices="simple", near="prepared"),
    "run reporting -o x.pdf": PlanError("unknown-form", path="x.pdf"),
    "load ' '": PlanError("empty-command"),
    "load bulk-load": PlanError("workload-as-command", workload="bulk-load"),
    "load":
        PlanError("missing-argument", argument="COMMAND", usage="pgpaces load [OPTIONS] COMMAND"),
    "sweep x -c 1,,2": PlanError("empty-level", option="--clients", value="1,,2", levels="1,2"),
    "sweep --clients 1": PlanError("levels-without-workload"), "run": PlanError("nothing-to-run"),
    "sweep x --define a": PlanError("not-levels", option="--define", value="a", factor="a"),
    "compare a b --metric p9": no_choice(what="--metric", value="p9", choices="rate", near="p99"),
    "compare a b -T 1s": PlanError("only-of-new-pairs", option="--duration"),
    "compare a b --run tpcb-like --in a": PlanError("only-of-stored-trials", option="--in"),
    "compare a": PlanError("missing-argument", argument="B", usage="pgpaces compare [OPTIONS] A B"),
    "check --baseline none": PlanError("unusable-baseline", why=""),
    "check": PlanError("missing-option", option="--baseline", about="--baseline NAME: A base"),
    "import x.log": PlanError("cannot-read-log", path="x.log", why="No such file or directory"),
    "export last --format cvs": no_choice(what="--format", value="cvs", choices="csv", near="csv"),
    f"export last -o {TOO_LONG}":
        RunError("cannot-write-report", path=TOO_LONG, why="File name too long"),
}  # fmt: skip
# What is typed, the exit code, what is wrong, what to do.
MISTAKES = [
    ("run reportng", 3, "there is no workload 'reportng'", "did you mean reporting? shipped are"),
    ("run reporting --rate 10/sec", 2, "--rate '10/sec' is not a rate", "1/s, 30/min"),
    ("run reporting -T 60sec", 2, "--duration '60sec' is not a duration", "a unit it is in s"),
    ("run reporting -L 500sec", 2, "limit '500sec' is not a duration", "unit it is in ms"),
    ("run reporting --missed 5", 2, "--missed '5' is no share", "below 100%, such as 5%"),
    ("run reporting --rate 10,20", 2, "--rate '10,20' is not a rate", "`pgpaces sweep` takes sev"),
    ("run reporting --fail-if 'missed > 5'", 2, "has no unit: 5 of what", "'5%' of what"),
    ("run reporting --fail-if ''", 2, "the condition '' cannot be read", "write NAME COMPARISON"),
    ("run reporting --fail-if 'p96 > 1s' --fail-if 'p99 > 1s'", 2, "'p96 > 1s'", "write NAME"),
    ("run -f nofile.sql", 3, 'could not open file "nofile.sql"', "name a file of SQL commands"),
    ("run reporting --script by_fk", 2, "has no script 'by_fk'", "did you mean by_fk1?"),
    ("run select-only --script select-only@0", 2, "every weight is 0", "such as select-only@1"),
    ("run sensor --variant lag", 3, "has no variant 'lag'", "did you mean log?"),
    ("run reporting -D hot", 2, "--define 'hot' is not NAME=VALUE", "such as hot=VALUE"),
    ("run reporting --server ~no1", 2, "'~no1' is no path: ~no1 is no home", "its whole path"),
    ("run ~no1/x", 3, "there is no workload '~no1/x'", "or name a folder"),
    ("run reporting --server-set jit", 2, "--server-set 'jit' is not", "such as jit=VALUE"),
    ("run reporting --profile pi-4", 2, "there is no profile 'pi-4'", "did you mean pi-4gb?"),
    ("run reporting --rate 5 --users 5", 2, "exclude each other", "choose one kind of load"),
    ("sweep exp.toml", 2, "exp.toml cannot be read", "`pgpaces sweep --new exp.toml` writes one"),
    ("sweep reporting --clients 1-8", 2, "clients: '1-8' must be", "a comma between levels"),
    ("capacity reporting --goal 'p99 <= 50'", 2, "--goal 'p99 <= 50' has no unit", "p99 <= 50ms"),
    ("capacity reporting --goal 'p99 < fast'", 2, "time in --goal 'fast'", "a number with"),
    ("capacity tpcb-like --goal 'p99 < 1s' -L 1s", 2, "--goal is a latency limit", "or --goal"),
    ("capacity reporting --goal 'mean < 5ms'", 2, "--goal 'mean < 5ms' is no bound", "'p99 <= 250"),
    ("compare server.work_mem=4MB a --run tpcb-like", 2, "'server.work_mem'", "mean set.work_mem?"),
    ("compare xyz=4MB a --run tpcb-like", 2, "there is no factor 'xyz'", "such as clients, rate"),
    ("show nightlyy", 2, "there is no run or experiment 'nightlyy'", "did you mean nightly?"),
    ("runs --store /nosuch/x.db", 20, "there is no store /nosuch/x.db", "check the place"),
    ("runs --store mysql://u:p@x/y", 20, "a store cannot be at mysql://...", "name a file, or"),
    (f"run {TOO_LONG}", 3, "cannot be read: File name too long", "name a folder that you may"),
    (f"run reporting --profile {TOO_LONG}", 2, "there is no profile", "profiles are default"),
    (f"run reporting --store {TOO_LONG} -T 1s", 20, "cannot be used", "another store with --store"),
    (f"workload new {TOO_LONG}", 3, "cannot be written: File name too", "name a folder that you"),
    ("disk /nowhere", 2, "/nowhere does not exist", "name a folder on the disk"),
] + [(line, each.exit_code, each.message, each.hint) for line, each in NAMED.items()]


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
