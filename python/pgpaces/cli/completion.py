"""Completions for a shell: workloads, runs, experiments, tags, factors.

The metavar of an argument or option decides which of them fit. This runs at every completion, so
it imports nothing large, creates no store and connects to no server.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from pgpaces.core.errors import PgpacesError
from pgpaces.core.home import is_there

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
            value: CompletionItem(value, help=about)
            for kind in kinds
            for value, about in _offered(kind, context)
            if value.startswith(incomplete)
        }
    files = _FILES & kinds.keys()
    # Files first, because bash offers only the items after them as well.
    return [*(CompletionItem(incomplete, type="file") for _ in sorted(files)[:1]), *values.values()]


def _offered(kind: str, context: click.Context) -> Iterator[tuple[str, str | None]]:
    if kind == "WORKLOAD":
        from pgpaces.spec import workload

        yield from ((name, None) for name in workload.shipped())
    elif kind == "PROFILE":
        from pgpaces.server import profiles

        yield from ((name, None) for name in profiles.names())
    elif kind in ("FACTOR", "METRICS"):
        from pgpaces.spec import options

        metrics = options.OF_COMMANDS["metric"].kind.choices
        factors = ((each.name, each.help) for each in options.OPTIONS if each.factor)
        yield from factors if kind == "FACTOR" else ((name, None) for name in metrics)
    elif kind in ("RUN", "TAG", "EXPERIMENT"):
        yield from _stored(kind, context)


def _stored(kind: str, context: click.Context) -> Iterator[tuple[str, str]]:
    """The names and the ends of the ids of the newest runs or experiments; of TAG only names."""
    from pgpaces.store import address, listing

    if kind != "TAG":
        yield "last", "what ran last"
    named = context.params.get("store_path")
    place = address.located(named) if named else address.default()
    if not (isinstance(place, Path) and is_there(place)):
        return  # there are no results, or they are on a server
    if kind == "EXPERIMENT":
        for row in listing.experiments_at_once(place, _NEWEST) or ():
            about = f"{row.name}, {row.runs} trials"
            yield from ((name, about) for name in (row.name, *row.names, row.id[-8:]) if name)
        return
    for run in listing.at_once(place, listing.RunFilter(_NEWEST)) or ():
        names = run.names if kind == "TAG" else (*run.names, run.id[-8:])
        yield from ((name, f"{run.workload}, {run.load}") for name in names)


_FILES = {"FILE", "PATH", "DIR"}
# Workloads may be directories.
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
