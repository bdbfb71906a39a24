"""Estimates of an experiment before it is run: time, disk, money."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
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


class Step(Struct, frozen=True):
    """One trial of an experiment.

    writes: it gets a copy of its data. data: a key of the data on its machine; data_bytes: its size
    in earlier trials; None if unknown.
    """

    plan: TrialPlan
    writes: bool
    data: Hashable = None
    data_bytes: int | None = None

    def span(self) -> Span | None:
        """Its duration; None where its load ends by count."""
        if self.plan.duration_ns is None:
            return None
        load_s = (self.plan.duration_ns + self.plan.warmup) / 1e9
        span = Span(load_s, load_s, load_s + self.plan.grace / 1e9) + _AROUND
        return span + _COPY if self.writes else span


class Preview(Struct, frozen=True):
    """The remaining trials of an experiment.

    trials: at most; trials_least: at least, where each is chosen by those before it. seconds: until
    its end, with machines in parallel; None where loads end by count. machines: trials of each.
    cost: by currency, of the machines that have a price.
    data_bytes: size of the data; copy_bytes: size of the copies that exist at a time, one on each
    machine; None if no earlier trial has sizes. data_known: whether the sizes of all data are.
    """

    cells: int
    trials: int
    trials_least: int
    seconds: Span | None
    machines: Mapping[str, int]
    cost: Mapping[str, float]
    data_bytes: int | None
    copy_bytes: int | None
    data_known: bool


def machine_span(steps: Sequence[Step]) -> Span | None:
    """The time of a machine for its trials; None where one of them ends by count."""
    spans = [span for step in steps if (span := step.span()) is not None]
    return sum(spans, Span(0.0, 0.0, 0.0)) if len(spans) == len(steps) else None


def preview(
    cells: int,
    machines: Mapping[str, Sequence[Step]],
    prices: Mapping[str, tuple[float, str]],
) -> Preview:
    """The preview. machines: their trials. prices: an hour of a machine, and its currency."""
    spans = {name: machine_span(steps) for name, steps in machines.items()}
    bounded = [span for span in spans.values() if span is not None]
    cost: dict[str, float] = {}
    for name, (price, currency) in prices.items():
        if (span := spans.get(name)) is not None:
            cost[currency] = cost.get(currency, 0.0) + price * span.value / 3600
    steps = [step for own in machines.values() for step in own]
    every = bool(bounded) and len(bounded) == len(spans)
    places = {(name, step.data): step.data_bytes for name, own in machines.items() for step in own}
    sizes = [size for size in places.values() if size is not None]
    copies = (
        max((step.data_bytes or 0 for step in own if step.writes), default=0)
        for own in machines.values()
    )
    return Preview(
        cells=cells,
        trials=len(steps),
        trials_least=len(steps),
        seconds=max(bounded, key=lambda span: span.value) if every else None,
        machines={name: len(own) for name, own in machines.items()},
        cost=cost,
        data_bytes=sum(sizes) if sizes else None,
        copy_bytes=sum(copies) if sizes else None,
        data_known=bool(sizes) and len(sizes) == len(places),
    )


def between(least: Preview, most: Preview) -> Preview:
    """The preview of an unknown number of trials: time and price halfway between both previews."""
    span = None
    if least.seconds is not None and most.seconds is not None:
        middle = (least.seconds.value + most.seconds.value) / 2
        span = Span(middle, least.seconds.low, most.seconds.high)
    cost = {
        name: (least.cost.get(name, most.cost[name]) + most.cost[name]) / 2 for name in most.cost
    }
    return replace(most, trials_least=least.trials, seconds=span, cost=cost)
