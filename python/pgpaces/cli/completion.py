"""Completions for a shell: workloads, runs, experiments, tags, factors.

The metavar of an argument or option decides which of them fit. This runs at every completion, so
it imports nothing large, creates no store and connects to no server.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from pgpaces.core.errors import PgpacesError
from pgpaces.core.home import is_there

if TYPE_CHECKING:
    from pgpaces.store.listing import TrialRow

# The largest number of runs and of experiments that are offered, the newest first.
_NEWEST = 50


def items(param: click.Parameter, context: click.Context, incomplete: str) -> list[CompletionItem]:
    """The values for a parameter that begin with `incomplete`; empty if none are known."""
    words: Iterable[str] = _BY_NAME.get(param.name or "", ())
    if (param.name or "") not in _BY_NAME:
        words = re.findall(r"[A-Z]+", param.make_metavar(context))
    kinds = dict.fromkeys(words)
    values: dict[str, CompletionItem] = {}
    with contextlib.suppress(PgpacesError):  # of a home or a store that cannot be
        values = {
            item.value: item
            for kind in kinds
            if kind in _OFFERED
            for item in _OFFERED[kind](context)
            if item.value.startswith(incomplete)
        }
    files = _FILES & kinds.keys()
    # Files first, because bash offers only the items after them as well.
    return [*(CompletionItem(incomplete, type="file") for _ in sorted(files)[:1]), *values.values()]


def _workloads(_: click.Context) -> Iterator[CompletionItem]:
    from pgpaces.spec import workload

    yield from (CompletionItem(name) for name in workload.shipped())


def _profiles(_: click.Context) -> Iterator[CompletionItem]:
    from pgpaces.server import profiles

    yield from (CompletionItem(name) for name in profiles.names())


def _factors(_: click.Context) -> Iterator[CompletionItem]:
    from pgpaces.spec import options

    yield from (
        CompletionItem(each.name, help=each.help) for each in options.OPTIONS if each.factor
    )


def _metrics(_: click.Context) -> Iterator[CompletionItem]:
    from pgpaces.spec import options

    yield from (CompletionItem(name) for name in options.OF_COMMANDS["metric"].kind.choices)


def _runs(context: click.Context) -> Iterator[CompletionItem]:
    """The ends of the ids of the newest runs, and their names."""
    yield CompletionItem("last", help="what ran last")
    for row, about in _rows(context):
        yield from (CompletionItem(name, help=about) for name in (*row.names, row.id[-8:]))


def _tags(context: click.Context) -> Iterator[CompletionItem]:
    for row, about in _rows(context):
        yield from (CompletionItem(name, help=about) for name in row.names)


def _rows(context: click.Context) -> Iterator[tuple[TrialRow, str]]:
    from pgpaces.store import listing

    if (place := _store(context)) is not None:
        for row in listing.at_once(place, listing.RunFilter(_NEWEST)) or ():
            yield row, f"{row.workload}, {row.load}"


def _experiments(context: click.Context) -> Iterator[CompletionItem]:
    """The ends of the ids of the newest experiments, and their names."""
    from pgpaces.store import listing

    yield CompletionItem("last", help="what ran last")
    if (place := _store(context)) is None:
        return
    for row in listing.experiments_at_once(place, _NEWEST) or ():
        about = f"{row.name}, {row.runs} trials"
        names = (row.name, *row.names, row.id[-8:])
        yield from (CompletionItem(name, help=about) for name in names if name)


def _store(context: click.Context) -> Path | None:
    """The file of results; None where there is none, or results are on a server."""
    from pgpaces.store import address

    named = context.params.get("store_path")
    place = address.located(named) if named else address.default()
    return place if isinstance(place, Path) and is_there(place) else None


_OFFERED: dict[str, Callable[[click.Context], Iterator[CompletionItem]]] = {
    "WORKLOAD": _workloads,
    "RUN": _runs,
    "TAG": _tags,
    "EXPERIMENT": _experiments,
    "FACTOR": _factors,
    "METRICS": _metrics,
    "PROFILE": _profiles,
}
_FILES = {"FILE", "FOLDER", "PATH", "DIR"}
# Workloads may be folders.
_WORKLOADS = ("WORKLOAD", "FILE")
# Parameters whose metavar does not say what fits.
_BY_NAME = {
    "workload": _WORKLOADS,
    "what": _WORKLOADS,
    "a": ("RUN", "EXPERIMENT"),
    "b": ("RUN", "EXPERIMENT"),
    "baseline": ("RUN",),
    "factors": ("FACTOR",),
    "chosen": ("FACTOR",),
    "profile": ("PROFILE", "FILE"),
    "tag": ("TAG",),
    "experiment": ("EXPERIMENT",),
    # A shell command has no completions here.
    "command": (),
}
