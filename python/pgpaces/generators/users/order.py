"""What a process of users is told to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pgpaces.generators.engine import EnginePlan

# So many exception classes of a process have a code of their own.
CODES = 256


@dataclass(frozen=True, slots=True)
class Order:
    """What a process is to do.

    path: the file of its users, or functions: they themselves, pickled by value. names, weights: of
    the tasks that run. number: of the process. counter: the descriptor of the number that processes
    share; None where each user has a schedule.
    """

    plan: EnginePlan
    number: int
    names: tuple[str, ...]
    weights: tuple[int, ...]
    dsn: str
    variables: Mapping[str, str]
    secret: str | None = None
    path: Path | None = None
    functions: bytes = b""
    modules: tuple[str, ...] = ()
    counter: int | None = None

    def __repr__(self) -> str:
        """Without what nobody may see."""
        return f"Order(number={self.number}, names={self.names})"
