"""`pgpaces why`: whose lateness is told, and in which form; the same in reports and in Python."""

import contextlib
import json

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import pgpaces
from pgpaces.analysis.capacity.curve import CapacityGoal
from pgpaces.analysis.capacity.search import CapacitySearch
from pgpaces.cli.answers import report, why
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.core.messages import message
from pgpaces.spec.design import ROLE, Cell, Design
from pgpaces.spec.result import Place
from pgpaces.store.store import Store
from tests.errors import raises
from tests.unit.late_stories import STORIES, Story
from tests.unit.stored import begun, keep_trial
from tests.unit.trials import changed

CELLS = {"1": Story(bad_seconds=frozenset()), "4": STORIES["lock"], "8": STORIES["network"]}
TITLE = message("why-title", about="")
PLAN = {"rate": 40.0}


@pytest.fixture
def store(tmp_path):
    """A run that was late for a lock, behind an experiment of which two cells did not hold."""
    path = tmp_path / "results.db"
    opened = Store.open(path)
    id_ = begun(opened, Design({"clients": tuple(CELLS)}), "late")
    for clients, story in CELLS.items():
        cell = Cell((("clients", clients),))
        _put(opened, f"01{clients}", story, Place(id_, cell.key, {"clients": clients}, 1))
    _put(opened, "02", STORIES["lock"], None)
    return path


def _put(opened, id_, story, place, tenths=None):
    trial, _ = replace(story, plan={**PLAN, **story.plan}).told()
    if tenths is not None:
        [seen] = trial.observed
        trial = replace(trial, observed=(replace(seen, waits=replace(seen.waits, tenths=tenths)),))
    workload = trial.workload.but(hash="h")
    server = {"version": "18.6", "settings": {}, "target": {"host": "db.example"}}
    keep_trial(opened, changed(trial, id=id_, place=place, workload=workload, server=server))


def _search(opened):
    goal = CapacitySearch(CapacityGoal(0.05, 5, 1, 100))
    return begun(opened, Design(), "search", goal=goal, state="interrupted")


def called(store, *words):
    return CliRunner().invoke(why, [*words, "--verbose", "--store", str(store)])


def test_the_newest_run_is_told_where_none_is_named(store):
    result = called(store)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("LOCK  100% of 160 missed requests waited for a lock")
    assert f"  {message('why-missed', about='run 02', missed=160, due=800)}" in result.stdout
    assert "pgpaces run --like 02" in result.stdout


def test_of_an_experiment_the_cell_that_missed_most_is_told(store):
    [answer] = json.loads(called(store, "late", "--json").stdout)
    assert (answer["value"]["causes"][0]["key"], answer["trials"]) == ("lock", ["014"])
    assert answer["value"]["unexplained"] <= 0.1


def test_of_a_search_the_saturating_trial_is_not_explained(store):
    opened = Store.open(store)
    id_ = _search(opened)
    stories = {("preflight", ""): STORIES["network"], ("long", "20/s"): STORIES["lock"]}
    for (kind, rate), story in stories.items():
        levels = ({"rate": rate} if rate else {}) | {ROLE: kind}
        place = Place(id_, Cell(tuple(levels.items())).key, levels, 1)
        _put(opened, f"01S{kind}", story, place)
    told = json.loads(called(store, "search", "--json").stdout)
    assert [each["trials"] for each in told] == [["01Slong"]]


def test_of_a_search_the_lowest_load_that_missed_is_told(store):
    opened = Store.open(store)
    id_ = _search(opened)
    few = replace(STORIES["network"], bad_seconds=frozenset((8,)), due=20, late=9, usual={})
    stories = {90: STORIES["lock"], 60: replace(STORIES["network"], late=30), 8: few}
    stories |= {40: STORIES["lock"], 70: STORIES["network"]}
    for number, (rate, story) in enumerate(stories.items(), 1):
        levels = {"rate": f"{rate}/s", ROLE: "long"}
        place = Place(id_, Cell(tuple(levels.items())).key, levels, number)
        _put(opened, f"01S{rate}", replace(story, plan={"rate": float(rate)}), place)
    told = json.loads(called(store, "search", "--json").stdout)
    assert [each["trials"] for each in told] == [["01S40"]]
    assert pgpaces.why("search", store=store).value.trial == "01S40"


def test_an_experiment_without_a_trial_is_not_taken_for_a_run(store):
    begun(Store.open(store), Design(), "none", state="interrupted")
    result = called(store, "none")
    assert isinstance(result.exception, PlanError)
    assert (result.exception.name, result.exception.values) == ("no-trial", {"experiment": "none"})


def test_the_report_has_each_answer_once(store, tmp_path):
    path = tmp_path / "why.md"
    assert called(store, "late", "-o", str(path)).exit_code == 0
    assert path.read_text().count(f"## {TITLE}") == 1
    told = CliRunner().invoke(report, ["late", "--store", str(store)])
    assert told.stdout.count(TITLE) == 1
    whole = CliRunner().invoke(report, ["011", "--store", str(store)])
    assert TITLE not in whole.stdout


def test_samples_of_wait_events_that_cannot_be_read_are_damage(store):
    with contextlib.closing(Store.open(store)) as opened:
        _put(opened, "03", STORIES["lock"], None, tenths=b"x")
    with raises(StoreError, "stored-data-damaged", what="03"):
        pgpaces.why("03", store=store)


def test_in_python_it_is_a_value(store):
    found = pgpaces.why("02", store=store).value
    assert found.cause.key == "lock"
    assert found.trial == "02"
    assert pgpaces.why("011", store=store).value.outcome == "nothing-missed"
