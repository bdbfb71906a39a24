"""The number of queries of a trial: per second, minute, and day. Pure."""

from __future__ import annotations

from msgspec import Struct

from pgpaces.analysis.accumulator import own_scripts
from pgpaces.analysis.summary import Summary
from pgpaces.spec.result import Estimate, Trial, plain


class Volume(Struct, frozen=True):
    """Queries of the successful transactions that the trial's rate counts.

    seconds: the time in which they are counted. queries: their number. per_s: per second, with the
    interval of that rate.
    """

    seconds: float
    transactions: int
    queries: int
    per_s: Estimate

    @property
    def per_minute(self) -> Estimate:
        return self.per_s.times(60)

    @property
    def per_day(self) -> Estimate:
        return self.per_s.times(86_400)


def volume_of(trial: Trial, summary: Summary) -> Volume | None:
    """The queries of a trial; None if a script does not declare its number of queries.

    None, too, if nothing was on time: such a number is useless for planning.

    per_s = rate x queries / transactions due in the measured part; the mean number of queries has
    no interval. So `queries` are those of transactions that succeeded in that time, whenever they
    were due, as in the rate.
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
    # Transactions that end after the last whole second are in the counts, but not in the rate.
    each, counted, per_s = queries / done, summary.throughput.n, summary.throughput.value
    seconds = round(counted / per_s, 9) if per_s else summary.seconds
    return Volume(seconds, counted, round(counted * each), summary.throughput.times(each))


def volume_json(volume: Volume) -> dict[str, object]:
    rates = {name: plain(getattr(volume, name)) for name in ("per_s", "per_minute", "per_day")}
    return {"seconds": volume.seconds, "queries": volume.queries, **rates}
