"""The generator's check of itself: was it late, was it busy, do its numbers add up?

A trial is generator-limited only where the generator's lateness could change its answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from pgpaces.analysis import goal
from pgpaces.analysis.accumulator import Accumulator, SecondSums, by_functions, own_scripts
from pgpaces.analysis.arrays import Numbers, np
from pgpaces.analysis.stats import INDEPENDENT, Clusters, share
from pgpaces.analysis.time_distribution import distribution_of
from pgpaces.core.findings import Finding, finding, needed
from pgpaces.core.times import Times, counts_at_most, merge, values_at_ranks
from pgpaces.spec.result import Counts, Estimate, Trial

_DISPATCH_FLOOR_NS = 1_000_000
_DISPATCH_CLOSED_NS = 20_000_000
_CPU_LIMIT = 0.9
_LITTLE = 0.02
# It may be late twice in a transaction: when it sends, and when it reads the end.
_TIMES_LATE = 2
_QUANTILES = (0.9, 0.99, 0.999, 1.0)
# Clients were the bottleneck where more than the first share of transactions found none idle. The
# generator's lateness contributed where it took more than the second share of the clients' time.
_QUEUED, _DELAYED = 0.1, 0.05
# A lag is of a generator that stood still from this many seconds on, and this part of the limit.
STILL_S, _STILL_OF_LIMIT = 0.3, 0.5
# Standing still explains what was due in up to this many times its length: a backlog takes time.
BACKLOG_TIMES = 3.0


class Generator(Struct, frozen=True):
    """The load generator's check of itself in one trial.

    cpu: share of the busiest thread over the trial, 0 to 1. dispatch_p99: lag of transactions
    whose client was idle when they were due, ms. little: transactions due and not done, integrated
    over the trial, divided by the sum of all waiting times, from schedule and outcomes separately;
    1 is exact; None in a closed load. little_service: in flight x time over the sum of service
    times. late: it sent late (p99 above max(1 ms, 1% of the limit)), or stood still. due, missed:
    transactions of the trial's own workload that its answer counts. excused: the most missed ones
    that its lag can explain, also of those that were due in a warm-up which was cut; 0 if it was
    not late, None if unknown: it had no CPU left, or the load is closed. limited: it had no CPU
    left (over 0.9), or it was late and the verdict could differ without the excused transactions.
    still_s: the longest time in which it stood still, 0 if it did not.
    """

    cpu: float
    dispatch_p99: Estimate | None
    little: float | None
    little_service: float | None
    limited: bool
    excused: int | None = 0
    late: bool = False
    due: int = 0
    missed: int = 0
    still_s: float = 0.0

    @property
    def explained(self) -> int:
        """The most of `missed` that its lag can explain; all if that is unknown."""
        return self.missed if self.excused is None else min(self.excused, self.missed)

    @property
    def adds_up(self) -> bool:
        """Whether Little's law holds within 2% in both forms; true where it cannot be checked."""
        ratios = (self.little, self.little_service)
        return all(abs(ratio - 1) <= _LITTLE for ratio in ratios if ratio is not None)


def examine(
    trial: Trial,
    accumulator: Accumulator,
    every: SecondSums,
    *,
    own: SecondSums,
    counted: Counts,
    span_s: float,
    clusters: Clusters = INDEPENDENT,
) -> Generator:
    """The check of a trial of `span_s` seconds.

    every: all transactions, warm-up included; own: those of the trial's own workload. counted:
    those of them that the answer counts. clusters: of those that missed.
    """
    measured = own.between(0, max(0, own.end))
    cpu = max(accumulator.cpu_shares(span_s), default=0.0)
    times, lags = accumulator.dispatch()
    counts, sums_ns = lags.column("idle"), lags.column("dispatch_ns")
    p99 = distribution_of(times, times.count, counts, sums_ns=sums_ns)[0].p99
    service_ns, sums = float(every.column("service").sum()), every.counts
    # Exact only where every transaction that began is in the sum of service times: not where the
    # load went on for a moment after the look that decided.
    others = sums.failed or sums.unfinished or trial.setup.imported or trial.plan.auto
    complete = service_ns and not others
    late = p99 is not None and p99.value > _floor_ms(trial)
    longest_s = lags.between(0, lags.end).column("dispatch_ns_max") / 1e9
    if trial.plan.auto:
        longest_s = longest_s[: math.ceil(span_s)]
    stops = standstills(trial, longest_s)
    lost = measured.column("late") + measured.column("skipped")
    # What was due while it stood still, or soon after, may be excused.
    stalled = np.zeros(len(lost), dtype=bool)
    for first, end, length_s in stops:
        stalled[first : max(end, math.ceil(first + BACKLOG_TIMES * length_s))] = True
    still = int(lost[stalled].sum())
    excused: int | None = still
    if cpu > _CPU_LIMIT or (late and _closed(trial)):
        excused = None
    elif late:
        explained = _excused(trial, accumulator, measured.counts, lags=times, span_s=span_s)
        excused = min(int(lost.sum()), explained + still)
    limited, allowed = excused is None, goal.allowed(trial)
    # Without a latency limit there is no goal, and no verdict.
    if excused is not None and goal.limited(trial):
        parts = (0, min(excused, counted.missed))
        missed, spared = (share(counted.missed - part, counted.due, clusters) for part in parts)
        if missed is not None and spared is not None:
            # The verdict could differ without the excused transactions.
            limited = missed.value > allowed >= spared.value or missed.low > allowed >= spared.low
    return Generator(
        cpu=cpu,
        dispatch_p99=p99,
        little=accumulator.pending_ns / accumulator.waited_ns if accumulator.waited_ns else None,
        little_service=accumulator.in_flight_ns / service_ns if complete else None,
        limited=limited,
        excused=excused,
        late=late or bool(stops),
        due=counted.due,
        missed=counted.missed,
        still_s=max((length_s for *_, length_s in stops), default=0.0),
    )


def standstills(trial: Trial, longest_s: Numbers) -> Sequence[tuple[int, int, float]]:
    """Each time in which the generator stood still: its first second, its end, its length in s.

    longest_s: by second, the longest lag of a transaction whose client was idle when it was due,
    and that ended in this second. A generator that stood still sends what fell due meanwhile at
    once. This may be one transaction for each client, too few for a p99.
    """
    least_s = max(STILL_S, _STILL_OF_LIMIT * goal.shortest_ns(trial) / 1e9)
    return [
        (max(0, math.floor(second - lag_s)), second + 1, lag_s)
        for second, lag_s in enumerate(longest_s.tolist())
        if lag_s >= least_s
    ]


def _excused(
    trial: Trial, accumulator: Accumulator, counts: Counts, *, lags: Times, span_s: float
) -> int:
    """The most missed transactions that the generator's own lateness can explain.

    With l the quantile q of the dispatch lag, all but 1 - q of the due transactions were sent late
    by no more than l. Of these, a late one would have been on time without l only if its service
    took no longer than the limit + l (the end may have been read late), and its latency was no
    longer than the limit + 2 l. A skipped one found no client: each transaction occupied its client
    for at most 2 l longer, which is time for 2 l n / mean service others. So
    late within these + skipped up to that + (1 - q) due is a bound for each q; the least is used.

    Where clients were the bottleneck, lateness accumulates over transactions: see `_queued`.
    """
    limits = {n: ns for n, ns in zip(own_scripts(trial), goal.limits_ns(trial), strict=False) if ns}
    latencies, services = (
        {n: accumulator.times(kind, n, 0) for n in own_scripts(trial)}
        for kind in ("latency", "service")
    )

    def beyond(times: Mapping[int, Times], added_ns: float) -> int:
        return sum(times_above(times[n], ns + added_ns) for n, ns in limits.items())

    service = merge(services.values())
    late_anyhow = _queued(trial, counts.due, service, lags=lags, span_s=span_s)
    bounds = [counts.late + counts.skipped]
    for q in _QUANTILES:
        value_ns = values_at_ranks(lags, (math.ceil(q * lags.count),))[0]
        lag_ns = math.inf if value_ns is None else float(value_ns)
        out, room = beyond(latencies, _TIMES_LATE * lag_ns), counts.skipped
        if late_anyhow is not None:
            out = min(out, math.floor(late_anyhow * counts.due) - counts.skipped)
        elif service.mean_ns:
            room = math.ceil(_TIMES_LATE * lag_ns * service.count / service.mean_ns)
        out = max(out, beyond(services, lag_ns))
        rest = math.ceil((1 - q) * counts.due)
        bounds.append(max(0, counts.late - out) + min(counts.skipped, room) + rest)
    return min(bounds)


def _queued(trial: Trial, due: int, service: Times, *, lags: Times, span_s: float) -> float | None:
    """The share of due transactions that is late without the generator, where it delayed clients.

    None where it did not: clients were idle when most transactions fell due, or lost next to no
    time. Otherwise transactions queue for clients, and a delay of 2 l in one delays all after it.
    In a fluid queue with rho = due x mean service / (clients x time), the share 1 - limit /
    ((rho - 1) time) is late; for rho below 1 none need be.
    """
    lag_ns, service_ns = lags.mean_ns or 0.0, service.mean_ns or 0.0
    waited = service.count - lags.count
    if waited <= _QUEUED * service.count or _TIMES_LATE * lag_ns <= _DELAYED * service_ns:
        return None
    clients = max(1, trial.setup.own_clients)
    span_ns, limit_ns = span_s * 1e9, max(goal.limits_ns(trial)[: len(own_scripts(trial))])
    rho = due * max(0.0, service_ns - lag_ns) / (clients * span_ns) if span_ns else 0.0
    grown_ns = (rho - 1) * span_ns
    return max(0.0, 1 - limit_ns / grown_ns) if grown_ns > 0 else 0.0


def times_above(times: Times, bound_ns: float) -> int:
    """The number of times above a bound, compared to 3 significant digits."""
    if bound_ns >= times.max_ns:
        return 0
    return times.count - counts_at_most((times,), (int(bound_ns),))[0]


def _floor_ms(trial: Trial) -> float:
    """The greatest acceptable p99 of dispatch lags.

    It is infinite in a closed load, where users wait for the generator, except for functions: users
    that wait that long for a CPU do not behave as users.
    """
    if _closed(trial):
        return _DISPATCH_CLOSED_NS / 1e6 if by_functions(trial) else math.inf
    return max(_DISPATCH_FLOOR_NS, goal.shortest_ns(trial) // 100) / 1e6


def _closed(trial: Trial) -> bool:
    loads = [trial.plan.load, *(each.load for each in trial.setup.components)]
    return {load.model for load in loads} == {"closed"}


def generator_findings(trial: Trial, generator: Generator, *, measured: bool) -> Iterator[Finding]:
    """Findings about numbers that do not add up, and a generator that was late, or had no CPU left.

    measured: a transaction succeeded. A lateness that could change the answer makes the trial
    invalid; another one is a caution.
    """
    # Of a lost generator outcomes are missing, and the trial is invalid for that.
    if not (generator.adds_up or any(each.name == "generator-lost" for each in trial.findings)):
        shares = (s for s in (generator.little, generator.little_service) if s is not None)
        yield finding("counts-disagree", ratio=max(shares, key=lambda share: abs(share - 1)))
    if not measured:
        return
    # Of several generators, those that were late.
    about, lag = ", ".join(_several(trial, "late", "lag_ms")), generator.dispatch_p99
    if generator.cpu > _CPU_LIMIT:
        name, about = "generator-limited", "".join(_several(trial, "busy", "cpu_percent")[-1:])
    elif generator.late and lag and generator.still_s and generator.excused is not None:
        name = "generator-stood-still-decides" if generator.limited else "generator-stood-still"
    elif generator.late and lag:
        decides = "generator-late-users" if generator.excused is None else "generator-late-decides"
        name = decides if generator.limited else "generator-late"
    elif about:
        name = "one-generator-late"
    else:
        return
    due, explains = max(1, generator.due), generator.explained
    values = {
        "cpu_percent": 100 * generator.cpu,
        "still_s": generator.still_s,
        "transactions": lag and lag.n,
        "lag_ms": lag and lag.value,
        "floor_ms": _floor_ms(trial),
        "explains": explains,
        "missed": generator.missed,
        "least_percent": 100 * (generator.missed - explains) / due,
        "most_percent": 100 * generator.missed / due,
        "allowed_percent": 100 * goal.allowed(trial),
    }
    yield Finding(name, needed(name, values), about)


def _several(trial: Trial, state: str, key: str) -> list[str]:
    shares = [f for f in trial.findings if f.name == "generator-share" and f.values.get(state)]
    return [each.about for each in sorted(shares, key=lambda each: each.values.get(key) or 0.0)]
