"""`pgpaces runs copy`, `tag`, `baseline` and `delete`: changes to stored runs and experiments."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgpaces.cli import options
from pgpaces.cli.streams import announce, put
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.core.home import is_there

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgpaces.store.store import Store


def open_store(path: str | None) -> Store:
    """The store of a path or DSN, by default the user's. Raises StoreError if there is none."""
    from pgpaces.store.store import Store

    return Store.existing(path)


@options.command()
@options.argument("other", metavar="STORE")
@options.argument("names", metavar="[RUN|EXPERIMENT]...", nargs=-1)
@options.options(options.of("dry_run", "store"))
def copy(other: str, names: Sequence[str], dry_run: bool, store_path: str | None) -> None:
    """Copy complete runs and experiments to another STORE. Default: all that STORE lacks."""
    from pgpaces.store.store import Store

    store = open_store(store_path)
    _check_place(store, other, names)
    ids = [store.find_newest(name) for name in names] if names else None
    there = Store.open(other)
    missing = store.uncopied(there, ids)
    if dry_run:
        put("".join(f"{id_}\n" for id_ in missing))
        return
    damaged: list[str] = []
    with click.progressbar(missing, label="copying", file=sys.stderr) as progress:
        for id_ in progress:
            damage = store.copy(there, id_)
            damaged += [damage] if damage else []
    store.copy_names(there, ids)
    announce("copied", count=len(missing) - len(damaged), store=there.address)
    if damaged:
        count, total = len(damaged), len(missing)
        raise StoreError("not-all-copied", count=count, total=total, why=damaged[0])


def _check_place(store: Store, other: str, names: Sequence[str]) -> None:
    """Raises PlanError for a run in place of a store, lest a file of that name is created."""
    if Path(other).name != other or is_there(other):
        return
    try:
        store.find_any(other)
    except PlanError:
        return
    words = shlex.join([*(names[:1] or ["STORE"]), other])
    raise PlanError("run-instead-of-store", run=other, store=store.address, words=words)


@options.command()
@options.argument("tag", metavar="NAME")
@options.argument("names", metavar="[RUN|EXPERIMENT]...", nargs=-1)
@options.options(options.of("remove", "store"))
def tag(tag: str, names: Sequence[str], remove: bool, store_path: str | None) -> None:
    """Tag runs and experiments with NAME. NAME then refers to the newest of them."""
    if not names and not remove:
        raise PlanError("nothing-to-tag", tag=tag)
    store = open_store(store_path)
    ids = [store.find_newest(name) for name in names]
    if remove:
        count = store.untag(tag, ids or None)
        if not count:
            raise PlanError("tag-not-set", tag=tag)
        announce("untagged", count=count)
        return
    for id_ in ids:
        store.tag(tag, id_)


@options.command()
@options.argument("baseline", metavar="NAME")
@options.argument("name", metavar="RUN|EXPERIMENT")
@options.options(options.of("store"))
def baseline(baseline: str, name: str, store_path: str | None) -> None:
    """Make a run or experiment the baseline NAME, and replace any earlier baseline NAME."""
    store = open_store(store_path)
    store.baseline(baseline, store.find_newest(name))


@options.command()
@options.argument("names", metavar="RUN|EXPERIMENT...", nargs=-1, required=True)
@options.options(options.of("yes", "dry_run", "store"))
def delete(names: Sequence[str], yes: bool, dry_run: bool, store_path: str | None) -> None:
    """Permanently delete runs, and experiments with their runs, after confirmation."""
    from pgpaces.core.messages import message
    from pgpaces.store.names import NEWEST

    store = open_store(store_path)
    ids = list(dict.fromkeys(store.find_newest(name) for name in names))
    runs = {id_: len(store.placed(id_)) for id_ in ids}
    lines = [
        message("experiment-listed", id=id_, runs=count) if count else id_
        for id_, count in runs.items()
    ]
    if dry_run:
        put("".join(f"{line}\n" for line in lines))
        return
    for name in NEWEST & set(names) if yes else ():
        if runs[id_ := store.find_newest(name)]:
            raise PlanError("last-is-experiment", id=id_, runs=runs[id_])
    if not yes:
        if not sys.stdin.isatty():
            raise PlanError("cannot-confirm")
        click.echo("\n".join(lines), err=True)
        click.confirm(message("confirm-delete"), abort=True, err=True)
    for id_ in ids:
        store.delete(id_)
    announce("deleted", count=len(ids))
