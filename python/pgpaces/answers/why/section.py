"""The section of an attribution: the cause, the signs of it, and the experiment that tests it.

A coincidence does not prove a cause, so the section names the experiment that can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pgpaces.analysis.attribution import Attribution, Card
from pgpaces.analysis.next_step import MISSED_MIN
from pgpaces.core import causes
from pgpaces.core.findings import Finding
from pgpaces.core.messages import message, said
from pgpaces.core.metrics import axis, header
from pgpaces.show.charts import Datum, amounts, seconds
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, estimate_cell, interval, or_dash, percent
from pgpaces.show.screen import Screen
from pgpaces.show.section import (
    Column,
    Figure,
    Headline,
    Next,
    Section,
    Table,
    Values,
    figure,
    table,
)

_SECONDS_MAX = 300
_ROWS_MAX = 60
_ALSO_MAX = 3
_EVIDENCE_MAX = 2
KEY = "why"
SCREEN = Screen(
    first=("lift", "holder", "seen", "against", "also"),
    details=("of", "near", "advice", "not read"),
)
# Evidence that says which session held a lock.
_HOLDERS = ("blocked", "blocked-by")
# The likeliest causes have evidence and advice, the others only their numbers.
_CAUSES_MAX = 3
_COLORS = ["alarm", "line0", "line1"]


def section(
    answer: Attribution, about: str, key: str, *, cost: str, doubts: Sequence[Finding]
) -> Section:
    """The section. about: the unescaped name of the run or cell. cost: of reading the server.

    doubts: why one of the trials is not valid.
    """
    figure, run = _figure(answer, key), answer.shown or next(iter(answer.trials), "")
    cause, top = answer.cause, _headline(answer)
    missed = said("why-missed", about=about, missed=answer.missed, due=answer.due)
    return SCREEN.section(
        top,
        [*_values(answer), ("of", missed)],
        key=key,
        title=message("why-title", about=about),
        findings=doubts,
        whole=True,
        tables=tuple(_tables(answer, key, cost)),
        figures=() if figure is None else (figure,),
        value=answer,
        trials=answer.trials,
        # Of several cells, each says which one it is.
        note="" if key == KEY else str(missed),
        main=top.text,
        steps=(
            Next(cause.command, cause.question)
            if cause
            else Next(f"pgpaces show {run[-8:]}".strip(), "next-values"),
        ),
    )


def _headline(answer: Attribution) -> Headline:
    values = {"missed": answer.missed, "due": answer.due, "needed": MISSED_MIN}
    if (cause := answer.cause) is not None:
        text = causes.headline(cause.key, share=cause.share.value, **values)
        return Headline(cause.key.upper(), "", text)
    word = "PASS" if answer.outcome == "nothing-missed" else "UNKNOWN"
    text = causes.headline(answer.outcome, **values)
    return Headline(word, "pass" if word == "PASS" else "unknown", text)


def _values(answer: Attribution) -> Values:
    cause = answer.cause
    if cause is not None:
        if cause.lift is None:
            yield "lift", said("why-lift-unknown")
        else:
            ends = interval(cause.lift, _number)
            yield "lift", said("why-lift", lift=_number(cause.lift.value), ends=ends)
        for each in cause.evidence[:_EVIDENCE_MAX]:
            label = "holder" if each.name in _HOLDERS else "seen"
            yield label, said("why-seen", text=causes.observed(each))
    if answer.causes:
        others = answer.causes[1 if cause else 0 :][:_ALSO_MAX]
        yield "also", said("why-also", others=_shares(others), unexplained=answer.unexplained)
    if cause is not None:
        for each in cause.against:
            yield "against", said("why-seen", text=causes.observed(each))
        if answer.ties:
            yield "near", said("why-near", others=_shares(answer.ties))
        yield "advice", said("why-advice", text=cause.advice)
    for source in answer.unread:
        yield "not read", said("why-unread", source=causes.catalog().unread[source])


def _shares(cards: Iterable[Card]) -> dict[str, float]:
    return {each.title: each.share.value for each in cards}


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}"


def _tables(answer: Attribution, key: str, cost: str) -> Iterator[Table]:
    if not answer.causes:
        return
    every: list[Column[Card]] = [
        ("cause", lambda card: card.title),
        ("named", lambda card: "yes" if card.named else "no"),
        ("of missed %", lambda card: estimate_cell(card.share, percent)),
        ("of on time %", lambda card: percent(card.on_time)),
        ("lift", lambda card: estimate_cell(card.lift, _number)),
    ]
    note = " ".join(filter(None, (causes.note("columns"), cost)))
    yield table(f"{key}-causes", message("title-causes"), every, items=answer.causes, note=note)
    likeliest = answer.causes[:_CAUSES_MAX]
    evidence: list[Column[Card]] = [
        ("cause", lambda card: card.title),
        ("seen", lambda card: "; ".join(map(causes.observed, card.evidence)) or NOT_KNOWN),
        ("against", lambda card: "; ".join(map(causes.observed, card.against)) or NOT_KNOWN),
        ("advice", lambda card: card.advice),
        ("command", lambda card: card.command),
    ]
    yield table(f"{key}-seen", message("title-evidence"), evidence, items=likeliest, labels=5)


def _figure(answer: Attribution, key: str) -> Figure | None:
    if not answer.causes or len(answer.missed_by_second) < 2:
        return None
    cards = answer.causes[:2] if answer.cause is None else answer.causes[:1]
    missed = axis("missed")
    shares = {missed: answer.missed_by_second}
    shares |= {f"{shown(card.title)}, %": card.by_second for card in cards}
    names = [card.title for card in cards]
    return figure(
        f"{key}-seconds",
        f"Missed requests, and {' and '.join(names)}",
        causes.note("chart", run=answer.shown),
        columns=("second", header("missed"), *(f"{name}, %" for name in names)),
        data=_rows(shares),
        template="strips",
        height=70,
        x=seconds(len(answer.missed_by_second)),
        y=amounts("", domain=[0, 100], tickCount=2),
        color={
            "type": "nominal",
            "scale": {"domain": list(shares), "range": _COLORS},
            "legend": None,
        },
    )


def _rows(shares: Mapping[str, Sequence[float | None]]) -> Iterator[Datum]:
    """The rows of the table, and for each share the means of one or several seconds."""
    length = max(map(len, shares.values()))
    for at in range(0, length, -(-length // _ROWS_MAX)):
        yield {"texts": (str(at), *(or_dash(each[at], percent) for each in shares.values()))}
    step = -(-length // _SECONDS_MAX)
    for order, (name, values) in enumerate(shares.items()):
        for at in range(0, len(values), step):
            numbers = [value for value in values[at : at + step] if value is not None]
            if numbers:
                place = {"panel": name, "series": name, "start": at, "end": at + step}
                yield {**place, "order": order, "amount": 100 * sum(numbers) / len(numbers)}
