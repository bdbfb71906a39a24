"""The standbys of a managed primary server.

A standby is a copy of the primary that streams from it. It is made for each use and removed
afterwards, so pgpaces never has to check whether an old one can still follow.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from pgpaces.core.errors import PlanError
from pgpaces.core.home import home, matching
from pgpaces.core.texts import Say
from pgpaces.server import binaries, managed_server, postmaster
from pgpaces.server.folder import ServerFolder, server_folder

_SINCE, _SLOT_SINCE = 10, 13
_LEVELS = ("replica", "logical", "hot_standby", "archive")


def check_streaming(settings: Mapping[str, str], major: int) -> None:
    """Raises PlanError for a version or settings of a primary that prevent streaming."""
    if major < _SINCE:
        raise PlanError("standbys-need-10")
    if settings.get("wal_level", "replica") not in _LEVELS:
        raise PlanError("wal-level-too-low", wal_level=settings["wal_level"])
    if settings.get("max_wal_senders") == "0":
        raise PlanError("no-wal-senders")


@contextlib.contextmanager
def standbys(
    primary: managed_server.Server, count: int, data_dir: Path | None, *, say: Say
) -> Iterator[tuple[managed_server.Server, ...]]:
    """`count` running standbys of a managed server. Raises ServerError.

    data_dir: the folder that the user chose for data, if any.
    """
    installation = binaries.inspect(primary.bin)
    if count:
        check_streaming(primary.settings, primary.major)
    settings = dict(primary.settings)
    if primary.major >= _SLOT_SINCE:
        # Retains the WAL that a standby needs as long as it streams, and no longer.
        settings |= {"wal_receiver_create_temp_slot": "on"}
    with contextlib.ExitStack() as stack:
        servers = []
        for number in range(1, count + 1):
            spec = managed_server.ServerSpec(
                installation,
                name=f"{primary.name}-standby{number}",
                data_dir=data_dir,
                settings=settings,
                tcp=primary.tcp_host is not None,
                tls=primary.certificate is not None,
                standby_of=primary,
            )
            servers.append(stack.enter_context(_standby(spec, say)))
        yield tuple(servers)


def remove_lost(primary: str, data_dir: Path | None) -> None:
    """Removes the standbys that a killed pgpaces left: each is as large as the data.

    primary: the name of their server. Running ones, which hold a lock, stay, and so does a server
    that is no standby but has such a name.
    """
    for path in matching(home() / "servers", f"{glob.escape(primary)}-standby*"):
        with contextlib.suppress(OSError):  # then pgpaces does not own it
            _remove_lost(ServerFolder(path), data_dir)


def _remove_lost(folder: ServerFolder, data_dir: Path | None) -> None:
    lock = folder.lock()
    if lock is None:
        return
    try:
        for home_dir in {folder.path, folder.data_home(data_dir)}:
            data = home_dir / "data"
            if any((data / name).exists() for name in postmaster.OF_COPIES):
                # On a disk that the user chose, with the folder around it.
                shutil.rmtree(data if home_dir == folder.path else home_dir, ignore_errors=True)
    finally:
        os.close(lock)


@contextlib.contextmanager
def _standby(spec: managed_server.ServerSpec, say: Say) -> Iterator[managed_server.Server]:
    try:
        with managed_server.start(spec, on_progress=say) as server:
            (server.data_dir / postmaster.OF_COPIES[-1]).touch()
            yield server
    finally:
        # Also of one that did not start; under the lock, as another pgpaces may make the next.
        with contextlib.suppress(OSError):
            _remove_lost(server_folder(spec.name), spec.data_dir)
