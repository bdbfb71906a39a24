"""How many queries a load was, by the minute and by the day: what people ask who plan for users.

Of one trial, from its counts and from how many queries each script sends. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pgpaces.answers.accumulator import own_scripts
from pgpaces.result import Estimate, Trial

if TYPE_CHECKING:
    from pgpaces.answers.summary import Summary

_MINUTE_S, _DAY_S = 60.0, 86_400.0


class Volume(Struct, frozen=True):
    """Queries of the transactions that succeeded, those that the trial's rate counts.

    seconds: that it took. queries: in all. per_s: a second, with the interval of that rate.
    """

    seconds: float
    transactions: int
    queries: int
    per_s: Estimate

    @property
    def per_minute(self) -> Estimate:
        """So many a minute."""
        return _times(self.per_s, _MINUTE_S)

    @property
    def per_day(self) -> Estimate:
        """So many a day, if it went on like this."""
        return _times(self.per_s, _DAY_S)


def of(trial: Trial, summary: Summary) -> Volume | None:
    """The queries of a trial; None where a script does not say how many it sends.

    None too where nothing was on time: that is no number to plan with.

    per_s = rate x queries / transactions of what was due in the measured part: the mean number of
    queries is taken as known. So `queries` are those of what succeeded in that time, whenever it
    was due, as the rate has it.
    """
    every = trial.workload.scripts
    sends = {every[number].name: every[number].queries for number in own_scripts(trial)}
    queries = done = 0
    for script in (one for one in summary.scripts if one.name in sends):
        count = script.counts.on_time + script.counts.late
        if (own := sends[script.name]) is None:
            return None
        queries, done = queries + count * own, done + count
    if not queries or not summary.counts.on_time:
        return None
    # What is served behind the end is in the counts, and in no rate.
    each, counted = queries / done, summary.rate.n
    return Volume(summary.seconds, counted, round(counted * each), _times(summary.rate, each))


def as_json(volume: Volume) -> dict[str, object]:
    """As plain values."""
    from pgpaces.result import plain

    names = ("per_s", "per_minute", "per_day")
    found = {name: plain(getattr(volume, name)) for name in names}
    return {"seconds": volume.seconds, "queries": volume.queries, **found}


def _times(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(
        estimate.value * factor, estimate.low * factor, estimate.high * factor, estimate.n
    )
