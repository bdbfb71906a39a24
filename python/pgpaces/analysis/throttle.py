"""Whether the machine was slowed down while it was measured: its samples in, findings out. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
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


def machine_findings(series: Iterable[Series], seconds: int) -> Iterator[Finding]:
    """Findings about the machine in the measured seconds: what slowed it down, then its work."""
    tracks: defaultdict[str, Track] = defaultdict(dict)
    for each in series:
        if each.source == SOURCE and (track := each.track(seconds or 1)):
            tracks[each.name] = track
    yield from _quota(tracks, seconds)
    steal = tracks["cpu_steal"]
    if (mean := _mean(steal) or 0.0) >= STEAL_WARNING:
        starts = range(0, max(steal) + 1, _WINDOW_S)
        worst, at = max((_mean(steal, start, start + _WINDOW_S) or 0.0, start) for start in starts)
        name = "cpu-steal-high" if mean >= STEAL_INVALID else "cpu-steal"
        yield finding(name, percent=mean, worst_percent=worst, minute=at // 60 + 1)
    yield from _frequency(tracks["cpu_frequency"], tracks["cpu_busy"], seconds)
    for zone, room in _starting(tracks, "headroom_").items():
        if over := [second for second, left in room.items() if left <= 0]:
            hottest = max(tracks[f"temperature_{zone}"].values(), default=math.nan)
            yield finding("too-hot", zone=zone, at_s=min(over), celsius=hottest)
    yield from _pi(tracks["pi_throttled"], tracks["pi_throttled_since_boot"])
    if errors := {second: count for second, count in tracks["io_errors"].items() if count > 0}:
        yield finding("io-errors", count=sum(errors.values()), at_s=min(errors))
    if activity := _activity(tracks):
        yield finding("machine-activity", **activity)


def _mean(track: Track, start: float = 0, end: float = math.inf) -> float | None:
    values = [value for second, value in track.items() if start <= second < end]
    return sum(values) / len(values) if values else None


def _starting(tracks: Tracks, prefix: str) -> dict[str, Track]:
    """The tracks whose names start with a prefix, by the rest of the name."""
    every = ((name, track) for name, track in tracks.items() if track)
    return {name.removeprefix(prefix): each for name, each in every if name.startswith(prefix)}


def _quota(tracks: Tracks, seconds: int) -> Iterator[Finding]:
    """A quota that was used up: a property of the machine, unless its amount changed."""
    counts, amounts = tracks["cgroup_throttled"], tracks["cgroup_quota"]
    hits = sum(count > 0 for count in counts.values())
    if hits:
        percent = _mean(tracks["cgroup_throttled_share"]) or 0.0
        values = {"seconds": hits, "of_s": seconds, "percent": percent}
        # Without a quota there is no amount.
        by_second = {second: amounts.get(second, math.inf) for second in sorted(counts)}
        first = next(iter(by_second.values()))
        for second, now in by_second.items():
            if amounts and max(first, now) > _QUOTA_SAME * min(first, now):
                yield finding("cpu-quota-changed", at_s=second, **values)
                return
        yield finding("cpu-throttled", **values)


def _frequency(clock: Track, busy: Track, seconds: int) -> Iterator[Finding]:
    """Below 95% of its start for a tenth of the time, although the CPU was as busy.

    By means of 10 s: a single reading jumps, and the frequency of an idle CPU means nothing.
    """
    starts = range(0, seconds - _STEP_S + 1, _STEP_S)
    parts = [(s, _mean(clock, s, s + _STEP_S), _mean(busy, s, s + _STEP_S)) for s in starts]
    steps = [(s, mhz, work) for s, mhz, work in parts if mhz is not None and work is not None]
    low = {
        second: mhz
        for second, mhz, work in steps
        if mhz < FREQUENCY_MIN * steps[0][1] and work >= 0.9 * steps[0][2]
    }
    if low and 10 * len(low) >= len(steps):
        values = {"before_mhz": steps[0][1], "after_mhz": min(low.values()), "at_s": min(low)}
        yield finding("cpu-frequency-fell", **values)


def _pi(now: Track, since: Track) -> Iterator[Finding]:
    """Bits of a Raspberry Pi; those since boot show also one that was set between two samples."""
    hit = [second for second, bits in now.items() if int(bits)]
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


def _activity(tracks: Tracks) -> dict[str, float | None]:
    """How busy its CPUs and the three busiest disks were, the pressure, and the temperature."""
    every = _starting(tracks, "disk_").items()
    busy = {f"disk_{n[:-5]}": _mean(t) or 0 for n, t in every if n.endswith("_busy")}
    disks = sorted((each for each in busy if busy[each] >= 0.5), key=lambda each: -busy[each])[:3]
    pressures = [f"pressure_{name}_some" for name in ("cpu", "io", "memory")]
    shares = ["cpu_busy", "cpu_iowait", *(f"{disk}_busy" for disk in disks), *pressures]
    units = dict.fromkeys(shares, "percent")
    units |= {f"{disk}_{what}": "kb_s" for disk in disks for what in ("read", "written")}
    values = {f"{name}_{unit}": _mean(tracks[name]) for name, unit in units.items() if tracks[name]}
    if heat := [max(track.values()) for track in _starting(tracks, "temperature_").values()]:
        values["temperature_celsius"] = max(heat)
    return values
