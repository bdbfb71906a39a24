"""The number of queries of a trial: per second, minute, and day. Pure."""

from __future__ import annotations

from msgspec import Struct

from pgpaces.analysis.accumulator import own_scripts
from pgpaces.analysis.summary import Summary
from pgpaces.spec.result import Estimate, Trial


class Volume(Struct, frozen=True):
    """Queries of the successful transactions that the trial's rate counts.

    seconds: the time in which they are counted. queries: their number. per_s: per second, with the
    interval of that rate; also per minute and per day.
    """

    seconds: float
    queries: int
    per_s: Estimate
    per_minute: Estimate
    per_day: Estimate


def volume_of(trial: Trial, summary: Summary) -> Volume | None:
    """The queries of a trial; None if a script does not declare its number of queries.

    None, too, if nothing was on time: such a number is useless for planning.

    per_s = rate x queries / transactions due in the measured part; the mean number of queries has
    no interval. So `queries` are those of transactions that succeeded in that time, whenever they
    were due, as in the rate.
    """
    own = own_scripts(trial)
    sends = [trial.workload.scripts[number].queries for number in own]
    counts = [summary.scripts[number].counts for number in own]
    done = [each.on_time + each.late for each in counts]
    queries = sum(count * each for count, each in zip(done, sends, strict=True) if each is not None)
    if None in sends or not queries or not summary.counts.on_time:
        return None
    # Transactions that end after the last whole second are in the counts, but not in the rate.
    each, counted, per_s = queries / sum(done), summary.throughput.n, summary.throughput.value
    seconds = round(counted / per_s, 9) if per_s else summary.seconds
    rate = summary.throughput.times(each)
    return Volume(seconds, round(counted * each), rate, rate.times(60), rate.times(86_400))
