"""`pgpaces runs` lists, names, copies and deletes what the store holds."""

import json
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from pgpaces.cli.main import cli
from pgpaces.core.errors import PlanError
from pgpaces.core.messages import message
from pgpaces.store.store import Store
from tests.unit.calling import refused
from tests.unit.stored import keep_experiment, keep_trial, whole_trial


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "results.db")


@pytest.fixture
def pgpaces(store):
    """Runs a command on the store."""

    def run(*words, **more):
        more.setdefault("catch_exceptions", True)
        return CliRunner().invoke(cli, [*words, "--store", str(store.path)], **more)

    return run


def listed(result):
    assert result.exit_code == 0, result.output
    return [row["run"] for row in json.loads(result.stdout)]


def test_runs_alone_lists_the_newest(store, pgpaces):
    start = datetime.now(UTC)
    kept = [
        keep_trial(store, whole_trial(started_at=start + timedelta(seconds=n))) for n in range(3)
    ]
    assert listed(pgpaces("runs", "--json")) == [t.id for t in reversed(kept)]
    assert listed(pgpaces("runs", "-n", "1", "--json")) == [kept[-1].id]
    assert kept[0].id[-8:] in pgpaces("runs").stdout


def test_lists_are_of_a_tag_or_of_an_experiment(store, pgpaces):
    alone = keep_trial(store, whole_trial())
    _, placed = keep_experiment(store, "pi")
    assert pgpaces("runs", "tag", "mine", alone.id[-8:]).exit_code == 0
    assert listed(pgpaces("runs", "--tag", "mine", "--json")) == [alone.id]
    assert set(listed(pgpaces("runs", "--experiment", "pi", "--json"))) == {t.id for t in placed}
    assert message("no-runs-match") in pgpaces("runs", "--tag", "other").stderr
    assert "[mine]" in pgpaces("runs").stdout
    assert isinstance(refused(pgpaces("runs", "--experiment", "other")), PlanError)


def test_a_tag_is_taken_from_some_or_from_all(store, pgpaces):
    one, two, three = (keep_trial(store, whole_trial()).id for _ in range(3))
    assert pgpaces("runs", "tag", "mine", one, two, three).exit_code == 0
    assert pgpaces("runs", "tag", "other", one).exit_code == 0
    assert message("untagged", count=1) in pgpaces("runs", "tag", "--remove", "mine", one).stderr
    assert set(listed(pgpaces("runs", "--tag", "mine", "--json"))) == {two, three}
    assert message("untagged", count=2) in pgpaces("runs", "tag", "--remove", "mine").stderr
    assert listed(pgpaces("runs", "--tag", "mine", "--json")) == []
    assert store.names([one]) == {one: ("other",)}
    for words in ((), (one,)):
        assert refused(pgpaces("runs", "tag", "--remove", "mine", *words)).name == "tag-not-set"
    assert refused(pgpaces("runs", "tag", "mine")).name == "nothing-to-tag"


def test_experiments_are_listed_with_how_many_runs_they_have(store, pgpaces):
    row, _ = keep_experiment(store, "pi \x1b[31m")
    pgpaces("runs", "baseline", "base", row.id)
    [found] = json.loads(pgpaces("runs", "--experiments", "--json").stdout)
    assert (found["experiment"], found["runs"], found["names"]) == (row.id, 2, ["base"])
    text = pgpaces("runs", "-E").stdout
    assert row.id[-8:] in text
    assert "\x1b" not in text


def test_a_damaged_run_is_listed_among_the_others(store, pgpaces):
    kept = [keep_trial(store, whole_trial()) for _ in range(3)]
    assert store.path
    with sqlite3.connect(store.path) as other:
        other.execute("UPDATE trial SET spec = ? WHERE id = ?", (b"\xff", kept[1].id))
    found = json.loads(pgpaces("runs", "--json").stdout)
    assert {row["run"]: row["state"] for row in found} == {
        kept[0].id: "finished", kept[1].id: "damaged", kept[2].id: "finished",
    }  # fmt: skip
    assert "damaged" in pgpaces("runs").stdout


@pytest.fixture
def other(tmp_path):
    return Store.open(tmp_path / "other.db")


def everything(store):
    ids = [row.id for row in store.trials()]
    experiments = store.experiments()
    return (
        [store.load(id_) for id_ in ids],
        experiments,
        [store.failures(row.id) for row in experiments],
        [store.placed(row.id) for row in experiments],
        store.names([*ids, *(row.id for row in experiments)]),
    )


def copied(store, count):
    return message("copied", store=store.address, count=count)


def test_a_copy_has_everything_and_copying_again_changes_nothing(store, other, pgpaces):
    alone = keep_trial(store, whole_trial())
    row, _ = keep_experiment(store)
    store.tag("mine", alone.id)
    store.baseline("base", row.id)
    assert copied(other, 4) in pgpaces("runs", "copy", str(other.path)).stderr
    assert everything(other) == everything(store)
    assert copied(other, 0) in pgpaces("runs", "copy", str(other.path)).stderr
    assert everything(other) == everything(store)


def test_what_is_named_is_copied_with_what_belongs_to_it(store, other, pgpaces):
    keep_trial(store, whole_trial())
    row, placed = keep_experiment(store)
    keep_experiment(store, "another")
    pgpaces("runs", "copy", str(other.path), placed[0].id)
    assert [t.id for t in other.trials()] == [placed[0].id]
    assert other.experiments() == [replace(row, runs=1)]
    pgpaces("runs", "copy", str(other.path), "pi")
    assert {t.id for t in other.trials()} == {t.id for t in placed}


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("last", "other.db"), "runs copy other.db last"),
        (("last",), "runs copy STORE last"),
        (("good", "last"), "runs copy last good"),
    ],
    ids=str,
)
def test_a_run_where_the_store_is_expected_makes_no_file_of_that_name(
    store, pgpaces, monkeypatch, words, hint
):
    store.tag("good", keep_trial(store, whole_trial()).id)
    assert store.path
    monkeypatch.chdir(store.path.parent)
    error = refused(pgpaces("runs", "copy", *words))
    assert (error.name, error.values["run"]) == ("run-instead-of-store", words[0])
    assert hint in str(error.hint)
    assert not [each for each in store.path.parent.iterdir() if "results" not in each.name]


def test_a_run_that_is_not_there_makes_no_store(pgpaces, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = refused(pgpaces("runs", "copy", "other.db", "nothing"))
    assert "nothing" in error.message
    assert not (tmp_path / "other.db").exists()


def test_a_run_that_went_on_is_copied_anew_and_never_backwards(store, other, pgpaces):
    trial = whole_trial()
    store.begin(trial)
    store.add(trial.id, trial.intervals[0])
    pgpaces("runs", "copy", str(other.path))
    store.add(trial.id, trial.intervals[1])
    store.finish(trial, {})
    assert other.uncopied(store) == []
    assert copied(other, 1) in pgpaces("runs", "copy", str(other.path)).stderr
    assert other.load(trial.id).intervals == trial.intervals


def test_a_baseline_that_is_taken_in_the_other_store_stays(store, other, pgpaces):
    mine, theirs = keep_trial(store, whole_trial()), keep_trial(other, whole_trial())
    store.baseline("base", mine.id)
    other.baseline("base", theirs.id)
    pgpaces("runs", "copy", str(other.path))
    assert other.find("base") == theirs.id


@pytest.mark.parametrize(
    "damage",
    ["interval SET messages = '{' WHERE trial", "trial SET heartbeat = 'soon' WHERE id"],
)
def test_a_damaged_run_does_not_keep_the_others_from_being_copied(store, other, pgpaces, damage):
    damaged, fine = keep_trial(store, whole_trial()), keep_trial(store, whole_trial())
    assert store.path
    with sqlite3.connect(store.path) as raw:
        raw.execute(f"UPDATE {damage} = ?", (damaged.id,))
    error = refused(pgpaces("runs", "copy", str(other.path)))
    assert (error.name, error.values["count"], error.values["total"]) == ("not-all-copied", 1, 2)
    assert damaged.id in error.values["why"]
    assert str(store.path) in error.values["why"]
    assert [row.id for row in other.trials()] == [fine.id]


def test_deletion_asks_and_without_a_terminal_needs_yes(store, pgpaces):
    trial = keep_trial(store, whole_trial())
    assert refused(pgpaces("runs", "delete", "last")).name == "cannot-confirm"
    assert store.find("last") == trial.id
    assert pgpaces("runs", "delete", "last", "--yes").exit_code == 0
    assert store.trials() == []


@pytest.mark.parametrize(("answer", "left"), [("n\n", 1), ("y\n", 0)])
def test_on_a_terminal_the_answer_decides(store, pgpaces, monkeypatch, answer, left):
    keep_trial(store, whole_trial())
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    pgpaces("runs", "delete", "last", input=answer)
    assert len(store.trials()) == left


def test_what_is_deleted_leaves_nothing(store, pgpaces):
    row, placed = keep_experiment(store)
    alone = keep_trial(store, whole_trial())
    for id_ in (row.id, placed[0].id, alone.id):
        store.tag("x", id_)
    assert pgpaces("runs", "delete", "pi", alone.id, "--yes").exit_code == 0
    assert store.path
    with sqlite3.connect(store.path) as raw:
        tables = [name for (name,) in raw.execute("SELECT name FROM sqlite_schema "
                  "WHERE type = 'table' AND name <> 'pgpaces'")]  # fmt: skip
        assert {"trial", "sample", "observed", "disk"} <= set(tables)
        for table in tables:
            assert raw.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


def test_what_goes_on_is_not_deleted(store, pgpaces):
    trial = whole_trial()
    store.begin(trial)
    done = pgpaces("runs", "delete", "last", "--yes")
    assert isinstance(done.exception, PlanError)
    assert (done.exception.name, done.exception.values) == ("trial-running", {"id": trial.id})
