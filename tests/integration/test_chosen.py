"""Experiments whose trials are chosen as they go, on a real server: interrupted, resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands import Command, Ended, ctrl_c
from tests.errors import sentence
from tests.integration.sweeps import Ear
from tests.waiting import until

from pgpaces.analysis.sequential import role
from pgpaces.spec.design import Cell
from pgpaces.store.store import Store
from pgpaces.trial import sweep as pipeline

pytestmark = pytest.mark.postgres

PAIRS = (
    "compare", "set.work_mem=1MB", "set.work_mem=8MB", "--run", "reporting", "--scale", "1",
    "--clients", "1", "--think-time", "50ms", "--duration", "1s", "--warmup", "0", "--grace", "1s",
    "-L", "5s", "--pairs", "8", "--same", "0",
)  # fmt: skip


def interrupted(pgpaces: Command, *words: str, after: int) -> Ended:
    """An experiment that Ctrl-C ends when so many of its trials are done and another one runs."""
    process = pgpaces.start(*words)
    opened: list[Store] = []

    def another_runs() -> bool:
        if not pgpaces.store.exists():
            return False
        if not opened:
            opened.append(Store.open(pgpaces.store))
        [store] = opened
        rows = store.experiments()
        states = [trial.state for row in rows for trial in store.placed(row.id)]
        return states.count("finished") >= after and "running" in states

    until(another_runs)
    return Ended(130, *ctrl_c(process))


def resumed(store: Path, ear: Ear | None = None) -> pipeline.SweepResult:
    """Goes on with the newest experiment."""
    id_, experiment, goal = pipeline.find("last", store)
    return pipeline.run(pipeline.plan(experiment, store, resume=id_, goal=goal), ear)


@pytest.mark.slow
def test_pairs_are_run_interrupted_and_gone_on_with_to_a_verdict(pgpaces, pg15, monkeypatch):
    monkeypatch.setenv("PGPACES_HOME", str(pgpaces.home))
    # Settings travel with its connections: one of ours is started anew for each trial.
    words = (*PAIRS, "--target", pg15.dsn("postgres"))
    shown = pgpaces.well(*words, "--dry-run", "--json")
    assert json.loads(shown.out)["trials_to_run"] == 16
    begun = interrupted(pgpaces, *words, after=3)
    assert "UNKNOWN" in begun.out
    assert "--resume" in begun.err

    swept = resumed(pgpaces.store)
    assert not swept.interrupted
    assert not swept.given_up
    store = Store.open(pgpaces.store)
    [row] = store.experiments()
    assert row.state == "finished"
    digests = [d for d in store.digests([t.id for t in store.placed(row.id)])
               if d.trial.state == "finished"]  # fmt: skip
    places = [d.trial.place for d in digests if d.trial.place]
    assert {place.block for place in places} == set(range(1, 9))
    for block in range(1, 9):
        own = [d for d in digests if d.trial.place and d.trial.place.block == block]
        assert len({d.trial.place.cell for d in own if d.trial.place}) == 2
        assert len({d.trial.plan.seed for d in own}) == 1, "a pair meets the same arrivals"
        for each in own:
            assert each.trial.place is not None
            wanted = each.trial.place.levels["set.work_mem"]
            assert each.trial.server.settings["work_mem"] == wanted
    answer = json.loads(pgpaces("report", "last", "--format", "json").out)
    found = answer["sections"]["comparison"]["value"]
    assert found["outcome"] in ("better", "worse", "same", "unknown")
    assert found["pairs"] == 8
    peeked = pgpaces(*PAIRS[:3], "--in", row.id)
    assert peeked.code == 2
    assert "pgpaces report" in peeked.err


def test_a_goal_that_changed_is_another_experiment(pgpaces):
    words = ("capacity", "reporting", "--scale", "1", "-L", "5s")
    interrupted(pgpaces, *words, "--rate", "1/s,2/s", after=0)
    store = Store.open(pgpaces.store)
    [row] = store.experiments()
    placed = store.digests([trial.id for trial in store.placed(row.id)])
    cells = {role(Cell(tuple(d.trial.place.levels.items()))) for d in placed if d.trial.place}
    assert cells <= {"preflight", "short"}
    changed = pgpaces(*words, "--rate", "1/s,4/s", "--resume")
    said = sentence("experiment-changed", experiment=row.name, id=row.id, changed=["goal"])
    assert (changed.code, said in changed.err) == (2, True)
    pgpaces.well("capacity", "--resume", row.id, "--dry-run", "--json")
