"""A number of cells: how it is called, told and drawn. Texts are unescaped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from pgpaces.analysis.digest import Digest
    from pgpaces.spec.result import Estimate


class Measure(Struct, frozen=True):
    """A number of cells, in tables and in charts over the main factor.

    scale: factor from the number to the unit of the axis. bound: a threshold and its label.
    """

    key: str
    name: str
    axis: str
    about: str
    scale: float
    form: Callable[[float], str]
    of_trial: Callable[[Digest], Estimate | None]
    bound: tuple[float, str] | None = None
    log: bool = False
