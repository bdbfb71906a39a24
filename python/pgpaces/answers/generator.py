"""The generator's check of itself: was it late, was it busy, do its numbers add up?"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgpaces.answers.account import by_functions, own_scripts
from pgpaces.answers.spread import QUANTILES, spread_of
from pgpaces.answers.stats import quantile_ranks
from pgpaces.result import Estimate, Finding, Severity, Trial, merge, values_at_ranks

if TYPE_CHECKING:
    from pgpaces.answers.account import Account, Ledger

_DISPATCH_FLOOR_NS = 1_000_000
_DISPATCH_CLOSED_NS = 20_000_000
_CPU_LIMIT = 0.9
_LITTLE = 0.02
# So often in a transaction it may be late: when it sends, and when it hears of the end.
_TIMES_LATE = 2
_ADVICE = "so this result says nothing against the server; give the generator a CPU of its own"


@dataclass(frozen=True, slots=True)
class Generator:
    """What the generator says of itself.

    cpu: share of the busiest thread over the trial, 0 to 1. dispatch_p99: lag of transactions
    whose client was idle when they were due, ms. little: what was due and not done, integrated over
    the trial, over the sum of what every transaction waited, from schedule and outcomes apart; 1 is
    exact; None in a closed load. little_service: in flight x time over the sum of service times.
    limited: the generator was late itself (p99 above max(1 ms, 1 % of the limit)), or it had no CPU
    left (over 0.9). excused: of what missed in the trial's own workload from the start of the
    measured part on, so much as that lateness may explain; 0 where it was not limited, None where
    nobody can say: it had no CPU left, or the load waits for itself.
    """

    cpu: float
    dispatch_p99: Estimate | None
    little: float | None
    little_service: float | None
    limited: bool
    excused: int | None = 0

    @property
    def adds_up(self) -> bool:
        """Whether Little's law holds within 2 %, both times; true where it cannot be told."""
        told = (share for share in (self.little, self.little_service) if share is not None)
        return all(abs(share - 1) <= _LITTLE for share in told)


def examine(
    trial: Trial, account: Account, every: Ledger, own: Ledger, seconds: float
) -> Generator:
    """The check of a trial that lasted `seconds`.

    every: all that was due, warm-up included; own: of the trial's own workload alone.
    """
    cpu = max(account.cpu_shares(seconds), default=0.0)
    times, counts, sums_ns = account.dispatch()
    p99 = spread_of(times, times.count, counts, sums_ns).p99
    service_ns, sums = float(every.column("service").sum()), every.counts
    # Only where every transaction that began is in the sum of service times.
    told = service_ns and not (sums.failed or sums.unfinished or "imported" in trial.plan)
    late = p99 is not None and p99.value > _floor_ms(trial)
    busy, excused = cpu > _CPU_LIMIT, None
    if not (late or busy):
        excused = 0
    elif not (busy or _closed(trial)):
        excused = _excused(trial, account, own, times.max_ns)
    return Generator(
        cpu=cpu,
        dispatch_p99=p99,
        little=account.pending_ns / account.waited_ns if account.waited_ns else None,
        little_service=account.in_flight_ns / service_ns if told else None,
        limited=late or busy,
        excused=excused,
    )


def _excused(trial: Trial, account: Account, own: Ledger, lag_ns: int) -> int:
    """Of what missed, all that a generator that is late by so much at the most may explain.

    It may be late when it sends, and again when it hears of the end: what took no longer than its
    limit and twice the longest lag may have been on time but for that, and so may what was skipped.
    What took longer waited for the server: while the generator waits for a CPU, the server has it.
    """
    counts = own.between(0, max(0, own.end)).counts
    times = merge(account.times("latency", script, 0) for script in own_scripts(trial))
    limit_ns = trial.plan.get("limit_ns")
    if not limit_ns or trial.plan.get("limits") or not times.shaped:
        return counts.late + counts.skipped
    most = limit_ns + _TIMES_LATE * lag_ns

    def took(rank: int) -> float:
        found = values_at_ranks(times, (rank,))[0]
        return math.inf if found is None else found

    beyond = times.count - bisect_right(range(1, times.count + 1), most, key=took)
    return max(0, counts.late - beyond) + counts.skipped


def _floor_ms(trial: Trial) -> float:
    """A p99 of dispatch lags above this is too late.

    A closed load waits for itself, so there it is nothing; but functions that wait so long for a
    CPU are no users.
    """
    if _closed(trial):
        return _DISPATCH_CLOSED_NS / 1e6 if by_functions(trial) else math.inf
    loads = (trial.plan, *trial.plan.get("lanes", ()))
    limits = [load.get("limit_ns") for load in loads]
    limits += [ns for load in loads for _, ns in load.get("limits", ())]
    limit_ns: int = min((ns for ns in limits if ns), default=0)
    return max(_DISPATCH_FLOOR_NS, limit_ns // 100) / 1e6


def _closed(trial: Trial) -> bool:
    """Whether nothing is due by a schedule."""
    loads = (trial.plan, *trial.plan.get("lanes", ()))
    return {load.get("model") for load in loads} == {"closed"}


def findings(trial: Trial, generator: Generator) -> Iterable[Finding]:
    """What makes a trial invalid here: a generator without CPU, late, or with a wrong sum.

    Of few transactions the p99 is the latest one, and that one was late makes no trial invalid.
    """
    unit, more = "thread", "or more --threads"
    if by_functions(trial):
        unit, more = "process", "or more processes (--threads)"
    if generator.cpu > _CPU_LIMIT:
        share = 100 * generator.cpu
        text = f"generator-limited: its busiest {unit} took {share:.0f} % of a CPU, {_ADVICE}"
        yield Finding("generator", "invalid", f"{text}, {more}", share, "%")
    elif generator.limited and generator.dispatch_p99:
        lag, n, floor = generator.dispatch_p99.value, generator.dispatch_p99.n, _floor_ms(trial)
        few = quantile_ranks(QUANTILES["p99"], n) is None
        seen = f", as far as {n} transactions tell" if few else ""
        text = f"generator-limited{seen}: it was late itself (p99 dispatch lag over {floor:g} ms)"
        severity: Severity = "warning" if few else "invalid"
        yield Finding("generator", severity, f"{text}, {_ADVICE}, {more}", lag, "ms")
    if not generator.adds_up:
        shares = (generator.little, generator.little_service)
        off = max((s for s in shares if s is not None), key=lambda share: abs(share - 1))
        text = f"Little's law is off: {off:.3f} instead of 1; please report this run"
        yield Finding("identity", "invalid", text, off)
