"""Where results live: a SQLite file by default, or a PostgreSQL server.

The only package that knows the database.

store.py        the store: what can be kept and read
address.py      where one is
backend.py      the two databases: connecting, durability, errors, versions of the schema
schema.py       the tables, and how values lie in them
rows.py         trials and their seconds as rows, and back
listing.py      trials as lists show them
experiments.py  experiments and the trials in them
digests.py      digests as texts
names.py        what people call trials and experiments
"""

from pgpaces.store.address import default_shown as default_address
from pgpaces.store.experiments import ExperimentRow, Failure, PlacedTrial
from pgpaces.store.listing import TrialRow
from pgpaces.store.rows import ExperimentState
from pgpaces.store.store import Store, new_id

__all__ = [
    "ExperimentRow", "ExperimentState", "Failure", "PlacedTrial", "Store", "TrialRow",
    "default_address", "new_id",
]  # fmt: skip
