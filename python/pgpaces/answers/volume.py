"""The number of queries in a load, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgpaces.analysis import volume
from pgpaces.analysis.cells import Row
from pgpaces.analysis.volume import Volume
from pgpaces.core.units import measured_text
from pgpaces.show.numbers import in_words, rate
from pgpaces.spec.result import Estimate

_MILLION = 1_000_000


def text(queries: Volume) -> str:
    """`90,000 in 1086s: 4,972 a minute (4,950 to 4,990), 7.16 million a day (7.13 to 7.19)`."""
    return (
        f"{queries.queries:,} in {measured_text(queries.seconds * 1e9)}:"
        f" {_estimate(queries.per_minute)} a minute, {_estimate(queries.per_day)} a day"
    )


def sentences(rows: Sequence[Row]) -> Iterator[str]:
    trials = [digest for row in rows for digest in row.trials]
    if len(trials) == 1 and (queries := volume.of(trials[0].trial, trials[0].summary)) is not None:
        yield f"In queries that is {text(queries)}."


def _estimate(number: Estimate) -> str:
    unit, size = (" million", _MILLION) if number.value >= _MILLION else ("", 1)
    return in_words(number, lambda value: rate(value / size), unit)
