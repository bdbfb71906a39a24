"""How many queries a load was, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgpaces.answers import volume
from pgpaces.answers.cells import Row
from pgpaces.answers.volume import Volume
from pgpaces.report.numbers import interval, rate
from pgpaces.result import Estimate
from pgpaces.units import duration_text

_MILLION = 1_000_000


def text(found: Volume) -> str:
    """`90,000 in 18.1min: 4,972 a minute (4,950 to 4,990), 7.16 million a day (7.13 to 7.19)`."""
    return (
        f"{found.queries:,} in {duration_text(found.seconds * 1e9)}:"
        f" {_estimate(found.per_minute)} a minute, {_estimate(found.per_day)} a day"
    )


def sentences(rows: Sequence[Row]) -> Iterator[str]:
    """What the page of a single trial says of it."""
    trials = [digest for row in rows for digest in row.trials]
    if len(trials) == 1 and (found := volume.of(trials[0].trial, trials[0].summary)) is not None:
        yield f"In queries that is {text(found)}."


def _estimate(found: Estimate) -> str:
    unit, size = (" million", _MILLION) if found.value >= _MILLION else ("", 1)
    ends = interval(found, lambda value: rate(value / size), " to ")
    return f"{rate(found.value / size)}{unit}" + (f" ({ends})" if found.estimable else "")
