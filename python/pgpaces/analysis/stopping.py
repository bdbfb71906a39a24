"""When a run with a latency limit may stop: as soon as its verdict is certain. Pure.

A run looks at its missed share up to eight times. If each look had an interval of 95%, one of them
would exclude the true share far too often. So each look has an interval of a higher level, and all
of them together contain the true share with 95% (repeated confidence intervals: Jennison and
Turnbull, Journal of the Royal Statistical Society B 51, 1989).
"""

from __future__ import annotations

from bisect import bisect_right

from msgspec import Struct

from pgpaces.analysis import goal, stats
from pgpaces.analysis.goal import Verdict
from pgpaces.analysis.stats import ERROR, Clusters
from pgpaces.spec.result import Estimate

# When a run looks, in seconds after its warm-up. ERRORS: of the intervals whose lower and upper end
# are those of each look. At second t, FAIL has spent 2.5% (t / 300)^2 and PASS 0.75% (t / 300)^2
# (the power family: Kim and DeMets, Biometrika 74, 1987). A look spends what is new on a walk that
# no look has stopped yet (Lan and DeMets, Biometrika 70, 1983); `python bench/stopping.py` computes
# it. PASS may spend less because a quiet stretch of a busy queue shows neither what it will miss
# nor that it comes in clusters (docs/internals/coverage.md).
LOOKS_S = (30, 45, 60, 90, 120, 180, 240, 300)
ERRORS = (
    (0.00050, 0.00015),
    (0.00078, 0.00023),
    (0.00123, 0.00035),
    (0.00311, 0.00090),
    (0.00519, 0.00147),
    (0.01313, 0.00375),
    (0.02246, 0.00628),
    (0.03440, 0.00943),
)
# The longest run that pgpaces advises.
REASONABLE_S = 3600.0


class Missed(Struct, frozen=True):
    """What a run has missed in the part that is evaluated, `seconds` long."""

    missed: int
    due: int
    clusters: Clusters
    seconds: float

    def longer(self, times: float) -> Missed:
        """A part so many times as long, if the share stays as measured."""
        missed, due = round(self.missed * times), round(self.due * times)
        return Missed(missed, due, self.clusters, self.seconds * times)


class Decision(Struct, frozen=True):
    """The verdict at a look and the interval that decided. level: of the interval."""

    verdict: Verdict
    missed: Estimate | None
    level: float


def errors(ran_s: float) -> tuple[float, float]:
    """The errors of the lower and the upper end of a run that ended so long after its warm-up.

    Those of the last look until then. A run that ends before its first look has that one's.
    """
    return ERRORS[max(0, bisect_right(LOOKS_S, ran_s) - 1)]


def level(ran_s: float) -> float:
    """The level of the interval of the same run."""
    return 1 - sum(errors(ran_s)) / 2


def decide(found: Missed, ran_s: float, allowed: float) -> Decision:
    """The verdict of a run after `ran_s` seconds. allowed: the share that may miss."""
    interval = stats.share(found.missed, found.due, found.clusters, errors=errors(ran_s))
    return Decision(goal.verdict(interval, allowed), interval, level(ran_s))


def certain_in(found: Missed, ran_s: float, allowed: float) -> float | None:
    """The seconds until the look that decides if the share stays as measured; None without one."""
    for look in LOOKS_S[bisect_right(LOOKS_S, ran_s) :] if found.due else ():
        then = found.longer(1 + (look - ran_s) / found.seconds)
        if decide(then, look, allowed).verdict != "unknown":
            return look - ran_s
    return None


def would_decide(
    missed: Estimate | None, seconds: float, allowed: float, *, ran_s: float | None = None
) -> float | None:
    """The length of a run that decides with a probability of 0.8 at this share; else None.

    seconds: length of the part with this interval. ran_s: after which it stopped; None: a fixed
    length.
    """
    below, above = (ERROR, ERROR) if ran_s is None else errors(ran_s)
    error = above if missed is not None and missed.value < allowed else below
    needed = goal.needed_s(missed, seconds, allowed, error=error)
    return needed if needed is not None and needed <= REASONABLE_S else None
