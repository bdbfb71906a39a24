"""Why late: the next experiment is a command that there is, for the load that was run."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import to_builtins
from msgspec.structs import asdict, replace

from pgpaces.analysis import next_step
from pgpaces.analysis.attribution import attribute
from pgpaces.analysis.summary import summarize
from pgpaces.answers import run as run_question
from pgpaces.cli import experiment_options
from pgpaces.cli.main import cli
from pgpaces.core.errors import PlanError
from pgpaces.load import engine
from pgpaces.spec.design import Slot
from pgpaces.spec.facts import BackgroundFacts, ComponentFacts, Prepared
from pgpaces.spec.plan import Load
from pgpaces.spec.result import Trial
from pgpaces.trial import trial as pipeline
from pgpaces.trial.order import Builder, Order
from pgpaces.trial.ready_trial import requested
from pgpaces.trial.request import Request
from tests.unit.documented import parsed
from tests.unit.sure import sure
from tests.unit.trials import SECOND_NS, known, second

from .late_stories import STORIES, Story


@pytest.mark.parametrize(
    ("asked", "option"),
    [
        (None, ""),
        ("18", "--server 18"),
        ("debian:18", "--server debian:18"),
        ("mine", "--server mine"),
    ],
)
def test_the_next_experiment_is_on_the_server_that_was_asked_for(asked, option):
    """An installed PostgreSQL 18 and the embedded one are both called pg18."""
    trial, _ = STORIES["lock"].told()
    server = {"ours": True, "name": "pg18", "stays": False, "requested": asked}
    command = next_step.next_step_for("lock", replace(trial, **known(server=server))).command
    assert option in command
    assert ("--server" in command) == (asked is not None)


def test_the_next_experiment_has_the_background_workloads_and_the_goal():
    trial, _ = STORIES["lock"].told()
    own = ComponentFacts(clients=2, workload="reporting", model="open", rate=8.0)
    other = ComponentFacts(
        of="ingest", clients=4, workload="sensor", model="paced", rate=2.0, limit_ns=50_000_000,
        node="standby1",
    )  # fmt: skip
    plan = trial.plan.but(components=(own, other), clients=6, missed_max=0.01)
    prepared = Prepared("d", "f", created=True, seconds=1.0, size_bytes=1)
    ingest = BackgroundFacts(of="ingest", name="sensor", hash="h", scale=3, prepared=prepared)
    trial = replace(trial, plan=plan, workload=trial.workload.but(background=(ingest,)))
    words = shlex.split(next_step.options(trial))
    assert words[words.index("--clients") + 1] == "2"
    assert words[words.index("--missed") + 1] == "1%"
    background = words[words.index("--background") + 1]
    load = "pace=2/s users=4 latency_limit=50ms node=standby1"
    assert background == f"ingest workload=sensor scale=3 {load}"


@pytest.mark.parametrize("pause", ["think_time=0s", "think_time=20ms", "think_time=1s think=fixed"])
def test_a_background_workload_without_a_rate_has_its_own_pause_again(pause):
    """Its workload has a rate of its own, which it would have otherwise."""

    def load(text: str) -> Load:
        words = ["sweep", "select-only", "--clients", "1", "--background", text]
        draft = sure(experiment_options.draft(parsed(words)[1]))
        experiment = draft.experiment(lambda _: None)
        (cell,) = experiment.design.cells()
        ((_, own),) = Builder.of(Order(experiment)).request(Slot(1, cell), "").background
        return own.trial.load

    first = load(f"reporting clients=2 {pause}")
    facts = ComponentFacts(
        of="reporting", workload="reporting", clients=2, model=first.model, think=first.think,
        think_ns=first.think_ns,
    )  # fmt: skip
    trial, _ = STORIES["lock"].told()
    words = shlex.split(next_step.options(replace(trial, plan=trial.plan.but(components=(facts,)))))
    assert load(words[words.index("--background") + 1]) == first


@pytest.mark.parametrize("key", next_step.CAUSES)
@pytest.mark.parametrize("model", ["open", "closed", "paced"])
def test_every_next_experiment_is_a_command_that_there_is(key, model, tmp_path):
    trial, _ = Story(plan={"model": model}).told()
    command = next_step.next_step_for(key, trial).command
    parts = [part for many in command.split("&&") for part in many.split(";")]
    for part in parts:
        program, *words = shlex.split(part)
        assert program == "pgpaces"
        assert parsed([str(tmp_path) if word == "FOLDER" else word for word in words])


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
    cause = sure(attribute([(made, summarize(made))]).cause)
    assert cause.key == "failed"
    assert ("--max-tries 1,10" in cause.command, "retried" in cause.advice) == (retried, retried)
    assert f"message of {states[0]}" in cause.evidence[0]
    assert parsed(shlex.split(cause.command.split("&&")[0])[1:])


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
    """A place with scripts and a workload in it."""
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
    """What `pgpaces run` would have done; nothing runs."""
    found: list[Request] = []

    def run(request: Request, *_: object) -> None:
        found.append(request)
        raise PlanError("far enough")

    monkeypatch.setattr(pipeline, "run", run)
    told = CliRunner().invoke(cli, ["run", *words])
    assert found, (words, told.output, told.exception)
    return found[0]


def made_by(request: Request) -> dict[str, Any]:
    """The generators of a load, two where only a cluster knows how many, and their threads."""
    plan, each = request.trial.generators, request.trial.threads or 1
    if plan is None:
        return {"threads": each}
    names = plan.hosts or [f"g{number}" for number in range(plan.count or 2)]
    rest = {"clients": 1, "threads": each, "cpus": 2, "offset_ns": 0, "uncertainty_ns": 0}
    generated = [{"name": name, **rest} for name in names]
    return {"threads": each * len(names), "generators": str(plan), "generated": generated}


def trial_of(request: Request) -> Trial:
    """As it would have been stored."""
    trial, load = STORIES["lock"].told()[0], request.trial.load
    plan: dict[str, Any] = {
        **asdict(request.trial),
        "load": load.model,
        **{
            name: getattr(load, name) for name in ("model", "rate", "arrivals", "think", "think_ns")
        },
        "shape": str(load.shape),
        **made_by(request),
        "warmup_ns": request.trial.warmup,
        "grace_ns": request.trial.grace,
        "settings": dict(request.trial.settings),
    }
    return replace(
        trial,
        **known(
            plan=plan,
            workload={
                "name": request.workload.name,
                "scale": request.scale or request.workload.scale,
                "data_seed": request.data_seed,
                "request": to_builtins(requested(request)),
            },
            server={"ours": request.target.dsn is None, "requested": request.target.server},
        ),
    )


def place(dsn: str | None, more: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """Where a DSN leads; a password comes from elsewhere."""
    found = {} if dsn is None else dict(engine.resolve(dsn, **dict(more)).keywords)
    return {name: value for name, value in found.items() if not name.startswith("pass")}


def plain(request: Request) -> Request:
    """Without DSNs, which may be written in several ways; `place` compares them."""
    scale = request.scale or request.workload.scale
    scale = 1 if request.as_is else scale
    target = replace(request.target, dsn=None, nodes=())
    return replace(request, target=target, scale=scale)


@pytest.mark.parametrize("run", RUNS)
def test_the_same_run_once_more_is_the_same_request(run, folder, monkeypatch):
    first = request_of(shlex.split(run), monkeypatch)
    command = next_step.next_step_for("lock", trial_of(first)).command
    assert "secret" not in command
    program, face, *words = shlex.split(command.split(" && ")[0])
    assert (program, face) == ("pgpaces", "run")
    again = request_of(words, monkeypatch)
    assert plain(again) == plain(first)
    assert place(again.target.dsn) == place(first.target.dsn)
    nodes = [{name: place(dsn) for name, dsn in one.target.nodes} for one in (first, again)]
    assert nodes[0] == nodes[1]


@pytest.mark.parametrize("run", [run for run in RUNS if run not in NOT_IN_SWEEP])
@pytest.mark.parametrize("key", ["connections", "disk"])
def test_a_sweep_has_the_data_and_scripts_of_the_run(run, key, folder, monkeypatch):
    first = request_of(shlex.split(run), monkeypatch)
    command = next_step.next_step_for(key, trial_of(first)).command.split(";")[0]
    assert "secret" not in command
    _, face, *words = shlex.split(command)
    _, options = parsed([face, *words])
    draft = sure(experiment_options.draft(options))
    made = draft.experiment(lambda _: None)
    builder = Builder.of(Order(made))
    for cell in made.design.cells():
        again = builder.request(Slot(1, cell), "")
        assert again.workload.scripts == first.workload.scripts
        assert again.workload.folder == first.workload.folder
        assert again.from_database == first.from_database
        assert again.data_seed == first.data_seed
        where = place(again.target.dsn, again.target.overrides)
        assert where == place(first.target.dsn)
        assert again.target.server == first.target.server
        assert (again.node, again.pool) == (first.node, first.pool)
        names = ("limit_ns", "limits", "duration_ns", "transactions", "protocol", "connect_each")
        names = (*names, "policy", "continue_on_error", "exit_on_abort", "max_tries", "variables")
        for name in (*names, "generators"):
            assert getattr(again.trial, name) == getattr(first.trial, name), name
        assert dict(first.trial.settings).items() <= dict(again.trial.settings).items()
        assert again.trial.load == first.trial.load
        assert again.trial.start_every_ns == first.trial.start_every_ns


@pytest.mark.parametrize("run", NOT_IN_SWEEP)
def test_what_no_experiment_can_have_is_run_again_and_not_left_out(run, folder, monkeypatch):
    trial = trial_of(request_of(shlex.split(run), monkeypatch))
    step = next_step.next_step_for("connections", trial)
    assert step.command.startswith("pgpaces run ")
    assert step.command.endswith(" && pgpaces why last")
    trial = replace(trial, intervals=(second(0, [1.0] * 9),), measured_ns=SECOND_NS)
    assert list(run_question.next_steps(trial, summarize(trial))) == []


def test_what_cannot_be_known_is_a_word_in_capitals(folder, monkeypatch):
    """The standard input is gone."""
    piped = request_of(["-f", "b.sql", "-c", "1"], monkeypatch)
    script = replace(piped.workload.scripts[0], name="-", source="-")
    piped = replace(piped, workload=replace(piped.workload, scripts=(script,)))
    assert "-f FILE " in next_step.next_step_for("lock", trial_of(piped)).command
