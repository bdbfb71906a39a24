"""Trials of a cell become one row: which of them count, and what they say together."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from pgpaces.analysis import cells
from pgpaces.analysis.validity import Validity
from pgpaces.spec.design import Ask, Cell
from tests.unit.experiments import WORKERS, made, moved

CELL = Cell((("clients", "4"), (WORKERS, "2")))
GOOD = [made(Ask(CELL, block), 20) for block in (1, 2, 3)]


def state(found, name):
    return replace(found, trial=replace(found.trial, state=name))


def judged(found, name):
    return replace(found, summary=replace(found.summary, validity=Validity(name)))


def again(found, attempt):
    place = replace(found.trial.place, attempt=attempt)
    later = {"id": f"{found.trial.id}{attempt}", "place": place}
    later["started_at"] = found.trial.started_at + attempt * timedelta(seconds=1)
    return replace(found, trial=replace(found.trial, **later))


def test_a_row_sums_counts_and_says_what_all_its_trials_say():
    row = cells.row(CELL, GOOD)
    assert (row.sound, row.trials) == (True, tuple(GOOD))
    assert row.counts.due == sum(d.summary.counts.due for d in GOOD)
    assert row.estimate("missed").value == row.counts.missed / row.counts.due
    values = [d.summary.latency.p95.value for d in GOOD]
    assert row.estimate("p95").value == pytest.approx(sum(values) / 3)
    assert row.estimate("p95").low < min(values) < max(values) < row.estimate("p95").high
    cell = Cell((("clients", "8"), (WORKERS, "0")))
    row = cells.row(cell, [made(Ask(cell, block), 20) for block in (1, 2)])
    parts = [row.estimate(name) for name in cells.SHARES[:4]]
    assert row.estimate("missed").value > 0.1
    assert sum(p.value for p in parts if p) == pytest.approx(row.estimate("missed").value)


A, B, C = GOOD


@pytest.mark.parametrize(
    ("given", "counted", "defect"),
    [
        ([A, judged(B, "invalid"), C], [A, C], ""),
        ([judged(each, "invalid") for each in GOOD], GOOD, "invalid"),
        ([state(A, "interrupted"), B], [B], ""),
        ([state(A, "interrupted")], [A], "interrupted"),
        ([moved(A, clients="99")], [], None),
        ([], [], None),
    ],
)
def test_what_is_not_valid_or_has_no_end_counts_only_where_there_is_nothing_else(
    given, counted, defect
):
    [row] = cells.rows([CELL], given)
    assert [d.trial.id for d in row.trials] == [d.trial.id for d in counted]
    assert row.sound is (defect == "")
    assert (row.estimate("missed") is None) is (not counted)
    if counted:
        assert row.defect == defect
        assert len(row.trials) + len(row.left_out) + len(row.superseded) == len(given)


def test_of_a_block_the_newest_attempt_that_came_to_its_end_counts():
    failed = state(GOOD[0], "failed")
    row = cells.row(CELL, [failed, again(GOOD[0], 2), again(state(GOOD[0], "failed"), 3), GOOD[1]])
    assert [d.trial.place.attempt for d in row.trials if d.trial.place] == [2, 1]
    assert len(row.superseded) == 2
    assert len(row.every) == 4
    later = replace(
        GOOD[0].trial, id="resumed", started_at=GOOD[0].trial.started_at + timedelta(days=1)
    )
    resumed = replace(GOOD[0], trial=later)
    assert cells.row(CELL, [again(GOOD[0], 2), resumed]).trials == (resumed,)


def test_targets_of_one_kind_are_one_cell():
    asked = [Cell((*CELL.levels, ("target", name))) for name in ("a", "b", "other")]
    found = [moved(GOOD[n % 2], target=name) for n, name in enumerate(("a", "b", "other"))]
    rows = cells.rows(asked, found, {"a": "pi4", "b": "pi4"})
    assert [dict(row.cell.levels)["target"] for row in rows] == ["pi4", "other"]
    assert [len(row.trials) for row in rows] == [2, 1]


def test_a_cell_of_one_trial_has_the_intervals_of_its_trial():
    trial = made(Ask(CELL, 1), 60)
    row = cells.row(CELL, [trial])
    assert row.estimate("missed") == trial.summary.missed == cells.trial_estimate(trial, "missed")
    assert (row.estimate("throughput"), row.estimate("p95")) == (
        trial.summary.throughput,
        trial.summary.latency.p95,
    )
