"""Workloads beside another: how they are asked for, what is refused, what their answers say."""

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgpaces.analysis.accumulator import own_scripts
from pgpaces.analysis.summary import summarize
from pgpaces.answers.run import values
from pgpaces.core.errors import PlanError
from pgpaces.core.messages import said
from pgpaces.core.record import Interval, Tally
from pgpaces.spec import experiment_file, options, spec, workload
from pgpaces.spec.load import family
from pgpaces.spec.result import Counts
from pgpaces.spec.spec import read
from pgpaces.trial import document, sweep
from pgpaces.trial.request import request_of
from tests.errors import raises, sentence
from tests.unit.trials import SECOND_NS, times, trial

FILE = """
workload = "simple-update"
standbys = 1
duration = "5s"
node = { update = "primary" }

[background.reporting]
node = "standby1"
rate = "2/s"
latency_limit = { by_fk1 = "1s" }
define = { hot = 3 }

[background.own]
workload = "./mine"

[background.script]
workload = "q.sql"

[factors]
pool = ["none", "pgbouncer"]

[factors.background.reporting]
scale = [1, 2]
"""


@pytest.mark.parametrize(
    ("level", "name", "values"),
    [
        ("background.", "background-name", {"level": "background."}),
        ("background.r", "background-name", {"level": "background.r"}),
        ("background..rate", "background-name", {}),
        ("background.a b.rate", "background-name", {}),
        ("background.é.rate", "background-name", {}),
        (f"background.{'n' * 64}.rate", "background-name", {}),
        ("background.r.set.work_mem", "whole-trial-only", {"level": "set.work_mem"}),
        ("background.r.standbys", "whole-trial-only", {"level": "standbys"}),
        ("background.r.background.s.rate", "whole-trial-only", {"level": "background.s.rate"}),
        ("background.r.raet", "unknown-factor", {"factor": "raet"}),
        ("background.r.workload.x", "unknown-factor", {"factor": "workload.x"}),
    ],
)
def test_what_cannot_be_said_beside_another_workload(level, name, values):
    with raises(PlanError, name, **values):
        options.check_name(level)


def test_an_experiment_with_workloads_beside_it_is_stored_without_a_password(tmp_path):
    path = tmp_path / "some.toml"
    nodes = 'nodes = { standby1 = "host=b password=canary" }'
    path.write_text(f'{FILE}[targets.a]\ndsn = "host=a"\n{nodes}\n')
    experiment = experiment_file.read(path).checked()
    made = document.write(experiment, "sweep some.toml", "hash")
    found = document.read(made).experiment
    assert found.design == experiment.design
    assert "host=b" in found.targets[0].nodes["standby1"]
    assert "canary" not in repr(made) + repr(experiment)


def test_a_level_without_a_workload_beside_it_is_compared_with_those_that_have_one():
    found = spec.background("bulk-load workload=none,bulk-load scale=10")
    assert found["background.bulk-load.workload"] == ("none", "bulk-load")
    given_levels = {"background.bulk-load.workload": "none", "background.bulk-load.scale": "10"}
    assert request_of(given_levels, workload.of_scripts("w", ())).background == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("reporting", {"reporting.workload": ("reporting",)}),
        (
            "reporting node=standby1 rate=1/s,2/s",
            {
                "reporting.workload": ("reporting",),
                "reporting.node": ("standby1",),
                "reporting.rate": ("1/s", "2/s"),
            },
        ),
        ("./my/load rate=1", {"my-load.workload": ("./my/load",), "my-load.rate": ("1",)}),
        ("'a b/q.sql' rate=1", {"a-b-q-sql.workload": ("a b/q.sql",), "a-b-q-sql.rate": ("1",)}),
        ("r shape='steps:1:2'", {"r.workload": ("r",), "r.shape": ("steps:1:2",)}),
        ('r scripts="a@1 b@2"', {"r.workload": ("r",), "r.scripts": ("a@1 b@2",)}),
        (r"r define.x='1\,2'", {"r.workload": ("r",), "r.define.x": ("1,2",)}),
        ("r define.x='a=b'", {"r.workload": ("r",), "r.define.x": ("a=b",)}),
        ("r workload=reporting", {"r.workload": ("reporting",)}),
    ],
)
def test_a_workload_beside_another_as_one_text(text, found):
    assert spec.background(text) == {f"background.{name}": level for name, level in found.items()}


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\\,\0"), max_size=8)


@given(st.dictionaries(st.sampled_from(["define.x", "rate", "scripts", "node"]), WORD))
def test_any_level_can_be_quoted(given_levels):
    words = [f"{name}={level}" for name, level in given_levels.items()]
    found = spec.background(shlex.join(["reporting", *words]))
    expected = {f"background.reporting.{k}": (v.strip(),) for k, v in given_levels.items()}
    assert found == {"background.reporting.workload": ("reporting",), **expected}


@pytest.mark.parametrize(
    ("texts", "name", "values"),
    [
        (["   "], "background-empty", {}),
        (["''"], "background-name", {}),
        (["reporting 'rate"], "background-quotes", {"why": "No closing quotation"}),
        (["reporting rate"], "background-level", {"word": "rate"}),
        (["reporting duration=1s"], "whole-trial-only", {"level": "duration"}),
        (["reporting raet=1"], "unknown-factor", {"factor": "raet"}),
        (["..."], "background-name", {}),
        (["reporting rate=1", "reporting rate=2"], "background-twice", {"background": "reporting"}),
    ],
)
def test_a_text_that_is_no_workload_beside_another_is_refused(texts, name, values):
    with raises(PlanError, name, **values):
        spec.named({"background": texts})
    with raises(PlanError, "several-levels"):
        spec.named({"background": ["reporting rate=1,2"]})


def test_tables_beside_in_a_file(tmp_path):
    path = tmp_path / "some.toml"
    path.write_text(FILE)
    design = experiment_file.read(path).checked().design
    assert [(f.name, f.levels) for f in design.factors] == [
        ("pool", ("none", "pgbouncer")),
        ("background.reporting.scale", ("1", "2")),
    ]
    asked = read({**design.fixed, **dict(design.cells()[-1].levels)})
    assert family(asked, "background") == {
        "reporting.node": "standby1",
        "reporting.rate": "2/s",
        "reporting.latency_limit.by_fk1": "1s",
        "reporting.define.hot": "3",
        "reporting.scale": "2",
        "own.workload": str(tmp_path / "mine"),
        "script.workload": str(tmp_path / "q.sql"),
    }
    assert family(asked, "node") == {"update": "primary"}
    assert (asked["standbys"], asked["pool"]) == (1, "pgbouncer")


def test_what_runs_beside_it_is_part_of_what_an_experiment_goes_on_with(tmp_path):
    path, script = tmp_path / "some.toml", tmp_path / "q.sql"

    def planned(text, sql):
        path.write_text(f'workload = "reporting"\n{text}')
        script.write_text(sql)
        experiment = experiment_file.read(path).checked()
        return sweep.plan(experiment, tmp_path / "results.db").workload_hash

    beside_it = '[background.q]\nworkload = "q.sql"\n'
    alone, first = planned("", "SELECT 1;"), planned(beside_it, "SELECT 1;")
    assert planned(beside_it, "SELECT 1;") == first
    assert planned(beside_it, "SELECT 2;") != first
    assert alone == planned("", "SELECT 2;") != first


def test_a_node_that_one_cell_has_not_is_said_with_the_cell(tmp_path):
    path = tmp_path / "some.toml"
    path.write_text('workload = "reporting"\nnode = "standbys"\n[factors]\nstandbys = [0, 1]\n')
    experiment = experiment_file.read(path).checked()
    said = sentence("unknown-node", node="standbys")
    with pytest.raises(PlanError, match=f"cell standbys=0: .*{said}"):
        sweep.plan(experiment, tmp_path / "results.db")


COMPONENTS = (
    {"of": "", "node": "primary", "scripts": ["a"], "clients": 1, "limit_ns": 10**8,
     "limits": [], "policy": "run"},
    {"of": "reporting", "node": "standby1", "scripts": ["reporting/b on standby1"], "clients": 1,
     "limit_ns": 10**9, "limits": [], "policy": "skip"},
    {"of": "reporting", "node": "standby2", "scripts": ["reporting/b on standby2"], "clients": 1,
     "limit_ns": 10**9, "limits": [], "policy": "skip"},
    {"of": "idle", "node": "primary", "scripts": ["idle/c"], "clients": 1, "limit_ns": None,
     "limits": [], "policy": "run"},
)  # fmt: skip
Outcome = tuple[int, int, int, int, int]  # on time, late, skipped, failed, unfinished


def laned(seconds):
    """A trial of seconds in which these became of what was due: of it, and twice beside it."""
    intervals = []
    for number, outcomes in enumerate(seconds):
        tallies = []
        for script, (on_time, late, skipped, failed, unfinished) in enumerate(outcomes):
            due = on_time + late + skipped + failed + unfinished
            limit_ms = COMPONENTS[script]["limit_ns"] / 1e6
            measured = times([limit_ms / 2] * on_time + [limit_ms * 2] * late)
            tallies.append(
                Tally(number, script, due, on_time, late, skipped, {"40001": failed}, unfinished,
                      latency=measured, lag=times([1.0] * (on_time + late)), service=measured)
            )  # fmt: skip
        intervals.append(Interval(number, tuple(tallies), ended_ns=(number + 1) * SECOND_NS))
    scripts = [
        {"name": name, "weight": 1, "commands": []}
        for component in COMPONENTS
        for name in component["scripts"]
    ]
    plan = {
        "limit_ns": 10**8,
        "components": list(COMPONENTS),
        "clients": 4,
    }
    return trial(
        [],
        intervals=tuple(intervals),
        measured_ns=len(intervals) * SECOND_NS,
        plan=plan,
        workload={"name": "w", "scale": 1, "scripts": scripts},
        server={"version": "18", "standbys": 2, "pool": {}},
    )


SOME = st.integers(0, 5)
OUTCOME = st.tuples(SOME, SOME, SOME, SOME, SOME)


@settings(deadline=None)  # the first one imports numpy
@given(st.lists(st.tuples(OUTCOME, OUTCOME, OUTCOME), min_size=1, max_size=4))
def test_what_is_its_own_and_what_ran_beside_it_are_all(seconds):
    made = laned(seconds)
    found = summarize(made)
    parts = [found.counts, *(each.counts for each in found.background)]
    for name in ("due", "on_time", "late", "skipped", "failed", "unfinished"):
        assert sum(getattr(part, name) for part in parts) == sum(
            t.due
            if name == "due"
            else sum(t.failed.values())
            if name == "failed"
            else getattr(t, name)
            for interval in made.intervals
            for t in interval.tallies
        )
    assert all(part.due == part.ended for part in parts)
    assert found.counts.due == sum(sum(own) for own, _, _ in seconds)


def test_each_has_an_answer_of_its_own_with_its_own_limit_and_policy():
    made = laned([((9, 1, 0, 0, 0), (3, 0, 1, 0, 0), (4, 0, 0, 0, 0))] * 4)
    found = summarize(made)
    assert list(own_scripts(made)) == [0]
    assert found.missed.value == pytest.approx(0.1)
    reporting, idle = found.background
    assert (reporting.name, reporting.counts) == ("reporting", Counts(32, 28, skipped=4))
    assert (idle.name, idle.counts) == ("idle", Counts())
    assert reporting.latency.estimate("p50").value == pytest.approx(500, rel=0.01)
    assert found.latency.estimate("p50").value == pytest.approx(50, rel=0.01)
    reporting, idle = (each for name, each in values(made, found) if name == "background")
    nodes = ["standby1", "standby2"]
    about = {"name": "reporting", "nodes": nodes, "limit": "1 s", "missed": 0.125, "due": 32}
    assert about.items() <= reporting.values.items()
    assert idle == said("background-idle", name="idle", nodes=["primary"])
