"""`pgpaces sweep`: what is asked of it on the command line, before anything is started."""

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from pgpaces.cli import sweep as face
from pgpaces.core.errors import ConnectionsError, PlanError, ServerError
from pgpaces.spec.costs import Costs
from pgpaces.store.store import Store
from pgpaces.trial.sweep import SweepResult
from tests.errors import sentence
from tests.unit.calling import refused

FILE = """
workload = "reporting"
rate_per_client = "1/s"
[factors]
clients = [1, 2]
"""


def called(tmp_path, *words):
    return CliRunner().invoke(face.sweep, [*words, "--store", str(tmp_path / "results.db")])


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--clients", "1,2", "--clients", "4"), "1,2,4"),
        (("--server-set", "work_mem=4MB", "--server-set", "work_mem=8MB"), "4MB,8MB"),
        (("--define", "hot=1", "-D", "hot=2"), "1,2"),
        (("-L", "1s", "-L", "2s"), "1s,2s"),
    ],
)
def test_levels_of_a_name_that_is_given_twice_are_not_dropped(tmp_path, words, hint):
    error = refused(called(tmp_path, "reporting", *words, "--dry-run"))
    assert (error.name, error.values["levels"]) == ("given-twice", hint)


def test_limits_of_several_scripts_are_not_one_given_twice(tmp_path):
    words = ("-L", "1s", "-L", "by_fk1=2s", "-L", "one_fk1=1s,3s", "--dry-run")
    result = called(tmp_path, "reporting", *words)
    assert result.exit_code == 0, result.output
    assert "latency_limit.one_fk1: 1s, 3s" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *((f"{option} --resume", sentence("fixed-by-resume", option=option.split()[0]))
          for option in ("--trials 5", "--quick", "--seed 0", "--missed 1%")),
        *((f"reporting {option} 1 --dry-run", sentence("needs-target", option=option))
          for option in ("--observe-command", "--restart-command", "--price-per-hour")),
        ("sensor --target host=a --host-file b --price-per-hour 1", sentence("price-given-twice")),
    ],
)  # fmt: skip
def test_options_that_have_nothing_to_act_on_are_refused(tmp_path, words, said):
    assert said in refused(called(tmp_path, *words.split())).message


@pytest.mark.parametrize(
    ("store", "shown"),
    [
        ("", ""),
        ("./other.db", " --store ./other.db"),
        ("postgresql://lab/results", " --store postgresql://lab/results"),
        ("postgresql://me:secret@lab/results", " --store DSN"),
        ("host=lab password=secret", " --store DSN"),
    ],
)
def test_the_command_that_goes_on_names_the_store_that_was_named(store, shown):
    with face.sweep.make_context("sweep", ["--store", store] if store else []):
        assert face._resume("E1") == f"pgpaces sweep --resume E1{shown}"


def test_a_file_behind_resume_is_the_experiment_to_go_on_with(tmp_path):
    (tmp_path / "mine.toml").write_text(FILE)
    Store.open(tmp_path / "results.db")
    error = refused(called(tmp_path, "--resume", str(tmp_path / "mine.toml")))
    assert (error.name, error.values["name"]) == ("not-in-store", "mine")


def test_resuming_is_no_remedy_for_a_cell_that_cannot_be_run():
    few = ConnectionsError("too-many-connections", why="96 free connections")
    went = SweepResult("E1", 1, 2, 2, False, errors=(few, few), lasting=True, by_error=True)
    away = replace(went, errors=(few, ServerError("it is away")), lasting=False)
    budget = replace(went, given_up="1 of 2 cells have no trial: 96 free connections", missing=0)
    other = replace(budget, given_up="pair 1 was invalid 3 times: an outage", by_error=False)
    with face.sweep.make_context("sweep", []):
        errors = [face._not_run(each) for each in (went, away, budget, other)]
    resume = {"hint": None, "resume": "pgpaces sweep --resume E1"}
    lasting, lost = {"hint": few.hint, "resume": ""}, {"missing": 2, "why": few.message}
    assert [(each.name, each.values) for each in errors] == [
        ("trials-not-run", {**lost, **lasting}),
        ("trials-not-run", {**lost, **resume}),
        ("experiment-given-up", {"why": budget.given_up, **lasting}),
        ("experiment-given-up", {"why": other.given_up, **resume}),
    ]


def test_a_target_of_the_command_line_is_observed_by_a_command(monkeypatch, tmp_path):
    asked = []

    def planned(experiment, *_, **__):
        asked.append(experiment)
        raise PlanError("enough")

    monkeypatch.setattr("pgpaces.trial.sweep.plan", planned)
    words = ("--target", "pi4=host=pi4", "--observe-command", "ssh pi4 pgpaces observe")
    refused(called(tmp_path, "reporting", *words, "--price-per-hour", "0.01"))
    (target,) = asked[0].targets
    assert target.observe_command == "ssh pi4 pgpaces observe"
    assert target.costs == Costs(price_per_hour=0.01)
