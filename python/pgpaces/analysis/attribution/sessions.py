"""What sessions of the load waited for, by second, in a few kinds; and when the server was frozen.

Samples of every tenth of a second in, values by second out; NaN for a second without samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from pgpaces.analysis import waits
from pgpaces.analysis.arrays import Numbers, np, quotient
from pgpaces.spec.result import Observed, WaitEvent

Kind = Literal["cpu", "lock", "wal", "read", "file", "standby", "latch", "client", "other"]
# Frozen: a sample was late by this many tenths, and by three times the two intervals before.
FROZEN_MIN = 5
_FROZEN_TIMES = 3
_WAL_LATCHES = ("WALWrite", "WALWriteLock")
_READS = ("DataFileRead", "DataFilePrefetch", "AioIoCompletion", "AioIoUringExecution")
_BUFFERS = ("BufferIO", "BufferIo", "buffer_io")


def kind_of(event: WaitEvent) -> Kind:
    """The kind of a wait event, as far as causes differ by it."""
    kind, name = event.kind, event.event
    if kind == waits.CPU:
        return "cpu"
    if kind == "IO":
        return "wal" if name.upper().startswith("WAL") else "read" if name in _READS else "file"
    if name in _BUFFERS:
        return "read"
    if kind == "LWLock":
        return "wal" if name in _WAL_LATCHES else "latch"
    if (kind, name) == ("IPC", "SyncRep"):
        return "standby"
    kinds: Mapping[str, Kind] = {"Lock": "lock", "BufferPin": "latch", "Client": "client"}
    return kinds.get(kind, "other")


class Sessions(Struct, frozen=True):
    """Mean sessions in each second of the clock from 0; NaN where there are no samples.

    by: of the load, by kind. others: not of the load. frozen: the share of a second in which the
    server did not answer a sample. samples: in each second. events: of the load, by kind, names of
    events, those with most sessions first.
    """

    by: Mapping[Kind, Numbers]
    others: Numbers
    frozen: Numbers
    samples: Numbers
    events: Mapping[Kind, tuple[str, ...]]

    def of(self, *kinds: Kind) -> Numbers:
        """Sessions of the load in these kinds together; 0 where there was none."""
        return sum((self.by[kind] for kind in kinds if kind in self.by), np.zeros(len(self.others)))

    @property
    def active(self) -> Numbers:
        """All of the load that executed something."""
        return self.of(*self.by)


def sessions(observed: Iterable[Observed], seconds: int) -> Sessions | None:
    """The sessions of all servers of a trial together; None where there are no samples.

    Raises ValueError for samples that cannot be read.
    """
    parts = [_of_server(each, seconds) for each in observed if each.waits.looks]
    if not parts:
        return None
    kinds = {kind for part in parts for kind in part.by}
    events = {kind: tuple(n for p in parts for n in p.events.get(kind, ())) for kind in kinds}
    return Sessions(
        {kind: sum(part.of(kind) for part in parts) for kind in kinds},  # type: ignore[misc]
        sum(part.others for part in parts),  # type: ignore[arg-type]
        np.max([part.frozen for part in parts], axis=0),
        np.max([part.samples for part in parts], axis=0),
        events,
    )


def _of_server(observed: Observed, seconds: int) -> Sessions:
    kinds = [kind_of(event) for event in observed.waits.events]
    own = [event.who == "load" for event in observed.waits.events]
    samples, others = np.zeros(seconds), np.zeros(seconds)
    by: dict[Kind, Numbers] = {k: np.zeros(seconds) for k, o in zip(kinds, own, strict=True) if o}
    tenths = []
    for sample in waits.read(observed.waits):
        tenths.append(sample.tenth)
        second = sample.tenth // waits.PER_SECOND
        if not 0 <= second < seconds:
            continue
        samples[second] += 1
        for place, count in sample.sessions.items():
            (by[kinds[place]] if own[place] else others)[second] += count
    mean = {kind: quotient(counts, samples) for kind, counts in by.items()}
    shares = np.zeros(seconds)
    for start, end in gaps(tenths):
        for tenth in range(max(0, start), min(end, seconds * waits.PER_SECOND)):
            shares[tenth // waits.PER_SECOND] += 1 / waits.PER_SECOND
    frozen = np.minimum(shares, 1.0)
    names: dict[Kind, tuple[str, ...]] = {}
    for event in sorted(observed.waits.events, key=lambda event: -event.sessions):
        if event.who == "load" and event.sessions:
            name = waits.name("load", event.kind, event.event)
            names[kind_of(event)] = (*names.get(kind_of(event), ()), name)
    return Sessions(mean, quotient(others, samples), frozen, samples, names)


def gaps(tenths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The ranges [start, end) of tenths in which a sample hung. tenths: of samples, in order.

    Samples that a slow server makes rare come at even distances: these are no gaps.
    """
    steps = [after - before for before, after in pairwise(tenths)]
    for at, step in enumerate(steps):
        # The first step has none before it.
        usual = max(steps[max(0, at - 2) : at] or steps[1:2], default=1)
        if step >= max(FROZEN_MIN, _FROZEN_TIMES * usual):
            yield tenths[at] + 1, tenths[at + 1]
