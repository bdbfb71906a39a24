"""pgbench's log of sums (--aggregate-interval): a line for each interval and thread.

start_s count sum sum_of_squares min max [lag: sum sum_of_squares min max [skipped [retried retries
serialization deadlock [other]]]]: times in us. count is that of successful transactions, until
version 14 with the skipped ones; it has no quantiles, and no number of late ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.errors import PlanError
from pgpaces.record import Interval, Tally, summed
from pgpaces.times import Times

# Numbers of columns: without lag, with lag, with skipped ones; version 15 to 18; since version 19.
WIDTHS = (6, 10, 11, 15, 16)
# Of versions until 14, whose count includes skipped transactions.
_COUNTS_SKIPPED = 11
_STATES = ("40001", "40P01", "other")


class ThreadInterval(Struct, frozen=True):
    """The transactions of one thread in one interval."""

    start_s: int
    tally: Tally

    @classmethod
    def read(cls, words: list[str]) -> ThreadInterval:
        """The interval of the words of a line. Raises ValueError for any other line."""
        numbers = [float(word) for word in words]
        if len(numbers) not in WIDTHS or not all(0 <= n < 2**63 for n in numbers):
            raise ValueError
        numbers += [0.0] * (WIDTHS[-1] - len(numbers))
        count = int(numbers[1])
        if len(words) == _COUNTS_SKIPPED:
            count = max(0, count - int(numbers[10]))
        latency, lag = _times(count, numbers[2:6]), _times(count, numbers[6:10])
        skipped, retried, retries = map(int, numbers[10:13])
        failed = {state: int(n) for state, n in zip(_STATES, numbers[13:16], strict=True) if n}
        service = Times(count, max(0, latency.sum_ns - lag.sum_ns))
        return cls(
            int(numbers[0]),
            Tally(
                0,
                0,
                due=count + skipped + sum(failed.values()),
                on_time=count,
                skipped=skipped,
                failed=failed,
                latency=latency,
                lag=lag,
                # Without sum of squares: the log has no sum of products.
                service=service if count else Times(),
                retried=retried,
                retries=retries,
            ),
        )


def _times(count: int, numbers: list[float]) -> Times:
    total, squares, _, highest = numbers
    return Times(count, int(total) * 1000, squares * 1e6, int(highest) * 1000) if count else Times()


def lines(name: str, texts: Iterable[str]) -> list[ThreadInterval]:
    """The lines of one file. Raises PlanError, with file and line, for any other line."""
    parsed = []
    for number, text in enumerate(texts, 1):
        try:
            parsed.append(ThreadInterval.read(text.split()))
        except (ValueError, OverflowError):
            raise PlanError(
                f"{name}, line {number}, is not a line of pgbench's aggregated log: '{text[:80]}'",
                "check that the file is complete, and all of one run",
            ) from None
    return parsed


def intervals(lines: Iterable[ThreadInterval], start_s: int) -> tuple[Interval, ...]:
    """The seconds of a run, each the sum of its threads."""
    moved = (replace(line.tally, due_second=line.start_s - start_s) for line in lines)
    tallies = sorted(summed(moved), key=lambda tally: tally.due_second)
    return tuple(
        Interval(tally.due_second, (tally,), ended_ns=(tally.due_second + 1) * 1_000_000_000)
        for tally in tallies
    )
