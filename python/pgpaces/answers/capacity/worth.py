"""What a load is in other units: transactions, queries and users a day, money. Pure.

For capacities that are proved; of a quick search for the highest load that held in a short trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from pgpaces.answers import costs, volume
from pgpaces.answers.capacity import words
from pgpaces.answers.capacity.answer import Capacity
from pgpaces.answers.capacity.goal import TrialPoint
from pgpaces.answers.digest import Digest

_DAY_S = 86_400
_MONTH_S = costs.HOURS_A_MONTH * 3600
_MILLION = 1e6
# What trials at about this load say of it; farther away a server is another one.
_NEAR = (0.75, 1.1)

Trials = Sequence[tuple[Digest, TrialPoint]]


class Worth(Struct, frozen=True):
    """What a load is worth; None: not known.

    rate: transactions a second at it. users: that it serves, where they have a pace of their own or
    think between transactions: N = X (R + Z). response_s, think_s: R and Z of such a closed load.
    queries_per_day. month: what the machines cost in `currency`, and of that per_million
    transactions and per_user.
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


def size(found: Capacity) -> float | None:
    """What one counts on: proved, or what held in a short trial where no more was asked."""
    if found.goal.mode == "quick":
        return found.indicative[0]
    return None if found.proved is None else words.safe(found.proved, found.goal, -1)


def of(found: Capacity, trials: Trials) -> Worth | None:
    """What a capacity is worth; None where nothing holds, or no trial says how much it brings."""
    load = size(found)
    near = _near(trials, load or 0.0)
    if load is None or not near:
        return None
    rate = load
    if found.goal.load != "rate":
        rate = load * median(point.due / point.seconds / point.load for _, point in near)
    plan = near[0][0].trial.plan
    think_ns, closed = plan.think_ns, plan.model == "closed"
    own_pace = found.goal.load == "users" or (found.goal.load == "clients" and not closed)
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
    valid = [(digest, point) for digest, point in trials if point.valid]
    near = [
        (digest, point)
        for digest, point in valid
        if _NEAR[0] * load <= point.load <= _NEAR[1] * load
    ]
    return near or valid


def _response_s(near: Trials) -> float | None:
    means = [digest.summary.latency.mean for digest, _ in near]
    return median(mean.value for mean in means if mean) / 1e3 if any(means) else None


def _queries(digests: Sequence[Digest]) -> float | None:
    """Queries of a transaction; None where a script does not say."""
    found = [(digest, volume.of(digest.trial, digest.summary)) for digest in digests]
    each = [
        volume_.per_s.value / digest.summary.rate.value
        for digest, volume_ in found
        if volume_ is not None and digest.summary.rate.value > 0
    ]
    return median(each) if each and len(each) == len(found) else None


def _money(digests: Sequence[Digest]) -> costs.Economy | None:
    """What the machines cost, where all trials ran on machines of the same price."""
    machines = {costs.machines_of(digest.trial) for digest in digests}
    return costs.economy(machines.pop()) if len(machines) == 1 else None
