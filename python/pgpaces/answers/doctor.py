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
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path

from msgspec import Struct, to_builtins

from pgpaces.core import home
from pgpaces.core.errors import StoreError
from pgpaces.core.findings import Finding, finding
from pgpaces.core.messages import message, said
from pgpaces.core.units import memory_text
from pgpaces.monitor import machine
from pgpaces.monitor.linux import Probe
from pgpaces.server import binaries, packages
from pgpaces.show.screen import Screen
from pgpaces.show.section import Headline, Next, Section
from pgpaces.store import address

# Clock sources that are read without a system call.
_FAST_CLOCKS = ("tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page")
_TIMEOUT_S = 5
# The file descriptors that the generator needs in addition to one for each client.
_FILES_OWN = 64
_FILES_FEW = 1024
_PARTS = Path(__file__).with_name("doctor.toml")
# The state of a part that has no version.
_PRESENT = "yes"
_MISSING_MAX = 2
SCREEN = Screen(
    first=(
        *("pgpaces", "PostgreSQL", "can fetch", "programs", "libraries", "monitors"),
        *("machine", "data directory", "store", "missing"),
    )
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

    @property
    def shown(self) -> str:
        alone = self.state == _PRESENT or self.group == "libraries"
        return self.name if alone else f"{self.name} {self.state}".strip()


def diagnose() -> tuple[Part, ...]:
    known = tomllib.loads(_PARTS.read_text("utf-8"))
    items = {item.name: item.value for item in Probe(["self"]).items()}

    def monitor(name: str, prefix: str, gives: str) -> Part:
        seen = any(each.startswith(prefix) for each in items)
        return Part("monitors", name, _PRESENT if seen else "", gives)

    return (
        *_itself(),
        *_postgresql(known["embedded"]),
        *(_program(**each) for each in known["programs"]),
        *(_library(**each) for each in known["libraries"]),
        *(monitor(**each) for each in known["monitors"]),
        *_machine(items.get("cgroup_quota")),
        *_storage(),
    )


def section(parts: Sequence[Part]) -> Section:
    present = [each for each in parts if each.state]
    # Those that pgpaces cannot work without are first.
    missing = sorted((each for each in parts if not each.state), key=lambda each: not each.needed)
    works = not any(each.needed for each in missing)
    lacks = []
    for each in missing:
        why = list(filter(None, (each.gives, each.remedy)))
        lacks.append(said("doctor-missing", part=each.name or each.group, why=why))
    groups = groupby(present, lambda each: each.group)
    has = [(name, said("doctor-has", parts=[each.shown for each in own])) for name, own in groups]
    top = Headline("PASS", "pass", message("doctor-works", missing=len(missing)))
    return SCREEN.section(
        top if works else Headline("FAIL", "fail", str(lacks[0])),
        [*has, *(("missing", each) for each in lacks[:_MISSING_MAX])],
        key="doctor",
        title=message("doctor-title"),
        findings=tuple(_findings(parts)),
        steps=[Next("pgpaces doctor --json", "next-parts")] if len(missing) > _MISSING_MAX else (),
        value=parts,
        document=lambda: {"works": works, "parts": to_builtins(parts)},
    )


def _findings(parts: Sequence[Part]) -> Iterator[Finding]:
    states = {each.name: each.state for each in parts}
    if (clock := states.get("clock source")) and clock not in _FAST_CLOCKS:
        yield finding("clock-source-slow", clock=clock)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft <= _FILES_FEW:
        yield finding("few-open-files", files=soft, clients=soft - _FILES_OWN)


def _itself() -> Iterator[Part]:
    group = "pgpaces"
    own, missing = message("version-unknown"), ""
    with contextlib.suppress(PackageNotFoundError):
        own = version("pgpaces")
    yield Part(group, "", own)
    yield Part(group, "Python", platform.python_version())
    yield Part(group, "SQLite", sqlite3.sqlite_version)
    try:
        importlib.import_module("pgpaces.load.engine")
    except ImportError as error:
        missing = message("load-engine-missing", why=str(error))
    yield Part(group, "load engine", "" if missing else _PRESENT, missing, needed=True)


def _postgresql(embedded: dict[str, str]) -> Iterator[Part]:
    group = "PostgreSQL"
    here = binaries.installations()
    for each in here:
        yield Part(group, each.version, f"({each.source})")
    if not any(each.source is binaries.Source.EMBEDDED for each in here):
        yield Part(group, embedded["name"], "", embedded["gives"], embedded["remedy"])
    for registry, is_here in packages.available():
        series = f"{registry.series[0]} to {registry.series[-1]}"
        gives = message("registry-gives", series=series, source=registry.source)
        yield Part("can fetch", registry.tool, series if is_here else "", gives)


def _program(name: str, package: str, gives: str) -> Part:
    remedy = message("doctor-apt", package=package)
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    if (program := shutil.which(name, path=path)) is None:
        return Part("programs", name, "", gives, remedy)
    state = _PRESENT
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        process = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
        if (match := re.search(r"\d+(\.\d+)+", process.stdout + process.stderr)) is not None:
            state = match[0]
    return Part("programs", name, state, gives, remedy)


def _library(*, module: str, package: str, install: str, gives: str) -> Part:
    installed = ""
    with contextlib.suppress(PackageNotFoundError):
        installed = version(package) if importlib.util.find_spec(module) else ""
    return Part("libraries", package, installed, gives, message("doctor-pip", package=install))


def _machine(quota: float | None) -> Iterator[Part]:
    group = "machine"
    facts = machine.facts()
    cpus = message("doctor-cpus", cpus=facts.cpus or 1, architecture=platform.machine())
    yield Part(group, "", cpus)
    if memory := facts.memory_bytes:
        yield Part(group, "", memory_text(memory))
    yield Part(group, platform.system(), platform.release())
    yield Part(group, "clock source", machine.clock_source() or "unknown")
    unlimited = {resource.RLIM_INFINITY: "any number"}
    soft, hard = (unlimited.get(each, each) for each in resource.getrlimit(resource.RLIMIT_NOFILE))
    yield Part(group, "open files", message("doctor-files", soft=soft, hard=hard))
    yield Part(group, "CPU quota", "none" if quota is None else f"{quota:g} CPUs")
    why = machine.io_uring()
    yield Part(group, "io_uring", "" if why else _PRESENT, message("io-uring-gives"), why or "")


def _storage() -> Iterator[Part]:
    """The data directory and the store. Neither is created."""
    folder = home.home()
    above = next(each for each in (folder, *folder.parents) if home.is_there(each))
    room = message("doctor-free", folder=folder, bytes=shutil.disk_usage(above).free)
    usable = os.access(above, os.W_OK | os.X_OK)
    gives = message("home-not-writable", path=above)
    yield Part("data directory", "", room if usable else "", gives, needed=True)
    try:
        place = address.default()
        if not isinstance(place, Path):
            shown = address.default_shown()
        elif place.exists():
            shown = message("doctor-store", store=place, bytes=address.size_bytes(place))
        else:
            shown = message("store-not-created", store=place)
        yield Part("store", "", shown)
    except (StoreError, OSError) as error:
        yield Part("store", "", "", str(error), message("store-remedy"), needed=True)
