"""Where results live: a SQLite file by default, or a PostgreSQL server.

The only package that knows the database.

store.py        the store: what can be kept and read
address.py      where one is
backend.py      the two databases: connecting, durability, errors, versions of the schema
sqlite.py       a file, opened as far as the file system lets us
schema.py       the tables
form.py         how values lie in them, and their version
rows.py         trials and their seconds as rows, and back
listing.py      trials as lists show them
experiments.py  experiments and the trials in them
disks.py        what disks were found to do
digests.py      digests as texts
names.py        what people call trials and experiments
copying.py      from one store to another, and away

Its modules are imported when they are used: a list needs little of them, and SQLAlchemy is large.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgpaces.store.address import default_shown as default_shown
    from pgpaces.store.disks import DiskRow as DiskRow
    from pgpaces.store.experiments import ExperimentRow as ExperimentRow
    from pgpaces.store.experiments import Failure as Failure
    from pgpaces.store.experiments import PlacedTrial as PlacedTrial
    from pgpaces.store.listing import TrialRow as TrialRow
    from pgpaces.store.rows import ExperimentState as ExperimentState
    from pgpaces.store.store import Store as Store
    from pgpaces.store.store import new_id as new_id

_MODULES = {
    "DiskRow": "disks",
    "ExperimentRow": "experiments",
    "ExperimentState": "rows",
    "Failure": "experiments",
    "PlacedTrial": "experiments",
    "Store": "store",
    "TrialRow": "listing",
    "default_shown": "address",
    "new_id": "store",
}


def __getattr__(name: str) -> Any:
    """What is exported, from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
