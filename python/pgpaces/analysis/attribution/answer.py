"""Why transactions were late: cards of possible causes, ranked, or that there is none. Pure.

A cause is named where at least half of the missed transactions saw its sign, and either those on
time saw much less of it, or it is a share of the transactions' own time that is long by itself. So
it only coincides: an experiment tells whether it is the cause.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.arrays import Numbers, np
from pgpaces.analysis.attribution import lift as arithmetic
from pgpaces.analysis.attribution import machine, server
from pgpaces.analysis.attribution.lift import DueSeconds
from pgpaces.analysis.attribution.material import Material, material
from pgpaces.analysis.attribution.sign import Proof, Sign, by_priority, carry
from pgpaces.analysis.goal import Limit
from pgpaces.analysis.next_step import MISSED_MIN, next_step_for
from pgpaces.analysis.summary import Summary
from pgpaces.core import causes
from pgpaces.core.findings import Finding, finding
from pgpaces.spec.result import Estimate, Trial

SHARE_MIN = 0.5
# The least lift (at the lower end of its interval) and difference of shares of a contrast.
LIFT_MIN, DIFFERENCE_MIN = 1.5, 0.2
# Seconds in which a concurrent sign must coincide with missed transactions, and its largest
# probability by chance (or 1 / n of n seconds, if that is more).
_MEETINGS_MIN, _CHANCE_MAX = 3, 0.02
# The part of the limit from which on a time is long.
_LONG = 0.5
# The share from which on a sign is most of the transactions' time.
_MOST = 0.6
# Causes whose shares differ by no more are nearly a tie.
_TIE = 0.1
# The strongest proof first.
_PROOFS: Sequence[Proof] = ("whole", "time", "beside")
# Cards with a smaller share are not shown.
_SHOWN_MIN = 0.1
Outcome = Literal["cause", "no-dominant-cause", "too-few-missed", "nothing-missed"]


class Card(Struct, frozen=True):
    """A possible cause. named: the trials show that it coincides with missed transactions.

    proof: what its sign proves by itself. share: of missed transactions that saw it, 0 to 1.
    on_time: the same of those on time; for a sign that is most of the transactions' time, this time
    as a share of that of the missed. lift: share / on_time; None where no transaction was on time.
    evidence, against: observations for and against it. advice, command: the next experiment, and
    the question that it answers. by_second: the sign, of one trial.
    """

    key: str
    proof: Proof
    named: bool
    share: Estimate
    on_time: float
    lift: Estimate | None
    evidence: tuple[Finding, ...]
    against: tuple[Finding, ...]
    advice: str
    command: str
    question: str
    by_second: tuple[float | None, ...] = ()

    @property
    def title(self) -> str:
        return causes.title(self.key)


class Attribution(Struct, frozen=True):
    """Why transactions of trials were late.

    missed, due: transactions. causes: the likeliest first. unexplained: the share of missed
    transactions that saw no named cause, 0 to 1. unread: sources without samples. shown: the trial
    with most missed, whose seconds are missed_by_second (shares; None where nothing was due).
    """

    trials: tuple[str, ...]
    outcome: Outcome
    missed: int
    due: int
    causes: tuple[Card, ...]
    unexplained: float
    unread: tuple[str, ...]
    shown: str = ""
    missed_by_second: tuple[float | None, ...] = ()

    @property
    def cause(self) -> Card | None:
        return next((card for card in self.causes if card.named), None)

    @property
    def ties(self) -> tuple[Card, ...]:
        """Other named causes with nearly the same share, which another run may put first."""
        first = self.cause
        if first is None:
            return ()
        near = first.share.value - _TIE
        others = (card for card in self.causes if card.named and card is not first)
        return tuple(card for card in others if card.share.value >= near)


def attribute(trials: Sequence[tuple[Trial, Summary]]) -> Attribution:
    """Why transactions of these trials were late: whole trials of one cell, with their summaries.

    Raises ValueError for samples of sensors that cannot be read.
    """
    ids = tuple(trial.id for trial, _ in trials)
    parts = [material(trial, summary) for trial, summary in trials]
    parts = [part for part in parts if part.seconds > part.since]
    missed = sum(int(part.missed[part.since :].sum()) for part in parts)
    on_time = sum(int(part.on_time[part.since :].sum()) for part in parts)
    if missed < MISSED_MIN:
        outcome: Outcome = "too-few-missed" if missed else "nothing-missed"
        return Attribution(ids, outcome, missed, missed + on_time, (), float(bool(missed)), ())
    worst = max(range(len(parts)), key=lambda at: float(parts[at].missed[parts[at].since :].sum()))
    raw = [_signs(part) for part in parts]
    keys = prior = list(dict.fromkeys(key for of_trial in raw for key in of_trial))
    # A cause that is not named itself claims no time of others, unless its proof is whole.
    for _ in range(2):
        signs = [by_priority(of_trial, prior) for of_trial in raw]
        cards = [_card(key, parts, signs, worst=worst) for key in keys]
        prior = [card.key for card in cards if card.named or card.proof == "whole"]
    shown = _ranked([c for c in cards if c.named or c.share.value >= _SHOWN_MIN])
    named = [card.key for card in shown if card.named]
    shown_part = parts[worst]
    by_second = zip(shown_part.missed, shown_part.missed + shown_part.on_time, strict=True)
    sources = {source for part in parts for source, _ in part.tracks}
    # A counter that never moved has no samples although it was read.
    sources |= {m.source for p in parts for each in p.trial.observed for m in each.moved}
    if any(part.sessions is not None for part in parts):
        sources.add("sessions")
    return Attribution(
        ids,
        "cause" if named else "no-dominant-cause",
        missed,
        missed + on_time,
        tuple(shown),
        _unexplained(parts, signs, named),
        tuple(source for source in causes.catalog().unread if source not in sources),
        shown_part.trial.id,
        tuple(float(f"{m / d:.4g}") if d else None for m, d in by_second),
    )


def limiting(trials: Sequence[tuple[Trial, Summary]]) -> Limit | None:
    """The resource that was the limit in trials that missed; None where sensors do not tell."""
    cause = attribute(trials).cause
    if cause is None or cause.key in _NO_RESOURCE:
        return None
    return Limit(cause.key, cause.share, cause.evidence)


# Causes that are no resource that a server runs out of.
_NO_RESOURCE = ("failed", "freeze", "generator", "slowed", "others", "lock")


def _signs(part: Material) -> dict[str, Sign]:
    lag = machine.inherited(part)
    return {s.key: carry(s, lag) for s in (*machine.signs(part), *server.signs(part))}


def _ranked(cards: Sequence[Card]) -> list[Card]:
    """Named ones first, then by share; near the largest share by proof, then by lift."""

    def rank(card: Card) -> tuple[bool, float, int, float, str]:
        contrast = math.inf if card.lift is None else card.lift.value
        near = card.named and card.share.value >= most - _TIE
        share = most if near else card.share.value
        return (not card.named, -share, _PROOFS.index(card.proof), -contrast, card.key)

    most = max((card.share.value for card in cards if card.named), default=0.0)
    return sorted(cards, key=rank)


def _card(
    key: str, parts: Sequence[Material], signs: Sequence[dict[str, Sign]], *, worst: int
) -> Card:
    pairs = [(part, of_trial.get(key)) for part, of_trial in zip(parts, signs, strict=True)]
    present = [(part, sign) for part, sign in pairs if sign is not None]
    seconds = arithmetic.concatenate([_due_seconds(part, sign) for part, sign in pairs])
    share = arithmetic.share(seconds)
    proof = max((sign.proof for _, sign in present), key=_PROOFS.index)  # the weakest
    if proof == "time" and share.value >= _MOST:
        scaled = [_as_time(_due_seconds(part, sign), part) for part, sign in pairs]
        seconds = arithmetic.concatenate(scaled)
    lift = arithmetic.lift(seconds)
    on_time = _mean(seconds.punctual, seconds.on_time)
    clear = lift is not None and lift.low >= LIFT_MIN
    contrast = clear and share.value - on_time >= DIFFERENCE_MIN
    if proof == "beside":
        contrast = contrast and _coincides(seconds)
    # Where most were on time and saw it as much, the sign does not separate them.
    most = bool(seconds.missed.sum() >= seconds.on_time.sum())
    whole = proof == "whole" and (most or share.value >= on_time)
    apart = share.value >= max(on_time + DIFFERENCE_MIN, on_time * LIFT_MIN)
    alone = whole or (proof == "time" and (most or apart) and _long(present))
    against = []
    if share.value < SHARE_MIN:
        against.append(finding("mostly-without", share=1 - share.value))
    if not contrast and on_time >= SHARE_MIN * share.value:
        against.append(finding("also-on-time", share=on_time))
    here, part = signs[worst].get(key), parts[worst]
    by_second = np.zeros(part.seconds) if here is None else here.late
    sign = here or present[0][1]
    next_ = next_step_for(sign.advice or key, part.trial, part.failures)
    return Card(
        key,
        proof,
        share.value >= SHARE_MIN and (contrast or alone),
        share,
        on_time,
        lift,
        sign.evidence,
        tuple(against),
        next_.advice,
        next_.command,
        next_.question,
        tuple(float(f"{v:.3g}") if np.isfinite(v) else None for v in by_second),
    )


def _due_seconds(part: Material, sign: Sign | None) -> DueSeconds:
    """The seconds that count; the sign is 0 in a trial without it."""
    late = np.zeros(part.seconds) if sign is None else sign.late
    punctual = late if sign is None else sign.punctual
    columns = (part.missed, part.on_time, late, punctual)
    return DueSeconds(*(column[part.since :] for column in columns))


def _as_time(seconds: DueSeconds, part: Material) -> DueSeconds:
    """The sign of those on time, in lives of the missed: a share of a short life is a short time.

    Only for a sign that is most of the time: with a smaller one, all of it may be longer alike.
    """
    life_s, missed = part.latency_s[part.since :], seconds.missed
    usual_s = _mean(life_s, missed)
    if not usual_s:
        return seconds
    return replace(seconds, punctual=seconds.punctual * np.minimum(1.0, life_s / usual_s))


def _mean(values: Numbers, weights: Numbers) -> float:
    finite = np.where(np.isfinite(values), weights, 0.0)
    return float((np.nan_to_num(values) * finite).sum() / finite.sum()) if finite.sum() else 0.0


def _coincides(seconds: DueSeconds) -> bool:
    """Whether sign and missed transactions coincide more than once, and more than by chance."""
    meetings = int(((seconds.missed > 0) & (np.nan_to_num(seconds.late) > 0)).sum())
    chance_max = max(_CHANCE_MAX, 1.0 / len(seconds.missed))
    return meetings >= _MEETINGS_MIN and arithmetic.chance(seconds) <= chance_max


def _long(pairs: Iterable[tuple[Material, Sign]]) -> bool:
    """Whether the time itself is long: half of the limit, on average over missed transactions."""
    spent = limit = 0.0
    for part, sign in pairs:
        since = part.since
        weights = part.missed[since:]
        spent += float((np.nan_to_num(sign.late[since:]) * part.latency_s[since:] * weights).sum())
        limit += part.limit_s * float(weights.sum())
    return limit > 0 and spent >= _LONG * limit


def _unexplained(
    parts: Sequence[Material], signs: Sequence[dict[str, Sign]], named: Sequence[str]
) -> float:
    """The share that saw no named cause; of several in one second the largest sign counts."""
    total = explained = 0.0
    for part, of_trial in zip(parts, signs, strict=True):
        late = [np.nan_to_num(of_trial[key].late) for key in named if key in of_trial]
        covered = np.max(late, axis=0) if late else np.zeros(part.seconds)
        total += float(part.missed[part.since :].sum())
        explained += float((part.missed * covered)[part.since :].sum())
    return 1.0 - explained / total if total else 1.0
