"""The specification of a dataset, as a value. Knows no server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import field

from pgpaces.errors import PlanError
from pgpaces.redaction import Redacted
from pgpaces.workload import Workload


class DatasetSpec(Redacted, frozen=True):
    """The data of a workload at a scale, for a seed, in a managed database or in `own`.

    from_database: the source database to copy instead, a name on the same server or the DSN of
    another, complete without the environment; reused for the same `occasion`, which is any text.
    fresh: make the data again in any case. variables: for the programs that make the data.
    """

    REDACTED: ClassVar = ("from_database",)
    workload: Workload
    scale: int
    seed: int
    own: str | None = None
    fresh: bool = False
    # Not in the repr: it may hold a password.
    from_database: str | None = None
    occasion: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises PlanError for options that exclude each other."""
        if self.own is not None and self.from_database is not None:
            raise PlanError(
                "the database of --own cannot be a copy of another one",
                "use one of the two",
            )
