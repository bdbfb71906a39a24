"""Samples the machine of a server once a second, while a load runs.

Counters become rates by their difference between two readings. An unreadable value is a gap, never
a zero. remote.py has sources for other machines.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
import psutil
from msgspec import Meta, Struct
from msgspec.structs import replace

from pgpaces.analysis import throttle
from pgpaces.core.findings import Finding, Notes, finding
from pgpaces.core.series import Sample, Series
from pgpaces.monitor.linux import Item, Probe, changes

PERIOD_S = 1.0
SOURCE = "host"
# The source of samples of the generator's machine, if it is not the server's, and their names.
GENERATOR = "generator"
OF_GENERATOR = ("cpu_busy", "cpu_iowait", "cpu_steal")
TEXT_MAX = 200
_SERVERS = ("postgres", "postmaster")
_PATIENCE_S = 1.0
_NAME_MAX, _VALUES_MAX, _NOTES_MAX = 80, 500, 5
_Name = Annotated[str, Meta(max_length=_NAME_MAX)]


class HostSample(Struct, frozen=True):
    """Gauges of the time since the previous sample. at_s: its end, by a monotonic clock."""

    at_s: float
    items: tuple[Item, ...]


class HostSource:
    """A source of samples. notes: what it cannot read, and why, in order."""

    def __init__(self) -> None:
        self.notes = Notes()

    def observe(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        """Samples at every full second from start_s until `ended`; may hang."""
        raise NotImplementedError

    def clock_lag_s(self) -> float:
        """This machine's monotonic clock minus that of `at_s`."""
        return 0.0

    def close(self) -> None:
        """Takes no more samples."""


class HostMonitor:
    """Collects samples of a source until it is closed.

    node: of the server on it, if it is not the primary. generator: no server is on it, and only its
    CPUs matter.
    """

    def __init__(self, source: HostSource, node: str = "", *, generator: bool = False) -> None:
        self.source, self.node = source, node
        self._name = GENERATOR if generator else f"{node}/{SOURCE}".lstrip("/")
        self._generator = generator
        self._samples: list[HostSample] = []
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
        return [] if self._generator else [*self.source.notes]

    def close(self) -> bool:
        """Stops sampling; false if the last reading hangs."""
        self._ended.set()
        self.source.close()
        if self._thread is None:
            return True
        self._thread.join(_PATIENCE_S)
        return not self._thread.is_alive()


class ThisMachine(HostSource):
    """Samples of this machine. pids: of the server, whose CPUs may be limited."""

    def __init__(self, pids: Iterable[int] = ()) -> None:
        super().__init__()
        self._pids = tuple(pids)

    def observe(self, ended: threading.Event, start_s: float) -> Iterator[HostSample]:
        probe = Probe(self._pids)
        before: tuple[float, list[Item]] | None = None
        while True:
            items, at_s = probe.items(), time.monotonic()
            if not items:
                self.notes.add(finding("proc-unreadable"))
                yield HostSample(at_s, ())  # so that its listener learns the reason
            if before is not None and (gauges := changes(before[1], items, at_s - before[0])):
                yield HostSample(at_s, tuple(gauges))
            before = at_s, items
            if ended.wait(PERIOD_S - (time.monotonic() - start_s) % PERIOD_S):
                return


class _Line(Struct, omit_defaults=True):
    """A line of `pgpaces observe`. It may come from another machine, so it is not trusted."""

    time: float
    monotonic: float
    values: Annotated[Mapping[_Name, tuple[float | None, _Name]], Meta(max_length=_VALUES_MAX)]
    notes: Annotated[list[Finding], Meta(max_length=_NOTES_MAX)] = []


def line(sample: HostSample, notes: Sequence[Finding] = ()) -> bytes:
    """A sample as a line of `pgpaces observe`. notes: what it cannot read."""
    at = time.time() - (time.monotonic() - sample.at_s)
    kept = [each for each in sample.items if len(each.name) <= _NAME_MAX][:_VALUES_MAX]
    values = {i.name: (float(f"{i.value:.5g}"), i.unit) for i in kept}
    document = _Line(round(at, 3), round(sample.at_s, 4), values, list(notes)[:_NOTES_MAX])
    return msgspec.json.encode(document) + b"\n"


def parsed(text: bytes) -> tuple[float, tuple[Item, ...], list[Finding]]:
    """A line of `pgpaces observe`: the monotonic clock in s, items, notes.

    Raises ValueError.
    """
    document = msgspec.json.decode(text, type=_Line)
    items = (Item(k, v, unit) for k, (v, unit) in document.values.items() if v is not None)
    return document.monotonic, tuple(items), document.notes


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
