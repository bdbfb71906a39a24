"""A user that does nothing, fifty times a second: its lateness is that of its process.

Free users show the lateness themselves when a transaction is due. If all are busy, none does, and a
process without CPU would look like a slow server. Knows no schedule and no record.
"""

from __future__ import annotations

import asyncio
import threading
import time

_EVERY_NS = 20_000_000


class WakeProbe:
    """Records how late it wakes up. If it sleeps through several due times, each is late."""

    def __init__(self) -> None:
        self._late_ns: list[int] = []
        self._at_ns = time.monotonic_ns()

    def take(self) -> list[int]:
        """The lateness of each wake-up since the last call, ns."""
        late_ns, self._late_ns = self._late_ns, []
        return late_ns

    def in_thread(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    async def as_coroutine(self) -> None:
        self._at_ns = time.monotonic_ns()
        while True:
            await asyncio.sleep(self._wait_s())
            self._woken()

    def _run(self) -> None:
        self._at_ns = time.monotonic_ns()
        while True:
            time.sleep(self._wait_s())
            self._woken()

    def _wait_s(self) -> float:
        self._at_ns += _EVERY_NS
        return max(0, self._at_ns - time.monotonic_ns()) / 1e9

    def _woken(self) -> None:
        self._late_ns.append(max(0, time.monotonic_ns() - self._at_ns))
