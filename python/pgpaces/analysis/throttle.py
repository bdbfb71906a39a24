"""Whether the machine was slowed down while it was measured: samples of it in, findings out. Pure.

Two checks. The first compares a sensor with a limit: steal, throttling, heat, failing disks. The
second joins sensors with the load: where throughput fell, or latency rose, while a sensor grew, the
finding gives the sensor, the minute, and the levels before and after. Knows nothing of where
samples come from.
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
_AS_GOOD = 0.85
_FALL_MIN, _RISE_MIN = 0.05, 0.2
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

Track = Mapping[int, float]


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
    count, sums = ledger.column("count"), ledger.column("latency")
    latency_ms = quotient(sums, count * 1e6)
    steady = not (rate_changes(trial) or trial.workload.about_command)
    return Pace(accumulator.succeeded(0, seconds, own_scripts(trial)), latency_ms, steady)


class _Host(Struct, frozen=True):
    seconds: int
    series: Mapping[str, Series]

    def get(self, name: str) -> Track:
        """The values of a name in the measured part, empty where it was not read."""
        return self.series[name].track(self.seconds or 1) if name in self.series else {}

    def starting(self, prefix: str) -> dict[str, Track]:
        """Samples whose names start with a prefix, by the rest of the name."""
        return {n.removeprefix(prefix): self.get(n) for n in self.series if n.startswith(prefix)}


def machine_findings(series: Iterable[Series], pace: Pace) -> list[Finding]:
    """Findings about the machine: causes that slowed it down, then its activity."""
    seconds = len(pace.succeeded)
    measured = (each for each in series if each.source == SOURCE and each.between(0, seconds or 1))
    host = _Host(seconds, {each.name: each for each in measured})
    if not host.series:
        return []
    return [
        *_slower(host, pace),
        *_steal(host.get("cpu_steal")),
        *_quota(host, pace.steady),
        *_frequency(host),
        *_heat(host),
        *_pi(host),
        *_errors(host.get("io_errors")),
        *_activity(host),
    ]


def _mean(track: Track, start: float = 0, end: float = math.inf) -> float | None:
    values = [value for second, value in track.items() if start <= second < end]
    return sum(values) / len(values) if values else None


def _slower(host: _Host, pace: Pace) -> Iterator[Finding]:
    """Throughput that fell, or latency that rose, while something slowed the machine down."""
    if not pace.steady or host.seconds < SECONDS_MIN:
        return
    culprits = [
        _Culprit(sensor, track, change(_filled(track, host.seconds)))
        for sensor, track in _culprits(host).items()
        if max(track.values(), default=0) >= _CULPRIT_MIN
    ]
    if not culprits:
        return
    for shift in _changes(pace.succeeded, culprits):
        cause = _cause(culprits, shift, host.seconds)
        if cause and shift.after < (1 - _FALL_MIN) * shift.before:
            until_end = shift.end_s > host.seconds - max(_STEP_S, _NEAR * host.seconds)
            unfinished = until_end and shift.end_s - shift.start_s > _STEP_S
            name = "throttling-unfinished" if unfinished else "throttled-throughput"
            yield finding(name, before=shift.before, after=shift.after, **cause)
            return
    finite = np.flatnonzero(np.isfinite(pace.latency_ms) & (pace.latency_ms > 0))
    if len(finite) < SECONDS_MIN:
        return
    log_latency = np.interp(np.arange(host.seconds), finite, np.log(pace.latency_ms[finite]))
    for shift in _changes(log_latency, culprits):
        cause = _cause(culprits, shift, host.seconds)
        if cause and shift.after > shift.before + math.log1p(_RISE_MIN):
            before_ms, after_ms = math.exp(shift.before), math.exp(shift.after)
            yield finding("throttled-latency", before_ms=before_ms, after_ms=after_ms, **cause)
            return


class _Culprit(Struct, frozen=True):
    """What may have slowed the machine down. amount: percent, more is worse. onset: its change."""

    sensor: str
    amount: Track
    onset: LevelShift | None


def _culprits(host: _Host) -> dict[str, Track]:
    clock, share = host.get("cpu_frequency"), host.get("cgroup_throttled_share")
    start = _mean(clock, 0, max(_EDGE_S, host.seconds / 10)) or 0.0
    return {
        "CPU quota throttling": {} if _same_quota(host) else share,
        "CPU steal": host.get("cpu_steal"),
        "Raspberry Pi throttling": {
            second: 100.0 * bool(int(bits)) for second, bits in host.get("pi_throttled").items()
        },
        "CPU frequency loss": {
            second: 100 * (1 - mhz / start) for second, mhz in clock.items() if start > 0
        },
    }


def _changes(values: Numbers, culprits: Iterable[_Culprit]) -> Iterator[LevelShift]:
    """The best change of a series, and its changes at the onsets of culprits.

    First come those at onsets that explain nearly as much as the best: a culprit shows the time of
    the change more sharply than a load, which other things disturb as well.
    """
    free = change(values)
    at_onset = [change(values, each.onset) for each in culprits if each.onset is not None]
    bound = [shift for shift in at_onset if shift is not None]
    enough = _AS_GOOD * free.explained if free is not None else 0.0
    yield from (shift for shift in bound if shift.explained >= enough)
    if free is not None:
        yield free
    yield from (shift for shift in bound if shift.explained < enough)


def _cause(culprits: Iterable[_Culprit], shift: LevelShift, seconds: int) -> dict[str, Any]:
    """The first sensor that rose with a shift, its level, and when; empty without one."""
    near_s, took_s = max(_EDGE_S, _NEAR * seconds), shift.end_s - shift.start_s
    for culprit in culprits:
        # A culprit that rose at another time is not the cause.
        onset = culprit.onset or shift
        if onset.start_s > shift.end_s + near_s or onset.end_s < shift.start_s - near_s:
            continue
        end_s = min(shift.end_s, seconds - _EDGE_S)
        after = _mean(culprit.amount, end_s, end_s + _WINDOW_S)
        before = _mean(culprit.amount, shift.start_s - _WINDOW_S, shift.start_s)
        # A culprit that was present from the start had no time to rise.
        if shift.start_s < _EDGE_S or before is None:
            before = 0.0
        if after is not None and after - before >= _CULPRIT_MIN:
            when = {"at_s": shift.start_s, "took_s": took_s}
            return {"sensor": culprit.sensor, "level_percent": after, **when}
    return {}


def _steal(track: Track) -> Iterator[Finding]:
    mean = _mean(track)
    if mean is None or mean < STEAL_WARNING:
        return
    starts = range(0, max(track) + 1, _WINDOW_S)
    means = [(_mean(track, start, start + _WINDOW_S) or 0.0, start) for start in starts]
    worst, at = max(means)
    name = "cpu-steal-high" if mean >= STEAL_INVALID else "cpu-steal"
    yield finding(name, percent=mean, worst_percent=worst, minute=at // 60 + 1)


def _same_quota(host: _Host) -> bool:
    """Whether the server's quota was constant: then it ran out because of the load."""
    amounts = host.get("cgroup_quota")
    complete = host.get("cgroup_throttled_share").keys() <= amounts.keys()
    least, most = min(amounts.values(), default=0), max(amounts.values(), default=0)
    return bool(amounts) and complete and most <= _QUOTA_SAME * least


def _quota(host: _Host, steady: bool) -> Iterator[Finding]:
    """nr_throttled: a quota that is present all the time is a property of the machine.

    A quota that came or went changed the machine while it was measured. steady: the planned rate is
    constant; under a rate that changes, throttling changes too. A quota whose amount was read and
    did not change runs out whenever the load exceeds it.
    """
    steady = steady and not _same_quota(host)
    counts, shares = host.get("cgroup_throttled"), host.get("cgroup_throttled_share")
    hit = sorted(second for second, count in counts.items() if count > 0)
    if not hit:
        return
    share = _mean(shares) or 0.0
    head_s = max(_EDGE_S, host.seconds / 10)
    first, rest = _mean(shares, 0, head_s) or 0.0, _mean(shares, head_s) or 0.0
    turn = change(_filled(shares, host.seconds)) if shares else None
    began = steady and rest >= _CULPRIT_MIN and first < rest / 2
    lifted = steady and turn is not None and turn.before - turn.after >= _LIFTED_MIN
    values = {"seconds": len(hit), "of_s": host.seconds, "percent": share}
    if began or lifted:
        rising = turn is not None and (turn.after > turn.before or not began)
        at_s = turn.start_s if turn is not None and rising else hit[0]
        yield finding("cpu-quota-changed", at_s=at_s, **values)
    else:
        yield finding("cpu-throttled", **values)


def _filled(track: Track, seconds: int) -> Numbers:
    """Every second of a track; gaps are interpolated."""
    sampled = sorted(track)
    return np.interp(np.arange(seconds), sampled, [track[second] for second in sampled])


def _frequency(host: _Host) -> Iterator[Finding]:
    """Below 95% of its start for a tenth of the time, although the CPU was as busy.

    By means of 10 s: a single reading jumps, and the frequency of an idle CPU means nothing.
    """
    clock, busy = host.get("cpu_frequency"), host.get("cpu_busy")
    starts = range(0, host.seconds - _STEP_S + 1, _STEP_S)
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
        at_s = low[0][0]
        yield finding("cpu-frequency-fell", before_mhz=start_mhz, after_mhz=least, at_s=at_s)


def _heat(host: _Host) -> Iterator[Finding]:
    for zone, room in host.starting("headroom_").items():
        over = sorted(second for second, left in room.items() if left <= 0)
        if over:
            hottest = max(host.get(f"temperature_{zone}").values(), default=math.nan)
            yield finding("too-hot", zone=zone, at_s=over[0], celsius=hottest)


def _pi(host: _Host) -> Iterator[Finding]:
    now, since = host.get("pi_throttled"), host.get("pi_throttled_since_boot")
    hit = sorted(second for second, bits in now.items() if int(bits))
    # The bits since boot show also one that was set between two samples.
    new = max(map(int, since.values()), default=0) & ~int(since[min(since)] if since else 0)
    during = new
    for second in hit:
        during |= int(now[second])
    if during:
        at_s = hit[0] if hit else None
        flags, seconds = _flags(during), {"seconds": len(hit), "of_s": len(now)}
        yield finding("pi-throttled", flags=flags, at_s=at_s, **seconds)
    elif since and (bits := int(since[max(since)])):
        yield finding("pi-throttled-earlier", flags=_flags(bits))


def _flags(bits: int) -> list[str]:
    return [name for number, name in enumerate(_PI_BITS) if bits >> number & 1]


def _errors(track: Track) -> Iterator[Finding]:
    if (count := sum(track.values())) > 0:
        at_s = min(second for second, errors in track.items() if errors > 0)
        yield finding("io-errors", count=count, at_s=at_s)


def _activity(host: _Host) -> Iterator[Finding]:
    names = ["cpu_busy", "cpu_iowait"]
    # The three busiest disks, of those that were busy, the busiest first.
    every = host.starting("disk_").items()
    busy = {f"disk_{n[:-5]}": _mean(t) or 0 for n, t in every if n.endswith("_busy")}
    disks = sorted((each for each in busy if busy[each] >= 0.5), key=lambda each: -busy[each])[:3]
    pressures = [f"pressure_{name}_some" for name in ("cpu", "io", "memory")]
    units = {
        **dict.fromkeys((*names, *(f"{disk}_busy" for disk in disks), *pressures), "percent"),
        **{f"{disk}_{what}": "kb_s" for disk in disks for what in ("read", "written")},
    }
    means = {f"{name}_{unit}": _mean(host.get(name)) for name, unit in units.items()}
    values = {name: mean for name, mean in means.items() if mean is not None}
    if heat := [max(track.values()) for track in host.starting("temperature_").values()]:
        values["temperature_celsius"] = max(heat)
    if values:
        yield finding("machine-activity", **values)
