"""Why transactions were late: of a run, or of the cells that missed the limit.

A coincidence does not prove a cause, so the section names the experiment that can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pgpaces.analysis import crossing
from pgpaces.analysis.accumulator import own_scripts
from pgpaces.analysis.attribution import Attribution, PossibleCause, attribute
from pgpaces.analysis.attribution.timeline import explained_scripts
from pgpaces.analysis.cells import Row
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.goal import Limit
from pgpaces.analysis.next_step import MISSED_MIN
from pgpaces.analysis.sequential import SATURATING, role, without
from pgpaces.answers.answer import Answer
from pgpaces.answers.trials import cell_name
from pgpaces.core import causes
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.core.findings import Finding
from pgpaces.core.messages import message, said
from pgpaces.core.metrics import axis, header
from pgpaces.show.charts import Datum, amounts, seconds
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, estimate_cell, interval, or_dash, percent
from pgpaces.show.screen import Screen
from pgpaces.show.section import (
    Figure,
    Headline,
    Next,
    Number,
    Section,
    Table,
    Values,
    figure,
    table,
)
from pgpaces.spec.result import Trial
from pgpaces.store.store import Store

if TYPE_CHECKING:
    from pgpaces.analysis.capacity.search import CellSearch
    from pgpaces.answers.sweep.page import Page

KEY = "why"
SCREEN = Screen(
    first=("lift", "holder", "seen", "against", "also"),
    details=("of", "near", "advice", "not read"),
)
CELLS_MAX = 3
# Whole trials are read for an attribution; more of a cell than this add little.
_TRIALS_MAX = 8
_TRIALS_OF_LIMIT = 3
_SECONDS_MAX = 300
_ROWS_MAX = 60
_ALSO_MAX = 3
_EVIDENCE_MAX = 2
# Evidence that says which session held a lock.
_HOLDERS = ("blocked", "blocked-by")
# The likeliest causes have evidence and advice, the others only their numbers.
_CAUSES_MAX = 3


def why(name: str = "last", *, store: str | Path | None = None) -> Answer:
    """Attributes the lateness of transactions; the same as `pgpaces why`.

    name: a run: `last`, a tag, an id, the end or start of one; or an experiment, of which the cell
    that missed most is explained. The value is a `pgpaces.analysis.Attribution`.
    Raises PlanError for a name that does not exist, StoreError.
    """
    with closing(Store.existing(store)) as opened:
        answers = sections(opened, name)

    def whole() -> Page:
        with closing(opened):
            return page_with(opened, answers, name)

    return Answer(answers[0], whole)


def sections(store: Store, name: str) -> tuple[Section, ...]:
    """The answer for a run, or the answers for the cells of an experiment that missed the limit.

    If all cells met it, the answer for the one that missed most. Raises PlanError, StoreError.
    """
    id_ = store.find_any(name)
    if not store.is_experiment(id_):
        about = message("why-run", run=id_[-8:])
        return (_section(store, store.digests([id_]), about, key=KEY),)
    from pgpaces.answers.sweep.lookup import page_of

    page = page_of(store, (id_,))
    rows = [row for row in _own(page) if row.trials]
    if not rows:
        raise PlanError("no-trial", experiment=page.title)
    return of_cells(store, page) or _of_rows(store, _worst_first(rows)[:1])


def page_with(store: Store, answers: tuple[Section, ...], name: str) -> Page:
    """The report of the run or experiment, with these answers. Raises PlanError, StoreError."""
    from pgpaces.answers.sweep.lookup import page_of

    whole = page_of(store, (store.find_any(name),))
    first, *others = answers
    title = first.title if not others else message("why-title", about=whole.title)
    return replace(whole, title=title, first=first, sections=tuple(others))


def of_cells(store: Store, page: Page) -> tuple[Section, ...]:
    """The cells of a page that missed the limit, the largest share first. Raises StoreError.

    A cell counts too if it would have missed the limit with valid trials. Of a search the lowest
    loads: far above the threshold every resource is exhausted.
    """
    late = [
        row
        for row in _own(page)
        if crossing.verdict(row, page.missed_max) == "fail"
        or (not row.sound and row.missed is not None and row.missed.value > page.missed_max)
    ]
    ranked = _nearest_first(late, page.searched) if page.searched else _worst_first(late)
    return _of_rows(store, ranked)


def limit(store: Store, search: CellSearch) -> Limit | None:
    """The resource that limited the trials of a search that missed the goal.

    None where no trial missed too much, or monitors show no limit. Raises StoreError.
    """
    return _attributed(store, search.missing[:_TRIALS_OF_LIMIT])[1].limit


def _own(page: Page) -> list[Row]:
    return [row for row in page.rows if role(row.cell) != SATURATING]


def _of_rows(store: Store, rows: Sequence[Row]) -> tuple[Section, ...]:
    worst = (sorted(row.trials, key=lambda each: -each.summary.counts.missed) for row in rows)
    return tuple(
        _section(store, digests[:_TRIALS_MAX], cell_name(row.cell), key=f"{KEY}-{number}")
        for number, (row, digests) in enumerate(zip(rows[:CELLS_MAX], worst, strict=False), 1)
    )


def _worst_first(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.missed.value if row.missed else 0.0, reverse=True)


def _nearest_first(rows: Iterable[Row], load: str) -> list[Row]:
    """The lowest load of each searched cell, then the second of each; of a load the longest row.

    Those with too few missed for an answer are last.
    """

    def too_few(row: Row) -> bool:
        return row.counts.missed < MISSED_MIN

    def place(row: Row) -> tuple[bool, float, int, int]:
        trial = row.every[0].trial
        rate, clients = trial.plan.load.rate or 0.0, trial.setup.own_clients
        return too_few(row), rate, clients, -row.counts.due

    of_load: dict[str, Row] = {}
    for row in sorted(rows, key=place):
        of_load.setdefault(without(row.cell).key, row)
    turns: Counter[str] = Counter()
    ranked: list[tuple[bool, int, Row]] = []
    for row in of_load.values():
        turns[key := without(row.cell, load).key] += 1
        ranked.append((too_few(row), turns[key], row))
    return [row for *_, row in sorted(ranked, key=lambda each: each[:2])]


def _attributed(store: Store, digests: Iterable[Digest]) -> tuple[list[Trial], Attribution]:
    trials = [(store.load(digest.trial.id), digest.summary) for digest in digests]
    try:
        return [trial for trial, _ in trials], attribute(trials)
    except ValueError as error:
        ids = ", ".join(trial.id for trial, _ in trials)
        raise StoreError("stored-data-damaged", what=ids, why=str(error)) from None


def _section(store: Store, digests: Sequence[Digest], about: str, *, key: str) -> Section:
    """The section. about: the unescaped name of the run or cell."""
    trials, answer = _attributed(store, digests)
    if any(explained_scripts(trial) != own_scripts(trial) for trial in trials):
        about = message("why-background", about=about)
    found = digests[0].summary.validity.findings
    missed = said("why-missed", about=about, missed=answer.missed, due=answer.due)
    cause, top = answer.cause, _headline(answer)
    run = answer.shown or answer.trials[0]
    step = Next(f"pgpaces show {run[-8:]}", "next-values")
    return SCREEN.section(
        top,
        [*_values(answer), ("of", missed)],
        key=key,
        title=message("why-title", about=about),
        findings=[each for each in found if each.severity == "invalid"],
        whole=True,
        tables=tuple(_tables(answer, key)),
        figures=tuple(_figures(answer, key)),
        rows=tuple(
            Number({"cause": each.key}, metric, one)
            for each in answer.causes
            for metric, one in (("coincidence", each.share), ("lift", each.lift))
            if one is not None
        ),
        value=answer,
        trials=answer.trials,
        # Of several cells, each says which one it is.
        note="" if key == KEY else str(missed),
        main=top.text,
        steps=(Next(cause.command, cause.question) if cause else step,),
    )


def _headline(answer: Attribution) -> Headline:
    values = {"missed": answer.missed, "due": answer.due, "needed": MISSED_MIN}
    if (cause := answer.cause) is not None:
        text = causes.headline(cause.key, share=cause.share.value, **values)
        return Headline(cause.key.upper(), "", text)
    text = causes.headline(answer.outcome, **values)
    if answer.outcome == "nothing-missed":
        return Headline("PASS", "pass", text)
    return Headline("UNKNOWN", "unknown", text)


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
        for each in cause.against:
            yield "against", said("why-seen", text=causes.observed(each))
        if answer.ties:
            yield "near", said("why-near", others=_shares(answer.ties))
        yield "advice", said("why-advice", text=cause.advice)
    if answer.causes:
        others = answer.causes[1 if cause else 0 :][:_ALSO_MAX]
        yield "also", said("why-also", others=_shares(others), unexplained=answer.unexplained)
    for source in answer.unread:
        yield "not read", said("why-unread", source=causes.catalog().unread[source])


def _shares(possible: Iterable[PossibleCause]) -> dict[str, float]:
    return {each.title: each.share.value for each in possible}


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}"


def _observed(evidence: Iterable[Finding]) -> str:
    return "; ".join(map(causes.observed, evidence)) or NOT_KNOWN


def _tables(answer: Attribution, key: str) -> Iterator[Table]:
    if answer.causes:
        yield table(
            f"{key}-causes",
            message("title-causes"),
            [
                ("cause", lambda each: each.title),
                ("named", lambda each: "yes" if each.named else "no"),
                ("of missed %", lambda each: estimate_cell(each.share, percent)),
                ("of on time %", lambda each: percent(each.on_time)),
                ("lift", lambda each: estimate_cell(each.lift, _number)),
            ],
            items=answer.causes,
            note=causes.note("columns"),
        )
        yield table(
            f"{key}-seen",
            message("title-evidence"),
            [
                ("cause", lambda each: each.title),
                ("seen", lambda each: _observed(each.evidence)),
                ("against", lambda each: _observed(each.against)),
                ("advice", lambda each: each.advice),
                ("command", lambda each: each.command),
            ],
            items=answer.causes[:_CAUSES_MAX],
            labels=5,
        )


def _figures(answer: Attribution, key: str) -> Iterator[Figure]:
    length = len(answer.missed_by_second)
    if not answer.causes or length < 2:
        return
    drawn = answer.causes[:2] if answer.cause is None else answer.causes[:1]
    names = [each.title for each in drawn]
    shares = {axis("missed"): answer.missed_by_second}
    shares |= {f"{shown(each.title)}, %": each.by_second for each in drawn}
    # Rows of the table, and for each share the means of one or several seconds.
    rows: list[Datum] = [
        {"texts": (str(at), *(or_dash(each[at], percent) for each in shares.values()))}
        for at in range(0, length, -(-length // _ROWS_MAX))
    ]
    step = -(-length // _SECONDS_MAX)
    for order, (name, values) in enumerate(shares.items()):
        for at in range(0, length, step):
            numbers = [value for value in values[at : at + step] if value is not None]
            if numbers:
                place = {"panel": name, "series": name, "start": at, "end": at + step}
                amount = 100 * sum(numbers) / len(numbers)
                rows.append({**place, "order": order, "amount": amount})
    colors = {"domain": list(shares), "range": ["alarm", "line0", "line1"]}
    yield figure(
        f"{key}-seconds",
        f"Missed requests, and {' and '.join(names)}",
        causes.note("chart", run=answer.shown),
        columns=("second", header("missed"), *(f"{name}, %" for name in names)),
        data=rows,
        template="strips",
        height=70,
        x=seconds(length),
        y=amounts("", domain=[0, 100], tickCount=2),
        color={"type": "nominal", "scale": colors, "legend": None},
    )
