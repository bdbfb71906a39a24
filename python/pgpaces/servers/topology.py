"""Several managed servers that belong together: a primary and its standbys.

A standby is a copy of the primary that streams from it, made anew whenever it is wanted: so it
never has to be told whether an old one can still follow, and nothing of it remains. Knows nothing
of loads.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pgpaces.errors import PlanError
from pgpaces.home import home
from pgpaces.servers import binaries, embedded
from pgpaces.servers.access import Listen
from pgpaces.servers.folder import ServerFolder

# Its own defaults let nothing stream.
_OLD = {"wal_level": "replica", "max_wal_senders": "10", "hot_standby": "on"}
_OLD_BELOW = 10
_SLOT_SINCE = 13
# One of these is in every copy of a primary, also in one that is not complete.
_OF_COPIES = ("standby.signal", "recovery.conf", "backup_label")
_LEVELS = ("replica", "logical", "hot_standby", "archive")


def settings_for(settings: Mapping[str, str], major: int) -> dict[str, str]:
    """Those of a primary with standbys. Raises PlanError where they let nothing stream."""
    found = {**(_OLD if major < _OLD_BELOW else {}), **settings}
    if found.get("wal_level", "replica") not in _LEVELS:
        raise PlanError(
            f"wal_level = {found['wal_level']} writes too little for a standby",
            "leave it at replica, or run without standbys",
        )
    if found.get("max_wal_senders") == "0":
        raise PlanError("max_wal_senders = 0 lets no standby stream", "leave it at its default")
    return found


@contextlib.contextmanager
def standbys(
    primary: embedded.Server, count: int, data_dir: Path | None, say: Callable[[str], None]
) -> Iterator[tuple[embedded.Server, ...]]:
    """So many standbys of a managed server that runs, as long as this lasts.

    data_dir: the folder that the user chose for data, if one was. Raises ServerError.
    """
    installation = binaries.inspect(primary.bin)
    settings = settings_for(primary.settings, primary.major)
    if primary.major >= _SLOT_SINCE:
        # What a standby still needs is kept as long as it streams, and not a moment longer.
        settings |= {"wal_receiver_create_temp_slot": "on"}
    with contextlib.ExitStack() as stack:
        found = []
        for number in range(1, count + 1):
            spec = embedded.ServerSpec(
                installation,
                name=f"{primary.name}-standby{number}",
                data_dir=data_dir,
                settings=settings,
                listen=None if primary.tcp_host is None else Listen(),
                tls=primary.certificate is not None,
                standby_of=primary,
            )
            found.append(stack.enter_context(_standby(spec, say)))
        yield tuple(found)


def remove_lost(primary: str, data_dir: Path | None) -> None:
    """Removes what a pgpaces that was killed left of standbys: each is as large as the data.

    primary: the name of their server. Those that run, which hold a lock, are left alone, and so is
    a server that only has such a name.
    """
    for path in sorted((home() / "servers").glob(f"{glob.escape(primary)}-standby*")):
        with contextlib.suppress(OSError):  # it is none of ours then
            _remove_lost(ServerFolder(path), data_dir)


def _remove_lost(folder: ServerFolder, data_dir: Path | None) -> None:
    lock = folder.lock()
    if lock is None:
        return
    try:
        for own in dict.fromkeys((folder.path, folder.data_home(data_dir))):
            data = own / "data"
            if any((data / name).exists() for name in _OF_COPIES):
                _remove(data, folder)
    finally:
        os.close(lock)


def _remove(data: Path, folder: ServerFolder) -> None:
    """Removes a standby's data; on a disk that the user chose, the folder around it as well."""
    shutil.rmtree(data if data.parent == folder.path else data.parent, ignore_errors=True)


@contextlib.contextmanager
def _standby(spec: embedded.ServerSpec, say: Callable[[str], None]) -> Iterator[embedded.Server]:
    server = embedded.start(spec, on_progress=say)
    try:
        with server:
            yield server
    finally:
        _remove(server.data_dir, server.folder)
