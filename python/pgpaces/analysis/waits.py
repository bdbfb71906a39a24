"""Wait events by tenths of a second: counted, packed into few bytes, and read again. Pure.

A trial of an hour has 36,000 tenths with a few events each. They are packed as numbers of 32 bits,
three for each event of a tenth and three for the tenth itself: tenths since the previous one, the
event (-1: the server was sampled), the number of sessions; compressed as they arrive. So a tenth
without waiting sessions differs from a tenth without a sample.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping
from struct import pack
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
        self._last: int | None = None
        self._looks = self._in_second = 0
        self._counts: Counter[Event] = Counter()
        self._names: dict[str, None] = {}
        self._sampled = Seconds()
        self._ended: list[Sample] = []

    def add(self, tenth: int, sessions: Mapping[Event, int]) -> None:
        """Adds the sample of a tenth, counted from the start of the measured part; in order.

        A second sample of the same tenth is ignored.
        """
        if self._last is not None:
            if tenth <= self._last:
                return
            if tenth // PER_SECOND != self._last // PER_SECOND:
                self._end_second()
        triples = [tenth - (self._last or 0), _LOOKED, 0]
        for event, count in sessions.items():
            self._totals[event] += count if tenth >= 0 else 0
            triples += (0, self._places.setdefault(event, len(self._places)), count)
        self._packed.append(self._packer.compress(pack(f"<{len(triples)}i", *triples)))
        self._last = tenth
        self._looks += tenth >= 0
        self._in_second += 1
        self._counts.update(sessions)

    def waits(self) -> Waits:
        if self._last is None:
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
        if not self._in_second or self._last is None:
            return
        second, sums = self._last // PER_SECOND, Counter(dict.fromkeys(self._names, 0))
        for event, count in self._counts.most_common():
            name = event_name(*event)
            sums[name if name in sums or len(sums) < SAMPLED_MAX else OTHER] += count
        for name, count in sums.items():
            zeros = () if name in self._names else self._sampled
            self._ended += [Sample(each, SOURCE, name, 0.0, "sessions") for each in zeros]
            mean = float(f"{count / self._in_second:.4g}")
            self._ended.append(Sample(second, SOURCE, name, mean, "sessions"))
        self._names = dict.fromkeys(sums)
        self._sampled.add(second)
        self._in_second, self._counts = 0, Counter()


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
