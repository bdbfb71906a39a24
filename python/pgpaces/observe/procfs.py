"""What the files of Linux below /proc and /sys say: text in, items out.

Reads nothing itself: whoever has the text, from this machine, through SQL or over ssh, gets the
same items. A text that says something else than expected raises ValueError, IndexError or KeyError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

# The unit of /proc/diskstats, whatever the disk's own is.
_SECTORS_PER_KB = 2
_IO_ERROR = re.compile(
    r"I/O error|critical (medium|target|space allocation) error|Medium Error"
    r"|EXT4-fs error|EXT4-fs \([^)]*\): Remounting|XFS \([^)]*\): .*(error|shutdown)"
    r"|BTRFS (error|critical)|mmc\d+: .*(error|timeout|timed out)|nvme\d+: .*(timeout|reset)"
)
# Bits of get_throttled, by Raspberry Pi's documentation: now, and 16 higher since the start.
PI_BITS = ("under-voltage", "frequency capped", "throttled", "soft temperature limit")
# What slows a machine down or ends it; an active one only starts a fan.
_TRIPS = ("passive", "hot", "critical")


class Item(NamedTuple):
    """One thing that was read. part: of which of several; those of one name are added up.

    kind: gauge: as it is. rate: grows by so much of its unit a second. event: counts up. ticks: its
    share of all the ticks is wanted.
    """

    name: str
    value: float
    unit: str = ""
    kind: Literal["gauge", "rate", "event", "ticks"] = "gauge"
    part: str = ""


def cpu(text: str) -> Iterator[Item]:
    """/proc/stat: time of all CPUs by state. What guests get is within user."""
    words = text.split("\n", 1)[0].split()
    if words[0] != "cpu":
        raise ValueError(words[0])
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, (words[1:] + ["0"] * 8)[:8])
    states = {
        "user": user + nice,
        "system": system + irq + softirq,
        "iowait": iowait,
        "steal": steal,
        "idle": idle,
    }
    for name, ticks in states.items():
        yield Item(f"cpu_{name}", ticks, "%", "ticks")


def run_queue(text: str) -> Iterator[Item]:
    """/proc/loadavg: threads that run or want to, on all CPUs; whoever reads is one of them."""
    yield Item("run_queue", int(text.split()[3].partition("/")[0]), "threads")


def memory(text: str) -> Iterator[Item]:
    """/proc/meminfo, in bytes."""
    found = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in text.splitlines()}
    for name, field in (("available", "MemAvailable"), ("dirty", "Dirty")):
        if field in found:
            yield Item(f"memory_{name}", found[field], "B")
    if "SwapTotal" in found:
        yield Item("swap_used", found["SwapTotal"] - found["SwapFree"], "B")


def disk_names(text: str) -> list[str]:
    """/proc/diskstats: devices and partitions that something was read from or written to."""
    lines = (line.split() for line in text.splitlines())
    return [words[2] for words in lines if int(words[3]) + int(words[7])]


def disks(text: str, names: Iterable[str]) -> Iterator[Item]:
    """/proc/diskstats of these devices; busy: the share of time in which it had work."""
    wanted = set(names)
    for words in (line.split() for line in text.splitlines()):
        if words[2] not in wanted:
            continue
        name = f"disk_{words[2]}"
        reads, read, writes, written, busy_ms = (int(words[n]) for n in (3, 5, 7, 9, 12))
        yield Item(f"{name}_busy", busy_ms / 10, "%", "rate")
        yield Item(f"{name}_read", read / _SECTORS_PER_KB, "KB/s", "rate")
        yield Item(f"{name}_written", written / _SECTORS_PER_KB, "KB/s", "rate")
        yield Item(f"{name}_reads", reads, "1/s", "rate")
        yield Item(f"{name}_writes", writes, "1/s", "rate")


def interfaces(text: str) -> list[str]:
    """/proc/net/dev: names, without the loopback."""
    names = [line.split(":")[0].strip() for line in text.splitlines() if ":" in line]
    return [name for name in names if name != "lo"]


def network(text: str, names: Iterable[str]) -> Iterator[Item]:
    """/proc/net/dev: bytes over these interfaces together."""
    wanted = set(names)
    for line in text.splitlines():
        name, colon, numbers = line.partition(":")
        if colon and (name := name.strip()) in wanted:
            words = numbers.split()
            yield Item("network_in", int(words[0]) / 1024, "KB/s", "rate", name)
            yield Item("network_out", int(words[8]) / 1024, "KB/s", "rate", name)


def pressure(text: str, resource: str) -> Iterator[Item]:
    """/proc/pressure/*: the share of time in which some, or all, waited for it.

    For the CPU of a whole machine "full" is not defined.
    """
    for line in text.splitlines():
        kind, *words = line.split()
        total_us = int(dict(word.split("=") for word in words)["total"])
        if (resource, kind) != ("cpu", "full"):
            yield Item(f"pressure_{resource}_{kind}", total_us / 1e4, "%", "rate")


class CgroupMount(NamedTuple):
    """Where groups of processes are seen that the kernel gives CPU time to.

    root: the group that is seen at `path`; another than / in a container.
    """

    version: Literal[1, 2]
    path: str
    root: str


def cgroup_mounts(text: str) -> list[CgroupMount]:
    """/proc/self/mountinfo."""
    found = []
    for line in text.splitlines():
        before, _, behind = line.partition(" - ")
        words, kind = before.split(), behind.split()
        if not kind or kind[0] not in ("cgroup", "cgroup2"):
            continue
        version: Literal[1, 2] = 2 if kind[0] == "cgroup2" else 1
        if version == 2 or "cpu" in kind[-1].split(","):
            found.append(CgroupMount(version, _unescaped(words[4]), _unescaped(words[3])))
    return found


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path)


def cgroup_stats(text: str, mounts: Iterable[CgroupMount]) -> list[str]:
    """/proc/PID/cgroup: the cpu.stat of its group and of all above it: any may have a quota."""
    own: dict[int, str] = {}
    for line in text.splitlines():
        number, controllers, group = line.split(":", 2)
        if number == "0" and not controllers:
            own[2] = group
        elif "cpu" in controllers.split(","):
            own[1] = group
    found = []
    for mount in mounts:
        path = own.get(mount.version)
        if path is None:
            continue
        below = path if mount.root == "/" else path.removeprefix(mount.root)
        parts = [part for part in below.split("/") if part and part != ".."]
        tops = ["/".join([mount.path, *parts[:n]]) for n in range(len(parts), -1, -1)]
        found += [f"{top}/cpu.stat" for top in tops]
    return found


def cgroup(text: str, part: str) -> Iterator[Item]:
    """cpu.stat of a group, in both versions: periods of its quota, and those it ran out in."""
    found = {words[0]: int(words[1]) for words in map(str.split, text.splitlines())}
    if "nr_periods" in found:
        yield Item("cgroup_periods", found["nr_periods"], "periods", "event", part)
        yield Item("cgroup_throttled", found["nr_throttled"], "periods", "event", part)


def quota(cpu_max: str | None, cfs: tuple[str | None, str | None]) -> float | None:
    """How many CPUs a group may use: cpu.max (v2), or cfs_quota_us and cfs_period_us (v1).

    None: as many as there are.
    """
    amount, period = cpu_max.split() if cpu_max else cfs
    if amount is None or period is None or amount.strip() in ("max", "-1"):
        return None
    return int(amount) / int(period)


def frequency(texts: Iterable[str]) -> Iterator[Item]:
    """scaling_cur_freq of several: their mean."""
    found = [int(text) / 1000 for text in texts]
    if found:
        yield Item("cpu_frequency", sum(found) / len(found), "MHz")


def temperature(text: str, zone: str, trip_c: float | None) -> Iterator[Item]:
    """A temperature, and how far it is from where the kernel or the chip slows down."""
    now_c = int(text) / 1000
    yield Item(f"temperature_{zone}", now_c, "°C")
    if trip_c is not None:
        yield Item(f"headroom_{zone}", trip_c - now_c, "°C")


def trip(kind: str, text: str) -> float | None:
    """A trip point, if it slows the machine down or ends it. Those of 0 and below are not set."""
    found = int(text) / 1000
    return found if kind.strip() in _TRIPS and found > 0 else None


def pi_throttled(text: str) -> Iterator[Item]:
    """get_throttled of a Raspberry Pi, of the kernel or of vcgencmd: see PI_BITS."""
    bits = int(text.strip().removeprefix("throttled="), 16)
    yield Item("pi_throttled", bits & 0xF, "bits")
    yield Item("pi_throttled_since_boot", bits >> 16 & 0xF, "bits")


def error_count(text: str, part: str) -> Iterator[Item]:
    """ioerr_cnt of a SCSI disk (hexadecimal) or errors_count of a file system."""
    yield Item("io_errors", int(text, 0), "", "event", part)


def kernel_errors(log: str) -> int:
    """How many lines of the kernel's log tell of a disk or file system that failed."""
    return sum(1 for line in log.splitlines() if _IO_ERROR.search(line))


def changes(before: Iterable[Item], after: Iterable[Item], seconds: float) -> list[Item]:
    """What two readings say of the time between them, all as gauges.

    What one of them does not know, and what began anew, is left out: a gap is not a zero.
    """
    then = {(item.name, item.part): item.value for item in before}
    ticks: dict[str, float] = {}
    found: dict[str, Item] = {}
    for item in after:
        old = then.get((item.name, item.part))
        if item.kind == "gauge":
            found[item.name] = item
        elif item.kind == "ticks" and old is not None:
            # The kernel's idle and iowait may go back a little.
            ticks[item.name] = max(0.0, item.value - old)
        elif old is not None and item.value >= old:
            grown = item.value - old
            value = grown / seconds if item.kind == "rate" else grown
            more = found[item.name].value if item.name in found else 0.0
            found[item.name] = Item(item.name, value + more, item.unit)
    return [*_cpu_shares(ticks), *_throttled(found), *found.values()]


def _cpu_shares(ticks: dict[str, float]) -> Iterator[Item]:
    total = sum(ticks.values())
    if total > 0:
        shares = {name: 100 * value / total for name, value in ticks.items()}
        yield Item("cpu_busy", shares.get("cpu_user", 0) + shares.get("cpu_system", 0), "%")
        yield from (Item(name, value, "%") for name, value in shares.items() if name != "cpu_idle")


def _throttled(found: dict[str, Item]) -> Iterator[Item]:
    """The share of a quota's periods in which it ran out; 0 without a quota."""
    periods, throttled = found.pop("cgroup_periods", None), found.get("cgroup_throttled")
    if periods is not None and throttled is not None:
        share = 100 * throttled.value / periods.value if periods.value else 0.0
        yield Item("cgroup_throttled_share", min(100.0, share), "%")
