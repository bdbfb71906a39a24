"""Comparisons in words. Values in, sentences out; the names of A and B are unescaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pgpaces.analysis.compare import PAIRS_MIN, Verdict
from pgpaces.analysis.differences import Between
from pgpaces.core.findings import Finding, finding
from pgpaces.core.findings import needed as needed_of
from pgpaces.core.messages import message
from pgpaces.core.metrics import is_share, title
from pgpaces.show.escape import line
from pgpaces.show.section import Sentence
from pgpaces.spec.result import Estimate

_SHOWN, _VALUES_SHOWN = 8, 4
# Larger ratios are in times rather than percent.
_TIMES = 2.0
BASIS = {
    "pairs": "basis-pairs",
    "blocks": "basis-blocks",
    "trials": "basis-trials",
    "apart": "basis-apart",
    "runs": "basis-runs",
}


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


def difference(metric: str, value: float) -> str:
    """How B differs: `8.8% lower`, `3.1 times as high`, `2.1 points higher`."""
    if _in_times(metric, value):
        return f"{value:.3g} times as high"
    return f"{_amount(metric, value)}{_unit(metric)} {_way(metric, value)}"


def _in_times(metric: str, value: float) -> bool:
    return not is_share(metric) and not 1 / _TIMES < value < _TIMES


def _way(metric: str, value: float) -> str:
    return "higher" if value > (not is_share(metric)) else "lower"


def _unit(metric: str) -> str:
    return " points" if is_share(metric) else "%"


def _amount(metric: str, value: float) -> str:
    """The size of a difference, with one decimal place; below 0.95 with two."""
    apart = 100 * abs(value - (not is_share(metric)))
    return f"{apart:.2f}" if apart < 0.95 else f"{apart:.1f}"


def size(metric: str, value: float) -> str:
    return f"{float(f'{100 * value:.2g}'):g}{_unit(metric)}"


def changed_by(metric: str, estimate: Estimate, than: str = "") -> str:
    """A difference with its interval; than: from what."""
    text = difference(metric, estimate.value)
    link = f" {'as' if text.endswith('as high') else 'than'} {than}" if than else ""
    return f"{text}{link} ({_ends(metric, estimate)})"


def _ends(metric: str, estimate: Estimate) -> str:
    """The interval, with the direction once if both ends have the same."""
    low, high = estimate.low, estimate.high
    if not estimate.estimable:
        return "–"
    if _in_times(metric, low) and _in_times(metric, high) and (low > 1) == (high > 1):
        return f"{low:.3g} to {high:.3g} times"
    if _in_times(metric, low) or _in_times(metric, high) or _way(metric, low) != _way(metric, high):
        return f"{difference(metric, low)} to {difference(metric, high)}"
    least, most = sorted((low, high), key=lambda value: abs(value - (not is_share(metric))))
    return f"{_amount(metric, least)} to {_amount(metric, most)}{_unit(metric)}"


def comparison(
    verdict: Verdict, a: str = "A", b: str = "B", *, running: bool = False
) -> tuple[Sentence, ...]:
    """A verdict on B against A, and what it rests on. running: more pairs follow."""
    metric, values = verdict.metric, {"outcome": verdict.outcome, "a": a, "b": b}
    if verdict.estimate is None:
        text = message("comparison-open", **values)
    else:
        effect = changed_by(metric, verdict.estimate)
        text = message("comparison", metric=title(metric), effect=effect, **values)
    found = [
        Sentence(str(each), "note" if each.severity == "nothing" else "warning")
        for each in findings(verdict, running=running)
    ]
    return (Sentence(text, "main"), *map(Sentence, _evidence(verdict)), *found)


def findings(verdict: Verdict, *, running: bool = False) -> Iterator[Finding]:
    pairs, needed = verdict.pairs, verdict.needed
    name = "next-look" if verdict.why == "look" and running else _REASONS.get(verdict.why, "")
    noise = None if verdict.noise is None else changed_by(verdict.metric, verdict.noise)
    values: dict[str, Any] = {
        "count": verdict.undefined if verdict.why == "unbounded" else pairs,
        "basis": verdict.basis,
        "needed": (needed or PAIRS_MIN) if verdict.why == "few" else needed,
        "metric": title(verdict.metric),
        "noise": noise,
        "delta": size(verdict.metric, verdict.delta),
    }
    if name:
        yield Finding(name, needed_of(name, values))
    usable = verdict.why not in ("few", "nothing new")
    if usable and pairs < PAIRS_MIN and verdict.basis != "runs":
        yield finding("few-pairs", count=pairs, least=PAIRS_MIN)
    if verdict.why != "wide":
        return
    if verdict.detectable is not None:
        yield finding("detectable-difference", smallest=size(verdict.metric, verdict.detectable))
    if verdict.basis == "runs":
        yield finding("more-runs-tell-more")
    elif needed is None:
        yield finding("too-wide-to-decide")
    else:
        yield finding("more-pairs-decide", needed=max(PAIRS_MIN, needed, pairs + 1))


def _evidence(verdict: Verdict) -> Iterator[str]:
    """What the verdict rests on: trials, p, the noise floor, and other metrics."""
    metric = verdict.metric
    if verdict.why not in ("few", "nothing new"):
        yield message(BASIS[verdict.basis], count=verdict.pairs)
        if verdict.p is not None and verdict.level not in (0.0, 0.05):
            yield message("p-at-look", p=verdict.p, level=verdict.level)
        if verdict.noise is not None and verdict.why not in ("noise", "biased"):
            yield message("noise-floor", noise=changed_by(metric, verdict.noise))
    for each in verdict.secondary:
        yield message(
            "secondary-metric",
            metric=title(each.metric),
            outcome=each.outcome,
            effect=changed_by(each.metric, each.estimate),
            p=each.p,
        )


def count(number: int, basis: str) -> str:
    """`8 pairs`, `4 earlier runs`."""
    if basis == "runs":
        return f"{number or 'no'} earlier run{'' if number == 1 else 's'}"
    name = "pair" if basis in ("pairs", "blocks") else "trial"
    each = "" if name == "pair" else " of each"
    return f"{number or 'no'} {name}{'' if number == 1 else 's'}{each}"


def refused(differences: Sequence[Between], compared: str) -> tuple[Sentence, ...]:
    """In what A and B differ other than the compared factors; compared: their names, or empty."""
    texts = [
        message("difference-of-sides", name=each.name, a=each.a or ["-"], b=each.b or ["-"])
        for each in differences
    ]
    main = message("sides-differ-in-more" if compared else "sides-differ", compared=compared)
    return first_of(main, texts)


def first_of(main: str, texts: Sequence[str]) -> tuple[Sentence, ...]:
    """A main sentence and the first of the texts; nothing without any."""
    if not texts:
        return ()
    left = len(texts) - _SHOWN
    more = (message("more-not-shown", count=left),) if left > 0 else ()
    return (Sentence(main, "main"), *map(Sentence, (*texts[:_SHOWN], *more)))


def listed(sentences: Sequence[Sentence]) -> str:
    """The sentences after the main one, each in a line."""
    return "".join(f"\n  {line(each.text)}" for each in sentences[1:])
