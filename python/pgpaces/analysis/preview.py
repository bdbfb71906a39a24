"""How long an experiment will take, before it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.spec.load import TrialPlan


class Span(Struct, frozen=True):
    value: float
    low: float
    high: float

    def __add__(self, other: Span) -> Span:
        return Span(self.value + other.value, self.low + other.low, self.high + other.high)


# Seconds of a trial around its load: connecting a few clients, examining the data, storing its
# answer; and for one that writes, copying the data.
_AROUND, _COPY = Span(1.0, 0.3, 3.0), Span(1.5, 0.2, 15.0)


class Preview(Struct, frozen=True):
    """The remaining trials of an experiment.

    trials: at most; trials_least: at least, where each is chosen by those before it. seconds: until
    its end, with machines in parallel; None where loads end by count. machines: trials of each.
    """

    trials: int
    trials_least: int
    seconds: Span | None
    machines: Mapping[str, int]


def trial_span(plan: TrialPlan, *, writes: bool) -> Span | None:
    """The duration of a trial; None where its load ends by count. writes: it gets a copy."""
    if plan.duration_ns is None:
        return None
    load_s = (plan.duration_ns + plan.warmup) / 1e9
    span = Span(load_s, load_s, load_s + plan.grace / 1e9) + _AROUND
    return span + _COPY if writes else span


def preview(machines: Mapping[str, Sequence[Span | None]]) -> Preview:
    """The preview. machines: the durations of their trials; None: unknown."""
    totals: dict[str, Span] = {}
    for name, own in machines.items():
        known = [span for span in own if span is not None]
        if len(known) == len(own):
            totals[name] = sum(known, Span(0.0, 0.0, 0.0))
    counts = {name: len(own) for name, own in machines.items()}
    longest = max(totals.values(), key=lambda span: span.value, default=None)
    seconds = longest if len(totals) == len(machines) else None
    return Preview(sum(counts.values()), sum(counts.values()), seconds, counts)


def between(least: Preview, most: Preview) -> Preview:
    """The preview of an unknown number of trials: time halfway between both previews."""
    span = None
    if least.seconds is not None and most.seconds is not None:
        middle = (least.seconds.value + most.seconds.value) / 2
        span = Span(middle, least.seconds.low, most.seconds.high)
    return replace(most, trials_least=least.trials, seconds=span)
