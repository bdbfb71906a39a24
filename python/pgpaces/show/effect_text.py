"""Effects as texts: a ratio or a difference of shares, with its interval, also drawn on a line."""

from __future__ import annotations

import math

from pgpaces.core.messages import message
from pgpaces.core.metrics import is_share
from pgpaces.core.units import significant
from pgpaces.show.number_text import NOT_KNOWN
from pgpaces.spec.result import Estimate

_LINE = 31
# From this ratio on, a difference is in times rather than percent.
_TIMES = 2.0


def texts(metric: str, estimate: Estimate) -> tuple[str, str]:
    """An effect and its interval in few characters: `+17%` and `+16 to +19%`."""
    value, unit = _part(metric, estimate, estimate.value)
    low, high = (_part(metric, estimate, end)[0] for end in (estimate.low, estimate.high))
    return f"{value}{unit}", f"{low} to {high}{unit}" if estimate.estimable else NOT_KNOWN


def _part(metric: str, estimate: Estimate, value: float) -> tuple[str, str]:
    """A value of an effect or of its interval, and the unit of all of them."""
    share = is_share(metric)
    most = max(estimate.value, estimate.high if estimate.estimable else estimate.value)
    if not share and most >= _TIMES:
        return f"{value:.3g}", " times"
    percent = 100 * (value if share else value - 1)
    text = f"{abs(percent):.0f}" if abs(percent) >= 9.95 else significant(abs(percent), 2)
    sign = "" if text == "0" else "+" if percent > 0 else "−"
    return f"{sign}{text}", " points" if share else "%"


def with_ends(metric: str, estimate: Estimate | None) -> str | None:
    """An effect with its interval, to stand in a sentence; None if there is none."""
    if estimate is None:
        return None
    effect, ends = texts(metric, estimate)
    return message("effect", effect=effect, ends=ends)


def without_direction(metric: str, value: float) -> str:
    """A difference without a direction: `2%`, `0.5 points`."""
    return f"{float(f'{100 * value:.2g}'):g}{' points' if is_share(metric) else '%'}"


def drawn(metric: str, estimate: Estimate) -> str:
    """An interval drawn on a line, with a tick at no effect; empty if it has no two ends."""
    # On a logarithmic axis one half and twice are equally far from no difference.
    logs = not is_share(metric) and estimate.low > 0
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = map(math.log, ends) if logs else ends
    if math.isinf(low) or math.isinf(high):
        return ""
    none = 0.0 if logs or is_share(metric) else 1.0
    least, most = min(low, none), max(high, none)
    room = 0.1 * (most - least) or 1.0
    # No difference, if it is an end, is at the end of the line.
    least, most = least - room * (least < none), most + room * (most > none or least == none)
    cells = ["─"] * _LINE
    for at, mark in ((none, "┼"), (low, "["), (high, "]"), (value, "●")):
        cells[round((_LINE - 1) * (at - least) / (most - least))] = mark

    def form(at: float) -> str:
        text, unit = _part(metric, estimate, math.exp(at) if logs else at)
        return text if at == none else f"{text}{unit}"

    return f"{form(least)} {''.join(cells)} {form(most)}"
