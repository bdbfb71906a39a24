"""pgbench's log of sums (--aggregate-interval): a line for each interval and thread.

start_s count sum sum_of_squares min max [lag: sum sum_of_squares min max [skipped [retried retries
serialization deadlock [other]]]]: times in us. count is of those that succeeded; how many of them
were late, and quantiles, are not in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from pgpaces.errors import PlanError
from pgpaces.record import Interval, Tally
from pgpaces.times import Times

# Columns of all versions: without lag, with it, with what was skipped; 15 to 18; since 19.
WIDTHS = (6, 10, 11, 15, 16)
_MARKS = ("40001", "40P01", "other")


class ThreadInterval(Struct, frozen=True):
    """What one thread did in one interval."""

    start_s: int
    tally: Tally

    @classmethod
    def read(cls, words: list[str]) -> ThreadInterval:
        """Raises ValueError for what is none."""
        numbers = [float(word) for word in words]
        if len(numbers) not in WIDTHS or not all(0 <= n < 2**63 for n in numbers):
            raise ValueError
        numbers += [0.0] * (WIDTHS[-1] - len(numbers))
        count = int(numbers[1])
        latency, lag = _times(count, numbers[2:6]), _times(count, numbers[6:10])
        skipped, retried, retries = map(int, numbers[10:13])
        failed = {m: int(n) for m, n in zip(_MARKS, numbers[13:16], strict=True) if n}
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
                # Its spread is not known: sums of products are not in the log.
                service=service if count else Times(),
                retried=retried,
                retries=retries,
            ),
        )


def _times(count: int, numbers: list[float]) -> Times:
    total, squares, _, highest = numbers
    return Times(count, int(total) * 1000, squares * 1e6, int(highest) * 1000) if count else Times()


def lines(name: str, texts: Iterable[str]) -> list[ThreadInterval]:
    """The lines of one file. Raises PlanError, with file and line, for what is none."""
    found = []
    for number, text in enumerate(texts, 1):
        try:
            found.append(ThreadInterval.read(text.split()))
        except (ValueError, OverflowError):
            raise PlanError(
                f"{name}, line {number}, is no line of pgbench's aggregated log: '{text[:80]}'",
                "is the file whole, and all of one run?",
            ) from None
    return found


def intervals(found: Iterable[ThreadInterval], start_s: int) -> tuple[Interval, ...]:
    """The seconds of a run; what threads did in the same one stands together."""
    from msgspec.structs import replace

    together: dict[int, Tally] = {}
    for line in found:
        second = line.start_s - start_s
        tally = replace(line.tally, due_second=second)
        together[second] = _sum(together[second], tally) if second in together else tally
    return tuple(
        Interval(second, (tally,), ended_ns=(second + 1) * 1_000_000_000)
        for second, tally in sorted(together.items())
    )


def _sum(one: Tally, other: Tally) -> Tally:
    from pgpaces.times import merge

    failed = dict(one.failed)
    for mark, count in other.failed.items():
        failed[mark] = failed.get(mark, 0) + count
    return Tally(
        one.due_second,
        one.script,
        due=one.due + other.due,
        on_time=one.on_time + other.on_time,
        skipped=one.skipped + other.skipped,
        failed=failed,
        latency=merge((one.latency, other.latency)),
        lag=merge((one.lag, other.lag)),
        service=merge((one.service, other.service)),
        retried=one.retried + other.retried,
        retries=one.retries + other.retries,
    )
