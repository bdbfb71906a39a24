"""How much it holds: the sentences of a search, or of several. Values in, a section out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgpaces.answers.capacity import words
from pgpaces.answers.capacity.trials import Found
from pgpaces.report.section import Section
from pgpaces.report.words import Sentence


def section(found: Sequence[Found]) -> Section:
    """The capacity of each cell."""
    return Section(
        key="capacity",
        title="How much it holds",
        said=tuple(_said(found)),
        value=tuple(found),
        trials=tuple(digest.trial.id for each in found for digest in each.digests),
    )


def _said(found: Sequence[Found]) -> Iterator[Sentence]:
    for each in found:
        of = f"{each.cell}: " if each.cell.levels else ""
        first, *others = words.sentences(each.capacity)
        yield Sentence(f"{of}{first[0].lower() if of else first[0]}{first[1:]}", "main")
        yield from (Sentence(f"{of}{text}") for text in others)
