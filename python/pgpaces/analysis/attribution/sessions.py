"""What sessions of the load waited for, by second, in a few kinds; and when the server was frozen.

Samples of every tenth of a second in, values by second out; NaN for a second without samples.
"""

from __future__ import annotations

from collections import defaultdict
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


def wait_kind(event: WaitEvent) -> Kind:
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


def sessions_of(observed: Iterable[Observed], seconds: int) -> Sessions | None:
    """The sessions of all servers of a trial together; None where there are no samples.

    Raises ValueError for samples that cannot be read.
    """
    frozen, samples = np.zeros(seconds), np.zeros(seconds)
    by: defaultdict[Kind, Numbers] = defaultdict(lambda: np.zeros(seconds))
    others = np.zeros(seconds)
    names: dict[Kind, tuple[str, ...]] = {}
    servers = [each.waits for each in observed if each.waits.looks]
    for server in servers:
        kinds = [wait_kind(event) if event.who == "load" else None for event in server.events]
        sums = {kind: np.zeros(seconds) for kind in (None, *kinds)}
        looks, tenths = np.zeros(seconds), []
        for sample in waits.tenths_of(server):
            tenths.append(sample.tenth)
            second = sample.tenth // waits.PER_SECOND
            if 0 <= second < seconds:
                looks[second] += 1
                for place, count in sample.sessions.items():
                    sums[kinds[place]][second] += count
        frozen = np.maximum(frozen, _frozen(tenths, seconds))
        samples = np.maximum(samples, looks)
        for kind, counts in sums.items():
            if kind is None:
                others = others + quotient(counts, looks)
            else:
                by[kind] = by[kind] + quotient(counts, looks)
        for event in sorted(server.events, key=lambda event: -event.sessions):
            if event.who == "load" and event.sessions:
                name = waits.event_name("load", event.kind, event.event)
                names[wait_kind(event)] = (*names.get(wait_kind(event), ()), name)
    return Sessions(dict(by), others, frozen, samples, names) if servers else None


def _frozen(tenths: Sequence[int], seconds: int) -> Numbers:
    shares = np.zeros(seconds)
    for start, end in gaps(tenths):
        for tenth in range(max(0, start), min(end, seconds * waits.PER_SECOND)):
            shares[tenth // waits.PER_SECOND] += 1 / waits.PER_SECOND
    return np.minimum(shares, 1.0)


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
