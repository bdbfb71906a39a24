"""Wait events by tenths of a second: counted, packed into few bytes, and read again. Pure.

A trial of an hour has 36,000 tenths with a few events each. They are packed as numbers of 32 bits,
three for each event of a tenth and three for the tenth itself: tenths since the previous one, the
event (-1: the server was sampled), the number of sessions; compressed as they arrive. So a tenth
without waiting sessions differs from a tenth without a sample.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from pgpaces.analysis.arrays import Numbers, np
from pgpaces.core.messages import message
from pgpaces.core.series import Sample, Seconds
from pgpaces.spec.result import WaitEvent, Waits

SOURCE = "waits"
CPU = "CPU"
PER_SECOND = 10
# Events with samples of their own, the first ones; one more sample has the sum of the rest.
SAMPLED_MAX = 24
OTHER = "other"
_LOOKED = -1
# The limit of what is unpacked: tenths of four days, with nine events in each of them.
_BYTES_MAX = 12 * 10 * 4 * 86_400 * 10

Who = Literal["load", "others"]
Event = tuple[Who, str, str]


class WaitTally:
    """Counts samples as they arrive. It keeps the counts of one second, and packed tenths."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(6)
        self._packed: list[bytes] = []
        self._places: dict[Event, int] = {}
        self._totals: Counter[Event] = Counter()
        self._last = 0
        self._every = self._looks = 0
        self._second, self._in_second = 0, 0
        self._counts: Counter[Event] = Counter()
        self._names: dict[Event, str] = {}
        self._seen: dict[str, None] = {}
        self._sampled = Seconds()
        self._ended: list[Sample] = []

    def add(self, tenth: int, sessions: Mapping[Event, int]) -> None:
        """Adds the sample of a tenth, counted from the start of the measured part; in order.

        A second sample of the same tenth is ignored.
        """
        if self._every and tenth <= self._last:
            return
        triples = array("i", (tenth - self._last, _LOOKED, 0))
        for event, count in sessions.items():
            triples.extend((0, self._places.setdefault(event, len(self._places)), count))
            self._totals[event] += count if tenth >= 0 else 0
        if sys.byteorder == "big":
            triples.byteswap()
        self._packed.append(self._packer.compress(triples.tobytes()))
        self._last, self._every = tenth, self._every + 1
        self._looks += tenth >= 0
        if tenth // PER_SECOND != self._second:
            self._end_second()
        self._second, self._in_second = tenth // PER_SECOND, self._in_second + 1
        self._counts.update(sessions)

    def waits(self) -> Waits:
        if not self._every:
            return Waits()
        rest = self._packer.copy().flush()
        events = tuple(WaitEvent(*event, self._totals[event]) for event in self._places)
        return Waits(self._looks, events, b"".join(self._packed) + rest)

    def drain(self, *, ended: bool = False) -> list[Sample]:
        """Mean sessions in each event, of the seconds that ended since the last call.

        0 where a sample found none: those of earlier seconds follow when an event first appears.
        ended: no more samples follow, so the last second has ended as well.
        """
        if ended:
            self._end_second()
        samples, self._ended = self._ended, []
        return samples

    def _end_second(self) -> None:
        if not self._in_second:
            return
        sums = Counter(dict.fromkeys(self._seen, 0))
        for event, count in self._counts.most_common():
            if event not in self._names and len(self._names) < SAMPLED_MAX:
                self._names[event] = event_name(*event)
            sums[self._names.get(event, OTHER)] += count
        for name, count in sums.items():
            if name not in self._seen:
                self._seen[name] = None
                self._ended += [_sample(second, name, 0.0) for second in self._sampled]
            self._ended.append(_sample(self._second, name, count / self._in_second))
        self._sampled.add(self._second)
        self._in_second, self._counts = 0, Counter()


def _sample(second: int, event: str, sessions: float) -> Sample:
    return Sample(second, SOURCE, event, float(f"{sessions:.4g}"), "sessions")


def event_name(who: str, kind: str, event: str) -> str:
    """The name of an event: `Lock:tuple`, `CPU`, `others IO:DataFileRead`."""
    wait = f"{kind}:{event}" if event else kind
    return wait if who == "load" else f"{who} {wait}"


def tenths_of(waits: Waits) -> tuple[Numbers, Numbers]:
    """The tenths with a sample, in order, and a row for each event of one.

    The columns of rows are the tenth, the place in `waits.events`, and the sessions in the event.
    Raises ValueError for bytes that are not packed tenths.
    """
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(waits.tenths, _BYTES_MAX) if waits.tenths else b""
    except zlib.error as error:
        raise ValueError(message("waits-unreadable", why=error)) from None
    if len(raw) % 12 or not (unpacker.eof or not waits.tenths):
        raise ValueError(message("waits-cut"))
    triples = np.frombuffer(raw, dtype="<i4").reshape(-1, 3).astype(int)
    looked = triples[:, 1] == _LOOKED
    # Those of the events of a tenth are 0 tenths later.
    triples[:, 0] = triples[:, 0].cumsum()
    rows = triples[~looked]
    possible = (rows[:, 1] >= 0) & (rows[:, 1] < len(waits.events)) & (rows[:, 2] >= 0)
    if not (possible.all() and looked[:1].all()):
        raise ValueError("there is no wait event of this number")
    return triples[looked, 0], rows


def observations(waits: Waits) -> int:
    return sum(event.sessions for event in waits.events if event.who == "load")


def top_events(waits: Waits, who: Who = "load", most: int = 5) -> list[tuple[str, float, float]]:
    """The events with most sessions: name, mean sessions in it, and its share of all of them."""
    own = [event for event in waits.events if event.who == who and event.sessions]
    total = sum(event.sessions for event in own)
    own.sort(key=lambda event: -event.sessions)
    return [
        (event_name("load", e.kind, e.event), e.sessions / waits.looks, e.sessions / total)
        for e in own[:most]
    ]
