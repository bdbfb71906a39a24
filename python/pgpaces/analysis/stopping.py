"""When a run may stop, because its verdict is certain, and when it must. Pure.

A run with a latency limit looks at its missed share up to eight times. If each look had an interval
of 95%, one of them would exclude the true share far too often. So each look has an interval of a
higher level, and all of them together contain the true share with 95% (repeated confidence
intervals: Jennison and Turnbull, Journal of the Royal Statistical Society B 51, 1989).

A load must stop if it harms the other users of its server. A refused login counts at once, whether
or not there are other sessions. Everything else counts only for sessions that were there before the
load, against what was measured then:

- *age*: how long statements of other sessions have been executing. It grows with locks, I/O and
  everything else that a statement waits for. Samples seldom catch short statements.
- *probe*: the duration of the query that reads these ages. It grows with all that slows short
  statements down: CPU, scheduling, the network.
- *lag*: how far replicas are behind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import goal, stats
from pgpaces.analysis.stats import ERROR, Clusters
from pgpaces.core.findings import Finding, finding
from pgpaces.spec.result import Estimate

# The longest run that pgpaces advises.
REASONABLE_S = 3600.0
BASELINE = 20  # samples before the load, within three seconds
STREAK = 3  # samples in a row, one a second, that must be too slow: one slow sample is normal
SILENCE_S = 5.0
FACTOR, MORE_MS = 2.0, 5.0
LAG_MORE_S = 30.0
_SLOWER = {"age_ms": "guard-statements-slow", "probe_ms": "guard-queries-slow"}


class LookSchedule(Struct, frozen=True):
    """The looks at results that grow, and the errors of the intervals at each look.

    at: seconds after the warm-up, or valid trials. errors: the lower and the upper end of a look's
    interval are those of intervals with these errors. When a part t of the last look is reached,
    FAIL has spent 2.5% t^2 and PASS 0.75% t^2 (the power family: Kim and DeMets, Biometrika 74,
    1987). A look spends what is new on a walk that no look has stopped yet (Lan and DeMets,
    Biometrika 70, 1983); `python bench/stopping.py` computes it. PASS may spend less because a
    quiet stretch of a busy queue shows neither what it will miss nor that it comes in clusters
    (docs/internals/coverage.md).
    """

    at: tuple[int, ...]
    errors: tuple[tuple[float, float], ...]

    def last(self, reached: float) -> tuple[int, tuple[float, float]]:
        """The last look that is reached, else the first one, with its errors."""
        look = max(0, bisect_right(self.at, reached) - 1)
        return self.at[look], self.errors[look]


LOOKS_OF_RUN = LookSchedule(
    (30, 45, 60, 90, 120, 180, 240, 300),
    (
        (0.00050, 0.00015),
        (0.00078, 0.00023),
        (0.00123, 0.00035),
        (0.00311, 0.00090),
        (0.00519, 0.00147),
        (0.01313, 0.00375),
        (0.02246, 0.00628),
        (0.03440, 0.00943),
    ),
)
LOOKS_OF_CELL = LookSchedule(
    (1, 4, 6, 8, 12, 16),
    (
        (0.00020, 0.00006),
        (0.00295, 0.00088),
        (0.00511, 0.00147),
        (0.00838, 0.00237),
        (0.02102, 0.00597),
        (0.03624, 0.01006),
    ),
)


class Missed(Struct, frozen=True):
    """What a run has missed in the part that is evaluated, `seconds` long."""

    missed: int
    due: int
    clusters: Clusters
    seconds: float

    def share(self, ran_s: float) -> Estimate | None:
        """The share, with the interval of a run that ends so long after its warm-up."""
        return stats.share(self.missed, self.due, self.clusters, errors=LOOKS_OF_RUN.last(ran_s)[1])


def level(ran_s: float) -> float:
    """The level of the interval of the same run."""
    return 1 - sum(LOOKS_OF_RUN.last(ran_s)[1]) / 2


def certain_in(found: Missed, ran_s: float, allowed: float) -> float | None:
    """The seconds until the look that decides if the share stays as measured; None without one."""
    for look in LOOKS_OF_RUN.at[bisect_right(LOOKS_OF_RUN.at, ran_s) :] if found.due else ():
        times = 1 + (look - ran_s) / found.seconds
        then = replace(found, missed=round(found.missed * times), due=round(found.due * times))
        if goal.verdict(then.share(look), allowed) != "unknown":
            return look - ran_s
    return None


def would_decide(
    missed: Estimate | None, seconds: float, allowed: float, *, ran_s: float | None = None
) -> float | None:
    """The length of a run that decides with a probability of 0.8 at this share; else None.

    seconds: length of the part with this interval. ran_s: after which it stopped; None: a fixed
    length.
    """
    below, above = (ERROR, ERROR) if ran_s is None else LOOKS_OF_RUN.last(ran_s)[1]
    error = above if missed is not None and missed.value < allowed else below
    needed = goal.needed_s(missed, seconds, allowed, error=error)
    return needed if needed is not None and needed <= REASONABLE_S else None


class GuardSample(Struct, frozen=True):
    """What the guard saw at one moment.

    others: sessions of others. age_ms: the median age of statements that these execute, 0 if they
    execute none. lag_s: of the replica that is furthest behind. refused: the server's words, if it
    refused a login for want of connections.
    """

    probe_ms: float = 0.0
    age_ms: float = 0.0
    others: int = 0
    lag_s: float = 0.0
    refused: str = ""

    @classmethod
    def before(cls, samples: Sequence[GuardSample]) -> GuardSample:
        """What at least one sample says of the server without the load.

        The median duration of the query, and the greatest of everything else: most looks find no
        statement of an application that has work a third of the time, and later looks find some.
        """
        most = {name: max(getattr(s, name) for s in samples) for name in ("age_ms", "lag_s")}
        probe_ms = median(sample.probe_ms for sample in samples)
        return cls(probe_ms, others=max(s.others for s in samples), **most)


def reason_to_stop(
    before: GuardSample, samples: Sequence[GuardSample], *, silent_s: float = 0.0
) -> Finding | None:
    """The reason why the load must stop; None as long as it may continue.

    samples: under load, in order. silent_s: time since a query that the server has not answered.
    """
    if refused := next((sample.refused for sample in samples if sample.refused), ""):
        return finding("guard-login-refused", error=refused)
    if before.others and silent_s >= SILENCE_S:
        return finding("guard-unanswered", silent_s=silent_s)
    last = samples[-STREAK:]
    if not before.others or len(last) < STREAK:
        return None
    for measure, name in _SLOWER.items():
        now, earlier = min(getattr(s, measure) for s in last), getattr(before, measure)
        if now > FACTOR * earlier + MORE_MS:
            return finding(name, now_ms=now, before_ms=earlier)
    if (more_s := min(sample.lag_s for sample in last) - before.lag_s) > LAG_MORE_S:
        return finding("guard-replica-behind", more_s=more_s)
    return None
