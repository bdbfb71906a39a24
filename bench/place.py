"""Where it happens: a managed server with pgbench's data, and what of this machine may be used.

Everything runs on the same CPUs, two where there are more: the cost of a load generator is what it
takes from its server.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from pgpaces.core.errors import PgpacesError
from pgpaces.monitor import machine
from pgpaces.server import binaries, managed_server
from pgpaces.server.folder import Transport
from pgpaces.spec.load import TrialPlan

SCALE = 10
CPUS = 2
CONNECTIONS = 1000
# The disk is no part of the comparison, and nothing of the server's own comes in between.
SETTINGS = {
    "fsync": "off",
    "shared_buffers": "256MB",
    "max_connections": str(CONNECTIONS + 100),
    "autovacuum": "off",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}


@dataclass(frozen=True)
class Place:
    """A server with the data, and a folder for what the programs write."""

    server: managed_server.Server
    home: Path

    def environment(self, transport: Transport = Transport.SOCKET) -> dict[str, str]:
        """The way to the data, for every program."""
        return {**environment(self.home), **self.server.environment(transport)}

    def program(self, name: str) -> str:
        """The path of a PostgreSQL program."""
        return str(self.server.bin / name)

    @cached_property
    def pgbench_version(self) -> str:
        """What pgbench calls itself."""
        command = [self.program("pgbench"), "--version"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def environment(home: Path) -> dict[str, str]:
    """For children: no PG* of the caller's, a store of their own, the same hashes in each run."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    return {**kept, "PGPACES_HOME": str(home), "PYTHONHASHSEED": "0"}


@contextlib.contextmanager
def secured(found: Place) -> Iterator[dict[str, str]]:
    """The way to a second server with the same data, which is by TCP with verified TLS."""
    installation = _installation(str(found.server.major))
    spec = managed_server.ServerSpec(
        installation, name="secured", settings=SETTINGS, tcp=True, tls=True
    )
    with managed_server.start(spec) as server:
        way = {**environment(found.home), **server.environment(Transport.TCP)}
        command = [found.program("pgbench"), "-i", "-q", "-s", str(SCALE)]
        subprocess.run(command, check=True, capture_output=True, env=way)
        yield way


@contextlib.contextmanager
def place(version: str | None) -> Iterator[Place]:
    """A server with data of scale 10, and nothing of it afterwards."""
    home = Path(tempfile.mkdtemp(prefix="pgpaces-bench-", dir="/tmp"))
    home.chmod(0o755)
    os.environ["PGPACES_HOME"] = str(home)
    try:
        spec = managed_server.ServerSpec(
            _installation(version), name="bench", settings=SETTINGS, tcp=True
        )
        with managed_server.start(spec) as server:
            found = Place(server, home)
            command = [found.program("pgbench"), "-i", "-q", "-s", str(SCALE)]
            subprocess.run(command, check=True, capture_output=True, env=found.environment())
            yield found
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _installation(version: str | None) -> binaries.Installation:
    """The one asked for; else 15, whose pgbench the goals are of; else the default."""
    if version is not None:
        return binaries.find(version)
    try:
        return binaries.find("15")
    except PgpacesError:
        return binaries.find(None)


def confine() -> None:
    """Leaves us and our children the first two CPUs, and all the open files there may be."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPUS])


def files_max() -> int:
    """How many files a process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def takes_backend() -> bool:
    """Whether the engine that is installed lets one choose how it waits."""
    return "poll" in TrialPlan.__struct_fields__


def facts(found: Place) -> dict[str, Any]:
    """What must be known of the machine to read the figures."""
    known = msgspec.structs.asdict(machine.facts())
    unneeded = ("hostname", "data_disk", "costs")
    return {
        **{name: value for name, value in known.items() if value and name not in unneeded},
        "cpus used": len(os.sched_getaffinity(0)),
        "load before": round(os.getloadavg()[0], 2),
        "libc": " ".join(platform.libc_ver()),
        "server": found.server.version,
        "pgbench": found.pgbench_version,
    }
