"""The trials of one load, found in the store, with their metrics so far."""

from __future__ import annotations

import contextlib
import time

from msgspec import Struct
from opentelemetry.sdk.metrics.export import MetricsData

from pgpaces.core.errors import PgpacesError, StoreError
from pgpaces.core.record import Interval
from pgpaces.store.store import Store
from pgpaces.web.live import NEWEST, ProcessLoad, head_of, news
from pgpaces.web.metrics import Totals, metrics_data

# The counters of an ended trial stay until every monitoring system has the last values.
_KEPT_S = 65.0


class _Read(Struct):
    totals: Totals
    latest: Interval | None = None
    ended_s: float = 0.0


class Feed:
    """Trials of one load. place: of the store."""

    def __init__(self, place: str | None, load: ProcessLoad) -> None:
        self._place, self._load = place, load
        self._store: Store | None = None
        self._reads: dict[str, _Read] = {}
        self._others: set[str] = set()

    def read(self) -> tuple[list[Totals], bool]:
        """Reads what is new: the trials that ended, and whether there are new seconds.

        Nothing while the store cannot be read.
        """
        ended: list[Totals] = []
        before = {id_: each.latest for id_, each in self._reads.items()}
        with contextlib.suppress(PgpacesError):
            if self._store is None:
                self._store = Store.existing(self._place)
            store = self._store
            self._find(store)
            for trial_id, read in self._reads.items():
                if read.ended_s:
                    continue
                head, intervals = news(store, trial_id, read.latest)
                for interval in intervals:
                    read.totals.add(interval)
                    read.latest = interval
                read.totals.head = head
                if head.state != "running":
                    read.ended_s = time.monotonic()
                    ended.append(read.totals)
        changed = before != {id_: each.latest for id_, each in self._reads.items()}
        return ended, changed or bool(ended)

    def _find(self, store: Store) -> None:
        for id_, _ in store.states(NEWEST):
            if not self._load.began(id_) or id_ in self._reads or id_ in self._others:
                continue
            head = head_of(store, id_)
            if head is None:
                continue
            if not self._load.has(head):
                self._others.add(id_)
                continue
            name = ""
            if head.place is not None:
                with contextlib.suppress(PgpacesError):
                    name = store.experiment(head.place.experiment).name
            self._reads[id_] = _Read(Totals(head, name))

    def metrics(self) -> MetricsData:
        """The metrics of the trials that run, and of those that ended a short time ago."""
        oldest = time.monotonic() - _KEPT_S
        return metrics_data(
            r.totals for r in self._reads.values() if not r.ended_s or r.ended_s > oldest
        )

    def running(self) -> list[Totals]:
        return [each.totals for each in self._reads.values() if not each.ended_s]

    def close(self) -> None:
        if self._store is not None:
            with contextlib.suppress(StoreError):
                self._store.close()
