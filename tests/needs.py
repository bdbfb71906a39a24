"""What tests need of the machine they run on. A test is left out if the machine lacks it.

`@needs("fio")` marks a test. A fixture calls `check("fio")`, or `lacking("IPv6 on loopback")` if
only an attempt can tell. No test is left out in any other way. tests/left_out.py counts these
tests. With CI=true the run fails if a test is left out and NEEDS has no excuse for it.
"""

import ctypes
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from pgpaces.load.engine import slice_attributes
from pgpaces.monitor import machine

PG15_BIN = Path("/usr/lib/postgresql/15/bin")
_POSTGIS = Path("/usr/share/postgresql/15/extension/postgis.control")
_CONTAINER = "a container may not do this, and CI may run in one"
_NO_PACKAGE = "not a package of Debian"


class Need(NamedTuple):
    """What a test may need.

    here: whether this machine has it; None if only an attempt can tell.
    package: the package of Debian to install.
    excuse: why a machine of CI may lack it; a machine of CI without an excuse has to have it.
    """

    here: Callable[[], bool] | None = None
    package: str = ""
    excuse: str = ""


# Debian keeps some programs outside an ordinary user's PATH.
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def found(program: str) -> str | None:
    """The path of a program."""
    return shutil.which(program, path=_PATH)


def chromium() -> str | None:
    """The path of Chromium: preferably the one without windows, which takes half the CPU."""
    return found("chromium-headless-shell") or found("chromium")


def faketime(library: str = "libfaketime") -> str:
    """The path of a library of faketime; empty if it is not installed."""
    places = [*Path("/usr/lib").glob("*/faketime"), Path("/usr/lib/faketime")]
    paths = [str(place / f"{library}.so.1") for place in places]
    return next(filter(os.path.exists, paths), "")


def nss_wrapper() -> str:
    """The path of a library that reads a file of ours as /etc/hosts; empty if there is none."""
    return next(map(str, Path("/usr/lib").glob("*/libnss_wrapper.so")), "")


def _has_slices() -> bool:
    own = slice_attributes()
    return own is not None and own.runtime > 0


def _has_libxml2() -> bool:
    try:
        ctypes.CDLL("libxml2.so.2")
    except OSError:
        return False
    return True


def _program(name: str, package: str = "", excuse: str = "") -> Need:
    return Need(lambda: found(name) is not None, package or name, excuse)


NEEDS = {
    # `.ci/packages` installs these.
    "PostgreSQL 15": Need((PG15_BIN / "initdb").exists, "postgresql-15"),
    "PostGIS": Need(_POSTGIS.exists, "postgresql-15-postgis-3"),
    "osm2pgsql": _program("osm2pgsql"),
    "pgbouncer": _program("pgbouncer"),
    "pgpool": _program("pgpool", "pgpool2"),
    "chromium": Need(lambda: chromium() is not None, "chromium-headless-shell"),
    "fio": _program("fio"),
    "gocryptfs": _program("gocryptfs"),
    "openssl": _program("openssl"),
    "prometheus": _program("prometheus"),
    "libfaketime": Need(lambda: faketime() != "", "libfaketime"),
    "libnss-wrapper": Need(lambda: nss_wrapper() != "", "libnss-wrapper"),
    # PostgreSQL 15 brings it, and the packages of PostgreSQL from PyPI use it.
    "libxml2": Need(_has_libxml2, "libxml2"),
    # It does not install these.
    "bash": _program("bash"),
    "ldd": _program("ldd", "libc-bin"),
    "mount": _program("mount"),
    "mkfs.ext4 and e4crypt": Need(
        lambda: None not in (found("mkfs.ext4"), found("e4crypt")), "e2fsprogs"
    ),
    "ip": _program("ip", "iproute2", "only slow tests use it"),
    "sshd": _program("sshd", "openssh-server", "its package starts a server for other machines"),
    "actionlint": Need(lambda: found("actionlint") is not None, "", _NO_PACKAGE),
    # Downloads.
    "the map of Helsinki": Need(),
    "the registry pypi": Need(),
    "the registry maven": Need(None, "maven", "only slow tests use it"),
    # The user.
    "root": Need(lambda: os.geteuid() == 0),
    "an ordinary user": Need(lambda: os.geteuid() != 0, "", "CI runs as root"),
    "a Python that every user may run": Need(),
    # The system.
    "Linux": Need(lambda: sys.platform == "linux"),
    "two CPUs": Need(lambda: (os.cpu_count() or 1) > 1, "", "depends on the machine"),
    "io_uring": Need(lambda: not machine.io_uring()),
    "IPv6 on loopback": Need(None, "", _CONTAINER),
    "slices of tasks in the kernel": Need(_has_slices, "", "Linux has them since 6.12"),
    "a temporary folder on a disk": Need(None, "", "a container has an overlay there"),
    "/dev/full": Need(Path("/dev/full").exists),
    "/dev/fuse": Need(Path("/dev/fuse").exists, "", _CONTAINER),
    "/dev/net/tun": Need(Path("/dev/net/tun").exists, "", _CONTAINER),
    "tmpfs at /dev/shm": Need(),
    "the right to mount": Need(None, "", _CONTAINER),
    "file encryption in the kernel": Need(None, "", "a kernel is built with or without it"),
    "network namespaces": Need(None, "", _CONTAINER),
    "a cgroup that we may limit": Need(None, "", _CONTAINER),
    "a cgroup that we may freeze": Need(None, "", _CONTAINER),
    "a disk that the kernel can limit": Need(None, "", _CONTAINER),
    "a machine with less to do": Need(None, "", "depends on what else the machine does"),
}


# A skip for another reason is a mistake.
REASON = "needs "


def needs(*names: str) -> pytest.MarkDecorator:
    """Leave a test out if this machine lacks one of these."""
    assert NEEDS.keys() >= set(names), names
    return pytest.mark.needs(*names)


def check(*names: str) -> None:
    """Leave the running test out if this machine lacks one of these."""
    for name in names:
        if not _is_here(name):
            lacking(name)


@cache
def _is_here(name: str) -> bool:
    here = NEEDS[name].here
    assert here is not None, f"only an attempt can tell whether this machine has {name}"
    return here()


def lacking(name: str, why: str = "") -> NoReturn:
    """Leave the running test out, because an attempt showed that this machine lacks something."""
    assert name in NEEDS, name
    pytest.skip(f"{REASON}{name}{why and ': '}{why}")
