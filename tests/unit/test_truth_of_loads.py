"""Intervals of simulated trials hold the truth, and a steady load is not cut: a part of the table

of docs/internals/coverage.md, which `make bench ARGS=coverage` makes of 2,000 trials a cell.
"""

import sys
from functools import cache
from pathlib import Path

import pytest

from pgpaces.analysis.summary import summarize

from .seeds import seeds

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

import coverage
import loads
from loads import Load, stored, truth

STEADY = [
    Load("M/M/1", 1, 0.8),
    Load("M/D/1", 1, 0.7, even=True),
    Load("M/M/4", 4, 0.8),
    Load("closed", 4, 0.7, users=8, think=1.5),
]
SHAPED = Load("steps", 4, 0.6, steps=(0.5, 1.0, 1.5))
# Trials of each load. An interval that holds the truth three times in four fails two times in three
# with 30 of them, and always with 120.
TRIALS = seeds(30, 120)


def least(trials: int) -> float:
    """0.93, the least that is asked for, less three standard errors of so many trials."""
    return 0.93 - 3 * float((0.93 * 0.07 / trials) ** 0.5)


@cache
def cell(load: Load, trials: int) -> coverage.Cell:
    """Of users, half of the table's simulation: 100,000 s err by 2.4% of a trial's error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loads, "_BESIDE", 500)
        return coverage.batch(load, 60, trials, 11)


@pytest.mark.slow
@pytest.mark.parametrize("trials", TRIALS)
@pytest.mark.parametrize("load", [*STEADY, SHAPED], ids=lambda load: load.name)
def test_the_intervals_of_a_minute_hold_the_truth(load, trials):
    found = cell(load, trials)
    held = {name: found.held[name] / trials for name in coverage.NAMES}
    assert min(held.values()) >= least(trials), held


@pytest.mark.parametrize("trials", TRIALS)
@pytest.mark.parametrize("load", STEADY, ids=lambda load: load.name)
def test_a_minute_of_a_steady_load_has_its_intervals_and_is_not_cut(load, trials):
    found = cell(load, trials)
    assert found.told == dict.fromkeys(coverage.NAMES, trials)
    assert found.cut <= trials // 30
    bias, error = found.bias
    assert abs(bias) <= 2 * error


def test_a_planned_change_of_the_rate_does_not_widen_its_interval():
    for each in stored(SHAPED, 60, 3, 7):
        found = summarize(*each).throughput
        assert (found.high - found.low) / found.value < 0.12


def test_a_cold_start_is_cut():
    load = Load("cold", 1, 0.5, cold=0.5)
    found = [summarize(*each) for each in stored(load, 300, 20, 5)]
    assert sum(each.cut_s > 0 for each in found) >= 19
    assert all(each.left_out.due > 0 for each in found if each.cut_s)


def test_the_truth_by_simulation_is_that_of_the_formula():
    exact = truth(Load("M/M/4", 4, 0.8), 60)
    assert exact.throughput == 100
    assert exact.mean == pytest.approx(55.857, rel=1e-3)
    assert truth(Load("M/M/1", 1, 0.8), 60).p95 == pytest.approx(40 * 2.9957, rel=1e-3)
