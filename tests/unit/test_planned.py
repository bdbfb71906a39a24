"""The rate that was planned for each second, and what it explains."""

from __future__ import annotations

import numpy as np
import pytest

from pgpaces.analysis.stats import long_run, rate
from pgpaces.analysis.summary import planned_rates

from .trials import SECOND_NS, trial

OWN = (0,)


def planned(shape: str, seconds: int, start: int = 0) -> list[float] | None:
    plan = {"limit_ns": None, "policy": "run", "model": "open", "shape": shape}
    made = trial([], plan=plan, measured_ns=seconds * SECOND_NS)
    found = planned_rates(made, OWN, start, count=seconds - start)
    return None if found is None else found.tolist()


def test_the_planned_rate_of_each_second_is_that_of_the_shape() -> None:
    assert planned("constant", 6) is None
    assert planned("steps:0.5:1:2", 6) == [0.5, 0.5, 1, 1, 2, 2]
    assert planned("steps:0.5:2", 3) == [0.5, 1.25, 2]
    assert planned("steps:0.5:2", 4, 1) == [0.5, 2, 2]
    assert planned("ramp:1:2", 4) == pytest.approx([1.125, 1.375, 1.625, 1.875])
    assert planned("burst:4:1s:3s", 6) == [1, 1, 4, 1, 1, 4]
    day = planned("day", 96)
    assert day is not None
    assert np.mean(day) == pytest.approx(1, abs=0.01)


def test_a_workload_beside_the_trials_own_has_a_constant_rate() -> None:
    plan = {"limit_ns": None, "policy": "run", "model": "open", "shape": "ramp:1:2"}
    made = trial([], plan=plan, measured_ns=4 * SECOND_NS)
    assert planned_rates(made, (7,), 0, count=4) is None
    assert planned_rates(made, OWN, 0, count=0) is None


def test_what_was_planned_is_no_chance() -> None:
    rng, steps = np.random.default_rng(3), np.repeat([50.0, 100.0, 150.0], 40)
    found, blind = rate(rng.poisson(steps), steps), rate(rng.poisson(steps))
    assert found is not None
    assert blind is not None
    assert found.high - found.low < 6
    assert blind.high - blind.low > 30


def test_what_varies_in_a_part_of_the_time_is_known_from_that_part() -> None:
    rng, bursts = np.random.default_rng(4), np.tile(np.repeat([1.0, 2.0], [8, 2]), 30)
    noise = rng.normal(size=300)
    everywhere, seldom = long_run(noise, bursts), long_run(noise * (bursts > 1), bursts)
    assert everywhere.points > 200
    assert 30 < seldom.points < 70
    assert seldom.cosines < everywhere.cosines / 2
