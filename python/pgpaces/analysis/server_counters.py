"""What the counters of a server say: its cache, its standbys, and the bytes that it wrote. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from msgspec import Struct

from pgpaces.core.findings import Finding, finding
from pgpaces.core.series import Series

REPLICATION, SLOTS = "replication", "slots"
# The acceptable rise of the ratio from the first tenth to the last, in percentage points.
RISE_MAX = 2.0
# The least growth of a lag that counts: in bytes, and as a share of all WAL that was written.
GROWTH_MIN_BYTES = 1 << 20
GROWTH_MIN_SHARE = 0.05
_PARTS = 3
_DAY_S = 86_400
# PostgreSQL's default, for data and WAL.
_BLOCK = 8192
# Bytes of a counter. Each write of WAL begins with a block that was partly written before.
_ALWAYS = {("wal", "written"): 1, ("wal", "writes"): _BLOCK, ("database", "temp_written"): 1}
_BLOCKS = {
    ("checkpoints", "written"): _BLOCK,
    ("background_writer", "written"): _BLOCK,
    ("background_writer", "written_by_backends"): _BLOCK,
}
_READ = ("wal", "database", "sessions")


class Blocks(Struct, frozen=True):
    """Blocks of one second of a trial: hits in the server's cache, and reads."""

    second: int
    hit: int
    read: int


def ratio(seconds: Sequence[Blocks]) -> float | None:
    """The share of blocks found in the cache, percent; None without any access."""
    hit, read = sum(each.hit for each in seconds), sum(each.read for each in seconds)
    return 100 * hit / (hit + read) if hit + read else None


def cache_findings(seconds: Sequence[Blocks]) -> Iterator[Finding]:
    """The ratio in the last tenth of the warm-up, and that of the measured part.

    A warning where it still rose from the first tenth of the measured part to the last.
    """
    tenth = max(1, -min((each.second for each in seconds), default=0) // 10)
    if (warm := ratio([each for each in seconds if -tenth <= each.second < 0])) is not None:
        yield finding("warm-up-cache-hits", percent=warm)
    measured = [each for each in seconds if each.second >= 0]
    if (share := ratio(measured)) is None:
        return
    end = max(each.second for each in measured)
    tenth = max(1, (end + 1) // 10)
    first = ratio([each for each in measured if each.second < tenth])
    last = ratio([each for each in measured if each.second > end - tenth])
    warming = end >= 1 and first is not None and last is not None and last - first > RISE_MAX
    name = "cache-warming" if warming else "cache-hits"
    yield finding(name, percent=share, first_percent=first, last_percent=last)


def standby_findings(series: Iterable[Series], sampled: Iterable[int]) -> list[Finding]:
    """Findings about standbys by series of their primary. sampled: seconds in which it was read.

    The lags of all of them come first: in bytes and, where there was WAL to replay, in time.
    """
    # Samples of replication by name, and the bytes of WAL written in that time.
    tracks: dict[str, dict[int, float]] = {}
    written = 0.0
    for each in series:
        source = each.source.rpartition("/")[2]
        if source == REPLICATION:
            tracks[each.name] = each.track()
        elif (source, each.name) == ("wal", "written"):
            written += sum(each.track().values())
    seconds = sorted({second for second in sampled if second >= 0})
    lags, changes = [], list[Finding]()
    for name, track in tracks.items():
        who, _, what = name.rpartition(" ")
        if what == "replay_lag" and track:
            values = [value for _, value in sorted(track.items())]
            sizes = {"mean_bytes": fmean(values), "max_bytes": max(values)}
            lags.append(finding("standby-lag", who, **sizes))
            if delays := list(tracks.get(f"{who} replay_delay", {}).values()):
                longest_s = max(delays)
                lags.append(finding("standby-delay", who, mean_s=fmean(delays), max_s=longest_s))
            changes += _growth(who, values, written)
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


def _growth(name: str, lags: Sequence[float], written: float) -> Iterator[Finding]:
    """A lag that grew: over every third of the trial, and by more than it varies."""
    if len(lags) < 2 * _PARTS:
        return
    size, tenth = len(lags) // _PARTS, max(1, len(lags) // 10)
    thirds = [fmean(part) for part in (lags[:size], lags[size:-size], lags[-size:])]
    first, last = fmean(lags[:tenth]), fmean(lags[-tenth:])
    least = max(GROWTH_MIN_BYTES, GROWTH_MIN_SHARE * written)
    if thirds == sorted(set(thirds)) and last - first >= least and last >= 2 * first:
        yield finding("standby-lag-grew", name, first_bytes=first, last_bytes=last)


class Written(Struct, frozen=True):
    """The bytes that the primary wrote a day, by its counters, at the rate of the trial.

    checkpoints: how many ended meanwhile; without one, most writes to data files are missing.
    """

    bytes_a_day: float
    checkpoints: float


def written(series: Sequence[Series], start: int, end: float) -> Written | None:
    """What was written in the seconds from start to end in which it was sampled; None without any.

    WAL + 8 KiB x writes of WAL + temporary files + blocks of data files; blocks by pg_stat_io where
    it has samples (16 and later), else by the counters of checkpointer, background writer and
    backends. Without other programs and what the file system adds. A counter that never changed has
    no samples.
    """
    inside = {(s.source, s.name): [v for n, v in s.pairs if start <= n < end] for s in series}
    read = {n for s in series if s.source in _READ for n in s.seconds if start <= n < end}
    if not read:
        return None
    by_io = any(source == "io" for source, _ in inside)
    sizes = _ALWAYS if by_io else _ALWAYS | _BLOCKS
    of_io = {key: 1 for key in inside if key[0] == "io" and key[1].endswith("_written")}
    total = sum(size * sum(inside.get(key, ())) for key, size in {**sizes, **of_io}.items())
    checkpoints = sum(inside.get(("checkpoints", "checkpoints"), ()))
    return Written(total / len(read) * _DAY_S, checkpoints)
