"""Waiting for what comes true, with an end."""

import threading
import time
from collections.abc import Callable

DEADLINE_S = 120.0


def until(condition: Callable[[], bool], what: str = "") -> None:
    """Until this is so; or the test fails."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what or condition}"
        threading.Event().wait(0.01)
