"""Trials of a cell become one row: which of them count, and what they say together."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from pgpaces.analysis import cells
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.validity import Validity
from pgpaces.spec.design import Cell, Slot
from tests.unit.experiments import WORKERS, made, moved

CELL = Cell((("clients", "4"), (WORKERS, "2")))
GOOD = [made(Slot(block, CELL), 20) for block in (1, 2, 3)]


def state(found: Digest, name: str) -> Digest:
    return replace(found, trial=replace(found.trial, state=name))  # type: ignore[arg-type]


def judged(found: Digest, name: str) -> Digest:
    return replace(found, summary=replace(found.summary, validity=Validity(name)))  # type: ignore[arg-type]


def again(found: Digest, attempt: int) -> Digest:
    place = replace(found.trial.place, attempt=attempt)  # type: ignore[type-var]
    later: dict[str, Any] = {"id": f"{found.trial.id}{attempt}", "place": place}
    later["started_at"] = found.trial.started_at + attempt * timedelta(seconds=1)
    return replace(found, trial=replace(found.trial, **later))


def test_a_row_sums_counts_and_says_what_all_its_trials_say() -> None:
    row = cells.row(CELL, GOOD)
    assert row.sound
    assert row.trials == tuple(GOOD)
    assert row.counts.due == sum(d.summary.counts.due for d in GOOD)
    assert row.missed is not None
    assert row.missed.value == row.counts.missed / row.counts.due
    values = [d.summary.latency.p95.value for d in GOOD if d.summary.latency.p95]
    assert row.p95 is not None
    assert row.p95.value == pytest.approx(sum(values) / 3)
    assert row.p95.low < min(values) < max(values) < row.p95.high


def test_shares_add_up_to_what_missed() -> None:
    cell = Cell((("clients", "8"), (WORKERS, "0")))
    row = cells.row(cell, [made(Slot(block, cell), 20) for block in (1, 2)])
    parts = [row.estimate(name) for name in cells.SHARES[:4]]
    assert row.missed is not None
    assert row.missed.value > 0.1
    assert sum(p.value for p in parts if p) == pytest.approx(row.missed.value)


def test_an_invalid_trial_is_kept_and_left_out_where_valid_ones_exist() -> None:
    row = cells.row(CELL, [GOOD[0], judged(GOOD[1], "invalid"), GOOD[2]])
    assert [d.trial.id for d in row.trials] == [GOOD[0].trial.id, GOOD[2].trial.id]
    assert [d.trial.id for d in row.left_out] == [GOOD[1].trial.id]
    assert row.sound


def test_invalid_trials_alone_give_numbers_that_are_marked() -> None:
    row = cells.row(CELL, [judged(each, "invalid") for each in GOOD])
    assert len(row.trials) == 3
    assert row.missed is not None
    assert not row.sound


def test_of_a_block_the_newest_attempt_that_came_to_its_end_counts() -> None:
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


def test_a_trial_without_an_end_counts_only_where_there_is_nothing_else() -> None:
    row = cells.row(CELL, [state(GOOD[0], "interrupted"), GOOD[1]])
    assert [d.trial.id for d in row.trials] == [GOOD[1].trial.id]
    alone = cells.row(CELL, [state(GOOD[0], "interrupted")])
    assert alone.trials
    assert (alone.sound, alone.defect) == (False, "interrupted")
    assert cells.row(CELL, [judged(GOOD[0], "invalid")]).defect == "not valid"


def test_a_cell_without_trials_is_a_row_without_numbers() -> None:
    (row,) = cells.rows([CELL], [])
    assert (row.missed, row.trials, row.sound) == (None, (), False)


def test_targets_of_one_kind_are_one_cell() -> None:
    asked = [Cell((*CELL.levels, ("target", name))) for name in ("a", "b", "other")]
    found = [moved(GOOD[n % 2], target=name) for n, name in enumerate(("a", "b", "other"))]
    rows = cells.rows(asked, found, {"a": "pi4", "b": "pi4"})
    assert [dict(row.cell.levels)["target"] for row in rows] == ["pi4", "other"]
    assert [len(row.trials) for row in rows] == [2, 1]


def test_a_trial_of_a_cell_that_nobody_asked_for_is_in_no_row() -> None:
    (row,) = cells.rows([CELL], [moved(GOOD[0], clients="99")])
    assert row.trials == ()


def test_a_cell_of_one_trial_has_the_intervals_of_its_trial() -> None:
    trial = made(Slot(1, CELL), 60)
    row = cells.row(CELL, [trial])
    assert row.missed == trial.summary.missed == cells.trial_estimate(trial, "missed")
    assert (row.rate, row.p95) == (trial.summary.rate, trial.summary.latency.p95)
