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


def standby_findings(series: Iterable[Series], sampled: Iterable[int]) -> list[Finding]:
    """Findings about standbys by series of their primary. sampled: seconds in which it was read.

    The lags of all of them come first: in bytes and, where there was WAL to replay, in time.
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
    lags, changes = [], list[Finding]()
    for name, track in tracks.items():
        who, _, what = name.rpartition(" ")
        if what == "replay_lag" and track:
            values = list(track.values())
            lags.append(
                finding("standby-lag", who, mean_bytes=_mean(values), max_bytes=max(values))
            )
            if delays := list(tracks.get(f"{who} replay_delay", {}).values()):
                longest_s = max(delays)
                lags.append(finding("standby-delay", who, mean_s=_mean(delays), max_s=longest_s))
            changes += _growth(who, track, written)
        elif what in ("streaming", "receiving"):
            changes += _stopped(who, track, seconds)
    return [*lags, *changes]


def _stopped(name: str, track: Mapping[int, float], seconds: list[int]) -> Iterator[Finding]:
    """A standby that streamed and then stopped. seconds: those with samples of the primary."""
    streamed = [second for second in seconds if track.get(second)]
    without = [s for s in seconds if streamed and s > streamed[0] and not track.get(s)]
    if without and without[-1] < streamed[-1]:
        lost = {"without_s": len(without), "of_s": len(seconds)}
        yield finding("standby-left", name, at_s=without[0], **lost)
    elif without:
        yield finding("standby-lost", name, at_s=without[0])


def _growth(name: str, track: Mapping[int, float], written: float) -> Iterator[Finding]:
    """A lag that grew: over every third of the trial, and by more than it varies."""
    values = [value for _, value in sorted(track.items())]
    if len(values) < 2 * _PARTS:
        return
    size, tenth = len(values) // _PARTS, max(1, len(values) // 10)
    thirds = [_mean(part) for part in (values[:size], values[size:-size], values[-size:])]
    first, last = _mean(values[:tenth]), _mean(values[-tenth:])
    least = max(GROWTH_MIN_BYTES, GROWTH_MIN_SHARE * written)
    if thirds == sorted(set(thirds)) and last - first >= least and last >= 2 * first:
        yield finding("standby-lag-grew", name, first_bytes=first, last_bytes=last)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
