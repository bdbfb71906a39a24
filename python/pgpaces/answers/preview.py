"""What an experiment will take, before it is run: time, disk, money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgpaces.plan import TrialPlan

# What a trial takes beside its load: connecting, looking at the data, storing its answer; for one
# that writes also a copy of the data. Seconds: at least, likely, at most.
_AROUND_S = (0.3, 1.0, 3.0)
_COPY_S = (0.2, 1.5, 15.0)
# Stored of a second: of the trial, and of each script.
_SECOND_BYTES, _SCRIPT_BYTES = 1_300, 1_500


@dataclass(frozen=True, slots=True)
class Span:
    """A duration in seconds: likely, and between what and what."""

    value: float
    low: float
    high: float

    def __add__(self, other: Span) -> Span:
        """One after the other."""
        return Span(self.value + other.value, self.low + other.low, self.high + other.high)


@dataclass(frozen=True, slots=True)
class Step:
    """One trial that is to be run: its plan, how many scripts it has, whether it writes."""

    plan: TrialPlan
    scripts: int
    writes: bool

    def span(self) -> Span | None:
        """How long it takes; None where its load ends by count."""
        if self.plan.duration_ns is None:
            return None
        load_s = (self.plan.duration_ns + self.plan.warmup) / 1e9
        low, value, high = _AROUND_S
        copy = _COPY_S if self.writes else (0.0, 0.0, 0.0)
        grace_s = self.plan.grace / 1e9
        return Span(
            load_s + value + copy[1], load_s + low + copy[0], load_s + high + copy[2] + grace_s
        )

    def stored_bytes(self) -> float:
        """What the store grows by."""
        seconds = ((self.plan.duration_ns or 0) + self.plan.warmup) / 1e9
        return seconds * (_SECOND_BYTES + self.scripts * _SCRIPT_BYTES)


@dataclass(frozen=True, slots=True)
class Preview:
    """What is left of an experiment to be run.

    seconds: until its end, machines at the same time; None where loads end by count. machines:
    trials of each. store_bytes: what the store grows by. cost: by currency, of the machines that
    have a price.
    """

    cells: int
    trials: int
    seconds: Span | None
    machines: Mapping[str, int]
    store_bytes: float
    cost: Mapping[str, float]


def machine_span(steps: Sequence[Step]) -> Span | None:
    """How long a machine is busy, one trial after the other; None where that is not known."""
    total = Span(0.0, 0.0, 0.0)
    for step in steps:
        span = step.span()
        if span is None:
            return None
        total += span
    return total


def preview(
    cells: int,
    machines: Mapping[str, Sequence[Step]],
    prices: Mapping[str, tuple[float, str]],
) -> Preview:
    """The preview. machines: their trials. prices: an hour of a machine, and its currency."""
    spans = {name: machine_span(steps) for name, steps in machines.items()}
    known = [span for span in spans.values() if span is not None]
    cost: dict[str, float] = {}
    for name, (price, currency) in prices.items():
        if (span := spans.get(name)) is not None:
            cost[currency] = cost.get(currency, 0.0) + price * span.value / 3600
    steps = [step for found in machines.values() for step in found]
    every = bool(known) and len(known) == len(spans)
    return Preview(
        cells=cells,
        trials=len(steps),
        seconds=max(known, key=lambda span: span.value) if every else None,
        machines={name: len(found) for name, found in machines.items()},
        store_bytes=sum(step.stored_bytes() for step in steps),
        cost=cost,
    )
