"""How many simulations a test runs: some in `make test`, all of them in `make test-slow`."""

from typing import Any

import pytest


def seeds(some: int, every: int) -> list[Any]:
    """The values of a parameter: `some` in `make test`, `every` in `make test-slow`."""
    return [some, pytest.param(every, marks=pytest.mark.slow)]
