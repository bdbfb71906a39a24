"""The sign of a possible cause in one trial, and which causes have priority. Pure values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.arrays import Numbers, np
from pgpaces.core.findings import Finding

# whole: the sign alone explains the outcome of a transaction. time: a share of the transactions'
# own time. The third: something that went on at the same time, so that only a contrast counts.
Proof = Literal["whole", "time", "beside"]

# What a cause may result from. Time that both claim belongs to those listed here.
_BEFORE: Mapping[str, tuple[str, ...]] = {
    "generator": ("freeze",),
    "network": ("freeze", "generator", "quota", "steal", "cpu"),
    "contention": ("freeze", "generator", "quota", "lock", "checkpoint", "disk", "cache", "plan",
                   "standby", "network", "steal", "cpu"),
    "disk": ("freeze", "quota", "checkpoint", "cache"),
    "latch": ("freeze", "quota", "checkpoint", "disk", "cpu"),
    "cpu": ("freeze", "quota", "generator", "steal", "plan", "others"),
    "others": ("lock",),
    "autovacuum": ("checkpoint",),
    "connections": ("freeze", "generator", "quota", "lock", "contention", "standby", "checkpoint",
                    "disk", "cache", "latch", "plan", "network", "steal", "slowed", "others",
                    "autovacuum", "cpu"),
}  # fmt: skip
# Causes only where there is no other.
_REST = ("connections",)


class Sign(Struct, frozen=True):
    """What a cause would show, by second of due time, 0 to 1; NaN where it is unknown.

    late, punctual: for those that missed and for those that were on time; mostly the same.
    evidence: observations. carried: whether transactions that wait for a client see the
    sign of those that kept it busy. alone: a part that causes of proof "time" do not reduce.
    advice: the key of the advice, if it is not that of the cause.
    """

    key: str
    late: Numbers
    punctual: Numbers
    proof: Proof
    evidence: tuple[Finding, ...] = ()
    carried: bool = True
    alone: Numbers | None = None
    advice: str = ""


def uniform(key: str, values: Numbers, proof: Proof, *, evidence: Iterable[Finding] = ()) -> Sign:
    """A sign that is the same for all transactions due in a second."""
    return Sign(key, values, values, proof, tuple(evidence))


def by_priority(signs: Mapping[str, Sign], prior: Collection[str]) -> dict[str, Sign]:
    """The signs without the time that causes of higher priority claim.

    prior: keys of the only causes that may claim time of others; from causes in _REST, all may that
    transactions themselves show.
    """
    others = {key: sign for key, sign in signs.items() if key in prior}
    direct = others | {key: sign for key, sign in signs.items() if sign.proof != "beside"}
    return {k: _without(sign, direct if k in _REST else others) for k, sign in signs.items()}


def carry(sign: Sign, lag: Numbers) -> Sign:
    """The sign, passed on to transactions that waited for a client: by as much as they waited.

    lag: the part of latency, by second, spent waiting for clients busy with earlier transactions.
    """
    if not sign.carried or sign.proof == "beside":
        return sign
    late = sign.late.copy()
    for at in range(1, len(late)):
        passed_on = late[at - 1] * lag[at]
        if np.isfinite(passed_on):
            late[at] = np.fmax(late[at], passed_on)
    return replace(sign, late=late, punctual=late if sign.punctual is sign.late else sign.punctual)


def _without(sign: Sign, every: Mapping[str, Sign]) -> Sign:
    """What is left of a sign after the causes of higher priority among these."""
    late, punctual, alone = sign.late, sign.punctual, sign.alone
    for key in _BEFORE.get(sign.key, ()):
        if other := every.get(key):
            # An unknown (NaN) of this sign stays one.
            late = np.minimum(late, _rest(other.late))
            punctual = np.minimum(punctual, _rest(other.punctual))
            if alone is not None and other.proof != "time":
                alone = np.minimum(alone, _rest(other.late))
    return replace(sign, late=late if alone is None else np.fmax(late, alone), punctual=punctual)


def _rest(values: Numbers) -> Numbers:
    """What a sign leaves to others; everything where it is unknown."""
    return np.asarray(np.clip(1 - np.where(np.isfinite(values), values, 0.0), 0.0, 1.0))
