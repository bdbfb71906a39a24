"""Puts PostgreSQL through its paces: your workload, at your pace, against your expectation.

import pgpaces
run = pgpaces.run("reporting", rate=1, latency_limit="500ms")
run.missed, run.latency.p99
sweep = pgpaces.sweep("reporting", clients=[1, 2, 4, 8], rate_per_client=1, latency_limit="500ms")
sweep.answer, sweep.frame(), sweep.plot()
better = pgpaces.compare("variant=triggers", "variant=log")
better.sentences, better.value.estimate, better.plot()
holds = pgpaces.capacity("reporting", latency_limit="500ms", missed="5%")
holds.sentences, holds.value.cells[0].proved, holds.plot()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgpaces.answer import Answer
    from pgpaces.api import Result, load, run
    from pgpaces.questions.capacity.api import capacity
    from pgpaces.questions.compare.api import check, compare
    from pgpaces.questions.sweep.api import Sweep, load_sweep, sweep
    from pgpaces.questions.trend import trend
    from pgpaces.questions.why.page import why
    from pgpaces.users import task, user

_PLACES = {
    "Result": "api",
    "load": "api",
    "run": "api",
    "Sweep": "questions.sweep.api",
    "load_sweep": "questions.sweep.api",
    "sweep": "questions.sweep.api",
    "task": "users",
    "user": "users",
    "Answer": "answer",
    "capacity": "questions.capacity.api",
    "check": "questions.compare.api",
    "compare": "questions.compare.api",
    "trend": "questions.trend",
    "why": "questions.why.page",
}
__all__ = [
    "Answer",
    "Result",
    "Sweep",
    "capacity",
    "check",
    "compare",
    "load",
    "load_sweep",
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
