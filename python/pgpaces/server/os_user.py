"""The operating-system user of a server when pgpaces runs as root, and the files it can reach.

PostgreSQL refuses to run as root, so root starts it as `postgres` or, where that user does not
exist, as the next of CANDIDATES. pgpaces creates no user and changes no permission of an existing
folder: it makes its own folders reachable, and copies programs that the user cannot reach (a
virtual environment below a private home) once.
"""

import contextlib
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.core.errors import ServerError
from pgpaces.core.home import alone, home, make_folder
from pgpaces.server.binaries import Installation, Source, run

CANDIDATES = ("postgres", "nobody")
PROBE_TIMEOUT_S = 10.0


class OsUser(Struct, frozen=True):
    """A user of this machine with a passwd entry; the server's processes belong to it."""

    name: str
    uid: int
    gid: int


def os_user_for(data_dir: Path) -> OsUser | None:
    """The user to run a server as: None for the current one, unless that is root.

    Existing data stays with its owner, also when a `postgres` user appears later.
    """
    if os.geteuid() != 0:
        return None
    names = list(CANDIDATES)
    with contextlib.suppress(OSError, KeyError):
        names.insert(0, data_dir.owner())
    for name in names:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return OsUser(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise ServerError("no-user-for-root", users=CANDIDATES)


def options_of(os_user: OsUser | None) -> dict[str, Any]:
    """What subprocess.Popen takes to run a program as this user."""
    return {"user": os_user.uid, "group": os_user.gid, "extra_groups": []} if os_user else {}


def make_private_folder(path: Path, os_user: OsUser | None) -> None:
    path.mkdir(mode=0o700)
    give(path, os_user)


def give(path: Path, os_user: OsUser | None) -> None:
    if os_user is not None:
        os.chown(path, os_user.uid, os_user.gid)


def check_entry(path: Path, os_user: OsUser | None) -> None:
    """Raises ServerError if the server's user, who tries it, cannot enter a directory."""
    if os_user is None:
        return
    enter = ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(path)]
    if run(enter, cwd="/", **options_of(os_user)).returncode != 0:
        closed = blocked_at(path, os_user)
        own = closed is not None and closed.is_relative_to(home())
        raise ServerError(
            "cannot-enter-folder",
            user=os_user.name,
            folder=closed or path,
            path=path,
            own=shlex.quote(str(closed)) if own else "",
        )


def blocked_at(path: Path, os_user: OsUser) -> Path | None:
    """The first directory on the way to `path` that the user cannot enter, by its mode."""
    for folder in (*reversed(path.parents), path):
        status = folder.stat()
        bit = stat.S_IXOTH
        if status.st_uid == os_user.uid:
            bit = stat.S_IXUSR
        elif status.st_gid == os_user.gid:
            bit = stat.S_IXGRP
        if not status.st_mode & bit:
            return folder
    return None


def reachable(installation: Installation, os_user: OsUser | None, cache: Path) -> Installation:
    """The installation, or its copy below `cache` if the user cannot run the original.

    Tries to run both. ServerError where neither can be run.
    """
    reason = _refusal(installation, os_user)
    if reason is not None and installation.source is Source.EMBEDDED:
        installation = _copied(installation, cache)
        reason = _refusal(installation, os_user)
    if reason is None:
        return installation
    user = os_user.name if os_user else os.geteuid()
    program = installation.program("initdb")
    raise ServerError("user-cannot-run", user=user, program=program, why=reason)


def _refusal(installation: Installation, os_user: OsUser | None) -> str | None:
    """Why the user cannot run initdb, which needs libpq, too; None if it can."""
    try:
        done = run(
            [installation.program("initdb"), "--version"],
            cwd="/",
            timeout=PROBE_TIMEOUT_S,
            **options_of(os_user),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip() or f"status {done.returncode}"


def _copied(installation: Installation, cache: Path) -> Installation:
    """The copy of the package's programs, made once; its libraries are next to the package."""
    prefix = installation.bin.parent
    package = prefix.parent
    libraries = package.with_name(f"{package.name}.libs")
    # By the release of the package if its metadata is there.
    infos = sorted(package.parent.glob(f"{package.name}-*.dist-info"))
    release = infos[-1].name.removesuffix(".dist-info") if infos else ""
    target = cache / (release or f"{package.name}-{installation.version}")
    copy = replace(installation, bin=target / package.name / prefix.name / "bin")
    if target.exists():
        return copy
    make_folder(cache)
    with (
        alone(cache, ".copy-*"),
        tempfile.TemporaryDirectory(dir=cache, prefix=".copy-") as scratch,
    ):
        if target.exists():  # by the process that held the lock
            return copy
        fresh = Path(scratch) / target.name
        shutil.copytree(prefix, fresh / package.name / prefix.name, symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, fresh / libraries.name, symlinks=True)
        let_all_read(fresh)
        fresh.rename(target)
    return copy


def let_all_read(tree: Path) -> None:
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)
