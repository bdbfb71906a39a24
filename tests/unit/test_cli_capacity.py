"""`pgpaces capacity`: what is asked of it, what it refuses, the same in Python."""

import re
import shlex

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import pgpaces
from pgpaces.analysis.capacity.search import CapacitySearch, CellSearch, load_level
from pgpaces.answers.answer import Answer
from pgpaces.answers.calls import load_capacity
from pgpaces.cli.answers import report
from pgpaces.cli.sweep import capacity as face
from pgpaces.core.errors import PlanError
from pgpaces.spec.design import Cell, Design, Experiment
from pgpaces.store.store import Store
from pgpaces.trial import capacity, sweep
from tests.errors import raises, sentence
from tests.unit.calling import refused
from tests.unit.searches import GOAL, searched, slope
from tests.unit.stored import begun, keep_trial

MEMORY = "set.work_mem"
LEVELS = (("4MB", 12.0), ("64MB", 17.5))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A search at two settings, with all its trials; tests only read it."""
    path = tmp_path_factory.mktemp("capacity") / "results.db"
    store = Store.open(path)
    design = Design({MEMORY: tuple(level for level, _ in LEVELS)})
    id_ = begun(store, design, "memory", goal=CapacitySearch(GOAL))

    def kept(trial):
        keep_trial(store, replace(trial, place=replace(trial.place, experiment=id_)))

    for level, at in LEVELS:
        searched(slope(at), GOAL, Cell(((MEMORY, level),)), kept=kept)
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "workload-or-file-missing"),
        ("reporting -T 60s -L 1s", "search-chooses {'option': '--duration'}"),
        ("tpcb-like", "no-latency-limit"),
        ("reporting --goal 'mean <= 50ms'", "not-a-quantile-goal {'goal': 'mean <= 50ms'}"),
        ("reporting --goal 'p99 <= 50ms' --missed 1%", "--goal and --missed"),
        ("reporting -L 1s --missed 0%", sentence("zero-share", what="--missed", value="0%")),
        ("reporting -L 1s --rate 0", sentence("rate-out-of-range", what="--rate", value="0")),
        ("reporting -L 1s --by users", sentence("users-need-pace")),
        ("tpcb-like -L 50ms --by clients --rate 1", "--by clients and --rate"),
        ("tpcb-like -L 50ms --by rate --think-time 1", "--by rate and --think-time"),
        ("tpcb-like -L 50ms --by users --rate-per-client 1", "--by users and --rate-per-client"),
        ("tpcb-like -L 50ms --quick --soak 5min", "{'options': ['--quick', '--soak']}"),
        # Nobody would try a third one.
        ("garden -L 50ms --users 1,2,3 --pace 1/s", "too-many-loads {'load': 'users', 'count': 3}"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_a_way_out(tmp_path, words, said):
    line = (*shlex.split(words), "--dry-run", "--store", tmp_path / "results.db")
    error = refused(called(*line))
    assert said in f"{error.name} {error.values} {error.message}"
    assert "role" not in error.message
    assert error.hint or "pace" in error.message


def test_an_experiment_that_is_no_search_is_not_gone_on_with(tmp_path):
    begun(Store.open(tmp_path / "results.db"), Design(), "grid", state="interrupted")
    error = refused(called("--resume", "grid", "--store", tmp_path / "results.db"))
    assert error.name == "not-a-capacity-search"
    with raises(PlanError, "not-a-capacity-search", experiment="grid"):
        pgpaces.capacity(resume="grid", store=tmp_path / "results.db")


def called(*words):
    return CliRunner().invoke(face, [str(word) for word in words])


def test_a_dry_run_says_how_long_it_will_take_and_starts_nothing(tmp_path):
    store = tmp_path / "results.db"
    words = ("reporting", "-L", "500ms", "--server-set", "work_mem=4MB,64MB", "--dry-run")
    done = called(*words, "--store", store)
    assert done.exit_code == 0, done.output
    least, most = re.findall(r"2 cells, (\d+) to (\d+) trials", done.stdout)[0]
    assert 2 * 12 < int(least) < int(most) < 2 * 40
    assert "each chosen based on earlier results" in done.stdout


LIMITED = {"what": "tpcb-like", "latency_limit": "50ms"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, sentence("workload-or-file-missing")),
        ({"what": "tpcb-like"}, sentence("no-latency-limit")),
        ({"what": "reporting", "quick": True, "soak": "5min"}, "quick and soak"),
        ({**LIMITED, "duration": 5}, sentence("search-chooses", option="duration")),
        ({**LIMITED, "transactions": 5}, sentence("search-chooses", option="transactions")),
    ],
)
def test_python_refuses_what_the_command_refuses(tmp_path, given, said):
    with pytest.raises(PlanError, match=said):
        pgpaces.capacity(store=tmp_path / "results.db", **given)


@settings(max_examples=20, deadline=None)
@given(least=st.floats(0.1, 900.0), most=st.floats(1e3, 1e6))
def test_the_ends_of_what_is_offered_can_be_offered(least, most):
    draft = Experiment(workload="tpcb-like").with_levels(
        {"rate": (f"{least!r}/s", f"{most!r}/s"), "latency_limit": ("50ms",)}
    )
    _, spec = capacity.ask(draft, missed="1%")
    assert (spec.goal.lowest, spec.goal.highest) == pytest.approx((least, most), rel=1e-3)
    assert spec.goal.missed_max == 0.01
    for end in (spec.goal.lowest, spec.goal.highest):
        assert float(load_level("rate", end).removesuffix("/s")) == end


def test_a_stored_search_is_shown_as_it_was_told(stored):
    done = CliRunner().invoke(report, ["memory", "--store", str(stored)])
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert "work_mem=64MB has the highest passing load: 17." in said
    assert "passes up to, 1/s" in said
    assert "role" not in said


def test_python_has_the_answer_of_a_stored_search(stored, tmp_path):
    found = load_capacity("memory", store=stored)
    assert isinstance(found, Answer)
    assert found.sentences[0].startswith("work_mem=64MB has the highest passing load")
    assert [cell.levels[MEMORY] for cell in found.value.cells] == ["4MB", "64MB"]
    assert found.plot().name == "capacity-trials-1"
    assert found.report(tmp_path / "page.html").read_text().count('id="capacity"') == 1
    assert "<strong>" in found._repr_html_()
    assert set(found.trials) == {each.id for each in Store.open(stored).placed("01EMEMORY")}


@pytest.mark.parametrize(
    "words", [("--quick",), ("--missed", "1%"), ("--by", "rate"), ("--soak", "0"),
              ("--goal", "p99 <= 1s"), ("--seed", "0"), ("--seed", "7")]
)  # fmt: skip
def test_options_that_a_stored_search_does_not_follow_are_refused(stored, words):
    error = refused(called("--resume", "memory", *words, "--store", stored))
    assert (error.name, error.values) == ("fixed-by-resume", {"option": words[0]})


@pytest.mark.parametrize(
    "given",
    [{"missed": "1%"}, {"quick": True}, {"by": "rate"}, {"soak": "0"}, {"seed": 0}, {"rate": 5}],
)
def test_python_refuses_options_that_a_stored_search_does_not_follow(stored, given):
    [name] = given
    with raises(PlanError, "fixed-by-resume", option=name):
        pgpaces.capacity(resume="memory", store=stored, **given)


def test_python_asks_what_the_command_asks(tmp_path, monkeypatch):
    asked = []

    def plan(experiment, *_, goal, **__):
        asked.append((experiment, goal))
        raise PlanError("enough")

    monkeypatch.setattr(sweep, "plan", plan)
    given = {"latency_limit": "500ms", "set": {"work_mem": ["4MB", "64MB"]}}
    with pytest.raises(PlanError, match="enough"):
        pgpaces.capacity("reporting", missed="2%", soak="0", store=tmp_path / "r.db", **given)
    words = ("-L", "500ms", "--set", "work_mem=4MB,64MB", "--missed", "2%", "--soak", "0")
    called("reporting", *words, "--store", tmp_path / "r.db")
    python, command = asked
    assert python == command


@pytest.mark.parametrize("name", ["reporting", "sensor", "garden", "tpcb-like", "bigtext"])
@pytest.mark.parametrize("by", [{"rate": ("5/s",)}, {"rate_per_client": ("1/s",)}, {}])
def test_the_saturating_trial_has_no_pause_whatever_pace_the_workload_has(name, by):
    draft = Experiment(workload=name).with_levels({"latency_limit": ("50ms",), **by})
    experiment, spec = capacity.ask(draft, missed="1%")
    [cell] = experiment.design.cells()
    asked = CellSearch(replace(spec, each=1.0), cell).ask()
    load = sweep.PlannedSweep.of(experiment).request(asked).trial.load
    assert (load.model, load.think_ns, load.rate, str(load.shape)) == (
        "closed",
        0,
        None,
        "constant",
    )
