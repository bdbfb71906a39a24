"""Who runs a server when we are root, and whether that user can reach what it needs.

PostgreSQL refuses to run as root, so root starts it as `postgres` or, where that user does not
exist, as `nobody`. No user is ever created and no existing folder's permission is changed: what
we make ourselves is made reachable, and programs that the user cannot reach (a virtual
environment below a private home) are copied once. Starts no server.
"""

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.errors import ServerError
from pgpaces.home import ROOT_HOME
from pgpaces.servers.binaries import Installation, Source, server_environment

CANDIDATES = ("postgres", "nobody")
FOLDER_MODE_ROOT = 0o755  # the server's user must pass through
FOLDER_MODE_USER = 0o700
PROBE_TIMEOUT_S = 10.0


class OsUser(Struct, frozen=True):
    """A user of this machine with a passwd entry; the server's processes belong to it."""

    name: str
    uid: int
    gid: int

    def popen_options(self) -> dict[str, Any]:
        """What makes subprocess start a program as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def os_user_for(data_dir: Path) -> OsUser | None:
    """The user to run a server as: None for ourselves, when we are not root.

    Existing data stays with the user who owns it, also when a `postgres` user appears later.
    """
    if os.geteuid() != 0:
        return None
    for name in (_owner(data_dir), *CANDIDATES):
        try:
            entry = pwd.getpwnam(name) if name else None
        except KeyError:
            continue
        if entry is not None and entry.pw_uid != 0:
            return OsUser(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise ServerError(
        "PostgreSQL does not run as root, and there is neither a user postgres nor nobody",
        "run pgpaces as an ordinary user, or give a server of yours with --target",
    )


def options_of(os_user: OsUser | None) -> dict[str, Any]:
    """What makes subprocess start a program as the user; nothing for ourselves."""
    return os_user.popen_options() if os_user else {}


def make_folder(path: Path) -> None:
    """Make a folder of ours with its parents; what exists already is left as it is."""
    mode = FOLDER_MODE_ROOT if os.geteuid() == 0 else FOLDER_MODE_USER
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        folder.chmod(mode)  # whatever the umask


def make_private_folder(path: Path, os_user: OsUser | None) -> None:
    """Make a folder that only the server's user can enter."""
    path.mkdir(mode=0o700)
    give(path, os_user)


def give(path: Path, os_user: OsUser | None) -> None:
    """Make the server's user the owner of a folder that we have just made."""
    if os_user is not None:
        os.chown(path, os_user.uid, os_user.gid)


def check_entry(path: Path, os_user: OsUser | None) -> None:
    """ServerError if the server's user cannot enter a folder of ours. Found out by trying."""
    if os_user is None:
        return
    enter = ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(path)]
    done = subprocess.run(
        enter,
        cwd="/",
        env=server_environment(),
        stderr=subprocess.DEVNULL,
        check=False,
        **options_of(os_user),
    )
    if done.returncode != 0:
        closed = blocked_at(path, os_user) or path
        raise ServerError(
            f"we are root, so the user {os_user.name} runs the server, who cannot enter {closed} "
            f"on the way to {path}",
            "set PGPACES_HOME (or --data-dir) to a folder that every user can enter, such as "
            f"{ROOT_HOME}",
        )


def blocked_at(path: Path, os_user: OsUser) -> Path | None:
    """The first folder on the way to `path` that the user cannot enter, by its mode."""
    for folder in (*reversed(path.parents), path):
        found = folder.stat()
        bit = stat.S_IXOTH
        if found.st_uid == os_user.uid:
            bit = stat.S_IXUSR
        elif found.st_gid == os_user.gid:
            bit = stat.S_IXGRP
        if not found.st_mode & bit:
            return folder
    return None


def reachable(installation: Installation, os_user: OsUser | None, cache: Path) -> Installation:
    """The installation, or its copy below `cache` if the user cannot run the original.

    Found out by trying. ServerError where neither can be run.
    """
    reason = _refusal(installation, os_user)
    if reason is not None and installation.source is Source.EMBEDDED:
        installation = _copied(installation, cache)
        reason = _refusal(installation, os_user)
    if reason is None:
        return installation
    who = f"the user {os_user.name}, who runs servers for root," if os_user else "this user"
    raise ServerError(
        f"{who} cannot run {installation.program('initdb')}: {reason}",
        "choose another version, or let others enter the folders of this one (chmod o+x)",
    )


def _owner(path: Path) -> str | None:
    try:
        return path.owner()
    except (OSError, KeyError):
        return None


def _refusal(installation: Installation, os_user: OsUser | None) -> str | None:
    """Why the user cannot run the programs; None if it can. initdb needs libpq, too."""
    try:
        done = subprocess.run(
            [installation.program("initdb"), "--version"],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            env=server_environment(),
            check=False,
            **options_of(os_user),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip() or f"status {done.returncode}"


def _copied(installation: Installation, cache: Path) -> Installation:
    """The copy of the package's programs, made once; its libraries lie beside the package."""
    prefix = installation.bin.parent
    package = prefix.parent
    libraries = package.with_name(f"{package.name}.libs")
    target = cache / _release(package, installation.version)
    if not target.exists():
        make_folder(cache)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".copy-") as scratch:
            made = Path(scratch) / target.name
            shutil.copytree(prefix, made / package.name / prefix.name, symlinks=True)
            if libraries.is_dir():
                shutil.copytree(libraries, made / libraries.name, symlinks=True)
            let_all_read(made)
            _put(made, target)
    return replace(installation, bin=target / package.name / prefix.name / "bin")


def _release(package: Path, version: str) -> str:
    """The name of the copy: by the package's own release where that can be seen."""
    known = sorted(package.parent.glob(f"{package.name}-*.dist-info"))
    return known[-1].name.removesuffix(".dist-info") if known else f"{package.name}-{version}"


def let_all_read(tree: Path) -> None:
    """Everybody may read the files and enter the folders, whatever the original's modes."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)


def _put(made: Path, target: Path) -> None:
    """Give a finished copy its name, all at once; another pgpaces may have been faster."""
    try:
        made.rename(target)
    except OSError:
        if not target.is_dir():
            raise
