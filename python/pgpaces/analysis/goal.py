"""The verdict on a share that missed, by its interval and the share that may miss. Pure.

"pass": even the upper end of the interval is within the allowed share. "fail": its lower end is
above it. Everything else is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from pgpaces.analysis.stats import ERROR, student_quantile
from pgpaces.core.findings import Finding
from pgpaces.spec.result import Estimate, Trial

Verdict = Literal["pass", "fail", "unknown"]
# A verdict as a headline.
WORDS: Mapping[Verdict, str] = {"pass": "PASS", "fail": "FAIL", "unknown": "UNKNOWN"}
# The default of the share that may miss.
ALLOWED = 0.05
# With which probability an advised length decides.
_POWER = 0.8


def allowed(trial: Trial) -> float:
    missed_max = trial.spec.get("missed")
    return missed_max if isinstance(missed_max, float) and 0 <= missed_max < 1 else ALLOWED


def limited(trial: Trial) -> bool:
    return bool(trial.plan.limit_ns or any(ns for _, ns in trial.plan.limits))


def limits_ns(trial: Trial) -> list[int]:
    """The latency limit of each script, ns; 0: none. Those of background workloads are last."""
    return [trial.limit_ns(script.name) for script in trial.workload.scripts]


def shortest_ns(trial: Trial) -> int:
    """The shortest of these limits, ns; 0 without one."""
    return min(filter(None, limits_ns(trial)), default=0)


def verdict(missed: Estimate | None, share: float) -> Verdict:
    """The verdict on a missed share; None: nothing was due, which is unknown."""
    if missed is None:
        return "unknown"
    if missed.high <= share:
        return "pass"
    return "fail" if missed.low > share else "unknown"


def out_of_order(verdicts: Sequence[Verdict]) -> bool:
    """Whether a load passes above one that fails; verdicts: by ascending loads."""
    return "fail" in verdicts and "pass" in verdicts[verdicts.index("fail") :]


def needed_s(
    missed: Estimate | None, seconds: float, share: float, *, error: float = ERROR
) -> float | None:
    """The seconds of measurement that would decide with a probability of 0.8 at this share.

    error: of the interval that did not decide; the one that decides has 95%.

    Wilson's interval ends at h where (h - p)^2 = z^2 h (1 - h) phi / n, which gives z^2 phi / n
    from the end that is beyond the threshold t. The n that is needed is that of a test with power
    0.8, with (t - p)^2 n = phi (z sqrt(t (1 - t)) + 0.84 sqrt(p (1 - p)))^2 (Fleiss, Statistical
    Methods for Rates and Proportions, 1981, 2.4). A tenth more than `seconds` at least. None if it
    is decided, or nothing is known; infinite if the share is on the threshold.
    """
    if missed is None or verdict(missed, share) != "unknown":
        return None
    p, end = missed.value, missed.high if missed.value < share else missed.low
    if not 0 < share < 1:
        return None
    if p == share:
        return math.inf
    if not 0 < end < 1:
        return None
    then = student_quantile(math.inf, 1 - ERROR / 2)
    ratio = then / student_quantile(math.inf, 1 - error / 2)
    now = ratio * abs(end - p) / math.sqrt(end * (1 - end))
    chance = student_quantile(math.inf, _POWER) / then * math.sqrt(p * (1 - p))
    wanted = math.sqrt(share * (1 - share)) + chance
    return seconds * max(1.1, (now * wanted / (share - p)) ** 2)


class Limit(Struct, frozen=True):
    """The resource that was the limit in trials that missed. key: of the cause, as of `why`."""

    key: str
    share: Estimate
    evidence: tuple[Finding, ...]
