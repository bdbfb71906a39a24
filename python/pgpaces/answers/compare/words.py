"""Effects, and differences of A and B, as short texts."""

from __future__ import annotations

from collections.abc import Sequence

from pgpaces.analysis.differences import Between
from pgpaces.core.messages import Message, message, said
from pgpaces.core.metrics import is_share
from pgpaces.core.units import significant
from pgpaces.show.escape import line
from pgpaces.show.numbers import NOT_KNOWN
from pgpaces.spec.result import Estimate

_LISTED_MAX = 8
# From this ratio on, a difference is in times rather than percent.
_TIMES = 2.0


def effect_texts(metric: str, estimate: Estimate) -> tuple[str, str]:
    """An effect and its interval in few characters: `+17%` and `+16 to +19%`."""
    value, unit = effect_part(metric, estimate, estimate.value)
    low, high = (effect_part(metric, estimate, end)[0] for end in (estimate.low, estimate.high))
    return f"{value}{unit}", f"{low} to {high}{unit}" if estimate.estimable else NOT_KNOWN


def effect_part(metric: str, estimate: Estimate, value: float) -> tuple[str, str]:
    """A value of an effect or of its interval, and the unit of all of them."""
    share = is_share(metric)
    most = max(estimate.value, estimate.high if estimate.estimable else estimate.value)
    if not share and most >= _TIMES:
        return f"{value:.3g}", " times"
    percent = 100 * (value if share else value - 1)
    text = f"{abs(percent):.0f}" if abs(percent) >= 9.95 else significant(abs(percent), 2)
    sign = "" if text == "0" else "+" if percent > 0 else "−"
    return f"{sign}{text}", " points" if share else "%"


def effect_with_ends(metric: str, estimate: Estimate | None) -> str | None:
    """An effect with its interval, to stand in a sentence; None if there is none."""
    if estimate is None:
        return None
    effect, ends = effect_texts(metric, estimate)
    return message("effect", effect=effect, ends=ends)


def difference_text(metric: str, value: float) -> str:
    """A difference without a direction: `2%`, `0.5 points`."""
    return f"{float(f'{100 * value:.2g}'):g}{' points' if is_share(metric) else '%'}"


def differing(differences: Sequence[Between]) -> list[Message]:
    """In what A and B differ other than the compared factors."""
    return [
        said("difference-of-sides", name=each.name, a=each.a or ["-"], b=each.b or ["-"])
        for each in differences
    ]


def listed(differences: Sequence[Message]) -> str:
    """The first of the differences, each in a line, for an error."""
    left = len(differences) - _LISTED_MAX
    more = [said("more-not-shown", count=left)] if left > 0 else []
    return "".join(f"\n  {line(str(each))}" for each in (*differences[:_LISTED_MAX], *more))
