"""Whether standbys kept up and stayed: samples of a primary in, findings out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pgpaces.core.findings import Finding, finding
from pgpaces.core.series import Series

SOURCE = "replication"
SLOTS = "slots"
# The least growth of a lag that counts: in bytes, and as a share of all WAL that was written.
GROWTH_MIN_BYTES = 1 << 20
GROWTH_MIN_SHARE = 0.05
_PARTS = 3

Track = Mapping[int, float]


def findings(series: Iterable[Series], sampled: Iterable[int]) -> list[Finding]:
    """Findings about standbys by series of their primary. sampled: seconds in which it was read.

    The lags of all of them come first.
    """
    # Samples of replication by name, and the bytes of WAL written in that time.
    tracks: dict[str, dict[int, float]] = {}
    written = 0.0
    for each in series:
        source = each.source.rpartition("/")[2]
        if source == SOURCE:
            tracks[each.name] = each.track()
        elif (source, each.name) == ("wal", "written"):
            written += sum(each.track().values())
    seconds = sorted({second for second in sampled if second >= 0})
    every = list(_lags(tracks))
    for name, track in tracks.items():
        if name.endswith(" streaming"):
            every += _stopped(name.removesuffix(" streaming"), track, seconds)
        elif name.endswith(" replay_lag"):
            every += _growth(name.removesuffix(" replay_lag"), track, written)
        elif name == "receiving":
            every += _stopped("", track, seconds)
    return every


def _lags(tracks: Mapping[str, Track]) -> Iterator[Finding]:
    """The lag of each standby, in bytes and, where it had WAL to replay, in time."""
    for name, track in tracks.items():
        if not name.endswith(" replay_lag") or not track:
            continue
        who, values = name.removesuffix(" replay_lag"), list(track.values())
        yield finding("standby-lag", who, mean_bytes=_mean(values), max_bytes=max(values))
        if delays := list(tracks.get(f"{who} replay_delay", {}).values()):
            yield finding("standby-delay", who, mean_s=_mean(delays), max_s=max(delays))


def _stopped(name: str, track: Track, seconds: list[int]) -> Iterator[Finding]:
    """A standby that streamed and then stopped. seconds: those with samples of the primary."""
    streamed = [second for second in seconds if track.get(second)]
    if not streamed:
        return
    without = [second for second in seconds if second > streamed[0] and not track.get(second)]
    if not without:
        return
    at_s = without[0]
    if without[-1] < streamed[-1]:
        lost = {"without_s": len(without), "of_s": len(seconds)}
        yield finding("standby-left", name, at_s=at_s, **lost)
    else:
        yield finding("standby-lost", name, at_s=at_s)


def _growth(name: str, track: Track, written: float) -> Iterator[Finding]:
    """A lag that grew: over every third of the trial, and by more than it varies."""
    values = [value for _, value in sorted(track.items())]
    if len(values) < 2 * _PARTS:
        return
    size = len(values) // _PARTS
    thirds = [_mean(part) for part in (values[:size], values[size:-size], values[-size:])]
    tenth = max(1, len(values) // 10)
    first, last = _mean(values[:tenth]), _mean(values[-tenth:])
    growth = last - first
    grew = growth >= max(GROWTH_MIN_BYTES, GROWTH_MIN_SHARE * written) and last >= 2 * first
    if thirds == sorted(set(thirds)) and grew:
        yield finding("standby-lag-grew", name, first_bytes=first, last_bytes=last)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
