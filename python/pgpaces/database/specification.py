"""The specification of a dataset, and what was made of it: values.

Knows no server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import field

from pgpaces.errors import PlanError
from pgpaces.redaction import Redacted
from pgpaces.workload import Workload


class DatasetSpec(Redacted, frozen=True):
    """The data wanted: a workload's, at a scale, for a seed, in a managed database or `own`.

    from_database: instead, a copy of this one, a name on the same server or a DSN of another, in
    which nothing is left to the environment; used again where `occasion`, any text, is the same.
    fresh: made anew, whatever is there. variables: what programs that make the data may name.
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
        """Raises PlanError for what excludes each other."""
        if self.own is not None and self.from_database is not None:
            raise PlanError(
                "a database that is handed over cannot be a copy of another one",
                "use one of the two",
            )
