"""The capacity from the trials of a search so far, and the limiting resource."""

from __future__ import annotations

from collections.abc import Sequence

from pgpaces.analysis.capacity import trials
from pgpaces.analysis.capacity.searches import Searches, SearchSpec
from pgpaces.analysis.sequential import Tell
from pgpaces.answers.capacity.section import section
from pgpaces.answers.why import lookup as attribution
from pgpaces.show.section import Section
from pgpaces.spec.design import Cell
from pgpaces.store.store import Store


def section_of(
    store: Store,
    spec: SearchSpec,
    cells: Sequence[Cell],
    *,
    tells: Sequence[Tell],
    stopped: str = "",
) -> Section:
    """The answer so far. cells: those of the design. stopped: as in `section`.

    Raises StoreError.
    """
    own = Searches(spec, tuple(cells)).own(tells)
    searched = [trials.cell_search(spec, cell, own[cell.key]) for cell in cells]
    limits = {each.cell.key: attribution.limit(store, each) for each in searched}
    return section(searched, limits, stopped)
