"""A share that missed against the share that may: what an interval allows to say. Pure.

"Meets" is claimed where even the upper end of the interval lies within what may miss, "misses"
where its lower end lies beyond; everything else is not known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from pgpaces.result import Estimate, Trial

Verdict = Literal["meets", "misses", "unknown"]
# A verdict where it is the first thing that is seen.
WORDS: Mapping[Verdict, str] = {"meets": "PASS", "misses": "FAIL", "unknown": "UNKNOWN"}
# The share that may miss where no other was asked for.
ALLOWED = 0.05


def allowed(trial: Trial) -> float:
    """The share of what is due in a trial that may be missed, 0 to 1."""
    asked = trial.plan.missed_max
    return asked if isinstance(asked, float) and 0 < asked < 1 else ALLOWED


def limited(trial: Trial) -> bool:
    """Whether a script of a trial has a latency limit."""
    return bool(trial.plan.limit_ns or any(ns for _, ns in trial.plan.limits))


def verdict(missed: Estimate | None, share: float) -> Verdict:
    """Whether what missed is within a share; nothing is known where nothing was due."""
    if missed is None:
        return "unknown"
    if missed.high <= share:
        return "meets"
    return "misses" if missed.low > share else "unknown"


def needed_s(missed: Estimate | None, seconds: float, share: float) -> float | None:
    """The seconds of measurement that would decide, about; `seconds` were not enough.

    Wilson's interval, turned round: it ends at h where (h - p)^2 = z^2 h (1 - h) phi / n, which
    gives phi / n from the end that there is, and the n at which it ends at the threshold. So it
    is right if the share stays what it was seen to be. None where it is decided, or nothing is
    known; infinite where the share lies on the threshold.
    """
    if missed is None or verdict(missed, share) != "unknown":
        return None
    p, high = missed.value, missed.high
    if not p < high < 1 or not 0 < share < 1:
        return None
    if p == share:
        return math.inf
    now, then = (high - p) ** 2 / (high * (1 - high)), (share - p) ** 2
    return seconds * now * share * (1 - share) / then


class Limit(Struct, frozen=True):
    """The resource that was the limit where trials missed, and what says so."""

    key: str
    name: str
    share: Estimate
    evidence: tuple[str, ...]
