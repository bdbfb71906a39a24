"""What sweeps leave in a store while they run."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections import Counter
from pathlib import Path

from pgpaces.spec.result import Trial
from pgpaces.store.store import Store
from pgpaces.trial.listener import SweepListener


def cells_of(store: Path) -> Counter[tuple[str, int]]:
    """How often each cell finished in each block."""
    opened = Store.open(store)
    [row] = opened.experiments()
    placed = opened.placed(row.id)
    return Counter((trial.cell, trial.block) for trial in placed if trial.state == "finished")


def expire(store: Path) -> None:
    """As if every sign of life were long ago."""
    with sqlite3.connect(store) as connection:
        for table in ("trial", "experiment"):
            connection.execute(f"UPDATE {table} SET heartbeat = '2020-01-01 00:00:00.000000'")


def count(store: Path, table: str) -> int:
    if not store.exists():
        return 0
    try:
        with sqlite3.connect(store) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


class Ear(SweepListener):
    """Hears of every trial, and raises its hand like Ctrl-C after so many."""

    def __init__(self, ends_after: int | None = None) -> None:
        self.begun: list[Trial] = []
        self.done_count = 0
        self._ends_after = ends_after
        self._stopping = threading.Event()

    def trial(self, *_: object, **__: object) -> Ear:
        return self

    def started(self, trial: Trial, *_: object) -> None:
        self.begun.append(trial)

    def done(self, *_: object) -> None:
        self.done_count += 1
        if self.done_count == self._ends_after:
            os.kill(os.getpid(), signal.SIGINT)
            assert self._stopping.wait(60)

    def stopping(self, count: int) -> None:
        self._stopping.set()
