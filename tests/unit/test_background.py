"""Workloads beside another: how they are asked for, what is refused, what their answers say."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis.accumulator import Accumulator, own_scripts
from pgpaces.analysis.digest import digest
from pgpaces.analysis.summary import summarize
from pgpaces.answers.run import section
from pgpaces.answers.sweep.page import About, gather
from pgpaces.core.errors import PlanError
from pgpaces.core.record import Interval, Tally
from pgpaces.spec import experiment_file, levels, options
from pgpaces.spec.result import Trial
from pgpaces.store.experiments import ExperimentRow
from pgpaces.store.store import Store
from pgpaces.trial import document, sweep
from pgpaces.trial.request import background_levels
from tests.unit.trials import SECOND_NS, like, times, trial

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


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted({*options.FACTORS, "workload"}))
def test_every_level_is_of_a_workload_or_of_the_whole_trial(name: str) -> None:
    shared = {
        "duration", "transactions", "warmup", "grace", "kill_switch", "server", "tls", "target",
        "standbys", "pool", "pool_mode", "pool_size", "profile", "generators", "cluster",
        "insecure_cluster",
    }  # fmt: skip
    if name in shared:
        with pytest.raises(PlanError, match=f"{name} is of the whole trial"):
            levels.check_name(f"background.r.{name}")
    else:
        levels.check_name(f"background.r.{name}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("background.", "not background.NAME.LEVEL"),
        ("background.r", "not background.NAME.LEVEL"),
        ("background.r.", "not background.NAME.LEVEL"),
        ("background..rate", "not background.NAME.LEVEL"),
        ("background.a b.rate", "not background.NAME.LEVEL"),
        ("background.é.rate", "not background.NAME.LEVEL"),
        (f"background.{'n' * 64}.rate", "not background.NAME.LEVEL"),
        ("background.r.set.work_mem", "of the whole trial"),
        ("background.r.background.s.rate", "of the whole trial"),
        ("background.r.raet", "there is no factor 'raet'"),
        ("background.r.workload.x", "there is no factor 'workload.x'"),
    ],
)
def test_what_cannot_be_said_beside_another_workload(name: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        levels.check_name(name)


def test_levels_of_workloads_beside_another_are_told_apart() -> None:
    given_levels = {"rate": "1/s", "background.a.rate": "2/s", "background.b.node.x": "any"}
    asked = levels.options_of({**given_levels, "background.a.workload": "reporting"}, {})
    assert asked.background == {
        "a": {"rate": "2/s", "workload": "reporting"},
        "b": {"node.x": "any"},
    }
    assert asked.trial.load.rate == 1.0


def test_a_level_without_a_workload_beside_it_is_compared_with_those_that_have_one() -> None:
    found = levels.background("bulk-load workload=none,bulk-load scale=10")
    assert found["background.bulk-load.workload"] == ("none", "bulk-load")
    given_levels = {"background.bulk-load.workload": "none", "background.bulk-load.scale": "10"}
    assert levels.options_of(given_levels, {}).background == {}


# --- the command line -------------------------------------------------------------------------


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
def test_a_workload_beside_another_as_one_text(
    text: str, found: dict[str, tuple[str, ...]]
) -> None:
    assert levels.background(text) == {f"background.{name}": level for name, level in found.items()}


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\\,\0"), max_size=8)


@given(st.dictionaries(st.sampled_from(["define.x", "rate", "scripts", "node"]), WORD))
def test_any_level_can_be_quoted(given_levels: dict[str, str]) -> None:
    words = [f"{name}={level}" for name, level in given_levels.items()]
    found = levels.background(shlex.join(["reporting", *words]))
    expected = {f"background.reporting.{k}": (v.strip(),) for k, v in given_levels.items()}
    assert found == {"background.reporting.workload": ("reporting",), **expected}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no workload"),
        ("   ", "names no workload"),
        ("''", "not background.NAME.LEVEL"),
        ("reporting 'rate", "No closing quotation"),
        ("reporting rate", "'rate' is not NAME=LEVEL"),
        ("reporting duration=1s", "duration is of the whole trial"),
        ("reporting raet=1", "there is no factor 'raet'"),
        ("...", "not background.NAME.LEVEL"),
    ],
)
def test_a_text_that_is_no_workload_beside_another_is_refused(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        levels.background(text)


def beside_of(texts: list[str]) -> dict[str, dict[str, str]]:
    return background_levels(levels.backgrounds(texts))


def test_two_workloads_beside_another() -> None:
    found = beside_of(["reporting rate=1", "./app workload=simple-update clients=2"])
    assert found == {
        "reporting": {"workload": "reporting", "rate": "1"},
        "app": {"workload": "simple-update", "clients": "2"},
    }


def test_two_workloads_of_one_name_are_refused() -> None:
    with pytest.raises(PlanError, match="two background workloads called reporting") as refused:
        beside_of(["reporting rate=1", "reporting rate=2 node=standby1"])
    assert "'reporting-2 workload=reporting ...'" in str(refused.value.hint)


def test_a_run_has_one_level_of_each() -> None:
    with pytest.raises(PlanError, match="a run has one level of each"):
        beside_of(["reporting rate=1,2"])


# --- files ------------------------------------------------------------------------------------


def test_tables_beside_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text(FILE)
    jsonschema.validate(tomllib.loads(FILE), experiment_file.schema())
    design = experiment_file.read(path).experiment().design
    assert [(f.name, f.levels) for f in design.factors] == [
        ("pool", ("none", "pgbouncer")),
        ("background.reporting.scale", ("1", "2")),
    ]
    asked = levels.options_of({**design.fixed, **dict(design.cells()[-1].levels)}, {})
    assert asked.background == {
        "reporting": {
            "node": "standby1",
            "rate": "2/s",
            "latency_limit.by_fk1": "1s",
            "define.hot": "3",
            "scale": "2",
        },
        "own": {"workload": str(tmp_path / "mine")},
        "script": {"workload": str(tmp_path / "q.sql")},
    }
    assert asked.nodes == (("update", "primary"),)
    assert (asked.standbys, asked.pool) == (1, "pgbouncer")


def test_an_experiment_with_workloads_beside_it_survives_the_store(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text(FILE + '[targets.a]\ndsn = "host=a"\nnodes = { standby1 = "host=b" }\n')
    experiment = experiment_file.read(path).experiment()
    store = Store.open(tmp_path / "results.db")
    made = document.write(experiment, "sweep some.toml", "hash")
    now = datetime.now(UTC)
    row = ExperimentRow("E" * 26, experiment.name, now, None, "running", "0", made)
    store.begin_experiment(row)
    found = document.read(store.experiment("E" * 26).document)
    assert found.design == experiment.design
    assert found.targets[0].nodes.keys() == {"standby1"}
    assert "host='b'" in found.targets[0].nodes["standby1"]


def test_what_runs_beside_it_is_part_of_what_an_experiment_goes_on_with(tmp_path: Path) -> None:
    path, script = tmp_path / "some.toml", tmp_path / "q.sql"

    def planned(text: str, sql: str) -> str:
        path.write_text(f'workload = "reporting"\n{text}')
        script.write_text(sql)
        experiment = experiment_file.read(path).experiment()
        return sweep.plan(sweep.Order(experiment, tmp_path / "results.db")).workload_hash

    beside_it = '[background.q]\nworkload = "q.sql"\n'
    alone, first = planned("", "SELECT 1;"), planned(beside_it, "SELECT 1;")
    assert planned(beside_it, "SELECT 1;") == first
    assert planned(beside_it, "SELECT 2;") != first
    assert alone == planned("", "SELECT 2;") != first


def test_a_node_that_one_cell_has_not_is_said_with_the_cell(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text('workload = "reporting"\nnode = "standbys"\n[factors]\nstandbys = [0, 1]\n')
    order = sweep.Order(experiment_file.read(path).experiment(), tmp_path / "results.db")
    with pytest.raises(PlanError, match=r"no node 'standbys' \(in cell standbys=0\)"):
        sweep.plan(order)


def test_a_password_of_a_node_is_neither_stored_nor_shown(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    nodes = 'nodes = { standby1 = "host=b password=canary" }'
    path.write_text(f'workload = "reporting"\n[targets.a]\ndsn = "host=a"\n{nodes}\n')
    experiment = experiment_file.read(path).experiment()
    assert "canary" not in repr(document.write(experiment, "", ""))
    assert "canary" not in repr(experiment)


# --- answers ----------------------------------------------------------------------------------

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


def laned(seconds: Iterable[tuple[Outcome, Outcome, Outcome]]) -> Trial:
    """A trial of seconds in which these became of what was due: of it, and twice beside it."""
    intervals = []
    for number, outcomes in enumerate(seconds):
        tallies = []
        for script, (on_time, late, skipped, failed, unfinished) in enumerate(outcomes):
            due = on_time + late + skipped + failed + unfinished
            limit_ms = COMPONENTS[script]["limit_ns"] / 1e6  # type: ignore[operator]
            measured = times([limit_ms / 2] * on_time + [limit_ms * 2] * late)
            tallies.append(
                Tally(number, script, due, on_time, late, skipped, {"40001": failed}, unfinished,
                      latency=measured, lag=times([1.0] * (on_time + late)), service=measured)
            )  # fmt: skip
        intervals.append(Interval(number, tuple(tallies), ended_ns=(number + 1) * SECOND_NS))
    scripts = [
        {"name": name, "weight": 1, "commands": []}
        for component in COMPONENTS
        for name in component["scripts"]  # type: ignore[attr-defined]
    ]
    plan = {
        "limit_ns": 10**8,
        "policy": "run",
        "model": "open",
        "components": list(COMPONENTS),
        "clients": 4,
    }
    return trial(
        [],
        intervals=tuple(intervals),
        measured_ns=len(intervals) * SECOND_NS,
        plan={**plan, "load_text": "open", "protocol": "simple", "seed": 1, "warmup_ns": 0},
        workload={"name": "w", "scale": 1, "scripts": scripts},
        server={"version": "18", "standbys": 2, "pool": {}},
    )


SOME = st.integers(0, 5)
OUTCOME = st.tuples(SOME, SOME, SOME, SOME, SOME)


@settings(deadline=None)  # the first one imports numpy
@given(st.lists(st.tuples(OUTCOME, OUTCOME, OUTCOME), min_size=1, max_size=4))
def test_what_is_its_own_and_what_ran_beside_it_are_all(seconds: list[Any]) -> None:
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


def test_each_has_an_answer_of_its_own_with_its_own_limit_and_policy() -> None:
    made = laned([((9, 1, 0, 0, 0), (3, 0, 1, 0, 0), (4, 0, 0, 0, 0))] * 4)
    found = summarize(made)
    assert list(own_scripts(made)) == [0]
    shown = section(made, found)
    assert shown.headline is not None
    assert shown.headline.text.startswith("10.0% missed")
    reporting, idle = (text for name, text in shown.facts if name == "background")
    assert reporting.startswith("reporting on standby1, standby2: 12.5% missed")
    assert reporting.endswith("of 32 due, limit 1s")
    assert idle == "idle on primary: nothing was due"
    latency = {each.name: each.latency.estimate("p50") for each in found.background}
    assert latency["reporting"] is not None
    assert latency["reporting"].value == pytest.approx(500, rel=0.01)
    own = found.latency.estimate("p50")
    assert own is not None
    assert own.value == pytest.approx(50, rel=0.01)


def test_the_page_says_what_the_layout_was_and_finds_no_difference_in_one_trial() -> None:
    made = laned([((1, 0, 0, 0, 0), (1, 0, 0, 0, 0), (0, 0, 0, 0, 0))])
    components = [
        {**component, "workload": "w", "load_text": "open, 4/s"} for component in COMPONENTS
    ]
    made = replace(made, plan=like(made.plan, components=components, think="none", think_ns=0))
    accumulator = Accumulator.of(made.intervals)
    one = digest(made, summarize(made, accumulator), accumulator)
    found = gather([one], About(datetime(2026, 1, 1, tzinfo=UTC), "1"))
    asked = dict(found.options)
    assert asked["servers"] == "primary with 2 standbys"
    assert asked["clients at"].startswith("1 at primary, 1 at standby1")
    assert asked["background reporting"] == "open, 4/s at standby1, standby2; latency limit 1s"
    assert not found.differences


def test_where_the_clients_are_is_said() -> None:
    made = laned([((1, 0, 0, 0, 0), (1, 0, 0, 0, 0), (0, 0, 0, 0, 0))])
    shown = section(made, summarize(made))
    assert "PostgreSQL 18 with 2 standbys" in shown.note
    text = " ".join(value for part in shown.parts for _, value in part.facts)
    beside_it = "3 in the background (1 at standby1, 1 at standby2, 1 at primary)"
    assert f"open; 1 client and {beside_it}, simple" in text
