"""The verdict on a share that missed, by its interval and the share that may miss. Pure.

"pass": even the upper end of the interval is within the allowed share. "fail": its lower end is
above it. Everything else is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from pgpaces.core.findings import Finding
from pgpaces.spec.facts import ComponentFacts, PlanFacts
from pgpaces.spec.result import Estimate, Trial

Verdict = Literal["pass", "fail", "unknown"]
# A verdict as a headline.
WORDS: Mapping[Verdict, str] = {"pass": "PASS", "fail": "FAIL", "unknown": "UNKNOWN"}
# The default of the share that may miss.
ALLOWED = 0.05


def allowed(trial: Trial) -> float:
    missed_max = trial.plan.missed_max
    return missed_max if isinstance(missed_max, float) and 0 <= missed_max < 1 else ALLOWED


def limited(trial: Trial) -> bool:
    return bool(trial.plan.limit_ns or any(ns for _, ns in trial.plan.limits))


def limits_ns(trial: Trial) -> list[int]:
    """The latency limit of each script, ns; 0: none. Those of background workloads are last."""
    background = [component for component in trial.plan.components if component.of]
    own = len(trial.workload.scripts) - sum(len(each.scripts) for each in background)

    def limit_ns(load: PlanFacts | ComponentFacts, name: str) -> int:
        return dict(load.limits).get(name, load.limit_ns) or 0

    return [
        *(limit_ns(trial.plan, script.name) for script in trial.workload.scripts[:own]),
        *(limit_ns(each, name) for each in background for name in each.scripts),
    ]


def verdict(missed: Estimate | None, share: float) -> Verdict:
    """The verdict on a missed share; None: nothing was due, which is unknown."""
    if missed is None:
        return "unknown"
    if missed.high <= share:
        return "pass"
    return "fail" if missed.low > share else "unknown"


def needed_s(missed: Estimate | None, seconds: float, share: float) -> float | None:
    """The approximate seconds of measurement that would decide; `seconds` were not enough.

    Wilson's interval, inverted: it ends at h where (h - p)^2 = z^2 h (1 - h) phi / n, which gives
    phi / n from the present end, and the n with which it ends at the threshold, if the share stays
    as measured; a tenth more than `seconds` at least. None where it is decided, or nothing is
    known; infinite where the share is on the threshold.
    """
    if missed is None or verdict(missed, share) != "unknown":
        return None
    p, high = missed.value, missed.high
    if not p < high < 1 or not 0 < share < 1:
        return None
    if p == share:
        return math.inf
    now, then = (high - p) ** 2 / (high * (1 - high)), (share - p) ** 2
    return seconds * max(1.1, now * share * (1 - share) / then)


class Limit(Struct, frozen=True):
    """The resource that was the limit in trials that missed. key: of the cause, as of `why`."""

    key: str
    share: Estimate
    evidence: tuple[Finding, ...]
