"""Whether standbys kept up and stayed: samples of a primary in, findings out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pgpaces.answers.throttle import duration
from pgpaces.result import Finding, Sample
from pgpaces.units import size_text

SOURCE = "replication"
SLOTS = "slots"
# A lag counts as growing from so much on, and from such a share of all WAL that was written on.
GROWTH_MIN_BYTES = 1 << 20
GROWTH_MIN_SHARE = 0.05
_PARTS = 3

Track = Mapping[int, float]


def findings(samples: Iterable[Sample], looked: Iterable[int]) -> list[Finding]:
    """What samples of a primary say of its standbys. looked: the seconds in which it was read."""
    tracks, written = _tracks(samples)
    seconds = sorted({second for second in looked if second >= 0})
    found: list[Finding] = list(_lags(tracks))
    for name, track in tracks.items():
        if name.endswith(" streaming"):
            found += _stopped(name.removesuffix(" streaming"), track, seconds)
        elif name.endswith(" replay_lag"):
            found += _behind(name.removesuffix(" replay_lag"), track, written)
        elif name == "receiving":
            found += _stopped("the standby", track, seconds)
    return found


def _tracks(samples: Iterable[Sample]) -> tuple[dict[str, dict[int, float]], float]:
    """What was seen of replication, by name, and how many bytes of WAL were written meanwhile."""
    tracks: dict[str, dict[int, float]] = {}
    written = 0.0
    for sample in samples:
        source = sample.source.rpartition("/")[2]
        if sample.second < 0:
            continue
        if source == SOURCE:
            tracks.setdefault(sample.name, {})[sample.second] = sample.value
        elif (source, sample.name) == ("wal", "written"):
            written += sample.value
    return tracks, written


def _lags(tracks: Mapping[str, Track]) -> Iterator[Finding]:
    """How far behind each standby was, in bytes and, where it had something to replay, in time."""
    for name, track in tracks.items():
        if not name.endswith(" replay_lag") or not track:
            continue
        who, values = name.removesuffix(" replay_lag"), list(track.values())
        mean, most = size_text(_mean(values)), size_text(max(values))
        text = f"{who} was {mean} behind on average, {most} at most"
        if delays := list(tracks.get(f"{who} replay_delay", {}).values()):
            text += f", and {_seconds(_mean(delays))} on average, {_seconds(max(delays))} at most"
        yield Finding(SOURCE, "info", text, _mean(values), "B")


def _seconds(value: float) -> str:
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"


def _stopped(name: str, track: Track, seconds: list[int]) -> Iterator[Finding]:
    """A standby that streamed and then did not; where nobody looked nothing is known."""
    streamed = [second for second in seconds if track.get(second)]
    if not streamed:
        return
    without = [second for second in seconds if second > streamed[0] and not track.get(second)]
    if not without:
        return
    text = f"{name} stopped streaming at {_moment(without[0])}"
    if without[-1] < streamed[-1]:
        text += f", and streamed again later: {len(without)} of {len(seconds)} s without it"
        yield Finding(SOURCE, "warning", text, without[0], "s")
    else:
        text += " and did not come back: what was measured is not the layout that was asked for"
        yield Finding(SOURCE, "invalid", text, without[0], "s")


def _behind(name: str, track: Track, written: float) -> Iterator[Finding]:
    """A lag that grew: over every third of the trial, and by more than what comes and goes."""
    values = [value for _, value in sorted(track.items())]
    if len(values) < 2 * _PARTS:
        return
    size = len(values) // _PARTS
    thirds = [
        _mean(values[:size]), _mean(values[size:-size]), _mean(values[-size:]),
    ]  # fmt: skip
    tenth = max(1, len(values) // 10)
    first, last = _mean(values[:tenth]), _mean(values[-tenth:])
    growth = last - first
    grew = growth >= max(GROWTH_MIN_BYTES, GROWTH_MIN_SHARE * written) and last >= 2 * first
    if thirds == sorted(set(thirds)) and grew:
        text = f"{name} fell behind: {size_text(first)} at the start, {size_text(last)} at the end"
        yield Finding(SOURCE, "warning", text, last, "B")


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _moment(second: int) -> str:
    return f"{duration(second)} (minute {second // 60 + 1})"


def behind(primary: Mapping[int, int], standby: Mapping[int, int]) -> Iterator[Sample]:
    """How many bytes of WAL a standby has not replayed that its primary has written.

    Positions by second; of seconds that both have. Both are read at the same full second, some
    milliseconds apart, so a standby may seem ahead: that is 0.
    """
    for second in sorted(primary.keys() & standby.keys()):
        value = float(max(0, primary[second] - standby[second]))
        yield Sample(second, SOURCE, "behind", value, "B")
