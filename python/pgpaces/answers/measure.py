"""A metric of cells and how to read it from a trial."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from pgpaces.core import metrics

if TYPE_CHECKING:
    from pgpaces.analysis.digest import Digest
    from pgpaces.spec.result import Estimate


class Measure(Struct, frozen=True):
    """A metric of cells, in tables and in charts over the main factor.

    key: its name in the catalog of metrics. bound: a threshold in units of the axis, and its label.
    """

    key: str
    of_trial: Callable[[Digest], Estimate | None]
    bound: tuple[float, str] | None = None

    @property
    def scale(self) -> float:
        """The factor from the number to the unit of the axis."""
        return metrics.scale(self.key)

    def numbers(self, estimate: Estimate | None) -> dict[str, float]:
        """value, low, and high, as far as they are known and finite, in the unit of the axis."""
        if estimate is None:
            return {}
        ends = {"low": estimate.low, "high": estimate.high} if estimate.estimable else {}
        every = {"value": estimate.value, **ends}
        return {name: each * self.scale for name, each in every.items() if math.isfinite(each)}

    def form(self, value: float) -> str:
        """A value without its unit."""
        return metrics.number(self.key, value, ">")
