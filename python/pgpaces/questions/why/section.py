"""Why transactions were late, as a section: what it is associated with, by which signs, what next.

Values of answers/attribution in, words, tables and a chart out. The word is "associated": what a
cause really does, an experiment says, and it stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgpaces.answers.attribution import Attribution, Card
from pgpaces.answers.attribution.answer import MISSED_MIN
from pgpaces.chart import Axis, Chart, Layer, Point
from pgpaces.report.escape import line as shown
from pgpaces.report.numbers import interval, percent
from pgpaces.result import Estimate
from pgpaces.section import Figure, Headline, Section, Sentence, Table, TableCell

_SECONDS_MAX = 300
_ROWS_MAX = 60
_ALSO_MAX = 3
_SAID_MAX = 3
# Of the likeliest causes all is told, of the others how often their sign was seen.
_TOLD_MAX = 3
_COST = "sensor: looking at the server took"


def section(
    found: Attribution,
    about: str,
    key: str = "why",
    notes: Sequence[str] = (),
    doubts: Sequence[str] = (),
) -> Section:
    """The section. about: the run or cell, as others named it. notes: of its trials.

    doubts: why one of them is not valid.
    """
    figure = _figure(found, key)
    return Section(
        key,
        f"Why late: {about}",
        (*_said(found), *(Sentence(f"not valid: {text}", "warning") for text in doubts)),
        tuple(_tables(found, key, notes)),
        () if figure is None else (figure,),
        found,
        found.trials,
        headline=_headline(found),
        note=f"{about}: {found.missed:,} of {found.due:,} due missed",
        facts=tuple(_facts(found)),
        next=() if found.cause is None else (found.cause.command,),
    )


def _headline(found: Attribution) -> Headline:
    """The cause, in a line."""
    if found.cause is None:
        return Headline("UNKNOWN", "unknown", next(_said(found)).text)
    share = f"{percent(found.cause.share.value)}% of what missed saw it"
    return Headline("ASSOCIATED", "", f"with {found.cause.title}: {share}")


def _facts(found: Attribution) -> Iterator[tuple[str, str]]:
    """What was seen of the cause, the others, and what would confirm it."""
    if found.cause is not None:
        if found.cause.lift is not None:
            yield "lift", f"{_times(found.cause.lift)} times as often as where it was on time"
        yield from (("seen", text) for text in found.cause.evidence[:_SAID_MAX])
    for each in found.causes[1 if found.cause else 0 :][:_ALSO_MAX]:
        yield "also", f"{each.title}, {percent(each.share.value)}%"
    if found.causes:
        yield "unexplained", f"{percent(found.unexplained)}%"
    if found.cause is not None:
        yield "to confirm", found.cause.advice


def _said(found: Attribution) -> Iterator[Sentence]:
    missed = f"{found.missed:,} of {found.due:,} due missed"
    if found.outcome == "nothing missed":
        yield Sentence("Nothing missed, so there is nothing to explain.", "main")
        yield Sentence("A latency limit says what is late: without one nothing is.")
        return
    if found.outcome == "too few missed":
        text = f"Too few to tell: {missed}; it takes {MISSED_MIN} to say anything of causes."
        yield Sentence(text, "main")
        return
    cause = found.cause
    rest = f"Unexplained: {percent(found.unexplained)} %."
    if cause is None:
        yield Sentence(f"No dominant cause: {missed}. {rest}", "main")
        yield Sentence(
            "No sign goes with half of it and is rarer where transactions were on time: it may be"
            " the usual spread of times beside a limit that is close, or something no sensor sees."
        )
    else:
        yield Sentence(
            f"Associated with {cause.title}: {_measure(cause)}; {missed}. {rest}", "main"
        )
        yield from (Sentence(f"{_capital(text)}.") for text in cause.evidence[:_SAID_MAX])
        yield from (Sentence(_capital(text), "warning") for text in cause.against)
        if found.ties:
            near = "; ".join(f"{card.title}, {percent(card.share.value)} %" for card in found.ties)
            text = f"nearly a tie with {near}: another run may put it first"
            yield Sentence(_capital(text), "warning")
        others = [c.title for c in found.causes if c.named and c not in (cause, *found.ties)]
        if others:
            yield Sentence(f"Associated too, and less: {'; '.join(others[:_ALSO_MAX])}.")
        yield Sentence(f"What would confirm it: {cause.advice}")
        yield Sentence(cause.command)
    if found.unseen:
        text = f"no sensor read {'; '.join(found.unseen)}: causes that only they tell are not here"
        yield Sentence(text, "warning")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _measure(card: Card) -> str:
    """How much of it, and how much more than where all was well."""
    text = f"{_share(card.share)} of what missed saw it"
    if card.lift is None:
        return f"{text}; no transaction was on time, so there is nothing to hold it against"
    return f"{text}, {_times(card.lift)} times as often as what was on time"


def _share(share: Estimate) -> str:
    return f"{percent(share.value)} % ({interval(share, percent)})"


def _times(lift: Estimate) -> str:
    return f"{_number(lift.value)} ({interval(lift, _number)})"


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}"


def _tables(found: Attribution, key: str, notes: Sequence[str]) -> Iterator[Table]:
    if not found.causes:
        return
    rows = tuple(
        (
            TableCell(card.title),
            TableCell("yes" if card.named else "no"),
            TableCell(percent(card.share.value), interval(card.share, percent)),
            TableCell(percent(card.on_time)),
            TableCell("-")
            if card.lift is None
            else TableCell(_number(card.lift.value), _ends(card.lift)),
        )
        for card in found.causes
    )
    columns = ("sign of", "named", "of missed %", "of on time %", "lift")
    note = (
        "Of missed, of on time: the share of their transactions' life that shows the sign; of what"
        " is most of the life of those that missed, that time as a share of theirs. Lift:"
        " one over the other. Named: at least half of what missed, and either much rarer on"
        " time, or time that is long by itself."
    )
    cost = next((text for text in notes if text.startswith(_COST)), None)
    note = f"{note} {_capital(cost)}." if cost else note
    yield Table(f"{key}-causes", "Possible causes", columns, 1, rows, note)
    told = found.causes[:_TOLD_MAX]
    seen = tuple(
        (
            TableCell(c.title),
            TableCell("; ".join(c.evidence) or "-"),
            TableCell("; ".join(c.against) or "-"),
        )
        for c in told
    )
    yield Table(f"{key}-seen", "What was seen", ("sign of", "seen", "against"), 3, seen)
    next_ = tuple((TableCell(c.title), TableCell(c.advice), TableCell(c.command)) for c in told)
    names = ("cause", "advice", "command")
    yield Table(f"{key}-next", "What would confirm it", names, 3, next_)


def _ends(lift: Estimate) -> str:
    return interval(lift, _number)


def _figure(found: Attribution, key: str) -> Figure | None:
    if not found.causes or len(found.missed_by_second) < 2:
        return None
    cards = found.causes[:2] if found.cause is None else found.causes[:1]
    step = -(-len(found.missed_by_second) // _ROWS_MAX)
    rows = tuple(
        (
            str(at),
            _percent(found.missed_by_second[at]),
            *(_percent(card.by_second[at]) for card in cards),
        )
        for at in range(0, len(found.missed_by_second), step)
    )
    names = [card.title for card in cards]
    return Figure(
        f"{key}-seconds",
        f"What missed, and the sign of {' and of '.join(names)}",
        f"run {found.shown}, by the second in which transactions were due; the sign: the share of"
        " their life that shows it",
        ("second", "missed %", *(f"sign of {name}, %" for name in names)),
        rows,
        tuple(_charts(found, cards)),
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else percent(value)


def _charts(found: Attribution, cards: Sequence[Card]) -> Iterator[Chart]:
    x = Axis("seconds from the start", ends=(0.0, float(len(found.missed_by_second))), ticks=6,
             grid=True)  # fmt: skip
    yield _strip("missed, % of due", found.missed_by_second, x, "alarm")
    for number, card in enumerate(cards):
        title = f"sign of {shown(card.title)}, %"
        yield _strip(title, card.by_second, x, f"line{number}")


def _strip(title: str, values: Sequence[float | None], x: Axis, color: str) -> Chart:
    """A number from 0 to 100 for each second, several together where they are many."""
    step = -(-len(values) // _SECONDS_MAX)
    points = []
    for at in range(0, len(values), step):
        known = [value for value in values[at : at + step] if value is not None]
        if known:
            end, mean = float(min(at + step, len(values))), 100 * sum(known) / len(known)
            points.append(Point(float(at), end=end, low=0.0, high=mean))
    layer = Layer("rect", tuple(points), color, opacity=0.8)
    return Chart(x, Axis(ends=(0.0, 100.0), ticks=3), (layer,), height=70, title=(title,))
