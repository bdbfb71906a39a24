"""Whether the machine was slowed down while it was measured: samples of it in, findings out. Pure.

Two checks. The first compares a sensor with a limit: steal, throttling, heat, failing disks. The
second joins sensors with the load: where throughput fell, or latency rose, while a sensor grew, the
finding gives the sensor, the minute, and the levels before and after.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from pgpaces.analysis.accumulator import Accumulator, own_scripts, together
from pgpaces.analysis.arrays import Numbers, np, quotient
from pgpaces.analysis.level_shift import SECONDS_MIN, LevelShift, change
from pgpaces.analysis.validity import rate_changes
from pgpaces.core.findings import Finding, finding
from pgpaces.core.series import Series
from pgpaces.spec.result import Trial

SOURCE = "host"
STEAL_WARNING, STEAL_INVALID = 1.0, 5.0
FREQUENCY_MIN = 0.95
_FALL_MIN, _RISE_MIN = 0.05, 0.2
_AS_GOOD = 0.85
# Points of a percentage by which a culprit has to rise.
_CULPRIT_MIN = 5.0
# By which the share of throttled periods has to fall for good; a load eases by less on its own.
_LIFTED_MIN = 50.0
_WINDOW_S = 60
_QUOTA_SAME = 1.01
# Two moments count as one within this share of the trial, or within _EDGE_S.
_NEAR = 0.05
_EDGE_S = 5
_STEP_S = 10
# Of get_throttled, by Raspberry Pi's documentation: the lowest bit first.
_PI_BITS = ("under-voltage", "frequency capped", "throttled", "soft temperature limit")

# The readings of a sensor by second, and those of all sensors of the machine by name.
Track = Mapping[int, float]
Tracks = Mapping[str, Track]
_NO_READINGS: Track = {}


class Pace(Struct, frozen=True):
    """The load in each second of the measured part.

    succeeded: transactions. latency_ms: mean of the transactions due in it; NaN without any.
    steady: the planned rate is constant.
    """

    succeeded: Numbers
    latency_ms: Numbers
    steady: bool = True


def pace(accumulator: Accumulator, trial: Trial, seconds: int) -> Pace:
    """The pace of the first `seconds` of a trial. accumulator: its intervals."""
    ledger = together(accumulator.ledgers(trial).values()).between(0, seconds)
    latency_ms = quotient(ledger.column("latency"), ledger.column("count") * 1e6)
    steady = not (rate_changes(trial) or trial.workload.about_command)
    return Pace(accumulator.succeeded(0, seconds, own_scripts(trial)), latency_ms, steady)


def machine_findings(series: Iterable[Series], pace: Pace) -> list[Finding]:
    """Findings about the machine: causes that slowed it down, then its activity."""
    seconds = len(pace.succeeded)
    own = {each.name: each.track(seconds or 1) for each in series if each.source == SOURCE}
    tracks = {name: track for name, track in own.items() if track}
    if not tracks:
        return []
    checks = (_steal, _frequency, _heat, _pi, _errors, _activity)
    found = (each for check in checks for each in check(tracks, seconds))
    return [*_slower(tracks, pace), *_quota(tracks, seconds, steady=pace.steady), *found]


def _mean(track: Track, start: float = 0, end: float = math.inf) -> float | None:
    values = [value for second, value in track.items() if start <= second < end]
    return sum(values) / len(values) if values else None


def _starting(tracks: Tracks, prefix: str) -> dict[str, Track]:
    """The tracks whose names start with a prefix, by the rest of the name."""
    return {n.removeprefix(prefix): each for n, each in tracks.items() if n.startswith(prefix)}


def _slower(tracks: Tracks, pace: Pace) -> Iterator[Finding]:
    """Throughput that fell, or latency that rose, while something slowed the machine down."""
    seconds = len(pace.succeeded)
    if not pace.steady or seconds < SECONDS_MIN:
        return
    culprits = {
        sensor: track
        for sensor, track in _culprits(tracks, seconds).items()
        if max(track.values(), default=0) >= _CULPRIT_MIN
    }
    if not culprits:
        return
    fall, cause = _cause(pace.succeeded, culprits)
    if fall is not None and fall.after < (1 - _FALL_MIN) * fall.before:
        until_end = fall.end_s > seconds - max(_STEP_S, _NEAR * seconds)
        unfinished = until_end and fall.end_s - fall.start_s > _STEP_S
        name = "throttling-unfinished" if unfinished else "throttled-throughput"
        yield finding(name, before=fall.before, after=fall.after, **cause)
        return
    finite = np.flatnonzero(np.isfinite(pace.latency_ms) & (pace.latency_ms > 0))
    if len(finite) < SECONDS_MIN:
        return
    log_latency = np.interp(np.arange(seconds), finite, np.log(pace.latency_ms[finite]))
    rise, cause = _cause(log_latency, culprits)
    if rise is not None and rise.after > rise.before + math.log1p(_RISE_MIN):
        before_ms, after_ms = math.exp(rise.before), math.exp(rise.after)
        yield finding("throttled-latency", before_ms=before_ms, after_ms=after_ms, **cause)


def _culprits(tracks: Tracks, seconds: int) -> dict[str, Track]:
    """What may have slowed the machine down, by second: percent, more is worse."""
    clock, bits = (tracks.get(name, _NO_READINGS) for name in ("cpu_frequency", "pi_throttled"))
    share = tracks.get("cgroup_throttled_share", _NO_READINGS)
    amounts = tracks.get("cgroup_quota", _NO_READINGS)
    # A quota whose amount was read and did not change runs out whenever the load exceeds it.
    same = share.keys() <= amounts.keys() and (
        max(amounts.values(), default=math.inf) <= _QUOTA_SAME * min(amounts.values(), default=0)
    )
    start = _mean(clock, 0, max(_EDGE_S, seconds / 10))
    loss = {at: 100 * (1 - mhz / start) for at, mhz in clock.items()} if start else _NO_READINGS
    return {
        "CPU quota throttling": _NO_READINGS if same else share,
        "CPU steal": tracks.get("cpu_steal", _NO_READINGS),
        "Raspberry Pi throttling": {at: 100.0 * bool(int(each)) for at, each in bits.items()},
        "CPU frequency loss": loss,
    }


def _filled(track: Track, seconds: int) -> Numbers:
    """Each second of a track; gaps are interpolated."""
    sampled = sorted(track)
    return np.interp(np.arange(seconds), sampled, [track[at] for at in sampled])


def _cause(values: Numbers, culprits: Tracks) -> tuple[LevelShift | None, dict[str, Any]]:
    """The change of a load with which a sensor rose; the sensor, its level, and when.

    A sensor shows the time of the change more sharply than a load, which other things disturb as
    well, so the change is that at the rise of the sensor if it explains nearly as much as any.
    """
    seconds, free = len(values), change(values)
    near_s = max(_EDGE_S, _NEAR * seconds)
    for sensor, track in culprits.items():
        rise = change(_filled(track, seconds))
        shift = None if rise is None else change(values, rise)
        if shift is None or (free and shift.explained < _AS_GOOD * free.explained):
            shift = free
        if shift is None:
            continue
        # A culprit that rose at another time is not the cause.
        onset = rise or shift
        if onset.start_s > shift.end_s + near_s or onset.end_s < shift.start_s - near_s:
            continue
        end_s = min(shift.end_s, seconds - _EDGE_S)
        after = _mean(track, end_s, end_s + near_s)
        before = _mean(track, shift.start_s - _WINDOW_S, shift.start_s)
        # A culprit that was present from the start had no time to rise.
        if shift.start_s < _EDGE_S or before is None:
            before = 0.0
        if after is not None and after - before >= _CULPRIT_MIN:
            when = {"at_s": shift.start_s, "took_s": shift.end_s - shift.start_s}
            return shift, {"sensor": sensor, "level_percent": after, **when}
    return None, {}


def _steal(tracks: Tracks, _: int) -> Iterator[Finding]:
    track = tracks.get("cpu_steal", _NO_READINGS)
    mean = _mean(track)
    if mean is None or mean < STEAL_WARNING:
        return
    starts = range(0, max(track) + 1, _WINDOW_S)
    worst, at = max((_mean(track, start, start + _WINDOW_S) or 0.0, start) for start in starts)
    name = "cpu-steal-high" if mean >= STEAL_INVALID else "cpu-steal"
    yield finding(name, percent=mean, worst_percent=worst, minute=at // 60 + 1)


def _quota(tracks: Tracks, seconds: int, *, steady: bool) -> Iterator[Finding]:
    """A quota that was used up: a property of the machine, unless it began or ended.

    steady: the planned rate is constant; under one that changes, throttling changes too.
    """
    counts = tracks.get("cgroup_throttled", _NO_READINGS)
    hit = [second for second, count in counts.items() if count > 0]
    if not hit:
        return
    percent = _mean(tracks.get("cgroup_throttled_share", _NO_READINGS)) or 0.0
    values = {"seconds": len(hit), "of_s": seconds, "percent": percent}
    # Without readings if the amount of the quota did not change.
    share = _culprits(tracks, seconds)["CPU quota throttling"] if steady else _NO_READINGS
    head_s = max(_EDGE_S, seconds / 10)
    first, rest = _mean(share, 0, head_s) or 0.0, _mean(share, head_s) or 0.0
    turn = change(_filled(share, seconds)) if share else None
    began = rest >= _CULPRIT_MIN and first < rest / 2
    lifted = turn is not None and turn.before - turn.after >= _LIFTED_MIN
    if began or lifted:
        rising = turn is not None and (turn.after > turn.before or not began)
        at_s = turn.start_s if turn is not None and rising else min(hit)
        yield finding("cpu-quota-changed", at_s=at_s, **values)
    else:
        yield finding("cpu-throttled", **values)


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
