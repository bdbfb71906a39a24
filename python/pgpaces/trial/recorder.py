"""Records the results of a trial: in the store second by second, and in its accumulator.

Knows the store and the answers, and nothing of servers and loads.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from pgpaces.analysis.accumulator import Accumulator
from pgpaces.analysis.digest import Digest, digest
from pgpaces.analysis.summary import Summary
from pgpaces.core.errors import StoreError
from pgpaces.core.findings import Notes
from pgpaces.core.messages import message
from pgpaces.core.record import Interval
from pgpaces.core.series import Collection, Sample, Series
from pgpaces.core.texts import Say, Warned
from pgpaces.spec.result import Estimate, Observed, Trial
from pgpaces.store.store import Store

# Well within the time after which a silent run counts as interrupted.
_BEAT_S = 5.0


class Recorder:
    """Stores intervals and samples as they come, adds intervals to the accumulator, and drops them.

    What the store refuses stays in memory and is written later. error: the first error of the
    store. delayed: the number of seconds that it refused at first. notes: without repetitions.
    first_error: the first error of a client. unread: stored samples could not be read back.
    """

    def __init__(self, store: Store | None, trial: Trial, say: Say) -> None:
        self._store, self.trial, self._say = store, trial, say
        self.accumulator = Accumulator()
        self.notes = Notes()
        self.first_error = ""
        self.error: StoreError | None = None
        self.delayed = 0
        self._waiting: deque[tuple[Interval | None, Sequence[Sample], Sequence[Observed]]] = deque()
        self._unstored = Collection()
        self._failing = self._sampled = self.unread = False

    def begin(self) -> None:
        """Stores that the trial starts. Raises StoreError: nothing is lost yet."""
        if self._store:
            self._store.begin(self.trial)

    def add(
        self,
        interval: Interval,
        samples: Sequence[Sample] = (),
        observed: Sequence[Observed] = (),
    ) -> None:
        """Adds a second, without the lines that were printed immediately, and what is new since.

        observed: observations that replace those of their kind, see Store.add.
        """
        errors = (text for level, text in interval.lines if level == "error")
        self.first_error = self.first_error or next(errors, "")
        self.notes.add(*interval.notes)
        self.accumulator.add(interval)
        self._keep(replace(interval, lines=()), samples, observed)
        try:
            self._flush()
        except StoreError as error:
            self.delayed += 1
            self.error = self.error or error
            if not self._failing:
                self._say(Warned(message("store-refuses", error=error.message)))
            self._failing = True
        else:
            if self._failing:
                self._say(message("store-accepts-again"))
            self._failing = False

    def series(self, last: Sequence[Sample]) -> tuple[Series, ...]:
        """All samples: read from the store, and those that it refused. last: the last ones."""
        self._keep(None, last, ())
        with contextlib.suppress(StoreError):
            self._flush()
        collection = self._unstored
        if self._store and self._sampled:
            try:
                collection = self._store.series(self.trial.id)
            except StoreError:
                self.unread = True
        for _, samples, _ in self._waiting:
            collection.add(samples)
        return collection.series()

    def _keep(
        self, interval: Interval | None, samples: Sequence[Sample], observed: Sequence[Observed]
    ) -> None:
        self._sampled = self._sampled or bool(samples)
        if self._store:
            self._waiting.append((interval, samples, observed))
        else:
            self._unstored.add(samples)

    def _flush(self) -> None:
        while self._store and self._waiting:
            interval, samples, observed = self._waiting[0]
            self._store.add(self.trial.id, interval, samples, observed=observed)
            self._waiting.popleft()

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Between the last second and the end, which may take minutes, the trial still runs."""
        ended = threading.Event()

        def beat() -> None:
            while self._store and not ended.wait(_BEAT_S):
                with contextlib.suppress(StoreError):
                    self._store.beat(self.trial.id)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def finish(self, trial: Trial, result: Digest) -> None:
        """Stores the end of the trial, and its digest. Raises StoreError; may be repeated."""
        self._flush()
        if self._store:
            self._store.add(trial.id, None, observed=trial.observed)
            self._store.finish(trial, brief(result.summary), result)


def store_imported(store: Store, trial: Trial) -> Summary:
    """Stores a whole imported trial; returns its answer. Raises StoreError."""
    result = digest(trial)
    store.begin(trial)
    for interval in trial.intervals:
        store.add(trial.id, interval)
    store.finish(trial, brief(result.summary), result)
    return result.summary


def brief(summary: Summary) -> dict[str, Any]:
    missed = summary.missed
    return {
        "due": summary.counts.due,
        "missed": summary.counts.missed,
        "missed_share": None if missed is None else [missed.value, missed.low, missed.high],
        "validity": summary.validity.state,
        "throughput": summary.throughput.value,
        "p50_ms": _finite(summary.latency.p50, "value"),
        "p99_ms": _finite(summary.latency.p99, "value"),
        "p99_low_ms": _finite(summary.latency.p99, "low"),
        "p99_high_ms": _finite(summary.latency.p99, "high"),
    }


def _finite(estimate: Estimate | None, name: str) -> float | None:
    value = math.nan if estimate is None else getattr(estimate, name)
    return value if math.isfinite(value) else None
