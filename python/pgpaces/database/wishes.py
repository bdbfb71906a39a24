"""What data is wanted, and what was made of it: values.

Knows no server.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgpaces.workload import Workload


@dataclass(frozen=True, slots=True)
class Wish:
    """The data wanted: a workload's, at a scale, for a seed, in a database of ours or `own`."""

    workload: Workload
    scale: int
    seed: int
    own: str | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A database with its data: its name, and what making it took.

    created: made now, not used again. cloned_from: the database this is a copy of, if it is one.
    """

    dbname: str
    fingerprint: str
    created: bool
    seconds: float
    size_bytes: int
    cloned_from: str | None = None
