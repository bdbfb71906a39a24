"""The version of the schema, and the upgrade to each later one.

Version 1 may change until 0.1.0 is tagged. From then on, every change of `schema.py` needs an
upgrade here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgpaces.store.connection import Connection

# The first upgrades version 1 to 2. Each runs on SQLite and PostgreSQL and must not commit, because
# all of them are one transaction. Write SQL: the tables in `schema.py` are of the newest
# version.
UPGRADES: tuple[Callable[[Connection], None], ...] = ()


def newest() -> int:
    """The version of the schema that this pgpaces reads and writes."""
    return len(UPGRADES) + 1
