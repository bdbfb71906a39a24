"""Whether the machine was slowed down while it was measured: samples of it in, findings out. Pure.

Two looks. What a sensor says by itself, against a limit: steal, throttling, heat, failing disks.
And what the load tells together with it: where throughput fell, or latency rose, while one of them
grew, that is named with its minute, and what held before and after are told apart. Knows nothing of
where samples come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from pgpaces.answers.accumulator import Accumulator, own_scripts, together
from pgpaces.answers.bulk import about_command
from pgpaces.answers.stats import inefficiency
from pgpaces.answers.validity import changes
from pgpaces.result import Finding, Sample, Severity, Trial

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

SOURCE = "host"
STEAL_WARNING, STEAL_INVALID = 1.0, 5.0
FREQUENCY_MIN = 0.95
# From so many seconds on a change can be told from noise.
SECONDS_MIN = 15
_POINTS_MAX = 120
# By simulation: Poisson and normal noise reach it in 0.5 % of series of 20 to 600 s, noise with an
# autocorrelation of 0.5 in 2 % of 20 s and in 0.5 % of longer ones.
_GAIN_MIN = 30.0
_GAIN_WITH_MIN = 12.0
_AS_GOOD = 0.85
_FALL_MIN, _RISE_MIN = 0.05, 0.2
# Points of a percentage by which a culprit has to rise.
_CULPRIT_MIN = 5.0
# By which the share of throttled periods has to fall for good; a load eases by less on its own.
_LIFTED_MIN = 50.0
_WINDOW_S = 60
_QUOTA_SAME = 1.01
# So near, as a share of the trial, two moments are taken for one, if not within 5 s.
_NEAR = 0.05
_EDGE_S = 5
_STEP_S = 10
_PI_BITS = ("under-voltage", "frequency capped", "throttled", "soft temperature limit")

Track = Mapping[int, float]


class Pace(Struct, frozen=True):
    """What the load did in each second of the measured part.

    succeeded: transactions. latency_ms: mean of those that were due in it; NaN where none was.
    steady: the rate is not meant to change.
    """

    succeeded: Numbers
    latency_ms: Numbers
    steady: bool = True


def pace(accumulator: Accumulator, trial: Trial, seconds: int) -> Pace:
    """The first so many seconds of a trial. accumulator: its intervals."""
    import numpy as np

    ledger = together(accumulator.ledgers(trial).values()).between(0, seconds)
    count, sums = ledger.column("count"), ledger.column("latency")
    latency_ms = np.full(seconds, np.nan)
    np.divide(sums, count * 1e6, out=latency_ms, where=count > 0)
    steady = not (changes(trial) or about_command(trial))
    return Pace(accumulator.succeeded(0, seconds, own_scripts(trial)), latency_ms, steady)


class LevelShift(Struct, frozen=True):
    """From one level to another: `before` until `start_s`, `after` from `end_s` on.

    explained: the share of the series' variance that this takes away.
    """

    start_s: float
    end_s: float
    before: float
    after: float
    explained: float


def change(values: Numbers) -> LevelShift | None:
    """The one change of level, sudden or gradual, that explains a series best; None for noise.

    x(t) = a until t0, b from t1 on, a straight line between: least squares over all t0 <= t1. It
    counts where it takes away 30 times the variance of what is left, which is widened for
    neighbours that resemble each other (see `stats.inefficiency`). Values by second, none missing;
    more than 120 are averaged.
    """
    import numpy as np

    if len(values) < SECONDS_MIN:
        return None
    x, size = _points(values)
    start, end, centred, spread = _ways(len(x), size)
    best = int(np.argmax((centred @ (x - x.mean())) ** 2 / spread))
    levels = _levels(x, centred[best], _GAIN_MIN)
    begins, ends = int(start[best]), int(end[best])
    ends = begins if ends - begins == 1 else ends
    return levels and LevelShift(float(begins * size), float(ends * size), *levels)


@lru_cache(1)  # for series of one length, of which a trial has many
def _ways(n: int, size: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Every way from one level to another among n points of so many seconds: from, to, way, spread.

    A way goes from 0 to 1, less its mean, a row each.
    """
    import numpy as np

    start, end = (grid.ravel() for grid in np.meshgrid(np.arange(n), np.arange(1, n + 1)))
    fits = (start < end) & (n - start >= _EDGE_S / size)
    start, end = start[fits], end[fits]
    # A change within a point is a step at its start.
    length = np.where(end - start == 1, 1e-9, end - start)
    way = np.clip((np.arange(n) + 0.5 - start[:, None]) / length[:, None], 0.0, 1.0)
    way -= way.mean(axis=1, keepdims=True)
    return start, end, way, np.maximum((way * way).sum(axis=1), 1e-9)


def change_with(values: Numbers, other: LevelShift) -> LevelShift | None:
    """The change of a series that goes with one that is known; as `change`, but that its time is

    not looked for, so that 12 times the variance is enough (1 in 1000 of noise).
    """
    import numpy as np

    x, size = _points(values)
    length = max((other.end_s - other.start_s) / size, 1e-9)
    way = np.clip((np.arange(len(x)) + 0.5 - other.start_s / size) / length, 0.0, 1.0)
    levels = _levels(x, way, _GAIN_WITH_MIN)
    return levels and LevelShift(other.start_s, other.end_s, *levels)


def _points(values: Numbers) -> tuple[Numbers, int]:
    """A series as means of so many seconds each."""
    import numpy as np

    size = math.ceil(len(values) / _POINTS_MAX)
    n = len(values) // size
    return np.asarray(values[: n * size], dtype=float).reshape(n, size).mean(axis=1), size


def _levels(x: Numbers, way: Numbers, gain_min: float) -> tuple[float, float, float] | None:
    """Where a series goes from and to along a way from 0 to 1, and what share of its variance that

    explains; None if it may be noise.
    """
    import numpy as np

    centred = way - way.mean()
    spread = float((centred * centred).sum())
    if spread <= 0:
        return None
    step = float(centred @ (x - x.mean())) / spread
    rest = x - x.mean() - step * centred
    noise = float(rest.var()) * inefficiency(rest) + 1e-12 * float(np.mean(x * x))
    if noise <= 0 or step * step * spread < gain_min * noise:
        return None
    before, after = (float(x.mean() + step * at) for at in (centred.min(), centred.max()))
    return before, after, step * step * spread / float(((x - x.mean()) ** 2).sum())


class _Culprit(Struct, frozen=True):
    """What may have slowed the machine down. amount: percent, more is worse."""

    amount: Mapping[int, float]
    say: Callable[[float], str]


class _Host(Struct, frozen=True):
    """Samples of a machine by name and second, of the measured part."""

    seconds: int
    tracks: Mapping[str, Track] = field(default_factory=dict)

    def get(self, name: str) -> Track:
        """Empty where it was not read."""
        return self.tracks.get(name, {})

    def starting(self, prefix: str) -> dict[str, Track]:
        """Those whose names start so, by the rest of the name."""
        return {n.removeprefix(prefix): t for n, t in self.tracks.items() if n.startswith(prefix)}


def findings(samples: Iterable[Sample], pace: Pace) -> list[Finding]:
    """What is to be said of the machine: what slowed it down, then what it did."""
    tracks: dict[str, dict[int, float]] = {}
    seconds = len(pace.succeeded)
    for sample in samples:
        if sample.source == SOURCE and 0 <= sample.second < max(1, seconds):
            tracks.setdefault(sample.name, {})[sample.second] = sample.value
    host = _Host(seconds, tracks)
    if not tracks:
        return []
    return [
        *_slower(host, pace),
        *_steal(host.get("cpu_steal")),
        *_quota(host, pace.steady),
        *_frequency(host),
        *_heat(host),
        *_pi(host),
        *_errors(host.get("io_errors")),
        *_did(host),
    ]


def _mean(track: Track, start: float = 0, end: float = math.inf) -> float | None:
    values = [value for second, value in track.items() if start <= second < end]
    return sum(values) / len(values) if values else None


def _slower(host: _Host, pace: Pace) -> Iterator[Finding]:
    """Throughput that fell, or latency that rose, while something slowed the machine down."""
    import numpy as np

    if not pace.steady or host.seconds < SECONDS_MIN:
        return
    culprits = [c for c in _culprits(host) if max(c.amount.values(), default=0) >= _CULPRIT_MIN]
    onsets = [change(_filled(culprit.amount, host.seconds)) for culprit in culprits]
    blamed = list(zip(culprits, onsets, strict=True))
    for found in _changes(pace.succeeded, onsets) if culprits else ():
        said = _named(blamed, found, host.seconds)
        if said is not None and found.after < (1 - _FALL_MIN) * found.before:
            yield _fell(found, said, host.seconds)
            return
    known = np.flatnonzero(np.isfinite(pace.latency_ms) & (pace.latency_ms > 0))
    if len(known) < SECONDS_MIN or not culprits:
        return
    every = np.interp(np.arange(host.seconds), known, np.log(pace.latency_ms[known]))
    for found in _changes(every, onsets):
        said = _named(blamed, found, host.seconds)
        if said is not None and found.after > found.before + math.log1p(_RISE_MIN):
            yield _rose(found, said)
            return


def _changes(values: Numbers, onsets: Iterable[LevelShift | None]) -> Iterator[LevelShift]:
    """The change of a series, and those of it that go with a culprit's.

    Those come first that explain nearly as much: a culprit tells its time more sharply than a load
    that other things disturb as well.
    """
    free = change(values)
    with_onset = [change_with(values, onset) for onset in onsets if onset is not None]
    bound = [found for found in with_onset if found is not None]
    enough = _AS_GOOD * free.explained if free is not None else 0.0
    yield from (found for found in bound if found.explained >= enough)
    if free is not None:
        yield free
    yield from (found for found in bound if found.explained < enough)


def _culprits(host: _Host) -> list[_Culprit]:
    """Those that were seen, the surest first."""
    clock = host.get("cpu_frequency")
    start = _mean(clock, 0, max(_EDGE_S, host.seconds / 10)) or 0.0
    lost = {s: 100 * (1 - mhz / start) for s, mhz in clock.items()} if start > 0 else {}
    bits = {s: 100.0 * bool(int(value)) for s, value in host.get("pi_throttled").items()}
    quota = _Culprit(
        host.get("cgroup_throttled_share"),
        lambda v: f"the server's CPU quota ran out in {v:.0f} % of its periods (throttling)",
    )
    return [
        *([] if _same_quota(host) else [quota]),
        _Culprit(host.get("cpu_steal"), lambda v: f"steal rose to {v:.0f} %"),
        _Culprit(bits, lambda _: "the board throttled itself"),
        _Culprit(lost, lambda v: f"the CPU's frequency fell by {v:.0f} %"),
    ]


def _named(
    blamed: Iterable[tuple[_Culprit, LevelShift | None]], found: LevelShift, seconds: int
) -> str | None:
    """The first culprit that rose with a change, in words. blamed: with the change of each."""
    near_s = max(_EDGE_S, _NEAR * seconds)
    for culprit, onset in blamed:
        # One that rose at another time did something else, or nothing.
        if onset is not None and (
            onset.start_s > found.end_s + near_s or onset.end_s < found.start_s - near_s
        ):
            continue
        behind = min(found.end_s, seconds - _EDGE_S)
        after = _mean(culprit.amount, behind, behind + _WINDOW_S)
        before = _mean(culprit.amount, found.start_s - _WINDOW_S, found.start_s)
        # One that was there from the start had no time to rise.
        if found.start_s < _EDGE_S or before is None:
            before = 0.0
        if after is not None and after - before >= _CULPRIT_MIN:
            return culprit.say(after)
    return None


def _fell(found: LevelShift, said: str, seconds: int) -> Finding:
    text = (
        f"CPU credits or throttling: throughput fell from {found.before:.3g}/s to"
        f" {found.after:.3g}/s {_when(found)} while {said}"
    )
    if found.start_s >= _EDGE_S:
        text += f"; burst capacity holds for about {duration(found.start_s)}"
    if (
        found.end_s > seconds - max(_STEP_S, _NEAR * seconds)
        and found.end_s - found.start_s > _STEP_S
    ):
        text += "; it still fell at the end, so what is sustained is not known: run longer"
    else:
        text += f"; sustained is {found.after:.3g}/s, burst {found.before:.3g}/s"
    return Finding(SOURCE, "invalid", text, found.after, "/s")


def _rose(found: LevelShift, said: str) -> Finding:
    before_ms, after_ms = math.exp(found.before), math.exp(found.after)
    text = (
        f"CPU credits or throttling: latency rose from {before_ms:.3g} to {after_ms:.3g} ms"
        f" {_when(found)} while {said}"
    )
    if found.start_s >= _EDGE_S:
        text += f"; the lower one holds for about {duration(found.start_s)}"
    return Finding(SOURCE, "invalid", text, after_ms, "ms")


def _when(found: LevelShift) -> str:
    """How long it took, and from when on."""
    took_s = found.end_s - found.start_s
    at = f"{_minute(found.start_s)}"
    return f"over {duration(took_s)}, from {at} on," if took_s > _STEP_S else f"at {at}"


def _minute(second: float) -> str:
    """A moment of a trial, with the minute as people count it."""
    return f"{duration(second)} (minute {int(second // 60) + 1})"


def duration(seconds: float) -> str:
    """A length of time: exact where it is short."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{round(whole / 60)} minutes" if whole >= 300 else f"{whole // 60} min {whole % 60} s"


def _steal(track: Track) -> Iterator[Finding]:
    mean = _mean(track)
    if mean is None or mean < STEAL_WARNING:
        return
    starts = range(0, max(track) + 1, _WINDOW_S)
    means = [(_mean(track, start, start + _WINDOW_S) or 0.0, start) for start in starts]
    worst, at = max(means)
    text = f"{mean:.1f} % of the CPUs' time was stolen: other machines on the same host had it"
    if len(means) > 1:
        text += f"; {worst:.0f} % in minute {at // 60 + 1}"
    severity: Severity = "invalid" if mean >= STEAL_INVALID else "warning"
    yield Finding(SOURCE, severity, text, mean, "%")


def _same_quota(host: _Host) -> bool:
    """Whether the server had the same quota all the time: then it is the load that met it."""
    amounts = host.get("cgroup_quota")
    seen = host.get("cgroup_throttled_share").keys() <= amounts.keys()
    return bool(amounts) and seen and max(amounts.values()) <= _QUOTA_SAME * min(amounts.values())


def _quota(host: _Host, steady: bool) -> Iterator[Finding]:
    """nr_throttled: a quota that was there all the time is the machine, and holds it back alike.

    One that came or went changed the machine while it was measured. steady: the rate is not meant
    to change; of one that is, what the quota holds back changes with it. A quota whose amount was
    read and did not change runs out whenever the load is more than it holds.
    """
    steady = steady and not _same_quota(host)
    counts, shares = host.get("cgroup_throttled"), host.get("cgroup_throttled_share")
    hit = sorted(second for second, count in counts.items() if count > 0)
    if not hit:
        return
    share = _mean(shares) or 0.0
    head_s = max(_EDGE_S, host.seconds / 10)
    first, rest = _mean(shares, 0, head_s) or 0.0, _mean(shares, head_s) or 0.0
    text = f"the server's CPU quota ran out in {len(hit)} of {host.seconds} s"
    turn = change(_filled(shares, host.seconds)) if shares else None
    if steady and rest >= _CULPRIT_MIN and first < rest / 2:
        at = turn.start_s if turn is not None and turn.after > turn.before else hit[0]
        text += f", not from the start but from {_minute(at)} on: it changed while we measured"
        yield Finding(SOURCE, "invalid", text, share, "%")
    elif steady and turn is not None and turn.before - turn.after >= _LIFTED_MIN:
        text += f", but hardly from {_minute(turn.start_s)} on: it changed while we measured"
        yield Finding(SOURCE, "invalid", text, share, "%")
    else:
        text += f" ({share:.1f} % of its periods): this is what the quota holds, not the machine"
        yield Finding(SOURCE, "warning", text, share, "%")


def _filled(track: Track, seconds: int) -> Numbers:
    """Every second of a track; in a gap, what lies between its neighbours."""
    import numpy as np

    known = sorted(track)
    return np.interp(np.arange(seconds), known, [track[second] for second in known])


def _frequency(host: _Host) -> Iterator[Finding]:
    """Below 95 % of its start for a tenth of the time, although there was as much to do.

    By means of 10 s: one that is read now and then jumps, and one of an idle CPU says nothing.
    """
    clock, busy = host.get("cpu_frequency"), host.get("cpu_busy")
    starts = range(0, host.seconds - _STEP_S + 1, _STEP_S)
    parts = [(s, _mean(clock, s, s + _STEP_S), _mean(busy, s, s + _STEP_S)) for s in starts]
    known = [(s, mhz, work) for s, mhz, work in parts if mhz is not None and work is not None]
    if len(known) < 2:
        return
    _, start_mhz, start_work = known[0]
    low = [
        (second, mhz)
        for second, mhz, work in known[1:]
        if mhz < FREQUENCY_MIN * start_mhz and work >= 0.9 * start_work
    ]
    if low and 10 * len(low) >= len(known):
        least = min(mhz for _, mhz in low)
        text = (
            f"the CPU's frequency fell from {start_mhz:.0f} to {least:.0f} MHz, from"
            f" {_minute(low[0][0])} on, with as much to do: results hold for this length only"
        )
        yield Finding(SOURCE, "warning", text, least, "MHz")


def _heat(host: _Host) -> Iterator[Finding]:
    for zone, room in host.starting("headroom_").items():
        over = sorted(second for second, left in room.items() if left <= 0)
        if over:
            hottest = max(host.get(f"temperature_{zone}").values(), default=math.nan)
            text = (
                f"too hot: {zone} reached its trip point at {_minute(over[0])}, at most"
                f" {hottest:.0f} °C; the kernel slows the machine down there"
            )
            yield Finding(SOURCE, "invalid", text, hottest, "°C")


def _pi(host: _Host) -> Iterator[Finding]:
    now, since = host.get("pi_throttled"), host.get("pi_throttled_since_boot")
    hit = sorted(second for second, bits in now.items() if int(bits))
    # A bit that came between two looks is known by what has been since the start.
    new = max(map(int, since.values()), default=0) & ~int(since[min(since)] if since else 0)
    during = new
    for second in hit:
        during |= int(now[second])
    if during:
        at = f", first at {_minute(hit[0])}" if hit else ""
        text = f"the board slowed itself down: {_bits(during)}{at}, {len(hit)} of {len(now)} s"
        yield Finding(SOURCE, "invalid", text, during, "bits")
    elif since and (bits := int(since[max(since)])):
        text = f"since it was started, but not in this trial, the board had: {_bits(bits)}"
        yield Finding(SOURCE, "info", text, bits, "bits")


def _bits(bits: int) -> str:
    return ", ".join(name for number, name in enumerate(_PI_BITS) if bits >> number & 1)


def _errors(track: Track) -> Iterator[Finding]:
    if (count := sum(track.values())) > 0:
        at = min(second for second, errors in track.items() if errors > 0)
        text = f"{count:.0f} I/O errors of disks or file systems, the first at {_minute(at)}"
        yield Finding(SOURCE, "invalid", text, count)


def _did(host: _Host) -> Iterator[Finding]:
    """What the machine did, in a sentence."""
    parts = [
        _listed("", host, {"cpu_busy": "CPU {:.0f} % busy", "cpu_iowait": "{:.0f} % waiting"}),
        *(_disk(host, name) for name in _disks(host)),
        _listed(
            "some waited for ",
            host,
            {
                "pressure_cpu_some": "CPU {:.0f} %",
                "pressure_io_some": "disk {:.0f} %",
                "pressure_memory_some": "memory {:.0f} % of the time",
            },
        ),
    ]
    heat = [max(track.values()) for track in host.starting("temperature_").values()]
    parts.append(f"at most {max(heat):.0f} °C" if heat else "")
    if said := "; ".join(part for part in parts if part):
        yield Finding(SOURCE, "info", f"the machine: {said}", _mean(host.get("cpu_busy")), "%")


def _disks(host: _Host) -> list[str]:
    """Names of the disks that had something to do, the busiest first."""
    found = {n[:-5]: _mean(t) or 0 for n, t in host.starting("disk_").items() if n[-5:] == "_busy"}
    return sorted((name for name, busy in found.items() if busy >= 0.5), key=lambda n: -found[n])[
        :3
    ]


def _disk(host: _Host, name: str) -> str:
    track = f"disk_{name}_"
    words = {"busy": "{:.0f} % busy", "read": "{:.0f} KB/s read", "written": "{:.0f} KB/s written"}
    return _listed(f"disk {name} ", host, {track + key: text for key, text in words.items()})


def _listed(prefix: str, host: _Host, words: Mapping[str, str]) -> str:
    means = ((text, _mean(host.get(name))) for name, text in words.items())
    found = [text.format(mean) for text, mean in means if mean is not None]
    return prefix + ", ".join(found) if found else ""
