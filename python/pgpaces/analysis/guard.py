"""Whether a load harms the other users of a server: samples in, verdict out. Pure.

A refused login counts at once, whether or not there are other sessions. Everything else counts only
for sessions that were there before the load, against what was measured then:

- *age*: how long statements of other sessions have been executing. It grows with locks, I/O and
  everything else that a statement waits for. Samples seldom catch short statements.
- *probe*: the duration of the query that reads these ages. It grows with all that slows short
  statements down: CPU, scheduling, the network.
- *lag*: how far replicas are behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from pgpaces.core.findings import Finding, finding

BASELINE = 20  # samples before the load, within three seconds
STREAK = 3  # samples in a row, one a second, that must be too slow: one slow sample is normal
SILENCE_S = 5.0
FACTOR, MORE_MS = 2.0, 5.0
LAG_MORE_S = 30.0


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
    for measure in ("age_ms", "probe_ms"):
        now, earlier = min(getattr(s, measure) for s in last), getattr(before, measure)
        if now > FACTOR * earlier + MORE_MS:
            return finding(
                "guard-statements-slow" if measure == "age_ms" else "guard-queries-slow",
                now_ms=now,
                before_ms=earlier,
            )
    if (more_s := min(sample.lag_s for sample in last) - before.lag_s) > LAG_MORE_S:
        return finding("guard-replica-behind", more_s=more_s)
    return None
