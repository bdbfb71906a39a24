"""Why transactions were late: what evaluates the signal of each cause of causes.toml alike. Pure.

A cause is named where at least half of the missed transactions saw its signal, and either those on
time saw much less of it, or it is a share of the transactions' own time that is long by itself. So
it only coincides: an experiment tells whether it is the cause.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis.arrays import Numbers, np
from pgpaces.analysis.attribution.signals import SIGNALS, Signal, carried
from pgpaces.analysis.attribution.timeline import Timeline, weighted_mean
from pgpaces.analysis.goal import Limit
from pgpaces.analysis.next_step import MISSED_MIN, next_step_for
from pgpaces.analysis.stats import inefficiency, student_quantile
from pgpaces.analysis.summary import Summary
from pgpaces.core import causes
from pgpaces.core.causes import Proof
from pgpaces.core.findings import Finding
from pgpaces.spec.result import Estimate, Trial

SHARE_MIN = 0.5
# The least lift (at the lower end of its interval) and difference of shares of a contrast.
LIFT_MIN, DIFFERENCE_MIN = 1.5, 0.2
# Seconds in which a signal of proof "coinciding" must coincide with missed transactions, and its
# largest probability by chance (or 1 / n of n seconds, if that is more).
_MEETINGS_MIN, _CHANCE_MAX = 3, 0.02
# The part of the limit from which on a time is long.
_LONG = 0.5
# The share from which on a signal is most of the transactions' time.
_MOST = 0.6
_TAIL = 0.025
# Largest half width of the interval of a logarithm: a wider one says nothing.
_HALF_MAX = math.log(1e6)
# Causes with a smaller share are not shown.
_SHOWN_MIN = 0.1
Outcome = Literal["cause", "no-dominant-cause", "too-few-missed", "nothing-missed"]


class PossibleCause(Struct, frozen=True):
    """A possible cause. named: the trials show that it coincides with missed transactions.

    proof: what its signal proves by itself. share: of missed transactions that saw it, 0 to 1.
    on_time: the same of those on time; for a signal that is most of the transactions' time, this
    time as a share of that of the missed. lift: share / on_time; None where no transaction was on
    time. evidence: observations. advice, command: the next experiment, and the question that it
    answers. by_second: the signal.
    """

    key: str
    proof: Proof
    named: bool
    share: Estimate
    on_time: float
    lift: Estimate | None
    evidence: tuple[Finding, ...]
    advice: str
    command: str
    question: str
    by_second: tuple[float | None, ...] = ()

    @property
    def title(self) -> str:
        return causes.title(self.key)


class Attribution(Struct, frozen=True):
    """Why transactions of a trial were late.

    missed, due: transactions. causes: the likeliest first. unexplained: the share of missed
    transactions that saw no named cause, 0 to 1. unread: sources without samples. missed_by_second:
    shares; None where nothing was due.
    """

    trial: str
    outcome: Outcome
    missed: int
    due: int
    causes: tuple[PossibleCause, ...]
    unexplained: float
    unread: tuple[str, ...]
    missed_by_second: tuple[float | None, ...] = ()

    @property
    def cause(self) -> PossibleCause | None:
        return next((card for card in self.causes if card.named), None)

    @property
    def limit(self) -> Limit | None:
        """The resource that was the limit; None where there is none, or monitors do not tell."""
        first = self.cause
        if first is None or not causes.catalog().causes[first.key].resource:
            return None
        return Limit(first.key, first.share, first.evidence)


def attribute(trial: Trial, summary: Summary) -> Attribution:
    """Why transactions of a whole trial were late.

    Raises ValueError for samples of monitors that cannot be read, StoreError for damaged counts.
    """
    part = Timeline(trial, summary)
    missed, on_time = (int(each[part.since :].sum()) for each in (part.missed, part.on_time))
    due = missed + on_time
    if missed < MISSED_MIN:
        outcome: Outcome = "too-few-missed" if missed else "nothing-missed"
        return Attribution(trial.id, outcome, missed, due, (), float(bool(missed)), ())
    seen = dict[str, Signal]()
    for key, row in causes.catalog().causes.items():
        if (signal := SIGNALS[key](part)) is not None:
            late = carried(signal.late, part.behind) if row.carried else signal.late
            seen[key] = replace(signal, late=late)
    prior: Collection[str] = seen.keys()
    # A cause that is not named itself claims no time of others, unless its proof is whole.
    for _ in range(2):
        left = _by_priority(seen, prior)
        cards = [_card(key, part, signal) for key, signal in left.items()]
        prior = {card.key for card in cards if card.named or card.proof == "whole"}
    named = [np.nan_to_num(left[card.key].late) for card in cards if card.named]
    # Of several named causes in one second the largest signal counts.
    explained = float((part.missed * np.max(named, axis=0))[part.since :].sum()) if named else 0.0
    shown = [card for card in cards if card.named or card.share.value >= _SHOWN_MIN]
    # A counter that never moved has no samples although it was read.
    sources = {source for source, _ in part.tracks}
    sources |= {moved.source for each in trial.observed for moved in each.moved}
    unread = tuple(source for source in causes.catalog().unread if source not in sources)
    shown.sort(key=lambda card: (not card.named, -card.share.value, card.key))
    by_second = zip(part.missed, part.missed + part.on_time, strict=True)
    shares = tuple(float(f"{m / d:.4g}") if d else None for m, d in by_second)
    outcome, rest = "cause" if named else "no-dominant-cause", 1 - explained / missed
    return Attribution(trial.id, outcome, missed, due, tuple(shown), rest, unread, shares)


def _by_priority(seen: Mapping[str, Signal], prior: Collection[str]) -> dict[str, Signal]:
    """The signals without the time that causes of higher priority claim; `prior` may claim it."""
    left, rows = {}, causes.catalog().causes
    for key, signal in seen.items():
        late, punctual, alone = signal.late, signal.on_time, signal.alone
        for other in (each for each in rows[key].after if each in prior and each in seen):
            claim = seen[other]
            # An unknown (NaN) of this signal stays one.
            late = np.minimum(late, _rest(claim.late))
            punctual = np.minimum(punctual, _rest(claim.on_time))
            if alone is not None and rows[other].proof != "time":
                alone = np.minimum(alone, _rest(claim.late))
        late = late if alone is None else np.fmax(late, alone)
        left[key] = replace(signal, late=late, punctual=punctual)
    return left


def _rest(values: Numbers) -> Numbers:
    """What a signal leaves to others; everything where it is unknown."""
    return np.asarray(np.clip(1 - np.where(np.isfinite(values), values, 0.0), 0.0, 1.0))


def _card(key: str, part: Timeline, signal: Signal) -> PossibleCause:
    """What a signal proves: the evaluator of all causes."""
    proof = causes.catalog().causes[key].proof
    every = (part.missed, part.on_time, part.latency_s, signal.late, signal.on_time)
    missed, on_time, latency_s, late, punctual = (each[part.since :] for each in every)
    share = coinciding_share(missed, late)
    usual_s = weighted_mean(latency_s, missed)
    if proof == "time" and share.value >= _MOST and usual_s:
        # A share of a short life is a short time. With a smaller share, all of a life may be longer
        # alike.
        punctual = punctual * np.minimum(1.0, latency_s / usual_s)
    lift = lift_of(missed, on_time, late=late, punctual=punctual)
    seen_on_time = weighted_mean(punctual, on_time)
    clear = lift is not None and lift.low >= LIFT_MIN
    contrast = clear and share.value - seen_on_time >= DIFFERENCE_MIN
    # Where most were on time and saw it as much, the signal does not separate them.
    most = bool(missed.sum() >= on_time.sum())
    if proof == "whole":
        proved = contrast or most or share.value >= seen_on_time
    elif proof == "time":
        apart = share.value >= max(seen_on_time + DIFFERENCE_MIN, seen_on_time * LIFT_MIN)
        # The time itself is long, on average over missed transactions.
        spent_s = weighted_mean(np.nan_to_num(late) * latency_s, missed)
        long = part.limit_s > 0 and spent_s >= _LONG * part.limit_s
        proved = contrast or ((most or apart) and long)
    else:
        # Both coincide more than once, and more than by chance.
        meetings = int(((missed > 0) & (np.nan_to_num(late) > 0)).sum())
        chance_max = max(_CHANCE_MAX, 1.0 / len(missed))
        unlikely = meetings >= _MEETINGS_MIN and chance(missed, late) <= chance_max
        proved = contrast and unlikely
    step = next_step_for(key, part.trial, part.failures)
    return PossibleCause(
        key,
        proof,
        share.value >= SHARE_MIN and proved,
        share,
        seen_on_time,
        lift,
        signal.evidence,
        step.advice,
        step.command,
        step.question,
        tuple(float(f"{v:.3g}") if np.isfinite(v) else None for v in signal.late),
    )


def coinciding_share(missed: Numbers, late: Numbers) -> Estimate:
    """P(signal | missed): the share of missed transactions that coincide with a signal, 0 to 1.

    A ratio of sums over seconds as clusters (Cochran, Sampling Techniques, 1977, 6.3), the interval
    by Student's t. An unknown signal counts as absent. The
    independent units are seconds, not transactions: those due in one second share what happens.
    """
    sign = np.where(np.isfinite(late), late, 0.0)
    total = float(missed.sum())
    if total == 0:
        return Estimate.alone(0.0, 0)
    value = float((missed * sign).sum()) / total
    half = _half(missed * (sign - value) / total)
    return Estimate(value, max(0.0, value - half), min(1.0, value + half), int(total))


def lift_of(
    missed: Numbers, on_time: Numbers, *, late: Numbers, punctual: Numbers
) -> Estimate | None:
    """P(sign | missed) / P(sign | on time); None where one of them has no transactions.

    The interval is that of the logarithm: each second moves it by its part in both shares (delta
    method), Student's t over seconds, widened for autocorrelation. Where no transaction on time saw
    the sign, half a second of them counts as if they had, so that the ratio is finite.
    """
    missed, on_time = missed * np.isfinite(late), on_time * np.isfinite(punctual)
    if missed.sum() == 0 or on_time.sum() == 0:
        return None
    late, punctual = (np.where(np.isfinite(each), each, 0.0) for each in (late, punctual))
    p1 = float((missed * late).sum() / missed.sum())
    p0 = float((on_time * punctual).sum() / on_time.sum())
    if p1 <= 0:
        return None
    least = 0.5 / max(1, int((on_time > 0).sum()))
    p0 = max(p0, least)
    moves = missed * (late - p1) / (p1 * missed.sum())
    moves = moves - on_time * (punctual - p0) / (p0 * on_time.sum())
    # The seconds give no error for a p0 at its floor: as a count of few events it may be four
    # times as large.
    log, half = math.log(p1 / p0), _half(moves)
    half = math.hypot(half, math.log(4.0)) if p0 == least else half
    if half > _HALF_MAX:
        return Estimate.alone(math.exp(log), int(missed.sum()))
    return Estimate(math.exp(log), math.exp(log - half), math.exp(log + half), int(missed.sum()))


def _half(moves: Numbers) -> float:
    """Half the width of the interval of a sum of the seconds' contributions, whose mean is 0."""
    n = len(moves)
    if n < 2:
        return math.inf
    # A sum of n independent values with mean 0.
    error = math.sqrt(float(np.square(moves).sum()) * n / (n - 1) * inefficiency(moves))
    return student_quantile(max(1.0, n / inefficiency(moves) - 1), 1 - _TAIL) * error


def chance(missed: Numbers, late: Numbers) -> float:
    """How often an unrelated sign would coincide as much with missed transactions: a p-value.

    The share of all circular shifts in time with which at least as much of the sign coincides with
    missed transactions as without a shift (a Monte Carlo test). Never below 1 / n for n seconds.
    """
    sign = np.where(np.isfinite(late), late, 0.0)
    spectrum = np.fft.rfft(missed).conj() * np.fft.rfft(sign)
    overlaps = np.fft.irfft(spectrum, len(sign))
    return float((overlaps >= overlaps[0] - 1e-9 * max(1.0, abs(overlaps[0]))).mean())
