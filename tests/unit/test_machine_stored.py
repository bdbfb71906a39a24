"""The trials of one machine: what counts as done."""

from __future__ import annotations

import pytest

from pgpaces.answers.account import Account
from pgpaces.answers.summary import summarize
from pgpaces.design import Cell, Slot
from pgpaces.errors import StoreError
from pgpaces.experiment import machine
from pgpaces.experiment.machine import Machine, Progress, SweepListener
from pgpaces.experiment.request import Request
from pgpaces.experiment.stops import Stops
from pgpaces.experiment.trial import Outcome
from pgpaces.plan import Load, TargetPlan, TrialPlan
from pgpaces.result import Place
from pgpaces.workload import of_scripts
from tests.unit.trials import series


@pytest.mark.parametrize(("errors", "done", "attempts"), [(0, 1, 1), (1, 1, 2), (2, 0, 2)])
def test_a_trial_is_done_when_the_store_has_its_end(
    monkeypatch: pytest.MonkeyPatch, errors: int, done: int, attempts: int
) -> None:
    trial = series([[10.0, 20.0], [30.0], [5.0]], server={})
    summary = summarize(trial, Account.of(trial.intervals))
    full = StoreError("the store is full")
    found = [Outcome(trial, summary, store_error=full)] * errors + [Outcome(trial, summary)]
    ran: list[Outcome] = []

    def run_at(*_: object) -> Outcome:
        ran.append(found[len(ran)])
        return ran[-1]

    monkeypatch.setattr(machine, "run_at", run_at)
    monkeypatch.setattr(machine._Sites, "open", lambda *_: None)
    slot = Slot(1, Cell((("clients", "2"),)))
    request = Request(
        workload=of_scripts("w", ()),
        trial=TrialPlan(Load("closed")),
        target=TargetPlan(),
        place=Place("E", slot.cell.key, {"clients": "2"}, 1),
    )
    progress = Progress(1)
    tested = Machine("", [slot], {(1, slot.cell.key): request}, progress)
    tested.run(None, SweepListener(), Stops())  # type: ignore[arg-type]
    assert tested.broken is None
    assert (progress.done, progress.failed) == (done, 1 - done)
    assert len(ran) == attempts
