"""Comparisons in words. Values in, sentences out.

No sentence claims that A and B do not differ: a difference that was not shown is unknown, and
the last sentence is what to do then. The names of A and B are unescaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from pgpaces.analysis.compare import PAIRS_MIN, Secondary, Verdict
from pgpaces.analysis.differences import Between
from pgpaces.core.metrics import is_share, title
from pgpaces.show.escape import line
from pgpaces.show.numbers import capital
from pgpaces.show.section import Sentence
from pgpaces.spec.result import Estimate

_SHOWN, _VALUES_SHOWN = 8, 4
# Larger ratios are in times rather than percent.
_TIMES = 2.0
BASIS = {
    "pairs": "{n} pairs in random order, with the same arrivals within a pair.",
    "blocks": "{n} pairs of trials from the blocks of an experiment, in random order.",
    "trials": "Trials that are no pairs ({n} of each at least), in mixed order: what the machine"
    " did in between is in the spread, so it takes more of them than of pairs.",
    "apart": "All trials of one ran before all of the other ({n} of each at least), so whatever"
    " changed on the machine is in the difference; 8% of drift are allowed for.",
    "runs": "Held against {n} earlier runs and how far these are from each other.",
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
    """A verdict on B against A: the answer first, what to do last. running: more pairs follow."""
    metric = verdict.metric
    effect = ""
    if verdict.estimate is not None:
        than = changed_by(metric, verdict.estimate, f"that of {a}")
        verb = "comes out" if verdict.outcome == "unknown" else "is"
        effect = f"its {title(metric)} {verb} {than}"
    match verdict.outcome:
        case "better" | "worse":
            text = f"{b} is {verdict.outcome} than {a}: {effect}."
        case "same":
            within = size(metric, verdict.delta)
            text = f"{b} is the same as {a} within {within}: {effect}."
        case _:
            text = f"Unknown whether {b} is better or worse than {a}"
            text += f": {effect}." if effect else "."
    return (
        Sentence(text, "main"),
        *_reason(verdict, a, b, running=running),
        *_evidence(verdict),
        *(_secondary(each, len(verdict.secondary)) for each in verdict.secondary),
        *(replace(each, weight="note") for each in _next(verdict, a)),
    )


def _reason(verdict: Verdict, a: str, b: str, *, running: bool) -> Iterable[Sentence]:
    metric, delta = verdict.metric, size(verdict.metric, verdict.delta)
    match verdict.why:
        case "few":
            pairs = capital(count(verdict.pairs, verdict.basis))
            few = "cannot make an interval" if verdict.pairs else "that count: nothing to compare"
            yield Sentence(f"{pairs} {few}.")
        case "nothing new":
            yield Sentence("The run did not finish or is invalid. Run it again.")
        case "unbounded":
            yield Sentence(
                f"In {verdict.undefined} of them the {title(metric)} of {a} or {b} is no number: it"
                " falls among what was missed, or there is nothing.",
                "warning",
            )
        case "noise" if verdict.noise is not None:
            yield Sentence(
                f"The two look alike, but {a} with itself comes out"
                f" {changed_by(metric, verdict.noise)}: a difference of {delta} may hide in that.",
                "warning",
            )
        case "biased" if verdict.noise is not None:
            yield Sentence(
                f"{a} with itself comes out {changed_by(metric, verdict.noise)}: this place tells"
                f" equal things apart, and {b} is not further off than that.",
                "warning",
            )
        case "look":
            state = "Not decided yet" if running else "The comparison ended before it was decided"
            yield Sentence(
                f"{state}. The next look is at {verdict.needed} pairs; nothing is decided between"
                " looks.",
                "note",
            )
        case "apart":
            yield Sentence("A difference of that size may be the machine's.", "warning")
        case _:
            return


def _evidence(verdict: Verdict) -> Iterable[Sentence]:
    if verdict.why in ("few", "nothing new"):
        return
    yield Sentence(BASIS[verdict.basis].format(n=verdict.pairs))
    if verdict.pairs < PAIRS_MIN and verdict.basis != "runs":
        text = f"With fewer than {PAIRS_MIN} the interval assumes normally distributed differences."
        yield Sentence(text, "warning")
    if verdict.p is not None and verdict.level not in (0.0, 0.05):
        yield Sentence(f"p = {verdict.p:.2g}, held against {verdict.level:g} at this look.")
    if verdict.noise is not None and verdict.why not in ("noise", "biased"):
        noise = changed_by(verdict.metric, verdict.noise)
        yield Sentence(f"Noise floor, A with itself: {noise}.")


def _secondary(secondary: Secondary, count: int) -> Sentence:
    among = f" by Holm among {count}" if count > 1 else ""
    return Sentence(
        f"Secondary metric, {title(secondary.metric)}: {secondary.outcome},"
        f" {changed_by(secondary.metric, secondary.estimate)}, p = {secondary.p:.2g}{among}."
    )


def _next(verdict: Verdict, a: str) -> Iterable[Sentence]:
    if verdict.outcome != "unknown" or verdict.why in ("look", "nothing new"):
        return
    if verdict.detectable is not None and verdict.why == "wide":
        yield Sentence(
            "The smallest detectable difference with this spread (80% power) is"
            f" {size(verdict.metric, verdict.detectable)}."
        )
    if verdict.why == "few":
        yield Sentence(f"It takes {count(verdict.needed or PAIRS_MIN, verdict.basis)} at least.")
    elif verdict.why == "unbounded":
        yield Sentence("Compare by the share missed, or under less load.")
    elif verdict.basis == "apart":
        yield Sentence(f"Run pairs of both, at least {PAIRS_MIN}, in random order.")
    elif verdict.why == "noise":
        yield Sentence(f"More pairs of {a} with itself, longer trials or a larger delta would do.")
    elif verdict.why == "biased":
        yield Sentence("Find what disturbs this machine, or use longer trials.")
    elif verdict.basis == "runs":
        yield Sentence("Run it again: the mean of several runs tells more.")
    elif verdict.needed is None:
        yield Sentence(
            "No reasonable number of pairs would decide; longer trials or a larger delta would."
        )
    else:
        needed = max(PAIRS_MIN, verdict.needed, verdict.pairs + 1)
        yield Sentence(
            f"About {needed:,} pairs would decide if value and spread stay as they are. Make a new"
            f" comparison: extending these {verdict.pairs} after a look at them would bias it."
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
        f"{each.name}: {', '.join(each.a) or '-'} of A, {', '.join(each.b) or '-'} of B."
        for each in differences
    ]
    than = f"A and B differ in more than {compared}"
    main = (
        f"{than if compared else 'A and B differ, and what is compared was not named'}, so the"
        " cause of a difference would be unknown."
    )
    return first_of(main, texts)


def first_of(main: str, texts: Sequence[str]) -> tuple[Sentence, ...]:
    """A main sentence and the first of the texts; nothing without any."""
    if not texts:
        return ()
    left = len(texts) - _SHOWN
    more = (f"And {left} more.",) if left > 0 else ()
    return (Sentence(main, "main"), *map(Sentence, (*texts[:_SHOWN], *more)))


def listed(sentences: Sequence[Sentence]) -> str:
    """The sentences after the main one, each in a line."""
    return "".join(f"\n  {line(each.text)}" for each in sentences[1:])
