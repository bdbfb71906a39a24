"""Numbers as texts: shares, times, rates, durations, moments, and their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from pgpaces.core import metrics
from pgpaces.core.units import ms_text, percent_text, rate_text
from pgpaces.show.section import TableCell
from pgpaces.spec.result import Estimate

# Stands for an unknown value or interval.
NOT_KNOWN = "–"
# The column of the moments at which trials and experiments started.
STARTED = "started (UTC)"
# Their names in tables and sentences.
rate, percent = rate_text, percent_text
_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARK_MAX = 40


def milliseconds(value: float | None, above: str = NOT_KNOWN) -> str:
    """A time in milliseconds without its unit; `above` if it is infinite or None."""
    return above if value is None or math.isinf(value) else ms_text(value)


def quantile(estimate: Estimate | None, above: str) -> str:
    """A quantile where its interval is not shown: `–` if it has none, `above` if it is infinite."""
    if estimate is None or not (estimate.estimable or math.isinf(estimate.value)):
        return NOT_KNOWN
    return milliseconds(estimate.value, above)


def moment(at: datetime | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A moment in UTC, which its column or sentence says; `–` for None."""
    return NOT_KNOWN if at is None else at.astimezone(UTC).strftime(form)


def or_dash(value: float | None, form: Callable[[float], str]) -> str:
    return NOT_KNOWN if value is None else form(value)


def interval(estimate: Estimate, form: Callable[[float], str], to: str = "–") -> str:
    if not estimate.estimable:
        return NOT_KNOWN
    if math.isinf(estimate.low):
        return ""
    if math.isinf(estimate.high):
        return f"over {form(estimate.low)}"
    if estimate.low == 0 < estimate.value:
        return f"0{to}{form(estimate.high)}"
    return f"{form(estimate.low)}{to}{form(estimate.high)}"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def estimate_cell(estimate: Estimate | None, form: Callable[[float], str]) -> TableCell:
    if estimate is None:
        return TableCell(NOT_KNOWN)
    return TableCell(form(estimate.value), interval(estimate, form))


def metric_cell(name: str, estimate: Estimate | None, above: str = NOT_KNOWN) -> TableCell:
    """A metric with its interval; `above` stands for infinity."""
    return estimate_cell(estimate, lambda value: metrics.number(name, value, above))


def share_in_words(estimate: Estimate) -> str:
    """A share and both ends of its interval in a sentence."""
    ends = f"{percent(estimate.low)} to {percent(estimate.high)}"
    return f"{percent(estimate.value)}% ({ends})"


def sparkline(values: Sequence[float | None]) -> str:
    """A line of blocks from 0 to the largest value; a block is the largest of several values.

    A blank stands for None. Only infinity has the highest block where there is one.
    """
    step = -(-len(values) // _SPARK_MAX) or 1
    parts = [values[at : at + step] for at in range(0, len(values), step)]
    most = [max((each for each in part if each is not None), default=None) for part in parts]
    top = max((each for each in most if each is not None and each < math.inf), default=0.0) or 1.0
    blocks = _BLOCKS[:-1] if math.inf in most else _BLOCKS
    count = len(blocks)

    def block(value: float) -> str:
        if value == math.inf:
            return _BLOCKS[-1]
        return blocks[min(count - 1, int(count * max(0.0, value) / top))]

    return "".join(" " if each is None else block(each) for each in most)


def clock(seconds: float) -> str:
    """A duration in two units at most: `45 s`, `12 min`, `3 h 5 min`, `2 d 4 h`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
