"""Wait events by tenths of a second: counted, packed into few bytes, and read again. Pure.

A trial of an hour has 36,000 tenths with a few events each. Packed they are numbers of 32 bits,
three for each event of a tenth and three for the tenth itself: how many tenths behind those before,
which event (-1: the server was looked at), how many sessions; compressed while they come. So a
tenth in which nobody waited is told from one in which nobody looked.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from pgpaces.result import Sample, WaitEvent, Waits

if TYPE_CHECKING:
    from numpy.typing import NDArray

SOURCE = "waits"
CPU = "CPU"
PER_SECOND = 10
# So many events have samples of their own; what the rest sums up to is one more.
SAMPLED_MAX = 12
OTHER = "other"
_LOOKED = -1
# So many tenths may be read at once: four days, with nine events in each of them.
_BYTES_MAX = 12 * 10 * 4 * 86_400 * 10

Who = Literal["load", "others"]
Event = tuple[Who, str, str]


class Tenth(Struct, frozen=True):
    """One look: the sessions in each event, by their place in `Waits.events`."""

    tenth: int
    sessions: Mapping[int, int]


class WaitTally:
    """Counts looks while they come. Memory: of each second, and of the packed tenths."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(6)
        self._packed: list[bytes] = []
        self._places: dict[Event, int] = {}
        self._totals: list[int] = []
        self._last = 0
        self._every = self._looks = 0
        self._seconds: dict[int, tuple[int, Counter[int]]] = {}

    def add(self, tenth: int, sessions: Mapping[Event, int]) -> None:
        """A look at a tenth, counted from the start of the measured part; they come in order.

        A second look at the same tenth is left out.
        """
        if self._every and tenth <= self._last:
            return
        found = {self._place(event): count for event, count in sessions.items()}
        triples = array("i", (tenth - self._last, _LOOKED, 0))
        for place, count in found.items():
            triples.extend((0, place, count))
            self._totals[place] += count if tenth >= 0 else 0
        if sys.byteorder == "big":
            triples.byteswap()
        self._packed.append(self._packer.compress(triples.tobytes()))
        self._last, self._every = tenth, self._every + 1
        self._looks += tenth >= 0
        looks, counts = self._seconds.get(tenth // PER_SECOND, (0, Counter()))
        counts.update(found)
        self._seconds[tenth // PER_SECOND] = looks + 1, counts

    def _place(self, event: Event) -> int:
        if event not in self._places:
            self._places[event] = len(self._totals)
            self._totals.append(0)
        return self._places[event]

    def waits(self) -> Waits:
        """What was counted so far."""
        if not self._every:
            return Waits()
        rest = self._packer.copy().flush()
        events = tuple(
            WaitEvent(*event, self._totals[place]) for event, place in self._places.items()
        )
        return Waits(self._looks, events, b"".join(self._packed) + rest)

    def samples(self) -> Iterator[Sample]:
        """Mean sessions in each event, second by second; 0 where it was looked and none was."""
        ranked = sorted(self._places, key=lambda event: -self._totals[self._places[event]])
        own = {self._places[event]: name(*event) for event in ranked[:SAMPLED_MAX]}
        for second, (looks, counts) in sorted(self._seconds.items()):
            for place, called in own.items():
                yield _sample(second, called, counts[place] / looks)
            if len(ranked) > SAMPLED_MAX:
                rest = sum(count for place, count in counts.items() if place not in own)
                yield _sample(second, OTHER, rest / looks)


def _sample(second: int, called: str, sessions: float) -> Sample:
    return Sample(second, SOURCE, called, float(f"{sessions:.4g}"), "sessions")


def name(who: str, kind: str, event: str) -> str:
    """What an event is called: `Lock:tuple`, `CPU`, `others IO:DataFileRead`."""
    called = f"{kind}:{event}" if event else kind
    return called if who == "load" else f"{who} {called}"


def read(waits: Waits) -> Iterator[Tenth]:
    """The tenths again, in order. Raises ValueError for bytes that are none."""
    sessions: dict[int, int] = {}
    tenth, seen = 0, False
    for ahead, place, count in _triples(waits).tolist():
        if place == _LOOKED:
            if seen:
                yield Tenth(tenth, sessions)
            tenth, sessions, seen = tenth + ahead, {}, True
        elif not (seen and 0 <= place < len(waits.events) and count >= 0):
            raise ValueError(f"there is no wait event {place}")
        else:
            sessions[place] = count
    if seen:
        yield Tenth(tenth, sessions)


def _triples(waits: Waits) -> NDArray[Any]:
    import numpy as np

    if not waits.tenths:
        return np.empty((0, 3), dtype="<i4")
    opened = zlib.decompressobj()
    try:
        raw = opened.decompress(waits.tenths, _BYTES_MAX)
    except zlib.error as error:
        raise ValueError(f"the wait events cannot be read: {error}") from None
    if len(raw) % 12 or not opened.eof:
        raise ValueError("the wait events are cut short")
    return np.frombuffer(raw, dtype="<i4").reshape(-1, 3)


def top(waits: Waits, who: Who = "load", most: int = 5) -> list[tuple[str, float, float]]:
    """The events with most sessions: name, mean sessions in it, and its share of all of them."""
    own = [event for event in waits.events if event.who == who and event.sessions]
    total = sum(event.sessions for event in own)
    own.sort(key=lambda event: -event.sessions)
    return [
        (name("load", e.kind, e.event), e.sessions / waits.looks, e.sessions / total)
        for e in own[:most]
    ]
