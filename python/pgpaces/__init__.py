"""Puts PostgreSQL through its paces: your workload, at your pace, against your expectation.

import pgpaces
run = pgpaces.run("reporting", rate=1, latency_limit="500ms")
run.missed, run.latency.p99
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgpaces.api import Result, load, run

__all__ = ["Result", "load", "run"]


def __getattr__(name: str) -> Any:
    """Imports what is asked for, so that `import pgpaces` costs nothing."""
    if name in __all__:
        from pgpaces import api

        return getattr(api, name)
    raise AttributeError(f"module 'pgpaces' has no attribute '{name}'")
