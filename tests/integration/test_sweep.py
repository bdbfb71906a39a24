"""Experiments on real servers: run, interrupted, killed, resumed; what is away is left out."""

import random
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Command, ctrl_c
from tests.errors import sentence
from tests.integration.sweeps import Ear, cells_of, count, expire
from tests.needs import needs
from tests.waiting import until

from pgpaces.answers import calls as api
from pgpaces.core.messages import catalog
from pgpaces.store.store import Store

pytestmark = pytest.mark.postgres

# One client, or two, at two settings; each trial takes about a second.
GRID = (
    "--clients", "1,2", "--server-set", "work_mem=1MB,8MB", "--rate-per-client", "5/s",
    "--scale", "1", "--duration", "1s", "--warmup", "0", "--grace", "1s", "-L", "1s",
)  # fmt: skip

# A client that thinks: none of these asks how fast a server is.
CALM = ("--think-time", "20ms", "--duration", "1s", "--warmup", "0")


def assert_as_asked(pgpaces: Command) -> None:
    """The trials of GRID have the load and the settings of their cells, and the blocks' seeds."""
    [row] = Store.open(pgpaces.store).experiments()
    assert row.state == "finished"
    trials = [trial for trial in pgpaces.trials() if trial.state == "finished"]
    assert len(trials) == 8
    for trial in trials:
        assert trial.place is not None
        levels = trial.place.levels
        assert trial.setup.clients == int(levels["clients"])
        assert trial.load_text == f"open, {5 * int(levels['clients'])}/s"
        assert trial.server.settings["work_mem"] == levels["server_set.work_mem"]
        assert trial.server.applied == {"work_mem": "connection"}
        assert trial.explained
        assert trial.samples
    assert {t.place.block: t.plan.seed for t in trials if t.place} == {1: 1, 2: 2}


def assert_complete(store: Path, trials: int) -> None:
    """Each cell finished once in each block."""
    found = cells_of(store)
    assert (len(found), set(found.values())) == (trials, {1})


def test_scripts_of_no_workload_measure_the_database_of_the_target_as_it_stands(
    pgpaces, pg15, tmp_path
):
    """As `run` does: in an empty database every transaction would fail."""
    script = tmp_path / "x.sql"
    script.write_text("INSERT INTO only_here VALUES (1);\n")
    with pg15.meanwhile("CREATE TABLE only_here (i int)", "DROP TABLE only_here"):
        target = ("-f", script, "--target", pg15.dsn("postgres"))
        pgpaces.well("sweep", *target, "-c", "1", *CALM, "-L", "1s")
        trials = pgpaces.trials()
        assert [trial.workload.prepared.dbname for trial in trials] == ["postgres"]
        kept = [tally for trial in trials for each in trial.intervals for tally in each.tallies]
        assert sum(tally.on_time for tally in kept)
        assert not any(tally.failed for tally in kept)
        [[rows]] = pg15.execute("SELECT count(*) FROM only_here")
        assert rows >= sum(tally.on_time for tally in kept)


@needs("PostgreSQL 15")
def test_a_setting_that_needs_a_restart_is_one_of_a_server_of_ours(pgpaces):
    levels = ("shared_buffers=16MB,32MB", "--server-set", "bgwriter_delay=100ms,200ms")
    words = ("--server-set", *levels, "--scale", "1", "--clients", "1", *CALM, "--server", "15")
    pgpaces.well("sweep", "select-only", *words)
    for trial in pgpaces.trials():
        assert trial.place is not None
        levels_of, found = trial.place.levels, {"bgwriter_delay": "200ms", **trial.server.settings}
        for name in ("shared_buffers", "bgwriter_delay"):
            assert found[name] == levels_of[f"server_set.{name}"]
        assert trial.server.applied == {"bgwriter_delay": "reload", "shared_buffers": "start"}


def test_a_sweep_runs_every_cell_in_every_block_also_if_it_was_stopped(pgpaces):
    words: tuple[str, ...] = ("reporting", *GRID, "--trials", "2")
    for number, least in ((signal.SIGINT, 2), (signal.SIGTERM, 4)):
        process = pgpaces.start("sweep", *words)
        until(lambda n=least: sum(cells_of_any(pgpaces.store).values()) >= n)  # type: ignore[misc]
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 130, stderr
        assert "--resume" in stderr
        assert least <= len(cells_of(pgpaces.store)) < 8
        words = ("--resume",)
    for _ in range(2):
        pgpaces.well("sweep", "--resume")
        assert_complete(pgpaces.store, 8)
    assert_as_asked(pgpaces)


@pytest.mark.parametrize(
    ("kills", "blocks"),
    [(3, 3), pytest.param(30, 25, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_a_sweep_that_is_killed_at_any_moment_goes_on_to_the_same_set_of_trials(
    pgpaces, kills, blocks
):
    """No trial is lost, and none is run twice. The store alone says what is left to do."""
    chance = random.Random(6)
    words: tuple[object, ...] = (
        "select-only", "--clients", "1,2", "--rate-per-client", "20/s", "--scale", "1",
        "--duration", "300ms", "--warmup", "0", "-L", "1s", "--trials", blocks,
    )  # fmt: skip
    for turn in range(kills):
        process = pgpaces.start("sweep", *words)
        # Behind the start of the program, of a trial, or of what is stored of it.
        table = chance.choice(("", "trial", "interval")) if turn else "experiment"
        before = count(pgpaces.store, table) if turn and table else 0
        until(lambda t=table, n=before: not t or count(pgpaces.store, t) > n)  # type: ignore[misc]
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0, 1))
        process.kill()
        process.communicate()
        expire(pgpaces.store)
        words = ("--resume",)
    pgpaces.well("sweep", *words)
    assert_complete(pgpaces.store, 2 * blocks)


def cells_of_any(store: Path) -> Counter[tuple[str, int]]:
    """As cells_of; none where there is no experiment yet."""
    return cells_of(store) if count(store, "experiment") else Counter()


def changed(pgpaces: Command, part: str, *words: object) -> None:
    done, [row] = pgpaces(*words), Store.open(pgpaces.store).experiments()
    said = sentence("experiment-changed", experiment=row.name, id=row.id, changed=[part])
    assert (done.code, said in done.err) == (2, True), done.err


def test_an_experiment_that_changed_is_not_gone_on_with(pgpaces, tmp_path):
    path = tmp_path / "e.toml"
    path.write_text(
        "workload = 'reporting'\nscale = 1\nrate = '20/s'\nduration = '1s'\nwarmup = '0'\n"
        "[factors]\nclients = [1]\n"
    )
    pgpaces.well("sweep", str(path))
    path.write_text(path.read_text().replace("[1]", "[1, 2]"))
    changed(pgpaces, "cells", "sweep", path, "--resume")


def test_a_target_that_is_away_does_not_stop_the_others(pgpaces, pg15):
    here = pg15.tcp("postgres")
    done = pgpaces(
        "sweep", "select-only", "--target", f"here={here}",
        "--target", "away=host=127.0.0.2 port=9 user=nobody", "--scale", "1", "--clients", "1,2",
        *CALM, "--trials", "2",
    )  # fmt: skip
    assert done.code == 5, done.err
    assert catalog()["experiment-left-count"].partition("{")[0] in done.err
    trials = pgpaces.trials()
    assert len(trials) == 4
    ended = {(t.state, t.place.levels["target"]) for t in trials if t.place}
    assert ended == {("finished", "here")}
    store = Store.open(pgpaces.store)
    [row] = store.experiments()
    assert {failure.attempt for failure in store.failures(row.id)} == {1, 2}


@needs("PostgreSQL 15")
def test_a_setting_that_one_version_does_not_know_leaves_the_other_alone(pgpaces):
    done = pgpaces(
        "sweep", "select-only", "--server", "15,18", "--server-set", "io_combine_limit=16",
        "--scale", "1", "--clients", "1", *CALM,
    )  # fmt: skip
    assert done.code == 5
    assert "no setting 'io_combine_limit'" in done.err
    [trial] = pgpaces.trials()
    assert trial.server.version.startswith("18")
    store = Store.open(pgpaces.store)
    [row] = store.experiments()
    [failure] = store.failures(row.id)
    assert failure.attempt == 1, "what cannot be is not tried again"


def test_trials_that_write_start_from_a_copy_each(pgpaces):
    words = ("--clients", "1,2", "--scale", "1", *CALM, "--trials", "2")
    pgpaces.well("sweep", "simple-update", *words)
    data = [trial.workload.prepared for trial in pgpaces.trials()]
    [origin] = {prepared.cloned_from for prepared in data if prepared}
    assert origin


def test_a_grid_of_more_than_ten_thousand_trials_needs_a_yes(pgpaces):
    many = ("--define", "a=" + ",".join(map(str, range(101))), "--trials", "100")
    done = pgpaces("sweep", "reporting", *many, "--dry-run")
    assert done.code == 2
    assert "10100 trials" in done.err
    pgpaces.well("sweep", "reporting", *many, "--dry-run", "--yes")


def test_an_experiment_whose_workload_changed_is_not_gone_on_with(pgpaces, tmp_path, pg15):
    script = tmp_path / "one.sql"
    script.write_text("SELECT 1;\n")
    words = (
        "sweep", "select-only", "-f", script, "--clients", "1", "--scale", "1", *CALM,
        "--target", pg15.tcp("postgres"),
    )  # fmt: skip
    pgpaces.well(*words)
    script.write_text("SELECT 2;\n")
    changed(pgpaces, "workload", "sweep", "--resume")
    script.write_text("SELECT 1;\n")
    pgpaces.well("sweep", "--resume")
    changed(pgpaces, "from_database", *words, "--resume", "--from-database", "postgres")


def test_who_goes_on_needs_not_say_again_where_the_data_lies(pgpaces):
    from pgpaces.trial import sweep

    folder = pgpaces.home / "disk"
    folder.mkdir()
    words = ("sweep", "select-only", *GRID, "--data-dir", folder, "--trials", "9")
    process = pgpaces.start(*words)
    until(lambda: count(pgpaces.store, "interval") > 0, "a second of a trial")
    ctrl_c(process)
    found = sweep.find("last", pgpaces.store)[1]
    assert found.design.fixed["data_dir"] == str(folder)


def test_a_sweep_in_python_tells_its_listener_and_goes_on(pgpaces, pg15, monkeypatch):
    monkeypatch.setenv("PGPACES_HOME", str(pgpaces.home))
    levels: dict[str, Any] = {
        "clients": [1, 2], "rate": 20, "duration": 1, "warmup": 0, "scale": 1, "target": "here",
        "targets": {"here": pg15.tcp("postgres")}, "store": pgpaces.store,
    }  # fmt: skip
    heard = Ear(ends_after=1)
    found = api.sweep("select-only", listener=heard, **levels)
    assert (len(found.trials), found.page.missing) == (1, 1)
    assert [trial.state for trial in heard.begun] == ["running"]
    assert Store.open(pgpaces.store).experiments()[0].state == "interrupted"
    heard = Ear()
    again = api.sweep("select-only", listener=heard, resume=found.page.about.id, **levels)
    assert (again.page.about.id, len(again.trials), again.page.missing) == (
        found.page.about.id,
        2,
        0,
    )
    assert [heard.done_count, len(heard.begun)] == [1, 1]
    levels_run = {
        trial.trial.place.levels["clients"] for trial in again.page.digests if trial.trial.place
    }
    assert levels_run == {"1", "2"}
    assert len(again.frame()) >= 2
