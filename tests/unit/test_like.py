"""A command like a stored run has its load; the commands that follow a run use it."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from pgpaces.analysis import next_step
from pgpaces.analysis.attribution.causes import attribute
from pgpaces.analysis.summary import summarize
from pgpaces.answers import run as run_question
from pgpaces.cli import specs as asked
from pgpaces.cli.main import cli
from pgpaces.core.errors import PlanError
from pgpaces.load import engine
from pgpaces.spec import spec
from pgpaces.spec.design import Ask
from pgpaces.spec.result import Trial
from pgpaces.store.store import Store
from pgpaces.trial import target_server
from pgpaces.trial import trial as pipeline
from pgpaces.trial.request import Request
from pgpaces.trial.sweep import PlannedSweep
from tests.unit.documented import parsed
from tests.unit.sure import sure
from tests.unit.trials import SECOND_NS, changed, second

from .late_stories import STORIES


@pytest.mark.parametrize(
    ("states", "retried"),
    [
        (["40001", "40001", "40P01", "22012"], True),
        (["22012"] * 4, False),
        (["23505"] * 4, False),
        (["22012", "22012", "40001", "40P01"], False),
    ],
)
def test_more_tries_are_tried_only_where_most_failures_are_of_those_that_are_retried(
    states, retried
):
    """Of serialization failures and deadlocks; the message of others says what to mend."""
    made, _ = STORIES["failed"].told()
    intervals = []
    for each in made.intervals:
        state = states[each.second % 4]
        tallies = (
            replace(tally, failed=dict.fromkeys([state] if tally.failed else [], 20))
            for tally in each.tallies
        )
        messages = ((state, f"message of {state}"),)
        intervals.append(replace(each, tallies=tuple(tallies), messages=messages))
    made = replace(made, intervals=tuple(intervals))
    cause = sure(attribute(made, summarize(made)).cause)
    assert cause.key == "failed"
    assert ("--max-tries 1,10" in cause.command) == retried
    assert cause.evidence[0].values["message"] == f"message of {states[0]}"


_DSN = "host=db.example port=5433 user=me dbname=shop password=secret sslmode=require"
RUNS = [
    "tpcb-like --rate 90 -c 8 -L 100ms",
    "bigtext/external --rate 33.3333333333/s -c 2 -L 12345us -T 1001ms --scale 3",
    f"-f a.sql@3 -f b.sql --target '{_DSN}' --rate 32 -c 1 -L 60ms",
    f"-f b.sql --target '{_DSN}' -c 4 --think-time 20ms --think fixed --start-every 10ms",
    "-f 'odd name@2.sql@1' -c 1 -t 100 --warmup 3s --grace 9s --connect-each --describe",
    "tpcb-like -f a.sql --scale 5 --users 7 --pace 20/min -L 1s --seed 9 --arrivals even",
    "mine -c 3 -L 30ms --warmup 0s",
    "reporting --think-time 0s -c 4",
    "reporting --think-time 5ms -c 4",
    "late -c 3 --start-every 0s",
    "late --users 3 --pace 1/s --start-every 0s",
    "late -c 3 --rate 9/s",
    f"mine --target '{_DSN}' --own handed -c 3 --on-error stop --max-tries 5",
    f"select-only --from-database sales --target '{_DSN}' -c 2 --policy run --no-guard",
    "select-only --server 15 --data-dir /var/x --server-set shared_buffers=1GB --tls on -c 2",
    "select-only --set work_mem=1MB -D 'names=a,b' --on-connect 'SET a.b = 1' -c 2 -M prepared",
    "simple-update --standbys 2 --pool pgbouncer --pool-mode transaction --pool-size 9 -c 4",
    f"select-only --target '{_DSN}' --target-node 'standby1=host=b.example dbname=shop' -c 4"
    " --node standby1",
    "select-only --generators 4 -c 8 -L 100ms",
    "select-only --generators ssh:pi1,pi2 -c 8 -j 2 -L 100ms",
    "select-only --cluster tls://head:8786 -c 8",
    "select-only --cluster tls://head:8786 --generators 3 -c 9",
    "select-only --target 'host=db.example' --cluster tcp://head:8786 --insecure-cluster -c 9",
    "tpcb-like --data-seed 7 -c 2",
    "tpcb-like --rate 10 --shape steps:0.5:1:2 -c 5 -L 50ms -L tpcb-like=20ms --max-tries 3"
    " --set work_mem=64MB --set search_path=a,public -D names=a,b -M prepared",
]

NOT_IN_SWEEP = [run for run in RUNS if "--own" in run or "--on-connect" in run]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("a.sql", "b.sql", "odd name@2.sql", "mine/w.sql"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"SELECT '{name}';\n")
    (tmp_path / "mine" / "workload.toml").write_text(
        'description = "x"\ninit = ["w.sql"]\nscripts = [{ file = "w.sql" }]\n[load]\nclients = 1\n'
    )
    shutil.copytree(tmp_path / "mine", tmp_path / "late")
    with (tmp_path / "late" / "workload.toml").open("a") as late:
        late.write('start_every = "100ms"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def request_of(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Request:
    found: list[Request] = []

    def run(request: Request, *_: object) -> None:
        found.append(request)
        raise PlanError("far enough")

    monkeypatch.setattr(pipeline, "run", run)
    told = CliRunner().invoke(cli, ["run", *words, "--store", "s.db"])
    assert found, (words, told.output, told.exception)
    return found[0]


def stored(request: Request) -> Trial:
    return keep(stored_trial(request, {}))


def stored_trial(request: Request, more: dict[str, Any]) -> Trial:
    told, _ = STORIES["lock"].told()
    workload = told.workload.but(name=request.workload.name, hash=request.workload.hash)
    return changed(told, spec={**request.spec, **more}, workload=workload, intervals=())


def keep(trial: Trial) -> Trial:
    with closing(Store.open("s.db")) as store:
        store.begin(trial)
        store.finish(trial, {})
    return trial


def place(dsn: str | None, more: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    found = {} if dsn is None else dict(engine.resolve(dsn, **dict(more)).keywords)
    return {name: value for name, value in found.items() if not name.startswith("pass")}


COMPARED = ("data_seed", "node", "missed", "on_store_error")


def plain(request: Request) -> Request:
    """Without what can be written in several ways: DSNs (`place` compares them) and scripts."""
    own = {n: v for n, v in request.spec.items() if n.partition(".")[0] in COMPARED}
    target = replace(request.target, dsn=None, nodes=())
    background = tuple((name, plain(each)) for name, each in request.background)
    workload = replace(request.workload, scripts=request.scripts)
    return replace(
        request,
        target=target,
        workload=workload,
        background=background,
        spec=own | {"scale": request.scale},
    )


@pytest.mark.parametrize("run", RUNS)
def test_a_run_like_another_is_the_same_request(run, folder, monkeypatch):
    first = request_of(shlex.split(run), monkeypatch)
    stored(first)
    assert "secret" not in Path("s.db").read_bytes().decode("latin-1")
    again = request_of(["--like", "last"], monkeypatch)
    assert plain(again) == plain(first)
    assert place(again.target.dsn) == place(first.target.dsn)
    nodes = [{name: place(dsn) for name, dsn in one.target.nodes} for one in (first, again)]
    assert nodes[0] == nodes[1]


def test_what_a_connection_string_says_is_stored_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("PGSSLMODE", "require")
    monkeypatch.setenv("PGOPTIONS", "-c jit=off")
    shown = target_server.shown_source(_DSN) or ""
    assert [word in shown for word in ("sslmode=require", "jit", "secret")] == [True, False, False]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("key", ["connections", "disk"])
def test_a_sweep_has_the_data_and_scripts_of_the_run(run, key, folder, monkeypatch):
    first = request_of(shlex.split(run), monkeypatch)
    command = next_step.next_step_for(key, stored(first)).command
    _, face, *words = shlex.split(command)
    words[words.index("--like") + 1] = "last"
    if run in NOT_IN_SWEEP:
        assert face == "run"
        return
    _, options = parsed([face, *words, "--store", "s.db"])
    made = sure(asked.experiment(options)).checked(lambda _: None)
    planned = PlannedSweep.of(made)
    for cell in made.design.cells():
        again = planned.request(Ask(cell, 1))
        assert again.workload.scripts == first.workload.scripts
        assert again.workload.folder == first.workload.folder
        assert again.from_database == first.from_database
        for name in ("data_seed", "node"):
            assert again.spec.get(name) == first.spec.get(name)
        where = place(again.target.dsn, again.target.overrides)
        assert where == place(first.target.dsn)
        assert again.target.server == first.target.server
        assert again.pool == first.pool
        fixed = 60 * SECOND_NS if first.trial.auto else first.trial.duration_ns
        assert (again.trial.auto, again.trial.duration_ns) == (False, fixed)
        names = ("limit_ns", "limits", "transactions", "protocol", "connect_each")
        names = (*names, "policy", "continue_on_error", "exit_on_abort", "max_tries", "variables")
        for name in (*names, "generators"):
            assert getattr(again.trial, name) == getattr(first.trial, name), name
        assert dict(first.trial.settings).items() <= dict(again.trial.settings).items()
        assert again.trial.load == first.trial.load
        assert again.trial.start_every_ns == first.trial.start_every_ns


@pytest.mark.parametrize(
    ("run", "more", "same"),
    [
        ("reporting --users 3 --pace 1/s -L 1s", "--rate 5", "reporting --rate 5 -L 1s"),
        ("mine -c 3 -T 5s", "-t 9", "mine -c 3 -t 9"),
        ("mine -c 3 --set jit=off --set work_mem=1MB", "--set work_mem=2MB -c 4",
         "mine -c 4 --set jit=off --set work_mem=2MB"),
        ("reporting --rate 1 -L 1s -L by_fk1=9s", "-L 2s",
         "reporting --rate 1 -L by_fk1=9s -L 2s"),
        ("tpcb-like -c 1 -D hot=3", "select-only", "select-only -c 1 -D hot=3"),
        ("select-only -c 2 --background 'reporting rate=2/s latency_limit=1s'",
         "--background 'sensor clients=1'",
         "select-only -c 2 --background 'reporting rate=2/s latency_limit=1s' --background"
         " 'sensor clients=1'"),
    ],
)  # fmt: skip
def test_options_after_like_replace_those_of_the_run(run, more, same, folder, monkeypatch):
    stored(request_of(shlex.split(run), monkeypatch))
    again = request_of(["--like", "last", *shlex.split(more)], monkeypatch)
    wanted = request_of(shlex.split(same), monkeypatch)
    assert plain(again) == plain(wanted)


def test_a_run_like_one_of_a_changed_workload_says_what_changed(folder, monkeypatch):
    stored(request_of(["mine", "-c", "1"], monkeypatch))
    (folder / "mine" / "w.sql").write_text("SELECT 2;\n")
    refused = CliRunner().invoke(cli, ["run", "--like", "last", "--store", "s.db"])
    assert isinstance(refused.exception, PlanError)
    assert refused.exception.name == "workload-changed"
    assert "w" in refused.exception.values["changed"]
    assert request_of(["--like", "last", "--anyway"], monkeypatch).trial.clients == 1


def test_a_stored_option_that_this_version_lacks_is_named(folder, monkeypatch):
    request = request_of(["mine", "-c", "1"], monkeypatch)
    keep(stored_trial(request, {"warp": 9}))
    refused = CliRunner().invoke(cli, ["run", "--like", "last", "--store", "s.db"])
    assert isinstance(refused.exception, PlanError)
    assert refused.exception.name == "stored-option-unknown"
    assert refused.exception.values == {"option": "warp"}


def test_the_standard_input_cannot_be_run_again(folder, monkeypatch):
    piped = request_of(["-f", "-", "-c", "1"], monkeypatch)
    trial = replace(stored(piped), intervals=(second(0, [1.0] * 9),), measured_ns=SECOND_NS)
    assert not list(run_question.next_steps(trial, summarize(trial)))


def test_diff_shows_the_options_and_the_setup_that_differ(folder, monkeypatch):
    one = request_of(["mine", "-c", "1", "-T", "5s"], monkeypatch)
    first, second_ = (
        keep(replace(stored_trial(one, spec), id=id_ * 26))
        for id_, spec in (("0", {}), ("1", {"clients": 2, "set.jit": "off"}))
    )
    told = CliRunner().invoke(cli, ["diff", first.id, second_.id, "--json", "--store", "s.db"])
    found = json.loads(told.stdout)["value"]
    assert found["options"] == {"clients": [1, 2], "set.jit": [None, "off"]}
    assert found["setup"] == {}
    same = CliRunner().invoke(cli, ["diff", first.id, first.id, "--store", "s.db"])
    assert (same.exit_code, same.stdout.splitlines()[0][:4]) == (0, "DIFF")


def test_a_run_that_stops_when_it_is_certain_gives_its_load_to_others_without_that():
    stored = {"workload": "reporting", "duration": "auto", "variant": "auto", "clients": 4}
    assert "duration" not in spec.over(stored, {"shape": "steps:1:2"})
    levels = spec.experiment_of(stored).design.levels
    assert (levels.get("variant"), "duration" in levels) == (("auto",), False)
