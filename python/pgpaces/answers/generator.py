"""The generator's check of itself: was it late, was it busy, do its numbers add up?

What its lateness means is weighed: a trial is generator-limited only where that could change what
the trial says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from pgpaces.answers import goal
from pgpaces.answers.accumulator import by_functions, own_scripts
from pgpaces.answers.spread import QUANTILES, spread_of
from pgpaces.answers.stats import proportion, quantile_ranks
from pgpaces.facts import ComponentFacts, PlanFacts
from pgpaces.result import Counts, Estimate, Finding, Severity, Trial
from pgpaces.times import Times, counts_at_most, merge, values_at_ranks

if TYPE_CHECKING:
    from pgpaces.answers.accumulator import Accumulator, ScriptSeconds

_DISPATCH_FLOOR_NS = 1_000_000
_DISPATCH_CLOSED_NS = 20_000_000
_CPU_LIMIT = 0.9
_LITTLE = 0.02
# So often in a transaction it may be late: when it sends, and when it hears of the end.
_TIMES_LATE = 2
_QUANTILES = (0.9, 0.99, 0.999, 1.0)
# Clients were the bottleneck where more than this share found none idle, and its lateness a part
# of that where it took more than that share of their time.
_QUEUED, _HELD = 0.1, 0.05
_CAUTION = "latencies may be overstated, and are not understated"


class Generator(Struct, frozen=True):
    """What the generator says of itself.

    cpu: share of the busiest thread over the trial, 0 to 1. dispatch_p99: lag of transactions
    whose client was idle when they were due, ms. little: what was due and not done, integrated over
    the trial, over the sum of what every transaction waited, from schedule and outcomes apart; 1 is
    exact; None in a closed load. little_service: in flight x time over the sum of service times.
    late: it sent late itself (p99 above max(1 ms, 1% of the limit)). due, missed: of the trial's
    own workload, from the start of the measured part on. excused: how much of `missed` its lag can
    explain at most; 0 if it was not late, None if unknown: it had no CPU left, or the load waits
    for itself. limited: it had no CPU left (over 0.9), or was late and the verdict could be another
    without what is excused.
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

    @property
    def adds_up(self) -> bool:
        """Whether Little's law holds within 2%, both times; true where it cannot be told."""
        told = (share for share in (self.little, self.little_service) if share is not None)
        return all(abs(share - 1) <= _LITTLE for share in told)


class GeneratorWork(Struct, frozen=True):
    """What a generator did in a trial that lasted `seconds`.

    every: all that was due, warm-up included; own: of the trial's own workload alone. phi: the
    dispersion of what missed in that.
    """

    every: ScriptSeconds
    own: ScriptSeconds
    seconds: float
    phi: float = 1.0


def examine(trial: Trial, accumulator: Accumulator, load: GeneratorWork) -> Generator:
    """The check of a trial. accumulator: its intervals."""
    every, own = load.every, load.own
    cpu = max(accumulator.cpu_shares(load.seconds), default=0.0)
    times, counts, sums_ns = accumulator.dispatch()
    p99 = spread_of(times, times.count, counts, sums_ns).p99
    service_ns, sums = float(every.column("service").sum()), every.counts
    # Only where every transaction that began is in the sum of service times.
    told = service_ns and not (sums.failed or sums.unfinished or trial.plan.imported)
    late = p99 is not None and p99.value > _floor_ms(trial)
    busy, excused = cpu > _CPU_LIMIT, None
    measured = own.between(0, max(0, own.end)).counts
    if not (late or busy):
        excused = 0
    elif not (busy or _closed(trial)):
        excused = _excused(trial, accumulator, load, times)
    return Generator(
        cpu=cpu,
        dispatch_p99=p99,
        little=accumulator.pending_ns / accumulator.waited_ns if accumulator.waited_ns else None,
        little_service=accumulator.in_flight_ns / service_ns if told else None,
        limited=excused is None or _decides(trial, measured, excused, load.phi),
        excused=excused,
        late=late,
        due=measured.due,
        missed=measured.missed,
    )


def _decides(trial: Trial, counts: Counts, excused: int, phi: float) -> bool:
    """Whether the trial could say something else without what is excused.

    It fails its goal, or its share lies above what is allowed, and without that it does not. What
    is within the goal stays there. Without a latency limit there is no goal.
    """
    seen, spared = (proportion(counts.missed - n, counts.due, phi) for n in (0, excused))
    if seen is None or spared is None or not any(_limits(trial)):
        return False
    allowed = goal.allowed(trial)
    return seen.value > allowed >= spared.value or seen.low > allowed >= spared.low


def _excused(trial: Trial, accumulator: Accumulator, load: GeneratorWork, lags: Times) -> int:
    """Of what missed, all that the generator's own lateness explains at the most.

    With l the quantile q of the dispatch lag, all but 1 - q of what was due was sent late by no
    more than l. Of these, one that was late itself would have been on time without it only if its
    service took no longer than the limit and l (the end may have been heard late), and all of it no
    longer than the limit and 2 l. One that was skipped found no client: each one sent held its
    client for 2 l longer at the most, which is time for 2 l n / mean service others. So
    late within these + skipped up to that + (1 - q) due is a bound for each q; the least counts.

    Where clients were the bottleneck lateness adds up from one to the next: see `_queued`.
    """
    counts = load.own.between(0, max(0, load.own.end)).counts
    most = counts.late + counts.skipped
    scripts = own_scripts(trial)
    kinds = ("latency", "service")
    times = {(n, kind): accumulator.times(kind, n, 0) for n in scripts for kind in kinds}
    if not most or not all(each.shaped for each in (lags, *times.values())):
        return most
    service = merge(times[n, "service"] for n in scripts)
    limits = {n: ns for n, ns in zip(scripts, _limits(trial), strict=False) if ns}
    late_anyhow = _queued(trial, load, service, lags)
    found = [most]
    for q in _QUANTILES:
        lag_ns = _at(lags, math.ceil(q * lags.count))

        def beyond(kind: str, times_late: int, lag_ns: float = lag_ns) -> int:
            ends = ((n, ns + times_late * lag_ns) for n, ns in limits.items())
            return sum(_above(times[n, kind], ns) for n, ns in ends)

        out, room = beyond("latency", _TIMES_LATE), counts.skipped
        if late_anyhow is not None:
            out = min(out, math.floor(late_anyhow * counts.due) - counts.skipped)
        elif service.mean_ns:
            room = math.ceil(_TIMES_LATE * lag_ns * service.count / service.mean_ns)
        out = max(out, beyond("service", 1))
        rest = math.ceil((1 - q) * counts.due)
        found.append(max(0, counts.late - out) + min(counts.skipped, room) + rest)
    return min(found)


def _queued(trial: Trial, load: GeneratorWork, service: Times, lags: Times) -> float | None:
    """The share of what was due that is late without the generator, where that held clients up.

    None where it did not: they were idle when most fell due, or lost next to no time by it. Else
    transactions queue for clients, and the time that each was held for by 2 l delays all behind
    it. Of a fluid queue with rho = due x mean service / (clients x time), 1 - limit / ((rho - 1)
    time) is late; below 1 nothing needs to be.
    """
    lag_ns, service_ns = lags.mean_ns or 0.0, service.mean_ns or 0.0
    waited = service.count - lags.count
    if waited <= _QUEUED * service.count or _TIMES_LATE * lag_ns <= _HELD * service_ns:
        return None
    clients = max(1, trial.plan.own_clients)
    span_ns, limit_ns = load.seconds * 1e9, max(_limits(trial))
    due = load.own.between(0, max(0, load.own.end)).counts.due
    rho = due * max(0.0, service_ns - lag_ns) / (clients * span_ns) if span_ns else 0.0
    grown_ns = (rho - 1) * span_ns
    return max(0.0, 1 - limit_ns / grown_ns) if grown_ns > 0 else 0.0


def _at(times: Times, rank: int) -> float:
    """The time of a rank, ns; infinite where it is not known."""
    found = values_at_ranks(times, (rank,))[0]
    return math.inf if found is None else float(found)


def _above(times: Times, bound_ns: float) -> int:
    """How many of these times are longer, to 3 significant digits."""
    longer = times.count - counts_at_most((times,), (int(min(bound_ns, times.max_ns)),))[0]
    return longer if bound_ns < times.max_ns else 0


def _limits(trial: Trial) -> list[int]:
    """The latency limit of each script of the trial's own workload, ns; 0: none."""
    plan, scripts = trial.plan, trial.workload.scripts
    own = dict(plan.limits)
    general = plan.limit_ns
    return [own.get(scripts[n].name, general) or 0 for n in own_scripts(trial)]


def _floor_ms(trial: Trial) -> float:
    """A p99 of dispatch lags above this is too late.

    A closed load waits for itself, so there it is nothing; but functions that wait so long for a
    CPU are no users.
    """
    if _closed(trial):
        return _DISPATCH_CLOSED_NS / 1e6 if by_functions(trial) else math.inf
    loads: tuple[PlanFacts | ComponentFacts, ...] = (trial.plan, *trial.plan.components)
    limits = [ns for load in loads for ns in (load.limit_ns, *(own for _, own in load.limits))]
    limit_ns = min((ns for ns in limits if ns), default=0)
    return max(_DISPATCH_FLOOR_NS, limit_ns // 100) / 1e6


def _closed(trial: Trial) -> bool:
    """Whether nothing is due by a schedule."""
    loads: tuple[PlanFacts | ComponentFacts, ...] = (trial.plan, *trial.plan.components)
    return {load.model for load in loads} == {"closed"}


def findings(trial: Trial, generator: Generator) -> Iterable[Finding]:
    """What is to be said of it: no CPU left, late, or a wrong sum.

    Not valid is what could change the answer; the rest is a caution, with its size.
    """
    yield from _limited(trial, generator)
    if not generator.adds_up:
        shares = (generator.little, generator.little_service)
        off = max((s for s in shares if s is not None), key=lambda share: abs(share - 1))
        text = f"Little's law is off: {off:.3f} instead of 1; please report this run"
        yield Finding("identity", "invalid", text, off)


def _limited(trial: Trial, generator: Generator) -> Iterator[Finding]:
    functions = by_functions(trial)
    unit = "process" if functions else "thread"
    more = "or more processes (--threads)" if functions else "or more --threads"
    advice = f"give the generator a CPU of its own, {more}"
    severity: Severity = "invalid" if generator.limited else "warning"
    if generator.cpu > _CPU_LIMIT:
        share = 100 * generator.cpu
        text = (
            f"generator-limited: its busiest {unit} took {share:.0f} % of a CPU, so the server may"
            f" do more, and in less time, than shown; {advice}"
        )
        yield Finding("generator", severity, text, share, "%")
    elif generator.late and generator.dispatch_p99:
        lag = generator.dispatch_p99
        few = quantile_ranks(QUANTILES["p99"], lag.n) is None
        seen = f", of only {lag.n} transactions" if few else ""
        size = f"p99 dispatch lag {lag.value:.3g} ms, over {_floor_ms(trial):g} ms{seen}"
        if not generator.limited:
            text = f"the generator was late itself ({size}){_weight(trial, generator)}: {_CAUTION}"
        elif generator.excused is None:
            text = (
                f"generator-limited: it was late itself ({size}), and users wait for it: the load"
                f" was lower than asked for, the latencies longer; {advice}"
            )
        else:
            text = f"generator-limited: it was late itself ({size}); {_open(trial, generator)}"
            text += f"; {advice}"
        yield Finding("generator", severity, text, lag.value, "ms")


def _weight(trial: Trial, generator: Generator) -> str:
    """What a lateness explains that decides nothing."""
    if not generator.missed:
        return ""
    if not generator.excused:
        return f", which explains none of {generator.missed} missed"
    verdict = " and leaves the verdict as it is" if any(_limits(trial)) else ""
    return f", which explains at most {generator.excused} of {generator.missed} missed{verdict}"


def _open(trial: Trial, generator: Generator) -> str:
    """What a lateness leaves open."""
    excused, missed, due = generator.excused or 0, generator.missed, generator.due
    least, most = (f"{100 * part / due:.3g}" for part in (missed - excused, missed))
    return (
        f"that may explain {excused} of {missed} missed: by the server {least} to {most} % of what"
        f" was due missed, allowed are {100 * goal.allowed(trial):g} %"
    )
