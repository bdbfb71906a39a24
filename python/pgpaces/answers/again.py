"""The command that runs an experiment again with the options that would decide."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgpaces.analysis.compare import Verdict

# Trials are not made longer than this; more of them decide as well.
_TRIAL_MAX_S = 300
_TRIALS_MIN = 2
# More pairs than these are no next step.
_PAIRS_MAX = 200


def longer(experiment: str, needed_s: float) -> str:
    """A sweep like an experiment (its id), with trials that are together long enough to decide."""
    trials = max(_TRIALS_MIN, math.ceil(needed_s / _TRIAL_MAX_S))
    each = math.ceil(max(needed_s / trials, min(needed_s, _TRIAL_MAX_S)) / 10) * 10
    return f"pgpaces sweep --like {experiment[-8:]} -T {each}s --trials {trials}"


def length(seconds: float) -> tuple[int, str]:
    """Seconds as a round duration, rounded up: 90 s, 20 min."""
    if (tens := math.ceil(seconds / 10) * 10) <= 120:
        return tens, "s"
    minutes, hours = math.ceil(seconds / 60), math.ceil(seconds / 3600)
    return (minutes, "min") if minutes <= 120 else (hours, "h")


def decisive(
    experiment: str, verdict: Verdict, names: tuple[str, str] | None = None
) -> Iterator[str]:
    """An experiment (its id) once more, with as many pairs as give a verdict, if it has none.

    names: A and B, if the experiment consists of pairs.
    """
    from pgpaces.analysis.compare import PAIRS_MIN

    if not experiment or verdict.why != "wide" or not 0 < (verdict.needed or 0) <= _PAIRS_MAX:
        return
    count = max(PAIRS_MIN, verdict.needed or 0, verdict.pairs + 1)
    if names is not None:
        yield f"pgpaces compare {shlex.join(names)} --like {experiment[-8:]} --pairs {count}"
    elif verdict.basis in ("blocks", "trials"):
        yield f"pgpaces sweep --like {experiment[-8:]} --trials {count}"
