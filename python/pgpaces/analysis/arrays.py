"""numpy, loaded when it is first used: it takes longer to load than a command takes to start."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

__all__ = ["Numbers", "np", "quotient"]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[Any]
else:
    Numbers = Any

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            import numpy

            value = getattr(numpy, name)
            setattr(self, name, value)  # the next time it is not missing
            return value

    np = _Numpy()


def quotient(above: Numbers, below: Numbers, otherwise: float = math.nan) -> Numbers:
    """The quotients of numbers; `otherwise` where the denominator is not above 0."""
    quotients: Numbers = np.full(len(below), otherwise)
    return np.divide(above, below, out=quotients, where=below > 0)
