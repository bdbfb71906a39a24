"""A proved load in other units: transactions, queries and users a day, money. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from pgpaces.analysis import volume
from pgpaces.analysis.capacity import words
from pgpaces.analysis.capacity.answer import Capacity
from pgpaces.analysis.capacity.goal import TrialPoint
from pgpaces.analysis.digest import Digest
from pgpaces.spec.costs import HOURS_A_MONTH, MonthlyCost, machines_of

_DAY_S = 86_400
_MONTH_S = HOURS_A_MONTH * 3600
_MILLION = 1e6
# Trials between these multiples of the load describe it; others differ too much.
_NEAR = (0.75, 1.1)

Trials = Sequence[tuple[Digest, TrialPoint]]


class Worth(Struct, frozen=True):
    """A load in other units; None: unknown.

    rate: transactions a second at it. users: that it serves, where they have a pace or think
    between transactions: N = X (R + Z). response_s, think_s: R and Z of such a closed load.
    month, year: the cost of the machines in `currency`; per_million transactions and per_user: the
    month's.
    """

    load: float
    rate: float
    users: float | None = None
    response_s: float | None = None
    think_s: float | None = None
    queries_per_day: float | None = None
    currency: str = ""
    month: float | None = None
    year: float | None = None
    per_million: float | None = None
    per_user: float | None = None

    @property
    def per_day(self) -> float:
        """Transactions a day."""
        return self.rate * _DAY_S


def size(capacity: Capacity) -> float | None:
    """The load to rely on: the proved one."""
    load = capacity.proved
    return None if load is None else words.safe(load, capacity.goal, -1)


def of(capacity: Capacity, trials: Trials) -> Worth | None:
    """A capacity in other units; None where no load meets the goal, or no trial is valid."""
    load = size(capacity)
    near = _near(trials, load or 0.0)
    if load is None or not near:
        return None
    rate = load
    if capacity.goal.load != "rate":
        rate = load * median(point.due / point.seconds / point.load for _, point in near)
    plan = near[0][0].trial.plan
    think_ns, closed = plan.think_ns, plan.model == "closed"
    own_pace = capacity.goal.load == "users" or (capacity.goal.load == "clients" and not closed)
    users = load if own_pace or (closed and think_ns) else None
    each = _queries([digest for digest, _ in near])
    machines = _money([digest for digest, _ in near])
    month = machines.month if machines else None
    return Worth(
        load=load,
        rate=rate,
        users=users,
        response_s=_response_s(near) if closed and think_ns else None,
        think_s=think_ns / 1e9 if closed and think_ns else None,
        queries_per_day=None if each is None else rate * each * _DAY_S,
        currency=machines.currency if machines else "",
        month=month,
        year=machines.year if machines else None,
        per_million=None if month is None else month / (rate * _MONTH_S / _MILLION),
        per_user=None if month is None or not users else month / users,
    )


def _near(trials: Trials, load: float) -> Trials:
    """The valid trials at about a load; where there are none, all valid ones."""
    low, high = (factor * load for factor in _NEAR)
    valid = [trial for trial in trials if trial[1].valid]
    return [trial for trial in valid if low <= trial[1].load <= high] or valid


def _response_s(near: Trials) -> float | None:
    means = [digest.summary.latency.mean for digest, _ in near]
    return median(mean.value for mean in means if mean) / 1e3 if any(means) else None


def _queries(digests: Sequence[Digest]) -> float | None:
    """Queries per transaction, the median; None where that of a trial is unknown."""
    volumes = [(d.summary.rate.value, volume.of(d.trial, d.summary)) for d in digests]
    each = [of.per_s.value / rate for rate, of in volumes if of is not None and rate > 0]
    return median(each) if each and len(each) == len(volumes) else None


def _money(digests: Sequence[Digest]) -> MonthlyCost | None:
    """The cost of the machines, where all trials ran on machines of the same price."""
    kinds = {machines_of(digest.trial.host.costs) for digest in digests}
    machines = kinds.pop() if len(kinds) == 1 else ()
    return MonthlyCost.of(machines) if machines else None
