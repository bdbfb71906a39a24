"""Queries a day, the cost of machines a month, what it buys, and the bytes written a day. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from statistics import fmean

from msgspec import Struct

from pgpaces.analysis import across
from pgpaces.analysis.accumulator import own_scripts
from pgpaces.analysis.cells import Row, board
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.server_counters import SERVER, WRITTEN, written_by_server
from pgpaces.analysis.summary import Summary
from pgpaces.core.messages import message
from pgpaces.core.series import Series
from pgpaces.spec.costs import HOURS_A_MONTH, Costs, MonthlyCost, machines_of
from pgpaces.spec.design import HERE
from pgpaces.spec.result import Counts, Estimate, Trial, plain

_MINUTE_S, _DAY_S = 60.0, 86_400.0


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
        return self.per_s.times(_MINUTE_S)

    @property
    def per_day(self) -> Estimate:
        return self.per_s.times(_DAY_S)


def volume_of(trial: Trial, summary: Summary) -> Volume | None:
    """The queries of a trial; None where a script does not state its number of queries.

    None, too, where nothing was on time: such a number is useless for planning.

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


class Written(Struct, frozen=True):
    """The bytes written a day, by the server's counters, at the rate of its trials.

    checkpoints: how many ended meanwhile; without one, most writes to data files are missing.
    """

    bytes_a_day: Estimate
    checkpoints: float


class Economy(MonthlyCost, frozen=True):
    """The cost of machines and what it buys; None: unknown.

    month, year: what they cost in that time, in `currency`. users: the number served. on_time:
    transactions a second. per_unit: transactions on time for one unit of the currency.
    users_per_unit: users for one unit of the currency a month.
    """

    users: int | None = None
    on_time: Estimate | None = None
    per_unit: Estimate | None = None
    users_per_unit: float | None = None
    written: Written | None = None


def on_time(rate: Estimate | None, late: Estimate | None, counts: Counts) -> Estimate | None:
    """Transactions on time a second: rate x (1 - late / succeeded).

    rate: of transactions that succeeded, a second. late: share of those due. The interval goes from
    the lowest rate with the largest share to the highest rate with the smallest one.
    """
    succeeded = counts.on_time + counts.late
    if rate is None or late is None or not succeeded:
        return None
    if not counts.late:
        return rate
    scale = counts.due / succeeded

    def times_on_time(rate: float, late: float) -> float:
        return rate * max(0.0, 1 - late * scale)

    value = times_on_time(rate.value, late.value)
    if not (rate.estimable and late.estimable):
        return Estimate.alone(value, rate.n)
    low, high = times_on_time(rate.low, late.high), times_on_time(rate.high, late.low)
    return Estimate(value, low, high, rate.n)


def economy(
    machines: Sequence[Costs],
    served: Estimate | None = None,
    users: int | None = None,
    *,
    written: Written | None = None,
) -> Economy | None:
    """The cost of these machines, and what it buys at a load. None without machines.

    machines: all that the load needs. served: transactions on time a second. users: the number
    served.

    per unit = served x 3600 x 730 / month; users per unit = users / month.
    """
    if not machines:
        return None
    cost = MonthlyCost.of(machines)
    return Economy(
        cost.currency,
        cost.month,
        users=users,
        on_time=served,
        per_unit=served.times(HOURS_A_MONTH * 3600 / cost.month) if served and cost.month else None,
        users_per_unit=users / cost.month if users is not None and cost.month else None,
        written=written,
    )


def users_of(trial: Trial, *, clients: bool = False) -> int | None:
    """The number of users of a trial: those of a paced load; clients: each client is one as well.

    Without clients of background workloads.
    """
    if not clients and trial.plan.load.model != "paced":
        return None
    return trial.setup.own_clients


Means = dict[tuple[str, str], float]


def means_of_samples(series: Sequence[Series], start: int, end: float) -> Means:
    """The mean of each sensor over the seconds from start to end, by source and name.

    For events, which have no unit, it is their number a second.
    """
    every = {
        (each.source, each.name): each.between(start, end)
        for each in (*series, *written_by_server(series))
    }
    return {name: fmean(values) for name, values in every.items() if values}


def means_of_digest(digest: Digest) -> Means:
    """The same of a digest, which has means over some seconds each."""
    counts = [bucket.start_s >= digest.summary.cut_s for bucket in digest.series]
    every = {
        (track.source, track.name): [v for v in compress(track.values, counts) if v is not None]
        for track in digest.tracks
    }
    return {name: fmean(values) for name, values in every.items() if values}


def written(trials: Sequence[tuple[Means, float]]) -> Written | None:
    """The bytes written in trials of a cell, each with the means of its sensors and its seconds.

    None unless the server's counters were read in all trials.
    """
    rates = [means[SERVER, WRITTEN] for means, _ in trials if (SERVER, WRITTEN) in means]
    a_day = [Estimate.alone(rate * _DAY_S, 1) for rate in rates]
    mean = across.together([a_day], bounded=False) if len(rates) == len(trials) else None
    if mean is None:
        return None
    # A counter that never moved has no samples.
    ended = (means.get(("checkpoints", "checkpoints"), 0.0) * length for means, length in trials)
    return Written(mean, sum(ended))


def of_row(row: Row, *, clients: bool) -> Economy | None:
    """The economy of a cell; None where its trials' machines differ in cost.

    clients: each of its clients is a user.
    """
    machines = {machines_of(digest.trial.host.costs) for digest in row.trials}
    if len(machines) != 1:
        return None
    users = {users_of(digest.trial, clients=clients) for digest in row.trials}
    trials = [(means_of_digest(d), d.summary.seconds) for d in row.trials]
    return economy(
        machines.pop(),
        on_time(row.throughput, row.late, row.counts),
        users.pop() if len(users) == 1 else None,
        written=written(trials),
    )


class Priced(Struct, frozen=True):
    """A machine, and its economy at one of its cells: the largest that met the goal, if one did.

    Else the busiest. name: of the targets or of the machine. meets: the cell meets its limit, or
    has none.
    """

    name: str
    row: Row
    economy: Economy
    passes: bool


def priced(
    economies: Sequence[tuple[Row, Economy]], passes: Callable[[Row], bool]
) -> tuple[Priced, ...]:
    """Each machine with its largest cell: most users, else most transactions on time."""
    machines: dict[tuple[str, tuple[Costs, ...]], list[Priced]] = {}
    for row, economy_ in economies:
        key = (_name(row), machines_of(row.trials[0].trial.host.costs))
        machines.setdefault(key, []).append(Priced(key[0], row, economy_, passes(row)))

    def size(one: Priced) -> tuple[int, float]:
        served = one.economy.on_time
        return one.economy.users or 0, served.value if served else 0.0

    best = []
    for cells in machines.values():
        able = [one for one in cells if one.passes]
        best.append(max(able, key=size) if able else max(cells, key=lambda one: size(one)[1]))
    return tuple(best)


def _name(row: Row) -> str:
    """Of its machines: their targets, else the address of the server, else the host name."""
    targets = sorted({target for digest in row.trials if (target := board(digest)) != HERE})
    if targets:
        *others, last = targets
        return message("each-machine", others=others, last=last) if others else last
    trial = row.trials[0].trial
    there = trial.server.target.get("host", "")
    elsewhere = there and not there.startswith(("/", "@"))
    return there if elsewhere else trial.host.hostname or ""
