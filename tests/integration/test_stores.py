"""Both kinds of store, a file of SQLite and a PostgreSQL server, do the same: one suite for two."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.errors import raises
from tests.unit import trials, values
from tests.unit.sensors import samples_of
from tests.unit.trials import judged_trial

from pgpaces.analysis.digest import Digest, digest
from pgpaces.analysis.disks import Device, Disk
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.core.series import Sample
from pgpaces.spec.result import Place, Trial
from pgpaces.spec.setup import HostFacts
from pgpaces.store.listing import DiskRow, ExperimentRow
from pgpaces.store.store import Store, new_id


@pytest.fixture(scope="module", params=["file", pytest.param("server", marks=pytest.mark.postgres)])
def place(request, tmp_path_factory):
    """Where a store can be: a file, or a database."""
    if request.param == "file":
        yield tmp_path_factory.mktemp("store") / "results.db"
        return
    pg15 = request.getfixturevalue("pg15")
    pg15.execute("CREATE DATABASE results OWNER u_trust")
    yield pg15.dsn(dbname="results")
    pg15.execute("DROP DATABASE results WITH (FORCE)")


@pytest.fixture(scope="module")
def store(place):
    opened = Store.open(place)
    yield opened
    opened.close()


def kept(store: Store, trial: Trial, brief: dict[str, Any] | None = None) -> Trial:
    """Stores a whole trial under an id of its own; the trial."""
    trial = replace(trial, id=new_id())
    store.begin(trial)
    for interval in trial.intervals:
        store.add(trial.id, interval)
    store.add(trial.id, None, samples_of(trial.samples))
    store.add(trial.id, None, observed=trial.observed)
    store.finish(trial, brief or {"due": 1})
    return trial


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture,
    HealthCheck.too_slow],
)  # fmt: skip
@given(trial=values.TRIAL)
def test_whatever_is_stored_is_read_as_it_was(store, trial):
    stored = kept(store, trial)
    found = store.load(stored.id)
    assert samples_of(found.samples) == samples_of(stored.samples)
    node = lambda o: o.node  # noqa: E731
    assert sorted(found.observed, key=node) == sorted(stored.observed, key=node)
    assert replace(found, samples=(), observed=()) == replace(stored, samples=(), observed=())


def test_an_interval_that_is_stored_again_changes_nothing(store):
    trial = kept(store, judged_trial(3))
    store.add(trial.id, trial.intervals[1])
    assert store.load(trial.id).intervals == trial.intervals


def test_a_sample_that_is_stored_again_changes_nothing(store):
    trial = kept(store, judged_trial(1))
    store.add(trial.id, None, [Sample(0, "host", "load", float("nan"), "x")])
    again = [Sample(0, "host", "load", 1.0, "x"), Sample(0, "host", "heat", 2.0)]
    store.add(trial.id, replace(trial.intervals[0], second=7, tallies=()), again)
    heat, load = store.series(trial.id).series()
    assert (list(heat.values), load.unit, len(load.values)) == ([2.0], "x", 1)
    assert load.values[0] != load.values[0], "it is not a number"


def digested(trial: Trial) -> Digest:
    return digest(trial)


def test_a_digest_is_read_as_it_was_stored_with_its_infinities(store):
    trial = judged_trial(30)
    lost = trials.second(3, [1.0], skipped=4, due=5)
    trial = kept(
        store, replace(trial, intervals=(*trial.intervals[:3], lost, *trial.intervals[4:]))
    )
    made = digested(trial)
    assert made.summary.latency.p99 is not None
    assert made.summary.latency.p99.value == float("inf")
    store.finish(trial, {}, made)
    assert store.digests([trial.id]) == [made]


def test_digests_come_in_the_order_that_was_asked_for(store):
    stored = [kept(store, judged_trial(n)) for n in (3, 4, 5)]
    ids = [trial.id for trial in reversed(stored)]
    assert [found.trial.id for found in store.digests(ids)] == ids
    with raises(StoreError, "not-in-store", name=(absent := new_id())):
        store.digests([absent])


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"summary": 1}', "[" * 10_000])
def test_a_damaged_digest_is_made_anew_from_the_seconds(store, text):
    trial = kept(store, judged_trial())
    made = digested(trial)
    store.finish(trial, {}, made)
    overwrite(store, "UPDATE trial SET digest = :text WHERE id = :id", text=text, id=trial.id)
    assert store.digests([trial.id]) == [made]
    assert store.digests([trial.id]) == [made]


def test_a_digest_of_older_rules_is_made_anew_and_kept(store):
    trial = kept(store, judged_trial())
    made = digested(trial)
    store.finish(trial, {}, replace(made, series=()))
    overwrite(store, "UPDATE trial SET digest_version = 0 WHERE id = :id", id=trial.id)
    assert store.digests([trial.id]) == [made]
    overwrite(store, "DELETE FROM tally WHERE trial = :id", id=trial.id)
    assert store.digests([trial.id]) == [made]


def overwrite(store: Store, sql: str, **given: Any) -> None:
    """What no version of pgpaces does."""
    with store._backend.writing() as connection:
        names = re.findall(r":(\w+)", sql)
        connection.execute(re.sub(r":\w+", "?", sql), *(given[name] for name in names))


def begun(store: Store, name: str = "pi", age: timedelta = timedelta(0)) -> ExperimentRow:
    row = ExperimentRow(
        new_id(), name, datetime.now(UTC) - age, None, "running", "0.1.0",
        {"name": name, "text": "\0 \udc80", "list": [1, None, 1.5]},
    )  # fmt: skip
    store.begin_experiment(row)
    return row


def test_an_experiment_is_read_as_it_was_stored(store):
    row = begun(store)
    assert store.experiment(row.id) == row
    assert row in store.experiments()
    assert store.experiments(1) == [row]
    store.finish_experiment(row.id, "finished")
    ended = store.experiment(row.id)
    assert ended.ended_at is not None
    assert replace(ended, ended_at=None, state="running") == row
    with raises(PlanError, "not-in-store", what="experiment", name=(absent := new_id())):
        store.experiment(absent)


def test_an_experiment_that_has_been_silent_was_interrupted_unless_one_of_its_trials_runs(store):
    row = begun(store)
    silent = datetime.now(UTC) - timedelta(minutes=1)
    quiet = "UPDATE experiment SET heartbeat = :at WHERE id = :id"
    overwrite(store, quiet, at=silent, id=row.id)
    assert store.experiment(row.id).state == "interrupted"
    trial = replace(judged_trial(1), id=new_id(), place=Place(row.id, "a", {}, 1))
    store.begin(trial)
    assert store.experiment(row.id).state == "running"
    store.finish(replace(trial, state="finished"), {})
    assert store.experiment(row.id).state == "interrupted"
    store.beat_experiment(row.id)
    assert store.experiment(row.id).state == "running"


def test_an_experiment_is_found_by_its_newest_name_and_by_its_id(store):
    old, new = begun(store, "twice", timedelta(hours=1)), begun(store, "twice")
    assert store.find_experiment("twice") == new.id
    assert store.find_experiment(old.id[-8:].lower()) == old.id
    assert store.find_experiment("last") == new.id
    for unknown in ("nothing", "%", "\0", "\udc80", ""):
        with raises(PlanError, "not-in-store", what="experiment", name=unknown):
            store.find_experiment(unknown)
        with raises(PlanError, "not-in-store", what="run", name=unknown):
            store.find(unknown)


def test_the_trials_of_an_experiment_and_their_places_are_known(store):
    row = begun(store)
    start = datetime.now(UTC)
    places = [Place(row.id, cell, {"clients": cell}, block) for block in (1, 2) for cell in "ab"]
    stored = [
        kept(
            store,
            replace(judged_trial(1), place=p, started_at=start + timedelta(seconds=n)),
            {"n": n},
        )
        for n, p in enumerate(places)
    ]
    found = store.placed(row.id)
    assert [(t.id, t.cell, t.block, t.attempt, t.state) for t in found] == [
        (t.id, p.cell, p.block, 1, "finished") for t, p in zip(stored, places, strict=True)
    ]
    assert [t.brief for t in found] == [{"n": n} for n in range(4)]
    assert store.placed(new_id()) == []
    listed = store.trials(experiment=row.id)
    assert [t.id for t in listed] == [t.id for t in reversed(stored)]
    assert {t.experiment for t in listed} == {row.id}


def test_trials_that_never_began_are_kept_with_their_reason(store):
    row = begun(store)
    store.note_failure(row.id, "a", 1, attempt=1, error="no route\0 to \udcff")
    store.note_failure(row.id, "a", 1, attempt=2, error="refused")
    store.note_failure(row.id, "a", 1, attempt=2, error="refused again")
    found = [(f.cell, f.block, f.attempt, f.error) for f in store.failures(row.id)]
    assert found == [("a", 1, 1, "no route\0 to \udcff"), ("a", 1, 2, "refused again")]


def test_a_run_is_found_by_its_tag_and_its_baseline(store):
    start = datetime.now(UTC)
    old, new = (
        kept(store, replace(judged_trial(1), started_at=start + timedelta(hours=n))) for n in (1, 2)
    )
    store.tag("nightly", old.id)
    store.tag("nightly", new.id)
    store.tag("nightly", new.id)
    assert store.find("nightly") == new.id
    assert [t.id for t in store.trials(tag="nightly")] == [new.id, old.id]
    store.baseline("pi4", new.id)
    store.baseline("pi4", old.id)
    assert store.find("pi4") == old.id
    assert store.names([old.id, new.id, new_id()]) == {
        old.id: ("pi4", "nightly"), new.id: ("nightly",),
    }  # fmt: skip


def test_a_name_finds_an_experiment_as_well(store):
    row = begun(store)
    store.baseline("the experiment", row.id)
    assert store.find_any("the experiment") == row.id
    with raises(PlanError, "not-in-store", what="run", name="the experiment"):
        store.find("the experiment")


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.text(st.characters(), max_size=8))
def test_a_name_that_was_given_is_found(store, name):
    trial = replace(judged_trial(1), id=new_id())
    store.begin(trial)
    try:
        store.baseline(name, trial.id)
    except PlanError:
        assert not name.strip() or name.startswith("-")
    else:
        assert store.find(name) == trial.id


def test_a_damaged_run_is_listed_as_damaged_among_the_others(store):
    start = datetime.now(UTC)
    row = begun(store)
    several = [
        kept(
            store,
            replace(
                judged_trial(1),
                started_at=start + timedelta(minutes=n),
                place=Place(row.id, "a", {}, 1),
            ),
        )
        for n in range(3)
    ]
    overwrite(store, "UPDATE trial SET summary = '[]' WHERE id = :id", id=several[1].id)
    listed = store.trials(3, experiment=row.id)
    assert [row.id for row in listed] == [trial.id for trial in reversed(several)]
    assert [bool(row.damage) for row in listed] == [False, True, False]


def test_a_run_that_goes_on_is_read_as_of_one_moment(store, place):
    trial = replace(judged_trial(3), id=new_id())
    store.begin(trial)
    count = "SELECT count(*) FROM tally WHERE trial = ?"
    with store._backend.reading() as connection:
        assert connection.column(count, trial.id) == [0]
        Store.open(place).add(trial.id, trial.intervals[0])
        assert connection.column(count, trial.id) == [0]
    assert len(store.load(trial.id).intervals) == 1


def disk_row(name: str = "") -> DiskRow:
    found = Disk("/mnt/\udcff", Device("uuid 1\x00"), 2**23, True, "fio-3.33", missing=("all",))
    return DiskRow(new_id(), name, datetime.now(UTC), "0", HostFacts(hostname="pi4"), found)


def test_a_disk_is_read_as_it_was_stored_and_found_by_its_name(store):
    first, second = disk_row("ssd"), disk_row("ssd")
    for row in (first, second, second):
        store.add_disk(row)
    assert store.disks()[:2] == [second, first]
    assert store.disk("ssd") == store.disk("last") == second
    assert store.disk(first.id) == first
    with raises(PlanError, "not-in-store", what="disk", name="card"):
        store.disk("card")


def test_disks_are_copied_with_all_the_rest(store, tmp_path):
    row = disk_row("ssd")
    store.add_disk(row)
    other = Store.open(tmp_path / "other.db")
    for _ in range(2):
        store.copy_names(other)
    assert other.disks() == store.disks()


def test_an_experiment_is_taken_by_one(store, place):
    row = begun(store)
    assert not store.claim_experiment(row.id), "it runs"
    store.finish_experiment(row.id, "interrupted")
    rivals = [Store.open(place) for _ in range(4)]
    with ThreadPoolExecutor() as pool:
        taken = list(pool.map(lambda rival: rival.claim_experiment(row.id), rivals))
    assert sorted(taken) == [False, False, False, True]
    assert not store.claim_experiment("F" * 26), "there is none"
    for rival in rivals:
        rival.close()
