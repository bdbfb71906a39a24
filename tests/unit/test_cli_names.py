"""One name, one meaning: options that several commands have, `last`, --dry-run."""

import json
import shlex
from collections import defaultdict
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from pgpaces.cli.main import cli
from pgpaces.cli.options import Option
from pgpaces.core.messages import message
from pgpaces.spec.result import Place
from pgpaces.store.listing import ExperimentRow
from pgpaces.store.store import new_id
from pgpaces.trial import trial as pipeline
from tests.unit.asked import asked
from tests.unit.calling import refused, said
from tests.unit.documented import all_commands
from tests.unit.stored import Kept, keep, opened


def call(*words):
    return CliRunner().invoke(cli, [*words])


def test_an_option_stands_in_one_group_in_all_commands():
    places = defaultdict(set)
    for _, command in all_commands():
        for each in command.params:
            if isinstance(each, Option):
                places[each.opts[-1]].add(each.place)
    # What is named is a stored thing, or a server.
    assert [word for word, found in places.items() if len(found) > 1] == ["--name"]


def test_a_load_asks_for_a_command_that_is_run_so_often(tmp_path):
    words = "--input shop.dump --rows 'select count(*) from t' -t 3 -L 5min"
    found = asked(["load", "pg_restore -d shop shop.dump", *shlex.split(words)], tmp_path)["same"]
    assert found["transactions"] == 3
    assert (found["latency_limit"], found["command"]) == ("5min", "pg_restore -d shop shop.dump")


def test_scripts_are_named_alike_in_a_run_and_in_a_sweep(tmp_path):
    ways = ("--script by_fk1@3 --script one_fk1", "--script 'by_fk1@3 one_fk1'")
    found = [
        {k: v for k, v in asked([command, "reporting", *shlex.split(way)], tmp_path)["same"].items()
         if k.startswith("scripts")}
        for command in ("run", "sweep")
        for way in ways
    ]  # fmt: skip
    assert found[0] == {"scripts": "by_fk1@3 one_fk1"}
    assert all(each == found[0] for each in found)


def test_a_variant_is_an_option_of_a_run_too(tmp_path):
    def workload(*words):
        return asked(["run", *words], tmp_path)["same"]["workload"]

    assert workload("sensor", "--variant", "log") == workload("sensor/log") != workload("sensor")
    assert refused(call("run", "sensor", "--variant", "lag")).name == "unknown-variant"
    assert refused(call("run", "-f", "-", "--variant", "log")).name == "option-needs"


@pytest.fixture
def store(tmp_path):
    """A run, then an experiment of two, and its id."""
    made = opened(tmp_path)
    keep(made, Kept(new_id()))
    row = ExperimentRow(new_id(), "pi", datetime.now(UTC), None, "running", "0", {"a": 1})
    made.begin_experiment(row)
    for block in (1, 2):
        keep(made, Kept(new_id(), at=block, place=Place(row.id, "cell", {"clients": "1"}, block)))
    made.finish_experiment(row.id, "finished")
    return made


def test_last_is_what_began_last_a_run_or_an_experiment(store):
    [row] = store.experiments(1)
    assert store.find_newest("last") == row.id
    newer = new_id()
    keep(store, Kept(newer, at=3))
    assert store.find_newest("last") == newer


def test_last_deletes_no_experiment_unasked(store, tmp_path):
    place = ("--store", str(tmp_path / "results.db"))
    error = refused(call("runs", "delete", "last", "--yes", *place))
    assert (error.name, error.values["runs"]) == ("last-is-experiment", 2)
    shown = message("experiment-listed", id=error.values["id"], runs=2)
    assert shown in said(call("runs", "delete", "last", "--dry-run", *place))
    assert len(store.trials()) == 3


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ("run reporting --rate 5 -L 100", ["_reporting_", "5/s", "clients 4", "ms 100", "5 min"]),
        ("run tpcb-like -c 2 -t 10 -s 3", ["scale 3", "_run", "clients 2", "each 10"]),
        ("load 'pg_restore x' -t 2", ["clients 1", "each 2", "managed, PostgreSQL 18"]),
        ("run -f - --target host=pi4", ["host=pi4"]),
        ("run reporting --target host=pi4", ["databases pgpaces_reporting_*"]),
    ],
)
def test_a_dry_run_says_what_it_would_take_and_starts_nothing(words, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "run", lambda *_: pytest.fail("it runs"))
    place = ("--store", str(tmp_path / "results.db"), "--dry-run")
    done = CliRunner().invoke(cli, [*shlex.split(words), *place], input="SELECT 1;")
    assert [text for text in texts if text not in said(done)] == []
    assert not [*tmp_path.iterdir()]
    document = CliRunner().invoke(cli, [*shlex.split(words), *place, "--json"], input="SELECT 1;")
    found = json.loads(document.stdout)
    assert {"workload", "databases", "load", "clients", "seconds"} <= found.keys()


@pytest.mark.parametrize("option", ["--set", "--server-set"])
def test_a_dry_run_asks_whether_another_setting_was_meant(option):
    done = call("run", "reporting", option, "work_men=4MB", "--dry-run")
    assert {"work_men;", "work_mem?"} <= {*done.stderr.split()}


def test_what_a_dry_run_prints_has_no_password():
    words = ("--target", "postgresql://me:secret@pi4/bench", "--dry-run")
    assert "secret" not in call("run", "reporting", *words).output


@pytest.mark.parametrize("command", [("run", "reporting"), ("load", "true")])
def test_a_report_that_could_not_be_written_is_refused_before_the_load(command, monkeypatch):
    monkeypatch.setattr(pipeline, "run", lambda *_: pytest.fail("it runs"))
    errors = [refused(call(*command, "-o", path)) for path in ("/nowhere/run.html", "run.docx")]
    assert [e.name for e in errors if e.exit_code == 2] == ["folder-not-writable", "unknown-form"]


def test_a_run_is_exported_into_a_file_in_the_form_of_its_ending(store, tmp_path):
    keep(store, Kept(new_id(), at=3))
    place = ("--store", str(tmp_path / "results.db"))
    for name, begins in (("run.csv", "run,second"), ("run.json", "{")):
        call("export", "last", "-o", str(tmp_path / name), *place)
        assert (tmp_path / name).read_text().startswith(begins)
    assert call("export", "last", *place).stdout == (tmp_path / "run.csv").read_text()


def test_a_disk_is_not_written_to_by_a_dry_run(tmp_path):
    assert "writes up to" in said(call("disk", str(tmp_path), "--dry-run"))
    assert refused(call("disk", str(tmp_path), "-o", "disk.docx")).name == "unknown-form"
    assert not [*tmp_path.iterdir()]
