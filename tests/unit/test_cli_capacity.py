"""`pgpaces capacity`: what is asked of it, what it refuses, the same in Python."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import pgpaces
from pgpaces.analysis.capacity import trials
from pgpaces.analysis.capacity.trials import SearchSpec, ask
from pgpaces.answers.answer import Answer
from pgpaces.answers.capacity.api import load_capacity
from pgpaces.cli.capacity import capacity as face
from pgpaces.cli.report import report
from pgpaces.core.errors import PlanError
from pgpaces.spec.design import Cell, Design, Experiment, Factor, Slot
from pgpaces.spec.draft import Draft
from pgpaces.spec.result import Trial
from pgpaces.store.experiments import ExperimentRow
from pgpaces.store.store import Store
from pgpaces.trial import capacity, document, sweep
from pgpaces.trial.order import Builder, Order
from tests.unit.calling import refused
from tests.unit.searches import GOAL, searched, slope

MEMORY = "set.work_mem"
LEVELS = (("4MB", 12.0), ("64MB", 17.5))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search at two settings, with all its trials; tests only read it."""
    path = tmp_path_factory.mktemp("capacity") / "results.db"
    store = Store.open(path)
    design = Design((Factor(MEMORY, tuple(level for level, _ in LEVELS)),))
    asked = Experiment("memory", "w", design, missed_max=0.05)
    made = document.write(asked, "pgpaces capacity w", "h", goal=SearchSpec(GOAL))
    begun = datetime(2026, 11, 1, tzinfo=UTC)
    row = ExperimentRow("E" * 26, "memory", begun, None, "running", "0", made)
    store.begin_experiment(row)
    for level, at in LEVELS:
        trials: list[Trial] = []
        searched(slope(at), GOAL, Cell(((MEMORY, level),)), kept=trials.append)
        for trial in trials:
            assert trial.place is not None
            place = replace(trial.place, experiment=row.id)
            _put(store, replace(trial, place=place))
    store.finish_experiment(row.id, "finished")
    return path


def _put(store: Store, trial: Trial) -> None:
    store.begin(trial)
    for interval in trial.intervals:
        store.add(trial.id, interval)
    store.finish(trial, {})


def called(*words: object) -> Result:
    return CliRunner().invoke(face, [str(word) for word in words])


# ---- what is asked ----


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to search was named"),
        (("reporting", "-T", "60s", "-L", "1s"), "--duration is for the search to choose"),
        (("tpcb-like",), "without a latency limit"),
        (("reporting", "--goal", "mean <= 50ms"), "is no bound on a quantile"),
        (("reporting", "--goal", "p99 <= 50ms", "-L", "1s"), "--goal is a latency limit"),
        (("reporting", "--goal", "p99 <= 50ms", "--missed", "1%"), "--goal is a latency limit"),
        (("reporting", "-L", "1s", "--missed", "0%"), "none ever misses"),
        (("reporting", "-L", "1s", "--rate", "0"), "is out of range"),
        (("reporting", "-L", "1s", "--by", "users"), "--users needs the pace of each"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_a_way_out(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    error = refused(called(*words, "--dry-run", "--store", tmp_path / "results.db"))
    assert said in error.message
    assert "role" not in error.message
    assert error.hint or "pace" in error.message


def test_a_dry_run_says_how_long_it_will_take_and_starts_nothing(tmp_path: Path) -> None:
    store = tmp_path / "results.db"
    words = ("reporting", "-L", "500ms", "--server-set", "work_mem=4MB,64MB", "--dry-run")
    done = called(*words, "--store", store)
    assert done.exit_code == 0, done.output
    least, most = re.findall(r"2 cells, (\d+) to (\d+) trials", done.stdout)[0]
    assert 2 * 12 < int(least) < int(most) < 2 * 40
    assert "each chosen by those before it" in done.stdout


@pytest.mark.parametrize(
    ("by", "other"),
    [("clients", "--rate"), ("rate", "--think-time"), ("users", "--rate-per-client")],
)
def test_another_kind_of_load_than_the_one_asked_for_is_refused_by_its_own_name(
    by: str, other: str
) -> None:
    error = refused(called("tpcb-like", "-L", "50ms", "--by", by, other, "1", "--dry-run"))
    assert error.message == f"--by {by} does not go with {other}"


def test_a_quick_search_refuses_a_soak() -> None:
    error = refused(called("tpcb-like", "-L", "50ms", "--quick", "--soak", "5min", "--dry-run"))
    assert "--soak" in error.message


def test_two_levels_of_the_load_are_the_ends_of_what_is_offered() -> None:
    draft = Draft(workload="tpcb-like").with_levels(
        {"rate": ("10/s", "2000/s"), "latency_limit": ("50ms",)}
    )
    _, spec = capacity.ask(draft, capacity.CapacityQuestion(missed="1%"))
    assert (spec.goal.lowest, spec.goal.highest, spec.goal.missed_max) == (10, 2000, 0.01)


def test_a_third_level_of_the_load_is_refused_because_nobody_would_try_it() -> None:
    error = refused(
        called("garden", "-L", "50ms", "--users", "1,2,3", "--pace", "1/s", "--dry-run")
    )
    assert "3 levels" in error.message


@settings(max_examples=20, deadline=None)
@given(least=st.floats(0.1, 900.0), most=st.floats(1e3, 1e6))
def test_the_ends_of_what_is_offered_can_be_offered(least: float, most: float) -> None:
    draft = Draft(workload="tpcb-like").with_levels(
        {"rate": (f"{least!r}/s", f"{most!r}/s"), "latency_limit": ("50ms",)}
    )
    _, spec = capacity.ask(draft, capacity.CapacityQuestion(missed="1%"))
    for end in (spec.goal.lowest, spec.goal.highest):
        assert float(trials.level("rate", end).removesuffix("/s")) == end


# ---- what is in the store ----


def test_a_stored_search_is_shown_as_it_was_told(stored: Path) -> None:
    done = CliRunner().invoke(report, ["memory", "--store", str(stored)])
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert "work_mem = 64MB meets it at the highest load, 17." in said
    assert "Met and missed" in said
    assert "role" not in said


def test_python_has_the_answer_of_a_stored_search(stored: Path, tmp_path: Path) -> None:
    found = load_capacity("memory", store=stored)
    assert isinstance(found, Answer)
    assert found.sentences[0].startswith("work_mem = 64MB meets it at the highest load")
    assert [cell.levels[MEMORY] for cell in found.value.cells] == ["4MB", "64MB"]
    assert found.plot().name == "capacity-by-level"
    assert found.report(tmp_path / "page.html").read_text().count('id="capacity"') == 1
    assert "<strong>" in found._repr_html_()
    assert set(found.trials) == {each.id for each in Store.open(stored).placed("E" * 26)}


@pytest.mark.parametrize(
    "words", [("--quick",), ("--missed", "1%"), ("--by", "rate"), ("--soak", "0"),
              ("--goal", "p99 <= 1s"), ("--seed", "0"), ("--seed", "7")]
)  # fmt: skip
def test_options_that_a_stored_search_does_not_follow_are_refused(
    stored: Path, words: tuple[str, ...]
) -> None:
    error = refused(called("--resume", "memory", *words, "--store", stored))
    assert f"{words[0]} does not change a search that is resumed" in error.message


@pytest.mark.parametrize(
    "given",
    [{"missed": "1%"}, {"quick": True}, {"by": "rate"}, {"soak": "0"}, {"seed": 0}, {"rate": 5}],
)
def test_python_refuses_options_that_a_stored_search_does_not_follow(
    stored: Path, given: dict[str, Any]
) -> None:
    [name] = given
    with pytest.raises(PlanError, match=f"{name} does not change a search that is resumed"):
        pgpaces.capacity(resume="memory", store=stored, **given)


def test_an_experiment_that_is_no_search_is_not_gone_on_with(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "results.db")
    made = document.write(Experiment("grid", "select-only", Design()), "", "h")
    begun = datetime(2026, 11, 1, tzinfo=UTC)
    row = ExperimentRow("G" * 26, "grid", begun, None, "running", "0", made)
    store.begin_experiment(row)
    store.finish_experiment(row.id, "interrupted")
    error = refused(called("--resume", "grid", "--store", tmp_path / "results.db"))
    assert "is no search for a capacity" in error.message
    with pytest.raises(PlanError, match="is no search"):
        pgpaces.capacity(resume="grid", store=tmp_path / "results.db")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "nothing to search was named"),
        ({"what": "tpcb-like"}, "without a latency limit"),
        ({"what": "reporting", "quick": True, "soak": "5min"}, "soak is of a search that is not"),
    ],
)
def test_python_refuses_what_the_command_refuses(
    tmp_path: Path, given: dict[str, object], said: str
) -> None:
    with pytest.raises(PlanError, match=said):
        pgpaces.capacity(store=tmp_path / "results.db", **given)  # type: ignore[arg-type]


def test_python_asks_what_the_command_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[sweep.Order] = []

    def plan(order: sweep.Order) -> sweep.SweepPlan:
        asked.append(order)
        raise PlanError("enough")

    monkeypatch.setattr(sweep, "plan", plan)
    given = {"latency_limit": "500ms", "set": {"work_mem": ["4MB", "64MB"]}}
    with pytest.raises(PlanError, match="enough"):
        pgpaces.capacity("reporting", missed="2%", soak="0", store=tmp_path / "r.db", **given)
    words = ("-L", "500ms", "--server-set", "work_mem=4MB,64MB", "--missed", "2%", "--soak", "0")
    called("reporting", *words, "--store", tmp_path / "r.db")
    python, command = asked
    assert python.goal == command.goal
    assert python.experiment == command.experiment


@pytest.mark.parametrize("name", ["duration", "transactions"])
def test_how_long_a_trial_is_is_refused_in_python_too(name: str) -> None:
    with pytest.raises(PlanError, match=f"{name} is for the search to choose"):
        pgpaces.capacity("tpcb-like", latency_limit="50ms", **{name: 5})


@pytest.mark.parametrize("name", ["reporting", "sensor", "garden", "tpcb-like", "bigtext"])
@pytest.mark.parametrize("by", [{"rate": ("5/s",)}, {"rate_per_client": ("1/s",)}, {}])
def test_the_saturating_trial_has_no_pause_whatever_pace_the_workload_has(
    name: str, by: dict[str, tuple[str, ...]]
) -> None:
    draft = Draft(workload=name).with_levels({"latency_limit": ("50ms",), **by})
    experiment, spec = capacity.ask(draft, capacity.CapacityQuestion(missed="1%"))
    [cell] = experiment.design.cells()
    asked = ask(replace(spec, each=1.0), cell, [])
    assert asked is not None
    load = Builder.of(Order(experiment)).request(Slot(1, asked.cell), "", asked.options).trial.load
    assert (load.model, load.think_ns, load.rate, str(load.shape)) == (
        "closed",
        0,
        None,
        "constant",
    )
