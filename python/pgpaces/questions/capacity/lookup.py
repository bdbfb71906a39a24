"""The capacity from the trials of a search so far, and the limiting resource."""

from __future__ import annotations

from collections.abc import Sequence

from pgpaces.answers.capacity import trials
from pgpaces.answers.capacity.searches import Searches, SearchSpec
from pgpaces.answers.sequential import Tell
from pgpaces.design import Cell
from pgpaces.questions.capacity.section import section
from pgpaces.questions.why import lookup as attribution
from pgpaces.section import Section
from pgpaces.store.store import Store


def section_of(
    store: Store, spec: SearchSpec, cells: Sequence[Cell], tells: Sequence[Tell], stopped: str = ""
) -> Section:
    """The answer so far. cells: those of the design. stopped: as in `section`.

    Raises StoreError.
    """
    own = Searches(spec, tuple(cells)).own(tells)
    searched = [trials.cell_search(spec, cell, own[cell.key]) for cell in cells]
    limits = {each.cell.key: attribution.limit(store, each) for each in searched}
    return section(searched, limits, stopped)
