"""Samples the machine of a server once a second, while a load runs.

Counters become rates by their difference between two readings. An unreadable value is a gap, never
a zero; one note says what more privileges would show. remote.py has sources for other machines.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil
from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import throttle
from pgpaces.core.findings import Finding, Notes, as_json, finding
from pgpaces.core.series import Sample, Series
from pgpaces.monitor import procfs
from pgpaces.monitor.procfs import Item

PERIOD_S = 1.0
SOURCE = "host"
# The source of samples of the generator's machine, if it is not the server's, and their names.
GENERATOR = "generator"
OF_GENERATOR = ("cpu_busy", "cpu_iowait", "cpu_steal")
Read = Callable[[str], str | None]
T = TypeVar("T")

_SERVERS = ("postgres", "postmaster")
KERNEL_LOG = "/dev/kmsg"
PI_THROTTLED = "/sys/devices/platform/soc/soc:firmware/get_throttled"
# Of a line from another machine.
_ITEMS_MAX, _NAME_MAX, _NOTES_MAX, TEXT_MAX = 500, 80, 5, 200
_PATIENCE_S = 1.0
_VCGENCMD_EVERY_S = 10.0
# A machine may have hundreds of these: the maximum numbers that are read.
_CPUS_MAX, _ZONES_MAX, _HWMON_MAX, _TRIPS_MAX, _DISKS_MAX = 8, 16, 8, 8, 16


class HostSample(Struct, frozen=True):
    """Gauges of the time since the previous sample. at_s: its end, by a monotonic clock."""

    at_s: float
    items: tuple[Item, ...]


class HostSource:
    """A source of samples. notes: what it cannot read, and why, in order."""

    def __init__(self, notes: Notes | None = None) -> None:
        self.notes = Notes() if notes is None else notes

    def observe(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        """Samples at every full second from start_s until `ended`; may hang."""
        raise NotImplementedError

    def clock_lag_s(self) -> float:
        """This machine's monotonic clock minus that of `at_s`."""
        return 0.0

    def close(self) -> None:
        """Takes no more samples."""


class Probe:
    """The readable values of a machine, found once, read together.

    read: the text of a file, or None. cgroups: /proc/PID/cgroup of processes of the server. psutil
    raises any error if /proc is absent, or is not as it expects.
    """

    def __init__(self, read: Read, cgroups: Sequence[str] = ()) -> None:
        self._read = read
        self._cgroups = cgroups
        self._stats: dict[str, tuple[str, ...]] = {}
        self._mounts = list(self._parsed("/proc/self/mountinfo", procfs.cgroup_mounts))
        names = [name for name, used in _disks().items() if used.read_count + used.write_count]
        # Of devices in use those that are no partitions, real disks first.
        ordered = sorted(names, key=lambda name: name.startswith(("loop", "ram")))
        self._disks = self._readable(ordered, "/sys/block/{}/stat")[:_DISKS_MAX]
        # Interfaces with a device, so that traffic through a bridge is not counted twice.
        interfaces = [name for name in _network() if name != "lo"]
        real = self._readable(interfaces, "/sys/class/net/{}/device/uevent")
        self._interfaces = real or interfaces
        self._zones = [*self._thermal_zones(), *self._chips()]
        # Not by psutil, which reads all CPUs: each may be woken up for that.
        clock = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
        self._frequencies = self._readable(map(clock.format, range(_CPUS_MAX)))
        counts = ("/sys/block/{}/device/ioerr_cnt", "/sys/fs/ext4/{}/errors_count")
        self._errors = self._readable(path.format(name) for name in names for path in counts)

    def items(self) -> list[Item]:
        parsed = self._parsed
        return [
            *self._known(),
            *parsed("/proc/loadavg", procfs.run_queue),
            *parsed("/proc/meminfo", procfs.memory),
            *(
                item
                for name in ("cpu", "io", "memory")
                for item in parsed(
                    f"/proc/pressure/{name}", partial(procfs.pressure, resource=name)
                )
            ),
            *self._quotas(),
            *self._clocks(),
            *(
                item
                for name, path, trip_c in self._zones
                for item in parsed(path, partial(procfs.temperature, zone=name, trip_c=trip_c))
            ),
            *parsed(PI_THROTTLED, procfs.pi_throttled),
            *(
                item
                for path in (*self._errors, KERNEL_LOG)
                for item in parsed(path, partial(procfs.error_count, part=path))
            ),
        ]

    def _known(self) -> Iterator[Item]:
        """What psutil knows: CPUs, disks and network. Guest time is part of user time."""
        with contextlib.suppress(Exception):
            times = {"nice": 0.0, "irq": 0.0, "softirq": 0.0, "iowait": 0.0, "steal": 0.0}
            times |= psutil.cpu_times()._asdict()
            yield Item("cpu_user", times["user"] + times["nice"], "%", "ticks")
            system = times["system"] + times["irq"] + times["softirq"]
            yield Item("cpu_system", system, "%", "ticks")
            for state in ("iowait", "steal", "idle"):
                yield Item(f"cpu_{state}", times[state], "%", "ticks")
        for name, used in _disks().items() if self._disks else ():
            if name in self._disks:
                yield Item(f"disk_{name}_busy", getattr(used, "busy_time", 0) / 10, "%", "rate")
                yield Item(f"disk_{name}_read", used.read_bytes / 1024, "KB/s", "rate")
                yield Item(f"disk_{name}_written", used.write_bytes / 1024, "KB/s", "rate")
                yield Item(f"disk_{name}_reads", used.read_count, "1/s", "rate")
                yield Item(f"disk_{name}_writes", used.write_count, "1/s", "rate")
        for name, passed in _network().items() if self._interfaces else ():
            if name in self._interfaces:
                yield Item("network_in", passed.bytes_recv / 1024, "KB/s", "rate", name)
                yield Item("network_out", passed.bytes_sent / 1024, "KB/s", "rate", name)

    def _parsed(self, path: str, parser: Callable[[str], Iterable[T]]) -> list[T]:
        text = self._read(path)
        try:
            return [] if text is None else list(parser(text))
        except (ValueError, IndexError, KeyError):
            return []

    def _readable(self, names: Iterable[str], path: str = "{}") -> list[str]:
        return [name for name in names if self._read(path.format(name)) is not None]

    def _thermal_zones(self) -> Iterator[tuple[str, str, float | None]]:
        for number in range(_ZONES_MAX):
            folder = f"/sys/class/thermal/thermal_zone{number}"
            if (kind := self._read(f"{folder}/type")) is None:
                return
            trips: list[float] = []
            for point in range(_TRIPS_MAX):
                what = self._read(f"{folder}/trip_point_{point}_type")
                if what is None:
                    break
                at = f"{folder}/trip_point_{point}_temp"
                trips += self._parsed(at, partial(procfs.trips, kind=what))
            name = f"{kind.strip().replace('-', '_')}_{number}"
            yield name, f"{folder}/temp", min(trips, default=None)

    def _chips(self) -> Iterator[tuple[str, str, float | None]]:
        for number in range(_HWMON_MAX):
            folder = f"/sys/class/hwmon/hwmon{number}"
            kind = (self._read(f"{folder}/name") or "").strip()
            if kind in ("coretemp", "k10temp", "nvme", "drivetemp"):
                path = f"{folder}/temp1_crit"
                limits = self._parsed(path, partial(procfs.trips, kind="critical"))
                yield f"{kind}_{number}", f"{folder}/temp1_input", min(limits, default=None)

    def _quotas(self) -> Iterator[Item]:
        """Quotas of the server's present groups: processes may be moved to others."""
        paths: dict[str, None] = {}
        for file in self._cgroups:
            text = self._read(file)
            if text is None:
                continue
            if text not in self._stats:
                stats = self._parsed(file, lambda text: procfs.cgroup_stats(text, self._mounts))
                self._stats[text] = tuple(self._readable(stats))
            paths |= dict.fromkeys(self._stats[text])
        amounts = []
        for path in paths:
            yield from self._parsed(path, partial(procfs.cgroup, part=path))
            folder, read = path.removesuffix("/cpu.stat"), self._read
            cfs = read(f"{folder}/cpu.cfs_quota_us"), read(f"{folder}/cpu.cfs_period_us")
            with contextlib.suppress(ValueError, ZeroDivisionError):
                amounts.append(procfs.quota(read(f"{folder}/cpu.max"), cfs))
        if limits := [amount for amount in amounts if amount is not None]:
            yield Item("cgroup_quota", min(limits), "CPUs")

    def _clocks(self) -> list[Item]:
        texts = [text for path in self._frequencies if (text := self._read(path)) is not None]
        with contextlib.suppress(ValueError):
            return list(procfs.frequency(texts))
        return []


def _disks() -> Mapping[str, Any]:
    with contextlib.suppress(Exception):
        return dict(psutil.disk_io_counters(perdisk=True, nowrap=False) or {})
    return {}


def _network() -> Mapping[str, Any]:
    with contextlib.suppress(Exception):
        return dict(psutil.net_io_counters(pernic=True, nowrap=False) or {})
    return {}


class HostMonitor:
    """Collects samples of a source until it is closed. cost_s: CPU time of this so far.

    node: of the server on it, if it is not the primary. generator: no server is on it, and only its
    CPUs matter.
    """

    def __init__(self, source: HostSource, node: str = "", *, generator: bool = False) -> None:
        self.source, self.node, self.cost_s = source, node, 0.0
        self._name = GENERATOR if generator else f"{node}/{SOURCE}".lstrip("/")
        self._generator = generator
        self._samples: list[HostSample] = []
        self._span_s: tuple[float, float] | None = None
        self._offset: float | None = None
        self._last: int | None = None
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._start_s = 0.0

    def begin(self, start_s: float) -> None:
        """Begins sampling, in a thread that ends with the program.

        start_s: the beginning of the measured part, by time.monotonic().
        """
        self._start_s = start_s
        self._thread = threading.Thread(target=self._run, name="pgpaces-host", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for sample in self.source.observe(self._ended, self._start_s):
            with self._lock:
                self._samples.append(sample)
                first_s = self._span_s[0] if self._span_s else sample.at_s
                self._span_s = first_s, sample.at_s
                self.cost_s = time.thread_time()

    def drain(self) -> list[Sample]:
        """The samples since the last call, by second; those of the warm-up are below 0.

        Each belongs to the second whose end is nearest. Samples at the full seconds of another
        machine are all shifted by the offset of the first one, so that they do not alternate
        between two seconds. Of two in one second, the later is omitted.
        """
        with self._lock:
            machine, self._samples = self._samples, []
            start_s = self._start_s - self.source.clock_lag_s()
        rows: list[Sample] = []
        for each in machine:
            at = (each.at_s - start_s) / PERIOD_S
            self._offset = at - round(at) if self._offset is None else self._offset
            second = round(at - self._offset) - 1
            if self._last is None or second > self._last:
                # No more digits than a sensor has.
                rows += [
                    Sample(second, self._name, i.name, float(f"{i.value:.5g}"), i.unit)
                    for i in each.items
                    if not self._generator or i.name in OF_GENERATOR
                ]
                self._last = second
        return rows

    def findings(self, series: Sequence[Series], seconds: int) -> list[Finding]:
        """What slowed the machine down in the measured seconds. series: its samples."""
        found = () if self._generator else throttle.machine_findings(series, seconds)
        return [replace(each, about=self.node) for each in found]

    def notes(self) -> list[Finding]:
        with self._lock:
            if self._generator:
                return []
            notes = [*self.source.notes]
            if self._span_s is not None:
                duration_s = self._span_s[1] - self._span_s[0] + PERIOD_S
                cost_percent = 100 * self.cost_s / duration_s
                notes.append(finding("machine-monitor-cost", here_percent=cost_percent))
            return notes

    def close(self) -> bool:
        """Stops sampling; false if the last reading hangs."""
        self._ended.set()
        self.source.close()
        if self._thread is None:
            return True
        self._thread.join(_PATIENCE_S)
        return not self._thread.is_alive()


class Local:
    """Reads the files of this machine. notes: what more privileges would show."""

    def __init__(self) -> None:
        self.notes = Notes()
        self._log: int | None = None
        self._errors = 0
        self._vcgencmd = shutil.which("vcgencmd")
        self._bits: tuple[float, str | None] = (float("-inf"), None)
        if not Path("/proc/stat").exists():
            return
        try:
            self._log = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._log, 0, os.SEEK_END)
        except OSError:
            self.notes.add(finding("kernel-log-unreadable"))

    def read(self, path: str) -> str | None:
        if path == KERNEL_LOG:
            return self._kernel_log()
        try:
            with Path(path).open("rb", buffering=0) as file:
                return file.read().decode(errors="replace")
        except OSError:
            return self._pi() if path == PI_THROTTLED else None

    def _kernel_log(self) -> str | None:
        """The number of errors in it since this began; each read returns one record."""
        if self._log is None:
            return None
        while True:
            try:
                record = os.read(self._log, 8192).decode(errors="replace")
            except BrokenPipeError:  # records were overwritten before they were read
                continue
            except OSError:
                return str(self._errors)
            self._errors += procfs.kernel_errors(record.split("\n", 1)[0])

    def _pi(self) -> str | None:
        """The output of vcgencmd, for kernels without the file; seldom, as it starts a program."""
        now_s = time.monotonic()
        if self._vcgencmd and now_s - self._bits[0] >= _VCGENCMD_EVERY_S:
            self._bits = now_s, None
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                done = subprocess.run(
                    [self._vcgencmd, "get_throttled"],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    check=True,
                    env={},
                    timeout=_PATIENCE_S,
                )
                self._bits = now_s, done.stdout
        return self._bits[1]

    def close(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None


class ThisMachine(HostSource):
    """Samples of this machine. pids: of the server, whose CPUs may be limited."""

    def __init__(self, pids: Iterable[int] = ()) -> None:
        self._reader = Local()
        super().__init__(self._reader.notes)
        self._cgroups = [f"/proc/{pid}/cgroup" for pid in pids]

    def observe(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        """See HostSource. The thread that reads also closes the reader."""
        with contextlib.closing(self._reader):
            probe = Probe(self._reader.read, self._cgroups)
            before: tuple[float, list[Item]] | None = None
            while True:
                items, at_s = probe.items(), time.monotonic()
                if not items:
                    self.notes.add(finding("proc-unreadable"))
                    yield HostSample(at_s, ())  # so that its listener learns the reason
                if before is not None and (
                    gauges := procfs.changes(before[1], items, at_s - before[0])
                ):
                    yield HostSample(at_s, tuple(gauges))
                before = at_s, items
                if ended.wait(PERIOD_S - (time.monotonic() - start_s) % PERIOD_S):
                    return


def line(sample: HostSample, notes: Sequence[Finding] = ()) -> str:
    """A sample as a line of `pgpaces observe`. notes: what it cannot read."""
    document: dict[str, Any] = {
        "time": round(time.time() - (time.monotonic() - sample.at_s), 3),
        "monotonic": round(sample.at_s, 4),
        "values": {i.name: [float(f"{i.value:.5g}"), i.unit] for i in sample.items},
    }
    if notes:
        document["notes"] = [as_json(note) for note in notes]
    return json.dumps(document, ensure_ascii=True)


def parsed(text: bytes) -> tuple[float, float, tuple[Item, ...], list[Finding]]:
    """A line of `pgpaces observe`: monotonic and wall clock in s, items, notes.

    It comes from another machine, so it is not trusted. Raises
    ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError.
    """
    document = json.loads(text)
    items = []
    for name, (value, unit) in list(document["values"].items())[:_ITEMS_MAX]:
        number = float(value)
        if math.isfinite(number):
            items.append(Item(str(name)[:_NAME_MAX], number, str(unit)[:_NAME_MAX]))
    notes = []
    for note in document.get("notes", [])[:_NOTES_MAX]:
        values = list(note["values"].items())[:_NOTES_MAX]
        texts = {str(key)[:_NAME_MAX]: str(value)[:TEXT_MAX] for key, value in values}
        notes.append(Finding(str(note["name"])[:_NAME_MAX], texts))
    at_s, time_s = float(document["monotonic"]), float(document["time"])
    if not (math.isfinite(at_s) and math.isfinite(time_s)):
        raise ValueError(text)
    return at_s, time_s, tuple(items), notes


def postgres_process(pid: int) -> psutil.Process:
    """A process of PostgreSQL. Raises psutil.Error for another program, or none."""
    process = psutil.Process(pid)
    if process.name() not in _SERVERS:
        raise psutil.NoSuchProcess(pid)
    return process


def postmasters() -> list[int]:
    parents: dict[int, int] = {}
    with contextlib.suppress(OSError):
        every = psutil.process_iter(["name", "ppid"])
        parents = {each.pid: each.info["ppid"] for each in every if each.info["name"] in _SERVERS}
    return sorted(pid for pid, parent in parents.items() if parent not in parents)
