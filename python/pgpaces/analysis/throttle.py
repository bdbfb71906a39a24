"""Whether the machine was slowed down while it was measured: its samples in, findings out. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from pgpaces.core.findings import Finding, finding
from pgpaces.core.series import Series

SOURCE = "host"
STEAL_WARNING, STEAL_INVALID = 1.0, 5.0
FREQUENCY_MIN = 0.95
# Quotas whose amounts differ by less are the same.
_QUOTA_SAME = 1.01
_WINDOW_S = 60
_STEP_S = 10
# Of get_throttled, by Raspberry Pi's documentation: the lowest bit first.
_PI_BITS = ("under-voltage", "frequency capped", "throttled", "soft temperature limit")

# The readings of a sensor by second, and those of all sensors of the machine by name.
Track = Mapping[int, float]
Tracks = Mapping[str, Track]
_NO_READINGS: Track = {}


def machine_findings(series: Iterable[Series], seconds: int) -> list[Finding]:
    """Findings about the machine in the measured seconds: what slowed it down, then its work."""
    own = {each.name: each.track(seconds or 1) for each in series if each.source == SOURCE}
    tracks = {name: track for name, track in own.items() if track}
    checks = (_quota, _steal, _frequency, _heat, _pi, _errors, _activity)
    return [each for check in checks for each in check(tracks, seconds)]


def _mean(track: Track, start: float = 0, end: float = math.inf) -> float | None:
    values = [value for second, value in track.items() if start <= second < end]
    return sum(values) / len(values) if values else None


def _starting(tracks: Tracks, prefix: str) -> dict[str, Track]:
    """The tracks whose names start with a prefix, by the rest of the name."""
    return {n.removeprefix(prefix): each for n, each in tracks.items() if n.startswith(prefix)}


def _quota(tracks: Tracks, seconds: int) -> Iterator[Finding]:
    """A quota that was used up: a property of the machine, unless its amount changed."""
    counts = tracks.get("cgroup_throttled", _NO_READINGS)
    hit = [second for second, count in counts.items() if count > 0]
    if not hit:
        return
    percent = _mean(tracks.get("cgroup_throttled_share", _NO_READINGS)) or 0.0
    values = {"seconds": len(hit), "of_s": seconds, "percent": percent}
    # Without a quota there is no amount.
    amounts = tracks.get("cgroup_quota", _NO_READINGS)
    by_second = [(second, amounts.get(second, math.inf)) for second in sorted(counts)]
    first = by_second[0][1]
    changed = (s for s, now in by_second if max(first, now) > _QUOTA_SAME * min(first, now))
    if amounts and (at_s := next(changed, None)) is not None:
        yield finding("cpu-quota-changed", at_s=at_s, **values)
    else:
        yield finding("cpu-throttled", **values)


def _steal(tracks: Tracks, _: int) -> Iterator[Finding]:
    track = tracks.get("cpu_steal", _NO_READINGS)
    mean = _mean(track)
    if mean is None or mean < STEAL_WARNING:
        return
    starts = range(0, max(track) + 1, _WINDOW_S)
    worst, at = max((_mean(track, start, start + _WINDOW_S) or 0.0, start) for start in starts)
    name = "cpu-steal-high" if mean >= STEAL_INVALID else "cpu-steal"
    yield finding(name, percent=mean, worst_percent=worst, minute=at // 60 + 1)


def _frequency(tracks: Tracks, seconds: int) -> Iterator[Finding]:
    """Below 95% of its start for a tenth of the time, although the CPU was as busy.

    By means of 10 s: a single reading jumps, and the frequency of an idle CPU means nothing.
    """
    clock, busy = (tracks.get(name, _NO_READINGS) for name in ("cpu_frequency", "cpu_busy"))
    starts = range(0, seconds - _STEP_S + 1, _STEP_S)
    parts = [(s, _mean(clock, s, s + _STEP_S), _mean(busy, s, s + _STEP_S)) for s in starts]
    steps = [(s, mhz, work) for s, mhz, work in parts if mhz is not None and work is not None]
    if len(steps) < 2:
        return
    _, start_mhz, start_work = steps[0]
    low = [
        (second, mhz)
        for second, mhz, work in steps[1:]
        if mhz < FREQUENCY_MIN * start_mhz and work >= 0.9 * start_work
    ]
    if low and 10 * len(low) >= len(steps):
        least = min(mhz for _, mhz in low)
        yield finding("cpu-frequency-fell", before_mhz=start_mhz, after_mhz=least, at_s=low[0][0])


def _heat(tracks: Tracks, _: int) -> Iterator[Finding]:
    for zone, room in _starting(tracks, "headroom_").items():
        if over := [second for second, left in room.items() if left <= 0]:
            readings = tracks.get(f"temperature_{zone}", _NO_READINGS)
            hottest = max(readings.values(), default=math.nan)
            yield finding("too-hot", zone=zone, at_s=min(over), celsius=hottest)


def _pi(tracks: Tracks, _: int) -> Iterator[Finding]:
    now = tracks.get("pi_throttled", _NO_READINGS)
    since = tracks.get("pi_throttled_since_boot", _NO_READINGS)
    hit = [second for second, bits in now.items() if int(bits)]
    # The bits since boot show also one that was set between two samples.
    new = max(map(int, since.values()), default=0) & ~int(since[min(since)] if since else 0)
    for second in hit:
        new |= int(now[second])
    if new:
        at_s, seen = min(hit, default=None), {"seconds": len(hit), "of_s": len(now)}
        yield finding("pi-throttled", flags=_flags(new), at_s=at_s, **seen)
    elif since and (bits := int(since[max(since)])):
        yield finding("pi-throttled-earlier", flags=_flags(bits))


def _flags(bits: int) -> list[str]:
    return [name for number, name in enumerate(_PI_BITS) if bits >> number & 1]


def _errors(tracks: Tracks, _: int) -> Iterator[Finding]:
    track = tracks.get("io_errors", _NO_READINGS)
    if (count := sum(track.values())) > 0:
        at_s = min(second for second, errors in track.items() if errors > 0)
        yield finding("io-errors", count=count, at_s=at_s)


def _activity(tracks: Tracks, _: int) -> Iterator[Finding]:
    # The three busiest disks, of those that were busy, the busiest first.
    every = _starting(tracks, "disk_").items()
    busy = {f"disk_{n[:-5]}": _mean(t) or 0 for n, t in every if n.endswith("_busy")}
    disks = sorted((each for each in busy if busy[each] >= 0.5), key=lambda each: -busy[each])[:3]
    pressures = [f"pressure_{name}_some" for name in ("cpu", "io", "memory")]
    shares = ["cpu_busy", "cpu_iowait", *(f"{disk}_busy" for disk in disks), *pressures]
    units = dict.fromkeys(shares, "percent")
    units |= {f"{disk}_{what}": "kb_s" for disk in disks for what in ("read", "written")}
    values = {f"{n}_{unit}": _mean(tracks[n]) for n, unit in units.items() if n in tracks}
    if heat := [max(track.values()) for track in _starting(tracks, "temperature_").values()]:
        values["temperature_celsius"] = max(heat)
    if values:
        yield finding("machine-activity", **values)
