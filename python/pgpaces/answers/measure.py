"""A metric of cells and how to read it from a trial."""

from __future__ import annotations

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
        """value, low, and high, as far as they are known, in the unit of the axis."""
        if estimate is None:
            return {}
        every = {"value": estimate.value}
        if estimate.estimable:
            # The bar of a time without a lower bound begins at the value: from 0 it would dominate.
            open_below = estimate.low == 0 and metrics.metric(self.key).format == "ms"
            every |= {"low": estimate.value if open_below else estimate.low, "high": estimate.high}
        return {name: each * self.scale for name, each in every.items()}

    def form(self, value: float) -> str:
        """A value without its unit."""
        return metrics.number(self.key, value, ">")
