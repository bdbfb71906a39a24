"""Attribution of lateness, from the store: of a run, or of the cells that missed the limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pgpaces.analysis import crossing
from pgpaces.analysis.accumulator import own_scripts
from pgpaces.analysis.attribution import attribute, limiting
from pgpaces.analysis.attribution.material import explained_scripts
from pgpaces.analysis.cells import Row
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.goal import Limit
from pgpaces.analysis.next_step import MISSED_MIN
from pgpaces.analysis.sequential import SATURATING, role, without
from pgpaces.answers.answer import Answer
from pgpaces.answers.trials import cell_name
from pgpaces.answers.why import section as reported
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.core.messages import message
from pgpaces.show.section import Section
from pgpaces.store.store import Store

if TYPE_CHECKING:
    from pgpaces.analysis.capacity.search import CellSearch
    from pgpaces.answers.sweep.page import Page

CELLS_MAX = 3
# Whole trials are read for an attribution; more of a cell than this add little.
_TRIALS_MAX = 8
_TRIALS_OF_LIMIT = 3


def of_run(store: Store, run_id: str) -> Section:
    """Why transactions of a run were late. Raises StoreError."""
    return _section(
        store, store.digests([run_id]), message("why-run", run=run_id[-8:]), key=reported.KEY
    )


def of_cells(store: Store, page: Page) -> tuple[Section, ...]:
    """The cells of a page that missed the limit, the largest share first. Raises StoreError.

    Of a search the lowest loads: far above the threshold every resource is exhausted.
    """
    late = [row for row in _own(page) if _missed(row, page)]
    if page.searched:
        return _of_rows(store, _nearest_first(late, page.searched))
    return _of_rows(store, _worst_first(late))


def of_page(store: Store, page: Page) -> tuple[Section, ...]:
    """As `of_cells`; where all met the limit, the cell that missed most. Raises PlanError too."""
    rows = [row for row in _own(page) if row.trials]
    if not rows:
        raise PlanError("no-trial", experiment=page.title)
    return of_cells(store, page) or _of_rows(store, _worst_first(rows)[:1])


def limit(store: Store, search: CellSearch) -> Limit | None:
    """The resource that limited the trials of a search that missed the goal.

    None where no trial missed too much, or sensors show no limit. Raises StoreError.
    """
    ranked = search.missing[:_TRIALS_OF_LIMIT]
    try:
        return limiting([(store.load(digest.trial.id), digest.summary) for digest, _ in ranked])
    except ValueError as error:
        ids = ", ".join(digest.trial.id for digest, _ in ranked)
        raise StoreError("stored-data-damaged", what=ids, why=str(error)) from None


def _of_rows(store: Store, rows: Sequence[Row]) -> tuple[Section, ...]:
    return tuple(
        _section(store, _worst(row), cell_name(row.cell), key=f"why-{number}")
        for number, row in enumerate(rows[:CELLS_MAX], 1)
    )


def _worst_first(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.missed.value if row.missed else 0.0, reverse=True)


def _nearest_first(rows: Iterable[Row], load: str) -> list[Row]:
    """The lowest load of each searched cell, then the second of each; of a load the longest row.

    Those with too few missed for an answer are last.
    """

    def place(row: Row) -> tuple[bool, float, int, int]:
        plan = row.every[0].trial.plan
        return _too_few(row), plan.rate or 0.0, plan.own_clients, -row.counts.due

    of_load: dict[str, Row] = {}
    for row in sorted(rows, key=place):
        of_load.setdefault(without(row.cell).key, row)
    turns: Counter[str] = Counter()
    ranked: list[tuple[bool, int, Row]] = []
    for row in of_load.values():
        turns[key := without(row.cell, load).key] += 1
        ranked.append((_too_few(row), turns[key], row))
    return [row for *_, row in sorted(ranked, key=lambda each: each[:2])]


def _too_few(row: Row) -> bool:
    return row.counts.missed < MISSED_MIN


def _own(page: Page) -> list[Row]:
    return [row for row in page.rows if role(row.cell) != SATURATING]


def _missed(row: Row, page: Page) -> bool:
    """Whether a cell missed the limit, or would have if its trials were valid."""
    if crossing.verdict(row, page.missed_max) == "fail":
        return True
    return not row.sound and row.missed is not None and row.missed.value > page.missed_max


def _worst(row: Row) -> Sequence[Digest]:
    return sorted(row.trials, key=lambda digest: -digest.summary.counts.missed)[:_TRIALS_MAX]


def _section(store: Store, digests: Iterable[Digest], about: str, *, key: str) -> Section:
    trials = [(store.load(digest.trial.id), digest.summary) for digest in digests]
    try:
        answer = attribute(trials)
    except ValueError as error:
        ids = ", ".join(trial.id for trial, _ in trials)
        raise StoreError("stored-data-damaged", what=ids, why=str(error)) from None
    if any(explained_scripts(trial) != own_scripts(trial) for trial, _ in trials):
        about = message("why-background", about=about)
    notes, found = (trials[0][0].notes, trials[0][1].validity.findings) if trials else ((), ())
    costs = (each.sentence for each in notes if each.name == "monitor-cost" and not each.about)
    doubts = [each for each in found if each.severity == "invalid"]
    return reported.section(answer, about, key, cost=next(costs, ""), doubts=doubts)


def sections(store: Store, name: str) -> tuple[Section, ...]:
    """The answer for a run, or the answers for the cells of an experiment that missed the limit.

    If all cells met it, the answer for the one that missed most. Raises PlanError, StoreError.
    """
    id_ = store.find_any(name)
    if not store.is_experiment(id_):
        return (of_run(store, id_),)
    from pgpaces.answers.sweep.lookup import page_of

    return of_page(store, page_of(store, (id_,)))


def page_with(store: Store, answers: tuple[Section, ...], name: str) -> Page:
    """The report of the run or experiment, with these answers. Raises PlanError, StoreError."""
    from pgpaces.answers.sweep.lookup import page_of

    whole = page_of(store, (store.find_any(name),))
    rest = [each for each in whole.sections if each.key.partition("-")[0] != "why"]
    title = answers[0].title if len(answers) == 1 else message("why-title", about=whole.title)
    headline = answers[0].headline
    return replace(whole, title=title, headline=headline, sections=(*answers, *rest), of_why=True)


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
