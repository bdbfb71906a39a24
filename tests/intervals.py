"""What the intervals of a load hold together."""

from collections import Counter

from pgpaces.core.record import Interval
from pgpaces.spec.result import Counts, counts


def total(intervals: list[Interval]) -> Counts:
    return counts(tally for interval in intervals for tally in interval.tallies)


def failures(intervals: list[Interval]) -> Counter[str]:
    found: Counter[str] = Counter()
    for interval in intervals:
        for tally in interval.tallies:
            found.update(tally.failed)
    return found


def due(intervals: list[Interval]) -> Counter[tuple[int, int]]:
    """How many fell due, by second and task."""
    found: Counter[tuple[int, int]] = Counter()
    for interval in intervals:
        for tally in interval.tallies:
            found[tally.due_second, tally.script] += tally.due
    return +found


def said(intervals: list[Interval]) -> list[str]:
    return [text for interval in intervals for _, text in interval.lines]


def messages(intervals: list[Interval]) -> dict[str, str]:
    return dict(message for interval in intervals for message in interval.messages)
