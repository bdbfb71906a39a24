"""Why transactions were late: cards of possible causes, ranked, or that there is none. Pure.

A cause is named where it goes with at least half of what was missed, and either those that were on
time saw much less of it, or it is a share of the transactions' own time that is long by itself. So
the word is "associated": whether it is the cause, an experiment says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.answers.attribution import lift as arithmetic
from pgpaces.answers.attribution import machine, server
from pgpaces.answers.attribution.lift import DueSeconds
from pgpaces.answers.attribution.material import Material, material
from pgpaces.answers.attribution.next_step import CAUSES, following
from pgpaces.answers.attribution.sign import Proof, Sign, carried, ordered
from pgpaces.answers.goal import Limit
from pgpaces.answers.summary import Summary
from pgpaces.result import Estimate, Trial

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

# Of fewer nothing is said.
MISSED_MIN = 10
SHARE_MIN = 0.5
# A contrast counts from such a lift on, even at the lower end of its interval, and such a
# difference of the two shares.
LIFT_MIN, DIFFERENCE_MIN = 1.5, 0.2
# A sign beside transactions has to meet them in so many seconds, and no shift may do better than
# one in so many, or than one of all there are.
_MEETINGS_MIN, _CHANCE_MAX = 3, 0.02
# Time is long that is such a part of the limit.
_LONG = 0.5
# From such a share on a sign is most of the transactions' time.
_MOST = 0.6
# Causes whose shares differ by no more are told as nearly a tie.
_TIE = 0.1
# What proves most first.
_PROOFS: Sequence[Proof] = ("whole", "time", "beside")
# Cards of less than this are not shown.
_SHOWN_MIN = 0.1
# What cannot be told without a sensor, by the samples that it gives.
_SENSORS = (
    ("sessions", "what sessions waited for (locks, disk, network)"),
    ("host", "the server's machine (quota, CPU, steal)"),
    ("tuples", "rows read a transaction"),
    ("checkpoints", "checkpoints"),
)
Outcome = Literal["cause", "no dominant cause", "too few missed", "nothing missed"]


class Card(Struct, frozen=True):
    """A possible cause. named: associated with what was missed, as far as the trials tell.

    proof: what its sign is by itself. share: of what was missed that it goes with, 0 to 1. on_time:
    the same of what was on time; of what is most of the transactions' time, this time as a
    share of that of the missed. lift: one over the other; None where no transaction was on time.
    said: what was seen; against: what speaks against it. advice, command: the next experiment.
    by_second: the sign, of one trial.
    """

    key: str
    title: str
    proof: Proof
    named: bool
    share: Estimate
    on_time: float
    lift: Estimate | None
    said: tuple[str, ...]
    against: tuple[str, ...]
    advice: str
    command: str
    by_second: tuple[float | None, ...] = ()


class Attribution(Struct, frozen=True):
    """Why transactions of trials were late.

    missed, due: transactions. causes: the likeliest first. unexplained: the share of what was
    missed that goes with none that is named, 0 to 1. unseen: what no sensor read. shown: the trial
    with most missed, whose seconds are missed_by_second (shares; None where nothing was due).
    """

    trials: tuple[str, ...]
    outcome: Outcome
    missed: int
    due: int
    causes: tuple[Card, ...]
    unexplained: float
    unseen: tuple[str, ...]
    shown: str = ""
    missed_by_second: tuple[float | None, ...] = ()

    @property
    def cause(self) -> Card | None:
        """The first cause that is named."""
        return next((card for card in self.causes if card.named), None)

    @property
    def ties(self) -> tuple[Card, ...]:
        """Others that are named and go with nearly as much, so that another run may turn it."""
        first = self.cause
        if first is None:
            return ()
        near = first.share.value - _TIE
        named = [card for card in self.causes if card.named and card is not first]
        return tuple(card for card in named if card.share.value >= near)


def attribute(trials: Sequence[tuple[Trial, Summary]]) -> Attribution:
    """Why transactions of these trials were late: whole trials of one cell, with their summaries.

    Raises ValueError for looks of sensors that cannot be read.
    """
    parts = [material(trial, summary) for trial, summary in trials]
    parts = [part for part in parts if part.seconds > part.since]
    ids = tuple(trial.id for trial, _ in trials)
    missed = sum(int(part.missed[part.since :].sum()) for part in parts)
    on_time = sum(int(part.on_time[part.since :].sum()) for part in parts)
    if missed < MISSED_MIN:
        outcome: Outcome = "too few missed" if missed else "nothing missed"
        return Attribution(ids, outcome, missed, missed + on_time, (), float(bool(missed)), ())
    worst = max(range(len(parts)), key=lambda at: float(parts[at].missed[parts[at].since :].sum()))
    every = [_signs(part) for part in parts]
    keys = list(dict.fromkeys(key for found in every for key in found))
    before = keys
    # What is not named itself stands before no other, unless it leaves no doubt.
    for _ in range(2):
        signs = [ordered(found, before) for found in every]
        cards = [_card(key, parts, signs, worst) for key in keys]
        before = [card.key for card in cards if card.named or card.proof == "whole"]
    shown = _ranked([c for c in cards if c.named or c.share.value >= _SHOWN_MIN])
    named = [card.key for card in shown if card.named]
    return Attribution(
        ids,
        "cause" if named else "no dominant cause",
        missed,
        missed + on_time,
        tuple(shown),
        _unexplained(parts, signs, named),
        _unseen(parts),
        parts[worst].trial.id,
        _missed_by_second(parts[worst]),
    )


def limiting(trials: Sequence[tuple[Trial, Summary]]) -> Limit | None:
    """The resource that was the limit in trials that missed; None where sensors do not say."""
    cause = attribute(trials).cause
    if cause is None or cause.key in _NO_RESOURCE:
        return None
    return Limit(cause.key, cause.title, cause.share, cause.said)


# What makes transactions late and is no resource that a server runs out of.
_NO_RESOURCE = ("failed", "freeze", "generator", "slowed", "others", "lock")


def _signs(part: Material) -> dict[str, Sign]:
    # Where clients are always busy, nobody waits for what was before him alone.
    lag = part.lag * (1 - machine.overload(part))
    return carried([*machine.signs(part), *server.signs(part)], lag)


def _ranked(cards: Sequence[Card]) -> list[Card]:
    """Those named first, then by what they go with.

    Of those nearly as good as the best what proves most, and then what is rarest on time.
    """

    def rank(card: Card) -> tuple[bool, float, int, float, str]:
        contrast = math.inf if card.lift is None else card.lift.value
        near = card.named and card.share.value >= most - _TIE
        share = most if near else card.share.value
        return (not card.named, -share, _PROOFS.index(card.proof), -contrast, card.key)

    most = max((card.share.value for card in cards if card.named), default=0.0)
    return sorted(cards, key=rank)


def _card(
    key: str, parts: Sequence[Material], signs: Sequence[dict[str, Sign]], worst: int
) -> Card:
    known = [(part, found[key]) for part, found in zip(parts, signs, strict=True) if key in found]
    pairs = [(part, found.get(key)) for part, found in zip(parts, signs, strict=True)]
    seen = arithmetic.joined([_seen(part, sign) for part, sign in pairs])
    share = arithmetic.share(seen)
    if known[0][1].proof == "time" and share.value >= _MOST:
        seen = arithmetic.joined([_in_time(_seen(part, sign), part) for part, sign in pairs])
    lift = arithmetic.lift(seen)
    on_time = _mean(seen.punctual, seen.on_time)
    proof = known[0][1].proof
    contrast = _contrasts(share, on_time, lift)
    if proof == "beside":
        contrast = contrast and _meets(seen)
    # Where most were on time and saw it as much, it does not tell one from the other.
    most = bool(seen.missed.sum() >= seen.on_time.sum())
    whole = proof == "whole" and (most or share.value >= on_time)
    alone = whole or (proof == "time" and (most or _apart(share, on_time)) and _long(known))
    next_ = following(key, parts[worst].trial)
    said = signs[worst][key].said if key in signs[worst] else known[0][1].said
    return Card(
        key,
        CAUSES[key].title,
        proof,
        share.value >= SHARE_MIN and (contrast or alone),
        share,
        on_time,
        lift,
        said,
        tuple(_against(share, on_time, contrast)),
        next_.advice,
        next_.command,
        _by_second(signs[worst].get(key), parts[worst]),
    )


def _seen(part: Material, sign: Sign | None) -> DueSeconds:
    """The seconds that count; a trial in which there was no sign saw none."""
    import numpy as np

    since = part.since
    missed, on_time = part.missed[since:], part.on_time[since:]
    if sign is None:
        none = np.zeros(part.seconds - since)
        return DueSeconds(missed, on_time, none, none)
    late, punctual = sign.late[since:], sign.punctual[since:]
    return DueSeconds(missed, on_time, late, punctual)


def _in_time(seen: DueSeconds, part: Material) -> DueSeconds:
    """With what was on time in lives of what missed: a share of a short life is a short time.

    Only of what is most of their time: of less, all of it may have got longer alike.
    """
    import numpy as np

    life_s, missed = part.latency_s[part.since :], seen.missed
    usual_s = float((life_s * missed).sum() / missed.sum()) if missed.sum() else 0.0
    if not usual_s:
        return seen
    return replace(seen, punctual=seen.punctual * np.minimum(1.0, life_s / usual_s))


def _mean(values: Numbers, weights: Numbers) -> float:
    import numpy as np

    known = np.where(np.isfinite(values), weights, 0.0)
    return float((np.nan_to_num(values) * known).sum() / known.sum()) if known.sum() else 0.0


def _contrasts(share: Estimate, on_time: float, lift: Estimate | None) -> bool:
    """Whether those that were on time saw much less of it."""
    if lift is None or lift.low < LIFT_MIN:
        return False
    return share.value - on_time >= DIFFERENCE_MIN


def _apart(share: Estimate, on_time: float) -> bool:
    """The same of the shares themselves, whatever their intervals are."""
    return share.value >= max(on_time + DIFFERENCE_MIN, on_time * LIFT_MIN)


def _meets(seen: DueSeconds) -> bool:
    """Whether it is more than one moment, and more than chance, that brings the two together."""
    import numpy as np

    meetings = int(((seen.missed > 0) & (np.nan_to_num(seen.late) > 0)).sum())
    least = max(_CHANCE_MAX, 1.0 / len(seen.missed))
    return meetings >= _MEETINGS_MIN and arithmetic.chance(seen) <= least


def _long(known: Iterable[tuple[Material, Sign]]) -> bool:
    """Whether the time itself is long: half of the limit, on average over seconds that missed."""
    import numpy as np

    spent = total = limit = 0.0
    for part, sign in known:
        since = part.since
        weights = part.missed[since:]
        spent += float((np.nan_to_num(sign.late[since:]) * part.latency_s[since:] * weights).sum())
        limit += part.limit_s * float(weights.sum())
        total += float(weights.sum())
    return total > 0 and limit > 0 and spent >= _LONG * limit


def _against(share: Estimate, on_time: float, contrast: bool) -> Iterable[str]:
    if share.value < SHARE_MIN:
        yield f"most of what was missed ({100 * (1 - share.value):.0f} %) did not see it"
    if not contrast and on_time >= SHARE_MIN * share.value:
        yield (
            f"transactions that were on time saw it too ({100 * on_time:.0f} %): it was there all"
            " the time, so whether it makes them late only a run without it can tell"
        )


def _by_second(sign: Sign | None, part: Material) -> tuple[float | None, ...]:
    import numpy as np

    values = np.zeros(part.seconds) if sign is None else sign.late
    return tuple(float(f"{v:.3g}") if np.isfinite(v) else None for v in values)


def _missed_by_second(part: Material) -> tuple[float | None, ...]:
    due = part.missed + part.on_time
    return tuple(
        float(f"{m / d:.4g}") if d else None for m, d in zip(part.missed, due, strict=True)
    )


def _unexplained(
    parts: Sequence[Material], signs: Sequence[dict[str, Sign]], named: Sequence[str]
) -> float:
    """What no named cause goes with; where several go with a second, the one that does most."""
    import numpy as np

    total = explained = 0.0
    for part, found in zip(parts, signs, strict=True):
        known = [np.nan_to_num(found[key].late) for key in named if key in found]
        covered = np.max(known, axis=0) if known else np.zeros(part.seconds)
        total += float(part.missed[part.since :].sum())
        explained += float((part.missed * covered)[part.since :].sum())
    return 1.0 - explained / total if total else 1.0


def _unseen(parts: Sequence[Material]) -> tuple[str, ...]:
    """What no sensor read in any of the trials."""
    sources = {source for part in parts for source, _ in part.tracks}
    # A counter that never moved has no samples, and was read all the same.
    sources |= {m.source for p in parts for each in p.trial.observed for m in each.moved}
    if any(part.sessions is not None for part in parts):
        sources.add("sessions")
    return tuple(text for source, text in _SENSORS if source not in sources)
