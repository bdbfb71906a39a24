"""numpy, loaded when it is first used: it takes longer to load than a command takes to start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Numbers", "np"]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[Any]
else:
    Numbers = Any

    class _Numpy:
        """Has what the module numpy has."""

        def __getattr__(self, name: str) -> Any:
            import numpy

            value = getattr(numpy, name)
            setattr(self, name, value)  # the next time it is not missing
            return value

    np = _Numpy()
