"""The rate that was planned for each second of a trial whose rate changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pgpaces import shape
from pgpaces.answers import validity
from pgpaces.answers.accumulator import own_scripts
from pgpaces.result import Trial

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

# How many points of a shape are averaged for each second.
_POINTS_PER_SECOND = 16


def planned_rates(trial: Trial, scripts: Sequence[int], start: int, count: int) -> Numbers | None:
    """The planned multiplier of these scripts' rate in each of `count` seconds from `start` on.

    None if the rate was planned to stay the same, as it is for every background workload.
    """
    length_ns = trial.plan.duration_ns or trial.measured_ns
    if not validity.changes(trial) or not length_ns or not count:
        return None
    if not scripts or scripts[0] not in own_scripts(trial):
        return None
    import numpy as np

    begins, firsts, lasts = np.array(shape.parse(trial.plan.shape).segments(length_ns)).T
    lengths = np.diff([*begins, length_ns])
    at_ns = (start + (np.arange(count * _POINTS_PER_SECOND) + 0.5) / _POINTS_PER_SECOND) * 1e9
    segment = np.maximum(0, np.searchsorted(begins, at_ns, side="right") - 1)
    passed = np.minimum(1, (at_ns - begins[segment]) / lengths[segment])
    rates = firsts[segment] + (lasts - firsts)[segment] * passed
    by_second: Numbers = rates.reshape(count, _POINTS_PER_SECOND).mean(axis=1)
    return by_second
