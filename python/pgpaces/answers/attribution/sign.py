"""The sign of a possible cause in one trial, and which causes stand before which. Pure values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

# whole: by itself it says what became of a transaction. time: a share of the transactions' own
# time. beside: something that went on beside them, so that only a contrast says anything.
Proof = Literal["whole", "time", "beside"]

# What a cause may come from: of the time that both claim, those named here have it.
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
# What is the cause where there is no other.
_REST = ("connections",)


class Sign(Struct, frozen=True):
    """What a cause would show, by second of due time, 0 to 1; NaN where it is not known.

    late, punctual: for those that missed and for those that were on time; mostly the same. said:
    what was seen, in words. carried: whether who waits behind those that saw it sees it too. alone:
    what no share of the transactions' time is put before.
    """

    key: str
    late: Numbers
    punctual: Numbers
    proof: Proof
    said: tuple[str, ...] = ()
    carried: bool = True
    alone: Numbers | None = None


def alike(key: str, values: Numbers, proof: Proof, said: Iterable[str] = ()) -> Sign:
    """A sign that is the same for all that were due in a second."""
    return Sign(key, values, values, proof, tuple(said))


def carried(signs: Iterable[Sign], lag: Numbers) -> dict[str, Sign]:
    """The signs by key, with what is carried on.

    lag: the part of latency that was spent waiting for clients who were busy with what was due
    before, by second.
    """
    return {sign.key: _carried(sign, lag) for sign in signs}


def ordered(signs: Mapping[str, Sign], before: Collection[str]) -> dict[str, Sign]:
    """The signs without what others stand before; only those of these keys stand before any.

    What is only the rest comes behind all that transactions themselves show.
    """
    others = {key: sign for key, sign in signs.items() if key in before}
    shown = others | {key: sign for key, sign in signs.items() if sign.proof != "beside"}
    return {k: _without(sign, shown if k in _REST else others) for k, sign in signs.items()}


def _carried(sign: Sign, lag: Numbers) -> Sign:
    """Who waits for a client waits for what those before him met: by as much as he waited."""
    import numpy as np

    if not sign.carried or sign.proof == "beside":
        return sign
    late = sign.late.copy()
    for at in range(1, len(late)):
        before = late[at - 1] * lag[at]
        if np.isfinite(before):
            late[at] = np.fmax(late[at], before)
    return replace(sign, late=late, punctual=late if sign.punctual is sign.late else sign.punctual)


def _without(sign: Sign, every: Mapping[str, Sign]) -> Sign:
    """What is left of a sign where others stand before it."""
    import numpy as np

    late, punctual, alone = sign.late, sign.punctual, sign.alone
    for key in _BEFORE.get(sign.key, ()):
        if other := every.get(key):
            # What is not known of this one stays so.
            late = np.minimum(late, _rest(other.late))
            punctual = np.minimum(punctual, _rest(other.punctual))
            if alone is not None and other.proof != "time":
                alone = np.minimum(alone, _rest(other.late))
    return replace(sign, late=late if alone is None else np.fmax(late, alone), punctual=punctual)


def _rest(values: Numbers) -> Numbers:
    """What a sign leaves to others; all where it is not known."""
    import numpy as np

    found: Numbers = np.clip(1 - np.where(np.isfinite(values), values, 0.0), 0.0, 1.0)
    return found
