"""The section of an attribution: what lateness is associated with, by which signs, what next.

Values of answers/attribution in, words, tables and a chart out. The word is "associated": only an
experiment shows a cause, so the section names one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgpaces.analysis.attribution import Attribution, Card
from pgpaces.analysis.next_step import MISSED_MIN
from pgpaces.core.metrics import axis, header
from pgpaces.show.chart import Axis, Chart, Layer, Point
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, capital, estimate_cell, interval, or_dash, percent
from pgpaces.show.section import Column, Figure, Headline, Section, Sentence, Table, table
from pgpaces.spec.result import Estimate

_SECONDS_MAX = 300
_ROWS_MAX = 60
_ALSO_MAX = 3
_EVIDENCE_MAX = 3
# The likeliest causes have evidence and advice, the others only their numbers.
_CAUSES_MAX = 3
_COST = "sensor: looking at the server took"


def section(
    answer: Attribution,
    about: str,
    key: str = "why",
    *,
    notes: Sequence[str] = (),
    doubts: Sequence[str] = (),
) -> Section:
    """The section. about: the unescaped name of the run or cell. notes: of its trials.

    doubts: why one of the trials is not valid.
    """
    figure, shown = _figure(answer, key), answer.shown or next(iter(answer.trials), "")
    return Section(
        key,
        f"Why late: {about}",
        (*_sentences(answer), *(Sentence(f"invalid: {text}", "warning") for text in doubts)),
        tuple(_tables(answer, key, notes)),
        () if figure is None else (figure,),
        answer,
        answer.trials,
        headline=_headline(answer),
        note=f"{about}: {answer.missed:,} of {answer.due:,} due missed",
        facts=tuple(_facts(answer)),
        next=(answer.cause.command if answer.cause else f"pgpaces show {shown}".strip(),),
    )


def _headline(answer: Attribution) -> Headline:
    if answer.cause is None:
        return Headline("UNKNOWN", "unknown", next(_sentences(answer)).text)
    share = f"{percent(answer.cause.share.value)}% of the missed transactions coincide with it"
    return Headline("ASSOCIATED", "", f"with {answer.cause.title}: {share}")


def _facts(answer: Attribution) -> Iterator[tuple[str, str]]:
    if answer.cause is not None:
        if answer.cause.lift is not None:
            times = _times(answer.cause.lift)
            yield "lift", f"{times} times as frequent in missed transactions as in those on time"
        yield from (("evidence", text) for text in answer.cause.evidence[:_EVIDENCE_MAX])
    for each in answer.causes[1 if answer.cause else 0 :][:_ALSO_MAX]:
        yield "also", f"{each.title}, {percent(each.share.value)}%"
    if answer.causes:
        yield "unexplained", f"{percent(answer.unexplained)}%"
    if answer.cause is not None:
        yield "to confirm", answer.cause.advice


def _sentences(answer: Attribution) -> Iterator[Sentence]:
    missed = f"{answer.missed:,} of {answer.due:,} due missed"
    if answer.outcome == "nothing missed":
        yield Sentence("Nothing missed, so there is nothing to explain.", "main")
        yield Sentence("Without a latency limit, no transaction is late.")
        return
    if answer.outcome == "too few missed":
        text = f"Too few to attribute: {missed}; an attribution requires {MISSED_MIN}."
        yield Sentence(text, "main")
        return
    cause = answer.cause
    rest = f"Unexplained: {percent(answer.unexplained)}%."
    if cause is None:
        yield Sentence(f"No dominant cause: {missed}. {rest}", "main")
        yield Sentence(
            "No sign accompanies half of it and is rarer where transactions were on time: it may be"
            " the usual spread of times near the limit, or something that no sensor measures."
        )
    else:
        measured = _measure(cause, on_time=answer.due > answer.missed)
        yield Sentence(f"Associated with {cause.title}: {measured}; {missed}. {rest}", "main")
        yield from (Sentence(f"{capital(text)}.") for text in cause.evidence[:_EVIDENCE_MAX])
        yield from (Sentence(capital(text), "warning") for text in cause.against)
        if answer.ties:
            near = "; ".join(f"{card.title}, {percent(card.share.value)}%" for card in answer.ties)
            text = f"nearly a tie with {near}: another run may put it first"
            yield Sentence(capital(text), "warning")
        others = [c.title for c in answer.causes if c.named and c not in (cause, *answer.ties)]
        if others:
            yield Sentence(f"Associated as well, but less: {'; '.join(others[:_ALSO_MAX])}.")
        yield Sentence(f"What would confirm it: {cause.advice}")
        yield Sentence(cause.command)
    if answer.unseen:
        text = f"no sensor read {'; '.join(answer.unseen)}: causes that only they show are missing"
        yield Sentence(text, "warning")


def _measure(card: Card, *, on_time: bool) -> str:
    ends = interval(card.share, percent)
    text = f"{percent(card.share.value)}% ({ends}) of what missed saw it"
    if card.lift is None:
        some = "of those on time it is unknown" if on_time else "no transaction was on time"
        return f"{text}; {some}, so there is nothing to compare it with"
    return f"{text}, {_times(card.lift)} times as often as what was on time"


def _times(lift: Estimate) -> str:
    return f"{_number(lift.value)} ({interval(lift, _number)})"


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}"


def _tables(answer: Attribution, key: str, notes: Sequence[str]) -> Iterator[Table]:
    if not answer.causes:
        return
    causes: list[Column[Card]] = [
        ("sign of", lambda card: card.title),
        ("named", lambda card: "yes" if card.named else "no"),
        ("of missed %", lambda card: estimate_cell(card.share, percent)),
        ("of on time %", lambda card: percent(card.on_time)),
        ("lift", lambda card: estimate_cell(card.lift, _number)),
    ]
    note = (
        "Of missed, of on time: the share of the transactions' life that shows the sign; for a sign"
        " that covers most of the life of those that missed, its time as a share of theirs. Lift:"
        " one divided by the other. Named: at least half of what missed, and either much rarer on"
        " time, or a time that is long by itself."
    )
    cost = next((text for text in notes if text.startswith(_COST)), None)
    note = f"{note} {capital(cost)}." if cost else note
    yield table(f"{key}-causes", "Possible causes", causes, items=answer.causes, note=note)
    likeliest = answer.causes[:_CAUSES_MAX]
    evidence: list[Column[Card]] = [
        ("sign of", lambda card: card.title),
        ("seen", lambda card: "; ".join(card.evidence) or NOT_KNOWN),
        ("against", lambda card: "; ".join(card.against) or NOT_KNOWN),
    ]
    yield table(f"{key}-seen", "What was seen", evidence, items=likeliest, labels=3)
    confirming: list[Column[Card]] = [
        ("cause", lambda card: card.title),
        ("advice", lambda card: card.advice),
        ("command", lambda card: card.command),
    ]
    yield table(f"{key}-next", "What would confirm it", confirming, items=likeliest, labels=3)


def _figure(answer: Attribution, key: str) -> Figure | None:
    if not answer.causes or len(answer.missed_by_second) < 2:
        return None
    cards = answer.causes[:2] if answer.cause is None else answer.causes[:1]
    step = -(-len(answer.missed_by_second) // _ROWS_MAX)
    rows = tuple(
        (
            str(at),
            or_dash(answer.missed_by_second[at], percent),
            *(or_dash(card.by_second[at], percent) for card in cards),
        )
        for at in range(0, len(answer.missed_by_second), step)
    )
    names = [card.title for card in cards]
    return Figure(
        f"{key}-seconds",
        f"What missed, and the sign of {' and of '.join(names)}",
        f"run {answer.shown}, by the second in which transactions were due; the sign: the share of"
        " their life that shows it",
        ("second", header("missed"), *(f"sign of {name}, %" for name in names)),
        rows,
        tuple(_charts(answer, cards)),
    )


def _charts(answer: Attribution, cards: Sequence[Card]) -> Iterator[Chart]:
    x = Axis("seconds from the start", ends=(0.0, float(len(answer.missed_by_second))), ticks=6,
             grid=True)  # fmt: skip
    yield _strip(axis("missed"), answer.missed_by_second, x, color="alarm")
    for number, card in enumerate(cards):
        title = f"sign of {shown(card.title)}, %"
        yield _strip(title, card.by_second, x, color=f"line{number}")


def _strip(title: str, values: Sequence[float | None], x: Axis, *, color: str) -> Chart:
    """A number from 0 to 100 for each second, or the mean of several where there are many."""
    step = -(-len(values) // _SECONDS_MAX)
    points = []
    for at in range(0, len(values), step):
        numbers = [value for value in values[at : at + step] if value is not None]
        if numbers:
            end, mean = float(min(at + step, len(values))), 100 * sum(numbers) / len(numbers)
            points.append(Point(float(at), end=end, low=0.0, high=mean))
    layer = Layer("rect", tuple(points), color, opacity=0.8)
    return Chart(x, Axis(ends=(0.0, 100.0), ticks=3), (layer,), height=70, title=(title,))
