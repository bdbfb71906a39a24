"""Why transactions were late: of a run, or of the cell that missed the limit most.

A coincidence does not prove a cause, so the section names the experiment that can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from pgpaces.analysis import crossing
from pgpaces.analysis.accumulator import own_scripts
from pgpaces.analysis.attribution.causes import Attribution, attribute
from pgpaces.analysis.attribution.timeline import explained_scripts
from pgpaces.analysis.capacity.search import CellSearch
from pgpaces.analysis.cells import Row
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.goal import Limit
from pgpaces.analysis.next_step import MISSED_MIN
from pgpaces.analysis.sequential import SATURATING, role
from pgpaces.answers.answer import Answer
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import cell_name
from pgpaces.core import causes
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.core.messages import message, said
from pgpaces.core.metrics import axis, header
from pgpaces.show.charts import Datum, amounts, seconds
from pgpaces.show.escape import line as shown
from pgpaces.show.number_text import estimate_cell, or_dash, percent
from pgpaces.show.screen import Screen, table_of
from pgpaces.show.section import Figure, Headline, Mark, Next, Number, Section, Values, figure
from pgpaces.spec.result import Trial
from pgpaces.store.store import Store

KEY = "why"
SCREEN = Screen(
    first=("lift", "holder", "seen", "also"),
    details=("of", "advice", "not read"),
)
# A chart and its table have at most so many points.
_POINTS_MAX = 120
_ALSO_MAX = 3
_EVIDENCE_MAX = 2


def why(name: str = "last", *, store: str | Path | None = None) -> Answer:
    """Attributes the lateness of transactions; the same as `pgpaces why`.

    name: a run: `last`, a tag, an id, the end or start of one; or an experiment, of which the cell
    that missed most is explained. The value is a `pgpaces.analysis.Attribution`.
    Raises PlanError for a name that does not exist, StoreError.
    """
    from pgpaces.answers.sweep.lookup import answer_for, page_of

    with closing(Store.existing(store)) as opened:
        id_ = opened.find_any(name)
        page = page_of(opened, (id_,)) if opened.is_experiment(id_) else None
        if page is not None and (rows := _own(page)):
            section = of_cell(opened, page) or _of_worst(opened, rows)
        else:  # a run, or the passes of a rehearsal
            every = opened.digests([id_] if page is None else opened.ended(id_))
            if not every:
                raise PlanError("no-trial", experiment=page.title if page else id_)
            digest = max(every, key=lambda each: each.summary.counts.missed)
            section = _section(opened, digest, message("why-run", run=digest.trial.id[-8:]))
    return answer_for(opened, section, only_of=id_)


def of_cell(store: Store, page: Page) -> Section | None:
    """The cell of a page that missed the limit most; None if all met it. Raises StoreError.

    A cell counts too if it would have missed the limit with valid trials. Of a search it is the
    lowest load with enough missed: far above the threshold every resource is exhausted.
    """
    late = [
        row
        for row in _own(page)
        if crossing.verdict(row, page.missed_max) == "fail"
        or (not row.sound and _by_missed(row)[0] > page.missed_max)
    ]
    return _of_worst(store, late, key=_by_load if page.searched else _by_missed) if late else None


def limit(store: Store, search: CellSearch) -> Limit | None:
    """The resource that limited the trial of a search that missed the goal first.

    None where no trial missed too much, or monitors show no limit. Raises StoreError.
    """
    missing = search.missing[:1]
    return _attributed(store, missing[0])[1].limit if missing else None


def _own(page: Page) -> list[Row]:
    return [row for row in page.rows if row.trials and role(row.cell) != SATURATING]


def _by_missed(row: Row) -> tuple[float, ...]:
    missed = row.estimate("missed")
    return (missed.value if missed else 0.0,)


def _by_load(row: Row) -> tuple[float, ...]:
    """The order of rows of a search: too few missed first, then from the highest load down."""
    trial, enough = row.every[0].trial, row.counts.missed >= MISSED_MIN
    return enough, -(trial.plan.load.rate or 0.0), -trial.setup.own_clients, row.counts.due


def _of_worst(
    store: Store, rows: Iterable[Row], key: Callable[[Row], tuple[float, ...]] = _by_missed
) -> Section:
    """The trial that missed most of the row that is the last by its key."""
    row = max(rows, key=key)
    worst = max(row.trials, key=lambda each: each.summary.counts.missed)
    about = cell_name(row.cell)
    if len(row.trials) > 1:
        about = message("why-run-of-cell", cell=about, run=worst.trial.id[-8:])
    return _section(store, worst, about)


def _attributed(store: Store, digest: Digest) -> tuple[Trial, Attribution]:
    trial = store.load(digest.trial.id)
    try:
        return trial, attribute(trial, digest.summary)
    except ValueError as error:
        raise StoreError("stored-data-damaged", what=trial.id, why=str(error)) from None


def _section(store: Store, digest: Digest, about: str) -> Section:
    """The section. about: the unescaped name of the run or cell."""
    trial, answer = _attributed(store, digest)
    if explained_scripts(trial) != own_scripts(trial):
        about = message("why-background", about=about)
    found = digest.summary.validity.findings
    missed = said("why-missed", about=about, missed=answer.missed, due=answer.due)
    cause, top = answer.cause, _headline(answer)
    step = Next(f"pgpaces show {answer.trial[-8:]}", "next-values")
    step = Next(cause.command, cause.question) if cause else step
    rows = []
    for each in answer.causes:
        shown = {"title": each.title, "named": "yes" if each.named else "no"}
        rows.append({**asdict(each), **shown, "lift": estimate_cell(each.lift, _number)})
    tables = (table_of("table-why-causes", rows, note=causes.note("columns")),) if rows else ()
    return SCREEN.section(
        top,
        [*_values(answer), ("of", missed)],
        key=KEY,
        title=message("why-title", about=about),
        findings=[each for each in found if each.severity == "invalid"],
        tables=tables,
        figures=tuple(_figures(answer)),
        rows=tuple(
            Number({"cause": each.key}, metric, one)
            for each in answer.causes
            for metric, one in (("coincidence", each.share), ("lift", each.lift))
            if one is not None
        ),
        value=answer,
        trials=(answer.trial,),
        main=top.text,
        steps=(step,),
    )


def _headline(answer: Attribution) -> Headline:
    values: dict[str, Any] = {"missed": answer.missed, "due": answer.due, "needed": MISSED_MIN}
    if (cause := answer.cause) is not None:
        text = causes.headline(cause.key, share=cause.share.value, **values)
        return Headline(cause.key.upper(), "", text)
    mark: Mark = "pass" if answer.outcome == "nothing-missed" else "unknown"
    return Headline(mark.upper(), mark, causes.headline(answer.outcome, **values))


def _values(answer: Attribution) -> Values:
    cause = answer.cause
    if cause is not None:
        if cause.lift is None:
            yield "lift", said("why-lift-unknown")
        else:
            lift = estimate_cell(cause.lift, _number)
            yield "lift", said("why-lift", lift=lift.text, ends=lift.ends)
        for each in cause.evidence[:_EVIDENCE_MAX]:
            label = "holder" if each.name == "blocked" else "seen"
            yield label, said("why-seen", text=causes.observed(each))
        yield "advice", said("why-advice", text=cause.advice)
    if answer.causes:
        others = {each.title: each.share.value for each in answer.causes if each is not cause}
        shown = dict(islice(others.items(), _ALSO_MAX))
        name = "why-also" if shown else "why-also-nothing"
        yield "also", said(name, others=shown, unexplained=answer.unexplained)
    for source in answer.unread:
        yield "not read", said("why-unread", source=causes.catalog().unread[source])


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}"


def _figures(answer: Attribution) -> Iterator[Figure]:
    length = len(answer.missed_by_second)
    if not answer.causes or length < 2:
        return
    drawn = answer.causes[:2] if answer.cause is None else answer.causes[:1]
    names = [each.title for each in drawn]
    shares = {axis("missed"): answer.missed_by_second}
    shares |= {f"{shown(each.title)}, %": each.by_second for each in drawn}
    rows: list[Datum] = []
    step = -(-length // _POINTS_MAX)
    for at in range(0, length, step):
        texts = [str(at)]
        for order, (name, values) in enumerate(shares.items()):
            numbers = [value for value in values[at : at + step] if value is not None]
            mean = sum(numbers) / len(numbers) if numbers else None
            texts.append(or_dash(mean, percent))
            if mean is not None:
                place = {"panel": name, "series": name, "start": at, "end": at + step}
                rows.append({**place, "order": order, "amount": 100 * mean})
        rows.append({"texts": tuple(texts)})
    colors = {"domain": list(shares), "range": ["alarm", "line0", "line1"]}
    yield figure(
        f"{KEY}-seconds",
        f"Missed requests, and {' and '.join(names)}",
        causes.note("chart", run=answer.trial),
        columns=("second", header("missed"), *(f"{name}, %" for name in names)),
        data=rows,
        template="strips",
        height=70,
        x=seconds(length),
        y=amounts("", domain=[0, 100], tickCount=2),
        color={"type": "nominal", "scale": colors, "legend": None},
    )
