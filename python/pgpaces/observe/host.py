"""Looks once a second at the machine that a server runs on, while somebody else loads it.

A thread of our own. Counters become rates by their difference between two looks. What cannot be
read is a gap, never a zero, and what more rights would show is said once. Knows nothing of the
load. Reads by a function from a path to a text: `Local` for this machine; remote.py has others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct, field

from pgpaces.errors import PgpacesError
from pgpaces.observe import procfs
from pgpaces.observe.procfs import Item
from pgpaces.result import Sample

PERIOD_S = 1.0
SOURCE = "host"
Read = Callable[[str], str | None]
T = TypeVar("T")

KERNEL_LOG = "/dev/kmsg"
PI_THROTTLED = "/sys/devices/platform/soc/soc:firmware/get_throttled"
_BYTES_MAX = 1 << 16
_PATIENCE_S = 1.0
_VCGENCMD_EVERY_S = 10.0
# Of what a machine may have hundreds of, so many are looked at.
_CPUS_MAX, _ZONES_MAX, _HWMON_MAX, _TRIPS_MAX, _DISKS_MAX = 8, 16, 8, 8, 16


class HostSample(Struct, frozen=True):
    """What was seen, as gauges, of the seconds that end at `at_s` of a monotonic clock."""

    at_s: float
    items: tuple[Item, ...]


class HostSource(Protocol):
    """Where looks come from. notes: what cannot be seen, and why."""

    @property
    def notes(self) -> dict[str, None]:
        """Texts, in order."""

    def looks(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        """Looks at every full second from start_s on, until it is ended; may hang."""

    def behind_s(self) -> float:
        """What makes a time of our monotonic clock of `at_s`, added to it."""

    def close(self) -> None:
        """No more looks."""


class Probe:
    """What there is to be read on a machine, and all of it at once.

    cgroups: /proc/PID/cgroup of processes of the server. Some files asked for may not be there.
    """

    def __init__(self, read: Read, cgroups: Sequence[str] = ()) -> None:
        self._read = read
        self._cgroups = cgroups
        self._stats: dict[str, tuple[str, ...]] = {}
        self._mounts = list(self._parsed("/proc/self/mountinfo", procfs.cgroup_mounts))
        self._disks = list(self._whole_disks())
        self._interfaces = list(self._real_interfaces())
        self._zones = [*self._thermal_zones(), *self._chips()]
        self._frequencies = list(self._policies())
        self._errors = list(self._error_counts())

    def items(self) -> list[Item]:
        """Everything that can be read now."""
        parsed = self._parsed
        return [
            *parsed("/proc/stat", procfs.cpu),
            *parsed("/proc/loadavg", procfs.run_queue),
            *parsed("/proc/meminfo", procfs.memory),
            *parsed("/proc/diskstats", lambda text: procfs.disks(text, self._disks)),
            *parsed("/proc/net/dev", lambda text: procfs.network(text, self._interfaces)),
            *self._pressures(),
            *self._quotas(),
            *self._clocks(),
            *(item for zone in self._zones for item in self._temperature(*zone)),
            *parsed(PI_THROTTLED, procfs.pi_throttled),
            *(item for path in self._errors for item in self._error_count(path)),
            *parsed(KERNEL_LOG, lambda text: procfs.error_count(text, KERNEL_LOG)),
        ]

    def _parsed(self, path: str, parser: Callable[[str], Iterable[T]]) -> list[T]:
        """What a parser makes of a file; nothing of one that is not there or says other things."""
        text = self._read(path)
        try:
            return [] if text is None else list(parser(text))
        except (ValueError, IndexError, KeyError):
            return []

    def _whole_disks(self) -> Iterator[str]:
        """Devices without their partitions, and without those that nothing ever used."""
        names = self._parsed("/proc/diskstats", procfs.disk_names)
        whole = (n for n in names if self._read(f"/sys/block/{n}/stat") is not None)
        for _, name in zip(range(_DISKS_MAX), whole, strict=False):
            yield name

    def _real_interfaces(self) -> list[str]:
        """Those with a device, so that nothing is counted twice on its way through a bridge."""
        names = self._parsed("/proc/net/dev", procfs.interfaces)
        devices = "/sys/class/net/{}/device/uevent"
        real = [name for name in names if self._read(devices.format(name)) is not None]
        return real or names

    def _thermal_zones(self) -> Iterator[tuple[str, str, float | None]]:
        """Name, path and lowest trip point of each."""
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
        """Of processors and disks that are no thermal zone."""
        for number in range(_HWMON_MAX):
            folder = f"/sys/class/hwmon/hwmon{number}"
            kind = (self._read(f"{folder}/name") or "").strip()
            if kind in ("coretemp", "k10temp", "nvme", "drivetemp"):
                path = f"{folder}/temp1_crit"
                limits = self._parsed(path, partial(_trip, "critical"))
                yield f"{kind}_{number}", f"{folder}/temp1_input", limits[0] if limits else None

    def _policies(self) -> Iterator[str]:
        """Where frequencies are: of CPUs that change theirs together, else of some CPUs."""
        for number in range(_CPUS_MAX):
            path = f"/sys/devices/system/cpu/cpu{number}/cpufreq/scaling_cur_freq"
            if self._read(path) is not None:
                yield path

    def _error_counts(self) -> Iterator[str]:
        for name in self._parsed("/proc/diskstats", procfs.disk_names):
            for path in (
                f"/sys/block/{name}/device/ioerr_cnt",
                f"/sys/fs/ext4/{name}/errors_count",
            ):
                if self._read(path) is not None:
                    yield path

    def _error_count(self, path: str) -> list[Item]:
        return self._parsed(path, lambda text: procfs.error_count(text, path))

    def _pressures(self) -> Iterator[Item]:
        for name in ("cpu", "io", "memory"):
            parser = partial(procfs.pressure, resource=name)
            yield from self._parsed(f"/proc/pressure/{name}", parser)

    def _quotas(self) -> Iterator[Item]:
        """Of the server's groups as they are now: processes may be moved to others."""
        paths: dict[str, None] = {}
        for file in self._cgroups:
            text = self._read(file)
            if text is None:
                continue
            if text not in self._stats:
                found = self._parsed(file, lambda text: procfs.cgroup_stats(text, self._mounts))
                self._stats[text] = tuple(p for p in found if self._read(p) is not None)
            paths |= dict.fromkeys(self._stats[text])
        for path in paths:
            yield from self._parsed(path, partial(procfs.cgroup, part=path))
        amounts = [amount for path in paths if (amount := self._quota(path)) is not None]
        if amounts:
            yield Item("cgroup_quota", min(amounts), "CPUs")

    def _quota(self, stat: str) -> float | None:
        """How many CPUs the group of a cpu.stat may use; None: as many as there are."""
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

    def _temperature(self, name: str, path: str, trip_c: float | None) -> list[Item]:
        return self._parsed(path, lambda text: procfs.temperature(text, name, trip_c))


class Polled:
    """Looks by a probe. make: gives one; it and its reading may raise PgpacesError: a gap."""

    def __init__(self, make: Callable[[], Probe], notes: dict[str, None] | None = None) -> None:
        self.notes = {} if notes is None else notes
        self._make = make

    def looks(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        """See HostSource."""
        probe: Probe | None = None
        before: tuple[float, list[Item]] | None = None
        while True:
            try:
                probe = probe or self._make()
                items = probe.items()
            except PgpacesError as error:
                self.notes[f"host: {error.message}"] = None
            else:
                at_s = time.monotonic()
                if not items:
                    self.notes.setdefault("host: nothing can be read of the machine's /proc")
                if before is not None and (found := _between(before, at_s, items)):
                    yield found
                before = at_s, items
            ahead_s = PERIOD_S - (time.monotonic() - start_s) % PERIOD_S
            if ended.wait(ahead_s):
                return

    def behind_s(self) -> float:
        """See HostSource: it is our clock."""
        return 0.0

    def close(self) -> None:
        """See HostSource."""


def _trip(kind: str, text: str) -> list[float | None]:
    return [procfs.trip(kind, text)]


def _between(before: tuple[float, list[Item]], at_s: float, items: list[Item]) -> HostSample | None:
    found = procfs.changes(before[1], items, at_s - before[0])
    return HostSample(at_s, tuple(found)) if found else None


class HostSensor(Struct):
    """Looks by a source until it is closed. cost_s: CPU time that looking took so far."""

    source: HostSource
    cost_s: float = 0.0
    _looks: list[HostSample] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None
    _start_s: float = 0.0

    def begin(self, start_s: float) -> None:
        """Looks from now on, in a thread that ends with the program.

        start_s: when the measured part begins, by time.monotonic().
        """
        self._start_s = start_s
        self._thread = threading.Thread(target=self._go_on, name="pgpaces-host", daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        for look in self.source.looks(self._ended, self._start_s):
            with self._lock:
                self._looks.append(look)
                self.cost_s = time.thread_time()

    def samples(self) -> tuple[Sample, ...]:
        """What was seen, by second; those of the warm-up are below 0."""
        with self._lock:
            return samples(self._looks, self._start_s - self.source.behind_s())

    def notes(self) -> list[str]:
        """What a trial says of it: what cannot be seen, and what seeing took."""
        with self._lock:
            found = list(self.source.notes)
            if self._looks:
                took_s = self._looks[-1].at_s - self._looks[0].at_s + PERIOD_S
                share = 100 * self.cost_s / took_s
                found.append(f"host: looking at it took {share:.1f} % of one core here")
            return found

    def close(self) -> bool:
        """Looks no more; false if the last look hangs."""
        self._ended.set()
        self.source.close()
        if self._thread is None:
            return True
        self._thread.join(_PATIENCE_S)
        return not self._thread.is_alive()


@contextlib.contextmanager
def sensing(source: HostSource) -> Iterator[HostSensor]:
    """A sensor, not begun yet. It raises nothing: what cannot be seen is in its notes."""
    made = HostSensor(source)
    try:
        yield made
    finally:
        made.close()


def samples(looks: Sequence[HostSample], start_s: float) -> tuple[Sample, ...]:
    """What looks say of seconds: each belongs to the one that ends nearest to it.

    Looks of another machine's full seconds are all moved by what the first of them is away from
    ours, so that none falls now into this second and now into that. Of two in one second the later
    one is left out.
    """
    found: list[Sample] = []
    away: float | None = None
    last: int | None = None
    for look in looks:
        at = (look.at_s - start_s) / PERIOD_S
        away = at - round(at) if away is None else away
        second = round(at - away) - 1
        if last is None or second > last:
            found += [Sample(second, SOURCE, i.name, _short(i.value), i.unit) for i in look.items]
            last = second
    return tuple(found)


def _short(value: float) -> float:
    """No more digits than a sensor has."""
    return float(f"{value:.5g}")


class Local:
    """Reads the files of this machine. notes: what more rights would show."""

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}
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
            text = (
                "host: the kernel's log is hidden from us: I/O errors are those that disks and file"
                " systems count themselves (kernel.dmesg_restrict = 0, or CAP_SYSLOG, shows more)"
            )
            self.notes[text] = None

    def read(self, path: str) -> str | None:
        """The text of a file; None where it cannot be read."""
        if path == KERNEL_LOG:
            return self._kernel_log()
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return self._pi() if path == PI_THROTTLED and self._vcgencmd else None
        try:
            return os.read(file, _BYTES_MAX).decode(errors="replace")
        except OSError:
            return None
        finally:
            os.close(file)

    def _kernel_log(self) -> str | None:
        """How many errors it has told of since we look; every read gives one of its records."""
        if self._log is None:
            return None
        while True:
            try:
                record = os.read(self._log, 8192).decode(errors="replace")
            except BrokenPipeError:  # records were overwritten before we saw them
                continue
            except OSError:
                return str(self._errors)
            self._errors += procfs.kernel_errors(record.split("\n", 1)[0])

    def _pi(self) -> str | None:
        """By its own program where the kernel does not tell; seldom, since it has to be started."""
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
        """Reads no more."""
        if self._log is not None:
            os.close(self._log)
            self._log = None


def postmasters() -> list[int]:
    """The PostgreSQL servers that run on this machine, as far as we see them."""
    found: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            before, _, behind = (folder / "stat").read_text().rpartition(")")
            if before.split("(", 1)[1] in ("postgres", "postmaster"):
                found[int(folder.name)] = int(behind.split()[1])
    return sorted(pid for pid, parent in found.items() if parent not in found)


def here(pids: Iterable[int]) -> Polled:
    """Looks at this machine. pids: of the server, whose share of the CPUs may be limited."""
    reader = Local()
    cgroups = [f"/proc/{pid}/cgroup" for pid in pids]
    return _Here(reader, cgroups)


class _Here(Polled):
    def __init__(self, reader: Local, cgroups: Sequence[str]) -> None:
        super().__init__(lambda: Probe(reader.read, cgroups), reader.notes)
        self._reader = reader

    def looks(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        """See HostSource. The reader is closed by the thread that reads."""
        with contextlib.closing(self._reader):
            yield from super().looks(ended, start_s)
