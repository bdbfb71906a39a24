"""What a comparison says besides its numbers: findings, and how A and B differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pgpaces.analysis.compare import PAIRS_MIN, Verdict
from pgpaces.analysis.differences import Between
from pgpaces.core.findings import Finding, finding, needed
from pgpaces.core.messages import Message, message, said
from pgpaces.core.metrics import is_share, title
from pgpaces.core.units import significant
from pgpaces.show.escape import line
from pgpaces.spec.result import Estimate

_SHOWN = 8
# From this ratio on, a difference is in times rather than percent.
TIMES = 2.0
# The finding for each reason why a comparison has no verdict.
_REASONS = {
    "few": "too-few-to-compare",
    "nothing new": "new-run-unusable",
    "unbounded": "metric-without-value",
    "noise": "noise-hides-difference",
    "biased": "equal-sides-differ",
    "look": "ended-before-look",
    "apart": "trials-apart-in-time",
}


def short(metric: str, estimate: Estimate) -> tuple[str, str]:
    """An effect and its interval in few characters: `+17%` and `+16 to +19%`."""
    low, high = (signed(metric, estimate, end) for end in (estimate.low, estimate.high))
    ends = f"{low} to {high}{unit(metric, estimate)}"
    value = signed(metric, estimate, estimate.value)
    return f"{value}{unit(metric, estimate)}", ends if estimate.estimable else "–"


def signed(metric: str, estimate: Estimate, value: float) -> str:
    if _in_times(metric, estimate):
        return f"{value:.3g}"
    apart = 100 * (value if is_share(metric) else value - 1)
    text = f"{abs(apart):.0f}" if abs(apart) >= 9.95 else significant(abs(apart), 2)
    return text if text == "0" else f"{'+' if apart > 0 else '−'}{text}"


def unit(metric: str, estimate: Estimate) -> str:
    return " points" if is_share(metric) else " times" if _in_times(metric, estimate) else "%"


def _in_times(metric: str, estimate: Estimate) -> bool:
    high = estimate.high if estimate.estimable else estimate.value
    return not is_share(metric) and max(estimate.value, high) >= TIMES


def size(metric: str, value: float) -> str:
    """A difference without a direction: `2%`, `0.5 points`."""
    return f"{float(f'{100 * value:.2g}'):g}{' points' if is_share(metric) else '%'}"


def with_ends(metric: str, estimate: Estimate | None) -> str | None:
    """An effect with its interval, to stand in a sentence; None if there is none."""
    if estimate is None:
        return None
    effect, ends = short(metric, estimate)
    return message("effect", effect=effect, ends=ends)


def findings(verdict: Verdict, *, running: bool = False) -> Iterator[Finding]:
    """The reason why there is no verdict, what would decide, and what weakens the verdict."""
    metric, least, basis = verdict.metric, verdict.needed, verdict.basis
    name = "next-look" if verdict.why == "look" and running else _REASONS.get(verdict.why, "")
    values: dict[str, Any] = {
        "count": verdict.undefined if verdict.why == "unbounded" else verdict.pairs,
        "basis": basis,
        "needed": (least or PAIRS_MIN) if verdict.why == "few" else least,
        "metric": title(metric),
        "noise": with_ends(metric, verdict.noise),
        "delta": size(metric, verdict.delta),
    }
    if name:
        yield Finding(name, needed(name, values))
    wide = verdict.why == "wide"
    if wide and basis == "runs":
        yield finding("more-runs-tell-more")
    elif wide and least is None:
        yield finding("too-wide-to-decide")
    elif wide:
        yield finding("more-pairs-decide", needed=max(PAIRS_MIN, least or 0, verdict.pairs + 1))
    if verdict.why not in ("few", "nothing new") and verdict.pairs < PAIRS_MIN and basis != "runs":
        yield finding("few-pairs", count=verdict.pairs, least=PAIRS_MIN)
    if wide and verdict.detectable is not None:
        yield finding("detectable-difference", smallest=size(metric, verdict.detectable))


def differing(differences: Sequence[Between]) -> list[Message]:
    """In what A and B differ other than the compared factors."""
    return [
        said("difference-of-sides", name=each.name, a=each.a or ["-"], b=each.b or ["-"])
        for each in differences
    ]


def listed(differences: Sequence[Message]) -> str:
    """The first of the differences, each in a line, for an error."""
    left = len(differences) - _SHOWN
    more = [said("more-not-shown", count=left)] if left > 0 else []
    return "".join(f"\n  {line(str(each))}" for each in (*differences[:_SHOWN], *more))
