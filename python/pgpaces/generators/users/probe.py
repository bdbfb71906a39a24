"""A user that does nothing, fifty times a second: how late it is woken is how late its process is.

Others tell that where they are free when something is due. Where all of them are busy, nobody does,
and a process without CPU would look like a slow server. Knows no schedule and no record.
"""

from __future__ import annotations

import asyncio
import threading
import time

_EVERY_NS = 20_000_000


class WakeProbe:
    """How late it was woken. One that slept through several of its times is late for each."""

    def __init__(self) -> None:
        self._late_ns: list[int] = []
        self._at_ns = time.monotonic_ns()

    def told(self) -> list[int]:
        """What was not told yet, ns."""
        found, self._late_ns = self._late_ns, []
        return found

    def in_thread(self) -> None:
        """Looks from now on, in a thread of its own."""
        threading.Thread(target=self._look, daemon=True).start()

    async def as_coroutine(self) -> None:
        """The same beside other coroutines."""
        self._at_ns = time.monotonic_ns()
        while True:
            await asyncio.sleep(self._wait_s())
            self._woken()

    def _look(self) -> None:
        self._at_ns = time.monotonic_ns()
        while True:
            time.sleep(self._wait_s())
            self._woken()

    def _wait_s(self) -> float:
        self._at_ns += _EVERY_NS
        return max(0, self._at_ns - time.monotonic_ns()) / 1e9

    def _woken(self) -> None:
        self._late_ns.append(max(0, time.monotonic_ns() - self._at_ns))
