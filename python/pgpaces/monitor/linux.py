"""What Linux says of a machine: by psutil, and by files below /proc and /sys that psutil lacks.

A value that cannot be read, or is not as expected, is missing.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import psutil

T = TypeVar("T")
# Trip points that slow a machine down or stop it; an active one only starts a fan.
_TRIPS = ("passive", "hot", "critical")
_CHIPS = ("coretemp", "k10temp", "nvme", "drivetemp")
# A machine may have hundreds of CPUs, disks, and zones: so many of each are read.
_EACH_MAX = 16
_CLOCKS = "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"
_PI_THROTTLED = "sys/devices/platform/soc*/*firmware/get_throttled"


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


class _Zone(NamedTuple):
    """A temperature. limit_c: at which the kernel or the chip slows down."""

    name: str
    path: Path
    limit_c: float | None

    def items(self, text: str) -> Iterator[Item]:
        [now_c] = _celsius(text)
        yield Item(f"temperature_{self.name}", now_c, "°C")
        if self.limit_c is not None:
            yield Item(f"headroom_{self.name}", self.limit_c - now_c, "°C")


class Probe:
    """The readable values of a machine, found once, read together.

    pids: of the server, whose CPUs may be limited. root: the folder of /proc and /sys.
    """

    def __init__(self, pids: Iterable[int | str] = (), root: Path = Path("/")) -> None:
        self._root, self._pids = root, tuple(pids)
        self._mounts = self._parsed(root / "proc/self/mountinfo", mounts)
        names = [name for name, used in _disks().items() if used.read_count + used.write_count]
        # Of devices in use those that are no partitions, real disks first.
        ordered = sorted(names, key=lambda name: name.startswith(("loop", "ram")))
        disks = [name for name in ordered if (root / "sys/block" / name).exists()]
        self._disks = disks[:_EACH_MAX]
        # Interfaces with a device, so that traffic through a bridge is not counted twice.
        interfaces = [name for name in _network() if name != "lo"]
        real = [name for name in interfaces if (root / "sys/class/net" / name / "device").exists()]
        self._interfaces = real or interfaces
        self._zones = list(self._temperatures())
        # Not by psutil, which reads all CPUs: each may be woken up for that.
        self._clocks = self._found(_CLOCKS)
        self._pi = self._found(_PI_THROTTLED)[:1]
        counts = ("sys/block/*/device/ioerr_cnt", "sys/fs/ext4/*/errors_count")
        self._errors = [path for pattern in counts for path in self._found(pattern)]

    def items(self) -> list[Item]:
        parsed, root = self._parsed, self._root
        clocks = [kilohertz for path in self._clocks for kilohertz in parsed(path, _integers)]
        return [
            *_known(self._disks, self._interfaces),
            *parsed(root / "proc/loadavg", run_queue),
            *parsed(root / "proc/meminfo", memory),
            *(
                item
                for name in ("cpu", "io", "memory")
                for item in parsed(root / "proc/pressure" / name, partial(pressure, resource=name))
            ),
            *self._quotas(),
            *([Item("cpu_frequency", sum(clocks) / len(clocks) / 1000, "MHz")] if clocks else ()),
            *(item for zone in self._zones for item in parsed(zone.path, zone.items)),
            *(item for path in self._pi for item in parsed(path, pi_throttled)),
            *(
                Item("io_errors", count, "", "event", str(path))
                for path in self._errors
                for count in parsed(path, _integers)
            ),
        ]

    def _found(self, pattern: str) -> list[Path]:
        return sorted(self._root.glob(pattern))[:_EACH_MAX]

    def _parsed(self, path: Path, parser: Callable[[str], Iterable[T]]) -> list[T]:
        with contextlib.suppress(OSError, ValueError, IndexError, KeyError, ZeroDivisionError):
            return list(parser(path.read_text("utf-8", "replace")))
        return []

    def _word(self, path: Path) -> str:
        return next(iter(self._parsed(path, str.split)), "")

    def _temperatures(self) -> Iterator[_Zone]:
        for folder in self._found("sys/class/thermal/thermal_zone*"):
            points = sorted(folder.glob("trip_point_*_temp"))
            kinds = [self._word(point.with_name(f"{point.name[:-5]}_type")) for point in points]
            limits = [point for point, kind in zip(points, kinds, strict=True) if kind in _TRIPS]
            yield self._zone(self._word(folder / "type"), folder / "temp", limits)
        for folder in self._found("sys/class/hwmon/hwmon*"):
            if (chip := self._word(folder / "name")) in _CHIPS:
                yield self._zone(chip, folder / "temp1_input", [folder / "temp1_crit"])

    def _zone(self, kind: str, path: Path, limits: Iterable[Path]) -> _Zone:
        celsius = [value for each in limits for value in self._parsed(each, _celsius)]
        number = re.sub(r"\D", "", path.parent.name)
        # A limit up to 0 is unset.
        lowest = min((value for value in celsius if value > 0), default=None)
        return _Zone(f"{kind.replace('-', '_')}_{number}", path, lowest)

    def _quotas(self) -> Iterator[Item]:
        """Quotas of the server's present groups: processes may be moved to others."""
        groups = [
            group
            for pid in self._pids
            for group in self._parsed(
                self._root / f"proc/{pid}/cgroup", partial(cgroups, mounts=self._mounts)
            )
        ]
        limits: list[float] = []
        for group in dict.fromkeys(groups):
            folder = self._root / group.lstrip("/")
            yield from self._parsed(folder / "cpu.stat", partial(cgroup, part=group))
            limits += self._parsed(folder / "cpu.max", quota)
            older = (folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")
            with contextlib.suppress(ValueError, ZeroDivisionError):
                limits += quota(" ".join(self._word(path) for path in older))
        if limits:
            yield Item("cgroup_quota", min(limits), "CPUs")


def _known(disks: Sequence[str], interfaces: Sequence[str]) -> Iterator[Item]:
    """What psutil knows. Guest time is part of user time.

    It raises any error if /proc is absent, or is not as it expects.
    """
    with contextlib.suppress(Exception):
        times = {"nice": 0.0, "irq": 0.0, "softirq": 0.0, "iowait": 0.0, "steal": 0.0}
        times |= psutil.cpu_times()._asdict()
        yield Item("cpu_user", times["user"] + times["nice"], "%", "ticks")
        system = times["system"] + times["irq"] + times["softirq"]
        yield Item("cpu_system", system, "%", "ticks")
        for state in ("iowait", "steal", "idle"):
            yield Item(f"cpu_{state}", times[state], "%", "ticks")
    for name, used in _disks().items() if disks else ():
        if name in disks:
            yield Item(f"disk_{name}_busy", getattr(used, "busy_time", 0) / 10, "%", "rate")
            yield Item(f"disk_{name}_read", used.read_bytes / 1024, "KB/s", "rate")
            yield Item(f"disk_{name}_written", used.write_bytes / 1024, "KB/s", "rate")
            yield Item(f"disk_{name}_reads", used.read_count, "1/s", "rate")
            yield Item(f"disk_{name}_writes", used.write_count, "1/s", "rate")
    for name, passed in _network().items() if interfaces else ():
        if name in interfaces:
            yield Item("network_in", passed.bytes_recv / 1024, "KB/s", "rate", name)
            yield Item("network_out", passed.bytes_sent / 1024, "KB/s", "rate", name)


def _disks() -> Mapping[str, Any]:
    with contextlib.suppress(Exception):
        return dict(psutil.disk_io_counters(perdisk=True, nowrap=False) or {})
    return {}


def _network() -> Mapping[str, Any]:
    with contextlib.suppress(Exception):
        return dict(psutil.net_io_counters(pernic=True, nowrap=False) or {})
    return {}


def run_queue(text: str) -> Iterator[Item]:
    """/proc/loadavg: runnable threads on all CPUs, including the reader's."""
    yield Item("run_queue", int(text.split()[3].partition("/")[0]), "threads")


def memory(text: str) -> Iterator[Item]:
    """/proc/meminfo, in bytes."""
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in text.splitlines()}
    yield Item("memory_available", sizes["MemAvailable"], "B")
    if "SwapTotal" in sizes:  # not in every sandbox
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


def cgroups(text: str, mounts: Iterable[Mount]) -> list[str]:
    """/proc/PID/cgroup: the folders of its group and all parents, as any may have a quota.

    mounts: the root of one is not / in a container.
    """
    own: dict[str, str] = {}
    for line in text.splitlines():
        number, controllers, group = line.split(":", 2)
        if number == "0" and not controllers:
            own["cgroup2"] = group
        elif "cpu" in controllers.split(","):
            own["cgroup"] = group
    folders = []
    for mount in mounts:
        if mount.kind in own and (mount.kind == "cgroup2" or "cpu" in mount.options.split(",")):
            group = own[mount.kind]
            below = group if mount.root == "/" else group.removeprefix(mount.root)
            parts = [part for part in below.split("/") if part and part != ".."]
            folders += ["/".join([mount.point, *parts[:n]]) for n in range(len(parts), -1, -1)]
    return folders


def cgroup(text: str, part: str) -> Iterator[Item]:
    """cpu.stat of a group: periods of its quota, and exhausted ones."""
    counts = {words[0]: int(words[1]) for words in map(str.split, text.splitlines())}
    if "nr_periods" in counts:
        yield Item("cgroup_periods", counts["nr_periods"], "periods", "event", part)
        yield Item("cgroup_throttled", counts["nr_throttled"], "periods", "event", part)


def quota(text: str) -> list[float]:
    """cpu.max of a group, or cpu.cfs_quota_us and cpu.cfs_period_us: the CPUs that it may use."""
    amount, period = text.split()
    return [] if amount in ("max", "-1") else [int(amount) / int(period)]


def _integers(text: str) -> list[int]:
    """The only number of a file; a SCSI disk writes hexadecimal ones."""
    return [int(text, 0)]


def _celsius(text: str) -> list[float]:
    return [int(text) / 1000]


def pi_throttled(text: str) -> Iterator[Item]:
    """get_throttled of a Raspberry Pi: now, and since boot."""
    bits = int(text, 16)
    yield Item("pi_throttled", bits & 0xF, "bits")
    yield Item("pi_throttled_since_boot", bits >> 16 & 0xF, "bits")


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
