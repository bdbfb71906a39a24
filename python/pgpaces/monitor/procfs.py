"""Parsers of Linux's files below /proc and /sys that psutil does not read: text in, items out.

An unexpected text raises ValueError, IndexError or KeyError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

_IO_ERROR = re.compile(
    r"I/O error|critical (medium|target|space allocation) error|Medium Error"
    r"|EXT4-fs error|EXT4-fs \([^)]*\): Remounting"
    r"|XFS \([^)]*\): .*([Ee]rror|shutdown|Shutting down|[Cc]orruption)"
    r"|BTRFS (error|critical)|mmc\d+: .*(error|[Tt]imeout|timed out)|nvme\d+: .*(timeout|reset)"
)
# Trip points that slow a machine down or stop it; an active one only starts a fan.
_TRIPS = ("passive", "hot", "critical")


class Item(NamedTuple):
    """A value that was read. part: which of several devices; those of one name are added up.

    kind: gauge: a current value. rate: a counter whose increase per second is of interest. event: a
    counter whose increase is of interest. ticks: a counter whose share of all ticks is of interest.
    """

    name: str
    value: float
    unit: str = ""
    kind: Literal["gauge", "rate", "event", "ticks"] = "gauge"
    part: str = ""


def run_queue(text: str) -> Iterator[Item]:
    """/proc/loadavg: runnable threads on all CPUs, including the reader's."""
    yield Item("run_queue", int(text.split()[3].partition("/")[0]), "threads")


def memory(text: str) -> Iterator[Item]:
    """/proc/meminfo, in bytes."""
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in text.splitlines()}
    for name, field in (("available", "MemAvailable"), ("dirty", "Dirty")):
        if field in sizes:
            yield Item(f"memory_{name}", sizes[field], "B")
    if "SwapTotal" in sizes:
        yield Item("swap_used", sizes["SwapTotal"] - sizes["SwapFree"], "B")


def pressure(text: str, resource: str) -> Iterator[Item]:
    """/proc/pressure/*: the share of time in which some, or all, tasks waited for it.

    For the CPU of a whole machine "full" is not defined.
    """
    for line in text.splitlines():
        kind, *words = line.split()
        total_us = int(dict(word.split("=") for word in words)["total"])
        if (resource, kind) != ("cpu", "full"):
            yield Item(f"pressure_{resource}_{kind}", total_us / 1e4, "%", "rate")


class Mount(NamedTuple):
    """A line of /proc/PID/mountinfo. root: the folder of the file system that is mounted."""

    number: str
    root: str
    point: str
    kind: str
    source: str
    options: str


def mounts(text: str) -> list[Mount]:
    rows = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        words, more = before.split(" "), after.split(" ")
        if len(words) < 6 or len(more) < 3:
            continue
        options = ",".join(dict.fromkeys((*words[5].split(","), *more[2].split(","))))
        root, point, source = (
            re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path)  # such as \040
            for path in (words[3], words[4], more[1])
        )
        rows.append(Mount(words[2], root, point, more[0], source, options))
    return rows


class CgroupMount(NamedTuple):
    """A mount of the cgroup file system with CPU controllers.

    root: the group that is mounted at `path`; not / in a container.
    """

    version: Literal[1, 2]
    path: str
    root: str


def cgroup_mounts(text: str) -> list[CgroupMount]:
    """/proc/self/mountinfo."""
    return [
        CgroupMount(2 if mount.kind == "cgroup2" else 1, mount.point, mount.root)
        for mount in mounts(text)
        if mount.kind == "cgroup2" or (mount.kind == "cgroup" and "cpu" in mount.options.split(","))
    ]


def cgroup_stats(text: str, mounts: Iterable[CgroupMount]) -> list[str]:
    """/proc/PID/cgroup: the cpu.stat of its group and all parents, as any may have a quota."""
    own: dict[int, str] = {}
    for line in text.splitlines():
        number, controllers, group = line.split(":", 2)
        if number == "0" and not controllers:
            own[2] = group
        elif "cpu" in controllers.split(","):
            own[1] = group
    paths = []
    for mount in mounts:
        path = own.get(mount.version)
        if path is None:
            continue
        below = path if mount.root == "/" else path.removeprefix(mount.root)
        parts = [part for part in below.split("/") if part and part != ".."]
        tops = ["/".join([mount.path, *parts[:n]]) for n in range(len(parts), -1, -1)]
        paths += [f"{top}/cpu.stat" for top in tops]
    return paths


def cgroup(text: str, part: str) -> Iterator[Item]:
    """cpu.stat of a group, in both versions: periods of its quota, and exhausted ones."""
    counts = {words[0]: int(words[1]) for words in map(str.split, text.splitlines())}
    if "nr_periods" in counts:
        yield Item("cgroup_periods", counts["nr_periods"], "periods", "event", part)
        yield Item("cgroup_throttled", counts["nr_throttled"], "periods", "event", part)


def quota(cpu_max: str | None, cfs: tuple[str | None, str | None]) -> float | None:
    """The number of CPUs that a group may use: cpu.max (v2), or cfs_quota_us, cfs_period_us (v1).

    None: no limit.
    """
    amount, period = cpu_max.split() if cpu_max else cfs
    if amount is None or period is None or amount.strip() in ("max", "-1"):
        return None
    return int(amount) / int(period)


def frequency(texts: Iterable[str]) -> Iterator[Item]:
    """scaling_cur_freq of several CPUs: their mean."""
    clocks = [int(text) / 1000 for text in texts]
    if clocks:
        yield Item("cpu_frequency", sum(clocks) / len(clocks), "MHz")


def temperature(text: str, zone: str, trip_c: float | None) -> Iterator[Item]:
    """A temperature, and its distance to that at which the kernel or the chip slows down."""
    now_c = int(text) / 1000
    yield Item(f"temperature_{zone}", now_c, "°C")
    if trip_c is not None:
        yield Item(f"headroom_{zone}", trip_c - now_c, "°C")


def trips(text: str, kind: str) -> Iterator[float]:
    """A trip point, if it slows the machine down or stops it. Values up to 0 are unset."""
    celsius = int(text) / 1000
    if kind.strip() in _TRIPS and celsius > 0:
        yield celsius


def pi_throttled(text: str) -> Iterator[Item]:
    """get_throttled of a Raspberry Pi, of the kernel or of vcgencmd: now, and since boot."""
    bits = int(text.strip().removeprefix("throttled="), 16)
    yield Item("pi_throttled", bits & 0xF, "bits")
    yield Item("pi_throttled_since_boot", bits >> 16 & 0xF, "bits")


def error_count(text: str, part: str) -> Iterator[Item]:
    """ioerr_cnt of a SCSI disk (hexadecimal) or errors_count of a file system."""
    yield Item("io_errors", int(text, 0), "", "event", part)


def kernel_errors(log: str) -> int:
    """The number of lines in the kernel's log about failures of a disk or file system."""
    return sum(1 for line in log.splitlines() if _IO_ERROR.search(line))


def changes(before: Iterable[Item], after: Iterable[Item], seconds: float) -> list[Item]:
    """The changes between two readings, all as gauges.

    Omits values that one of them lacks and counters that were reset: a gap is not a zero.
    """
    then = {(item.name, item.part): item.value for item in before}
    ticks: dict[str, float] = {}
    gauges: dict[str, Item] = {}
    counts: dict[tuple[str, str], float] = {}
    for item in after:
        old = then.get((item.name, item.part))
        if item.kind == "gauge":
            gauges[item.name] = item
        elif item.kind == "ticks" and old is not None:
            # The kernel's idle and iowait may decrease a little.
            ticks[item.name] = max(0.0, item.value - old)
        elif old is not None and item.value >= old:
            grown = counts[item.name, item.part] = item.value - old
            value = grown / seconds if item.kind == "rate" else grown
            others = gauges[item.name].value if item.name in gauges else 0.0
            gauges[item.name] = Item(item.name, value + others, item.unit)
    gauges.pop("cgroup_periods", None)
    shares = {}
    if (total := sum(ticks.values())) > 0:
        shares = {name: 100 * value / total for name, value in ticks.items()}
        shares["cpu_busy"] = shares.get("cpu_user", 0) + shares.get("cpu_system", 0)
        shares.pop("cpu_idle", None)
    # Of several groups with a quota, the most exhausted one limits the server.
    throttled = [
        min(100.0, 100 * counts["cgroup_throttled", part] / periods) if periods else 0.0
        for (name, part), periods in counts.items()
        if name == "cgroup_periods" and ("cgroup_throttled", part) in counts
    ]
    if throttled:
        shares["cgroup_throttled_share"] = max(throttled)
    return [*(Item(name, value, "%") for name, value in shares.items()), *gauges.values()]
