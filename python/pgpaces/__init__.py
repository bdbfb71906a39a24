"""Puts PostgreSQL through its paces: your workload, your pace, your latency limit.

import pgpaces
run = pgpaces.run("reporting", rate=1, latency_limit="500ms")
run.missed, run.latency.p99
sweep = pgpaces.sweep("reporting", clients=[1, 2, 4, 8], rate_per_client=1, latency_limit="500ms")
sweep.sentences, sweep.frame(), sweep.plot()
better = pgpaces.compare("variant=triggers", "variant=log")
better.sentences, better.value.estimate, better.plot()
holds = pgpaces.capacity("reporting", latency_limit="500ms", missed="5%")
holds.sentences, holds.value.cells[0].passes, holds.plot()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgpaces.answers.answer import Answer
    from pgpaces.answers.calls import capacity, check, compare, open_sweep, sweep
    from pgpaces.answers.trend import trend
    from pgpaces.answers.why import why
    from pgpaces.api import Result, open_run, rehearse, run
    from pgpaces.core.errors import PgpacesError
    from pgpaces.spec.users import task, user

_PLACES = {
    "PgpacesError": "core.errors",
    "Result": "api",
    "open_run": "api",
    "rehearse": "api",
    "run": "api",
    "open_sweep": "answers.calls",
    "sweep": "answers.calls",
    "task": "spec.users",
    "user": "spec.users",
    "Answer": "answers.answer",
    "capacity": "answers.calls",
    "check": "answers.calls",
    "compare": "answers.calls",
    "trend": "answers.trend",
    "why": "answers.why",
}
__all__ = [
    "Answer",
    "PgpacesError",
    "Result",
    "capacity",
    "check",
    "compare",
    "open_run",
    "open_sweep",
    "rehearse",
    "run",
    "sweep",
    "task",
    "trend",
    "user",
    "why",
]


def __getattr__(name: str) -> Any:
    """Imports a name on its first use, so that `import pgpaces` is fast."""
    if name in __all__:
        import importlib

        return getattr(importlib.import_module(f"pgpaces.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'pgpaces' has no attribute '{name}'")


def __dir__() -> list[str]:
    """All names, also before they are imported."""
    return sorted({*globals(), *__all__})
