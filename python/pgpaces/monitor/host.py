"""Samples the machine of a server once a second, while a load runs.

Has its own thread. Counters become rates by their difference between two readings. An unreadable
value is a gap, never a zero; one note says what more privileges would show. Knows nothing of the
load. remote.py has the sources for other machines.
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

from msgspec import Struct, field

from pgpaces.core.findings import Finding, Notes, as_json, finding
from pgpaces.core.series import Sample
from pgpaces.monitor import procfs
from pgpaces.monitor.procfs import Item

PERIOD_S = 1.0
SOURCE = "host"
# The source of samples of the generator's machine, if it is not the server's, and their names.
GENERATOR = "generator"
OF_GENERATOR = ("cpu_busy", "cpu_iowait", "cpu_steal")
Read = Callable[[str], str | None]
T = TypeVar("T")

KERNEL_LOG = "/dev/kmsg"
PI_THROTTLED = "/sys/devices/platform/soc/soc:firmware/get_throttled"
_BYTES_MAX = 1 << 16
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
    """A source of samples; this one has none. notes: what it cannot read, and why, in order."""

    def __init__(self, notes: Notes | None = None) -> None:
        self.notes = Notes() if notes is None else notes

    def observe(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        """Samples at every full second from start_s until `ended`; may hang."""
        yield from ()

    def clock_lag_s(self) -> float:
        """This machine's monotonic clock minus that of `at_s`."""
        return 0.0

    def close(self) -> None:
        """Takes no more samples."""


class Probe:
    """The readable values of a machine, found once, read together.

    cgroups: /proc/PID/cgroup of processes of the server. Files may be absent.
    """

    def __init__(self, read: Read, cgroups: Sequence[str] = ()) -> None:
        self._read = read
        self._cgroups = cgroups
        self._stats: dict[str, tuple[str, ...]] = {}
        self._mounts = list(self._parsed("/proc/self/mountinfo", procfs.cgroup_mounts))
        names = self._parsed("/proc/diskstats", procfs.disk_names)
        # Of devices in use those that are no partitions, real disks first.
        ordered = sorted(names, key=lambda name: name.startswith(("loop", "ram")))
        self._disks = self._readable(ordered, "/sys/block/{}/stat")[:_DISKS_MAX]
        # Interfaces with a device, so that traffic through a bridge is not counted twice.
        interfaces = self._parsed("/proc/net/dev", procfs.interfaces)
        real = self._readable(interfaces, "/sys/class/net/{}/device/uevent")
        self._interfaces = real or interfaces
        self._zones = [*self._thermal_zones(), *self._chips()]
        clock = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
        self._frequencies = self._readable(map(clock.format, range(_CPUS_MAX)))
        counts = ("/sys/block/{}/device/ioerr_cnt", "/sys/fs/ext4/{}/errors_count")
        self._errors = self._readable(path.format(name) for name in names for path in counts)

    def items(self) -> list[Item]:
        parsed = self._parsed
        return [
            *parsed("/proc/stat", procfs.cpu),
            *parsed("/proc/loadavg", procfs.run_queue),
            *parsed("/proc/meminfo", procfs.memory),
            *parsed("/proc/diskstats", lambda text: procfs.disks(text, self._disks)),
            *parsed("/proc/net/dev", lambda text: procfs.network(text, self._interfaces)),
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
            trips = []
            for point in range(_TRIPS_MAX):
                what = self._read(f"{folder}/trip_point_{point}_type")
                if what is None:
                    break
                at = f"{folder}/trip_point_{point}_temp"
                trips += self._parsed(at, partial(_trip, what))
            name = f"{kind.strip().replace('-', '_')}_{number}"
            yield name, f"{folder}/temp", min((t for t in trips if t), default=None)

    def _chips(self) -> Iterator[tuple[str, str, float | None]]:
        for number in range(_HWMON_MAX):
            folder = f"/sys/class/hwmon/hwmon{number}"
            kind = (self._read(f"{folder}/name") or "").strip()
            if kind in ("coretemp", "k10temp", "nvme", "drivetemp"):
                path = f"{folder}/temp1_crit"
                limits = self._parsed(path, partial(_trip, "critical"))
                yield f"{kind}_{number}", f"{folder}/temp1_input", limits[0] if limits else None

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
        for path in paths:
            yield from self._parsed(path, partial(procfs.cgroup, part=path))
        amounts = [amount for path in paths if (amount := self._quota(path)) is not None]
        if amounts:
            yield Item("cgroup_quota", min(amounts), "CPUs")

    def _quota(self, stat: str) -> float | None:
        """The number of CPUs that the group of a cpu.stat may use; None: no limit."""
        folder = stat.removesuffix("/cpu.stat")
        read = self._read
        cfs = read(f"{folder}/cpu.cfs_quota_us"), read(f"{folder}/cpu.cfs_period_us")
        with contextlib.suppress(ValueError, ZeroDivisionError):
            return procfs.quota(read(f"{folder}/cpu.max"), cfs)
        return None

    def _clocks(self) -> list[Item]:
        texts = [text for path in self._frequencies if (text := self._read(path)) is not None]
        with contextlib.suppress(ValueError):
            return list(procfs.frequency(texts))
        return []


def _trip(kind: str, text: str) -> list[float | None]:
    return [procfs.trip(kind, text)]


def _between(before: tuple[float, list[Item]], at_s: float, items: list[Item]) -> HostSample | None:
    gauges = procfs.changes(before[1], items, at_s - before[0])
    return HostSample(at_s, tuple(gauges)) if gauges else None


class HostSensor(Struct):
    """Collects samples of a source until it is closed. cost_s: CPU time of this so far."""

    source: HostSource
    cost_s: float = 0.0
    _samples: list[HostSample] = field(default_factory=list)
    _span_s: tuple[float, float] | None = None
    _offset: float | None = None
    _last: int | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None
    _start_s: float = 0.0

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
                pairs = ((item, float(f"{item.value:.5g}")) for item in each.items)
                rows += [Sample(second, SOURCE, i.name, value, i.unit) for i, value in pairs]
                self._last = second
        return rows

    def notes(self) -> list[Finding]:
        """Notes for the trial: unreadable values, and the cost of sampling."""
        with self._lock:
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


@contextlib.contextmanager
def sensing(source: HostSource) -> Iterator[HostSensor]:
    """A sensor before its beginning. It raises nothing: errors are in its notes."""
    sensor = HostSensor(source)
    try:
        yield sensor
    finally:
        sensor.close()


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
        """The text of a file; None where it cannot be read."""
        if path == KERNEL_LOG:
            return self._kernel_log()
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return self._pi() if path == PI_THROTTLED and self._vcgencmd else None
        try:
            text = b""
            # The kernel gives long files of /proc by the page.
            while len(text) < _BYTES_MAX and (part := os.read(file, _BYTES_MAX - len(text))):
                text += part
            return text.decode(errors="replace")
        except OSError:
            return None
        finally:
            os.close(file)

    def _kernel_log(self) -> str | None:
        """The number of errors in it since the sensor began; each read returns one record."""
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
    notes = [_note(each) for each in document.get("notes", [])[:_NOTES_MAX]]
    at_s, time_s = float(document["monotonic"]), float(document["time"])
    if not (math.isfinite(at_s) and math.isfinite(time_s)):
        raise ValueError(text)
    return at_s, time_s, tuple(items), notes


def _note(document: Mapping[str, Any]) -> Finding:
    values = list(document["values"].items())[:_NOTES_MAX]
    texts = {str(key)[:_NAME_MAX]: str(value)[:TEXT_MAX] for key, value in values}
    return Finding(str(document["name"])[:_NAME_MAX], texts)


def postmasters() -> list[int]:
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = procfs.postgres_process((folder / "stat").read_text())
            parents[int(folder.name)] = int(fields[1])
    return sorted(pid for pid, parent in parents.items() if parent not in parents)


def here(pids: Iterable[int]) -> HostSource:
    """Samples of this machine. pids: of the server, whose CPUs may be limited."""
    return _Here([f"/proc/{pid}/cgroup" for pid in pids])


class _Here(HostSource):
    def __init__(self, cgroups: Sequence[str]) -> None:
        self._reader = Local()
        super().__init__(self._reader.notes)
        self._cgroups = cgroups

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
                if before is not None and (sample := _between(before, at_s, items)):
                    yield sample
                before = at_s, items
                if ended.wait(PERIOD_S - (time.monotonic() - start_s) % PERIOD_S):
                    return
