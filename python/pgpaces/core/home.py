"""The data folder of pgpaces: servers, their data, the store."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from pgpaces.core.errors import PlanError

ROOT_HOME = "/var/lib/pgpaces"
_MODE_ROOT = 0o755  # the user that runs root's servers must pass through
_MODE_USER = 0o700
_PACKAGES = Path(__file__).resolve().parents[2]


def home() -> Path:
    """$PGPACES_HOME, else pgpaces in $XDG_DATA_HOME, else /var/lib/pgpaces or the data folder.

    Root has no data folder by default: the user that runs its servers cannot enter one below /root.
    Raises PlanError where it would be in an unknown folder: a user's, or the current one.
    """
    chosen = os.environ.get("PGPACES_HOME")
    try:
        folder = Path(chosen).expanduser().absolute() if chosen else _usual()
    except (RuntimeError, OSError) as error:
        raise PlanError("no-home", path=chosen or "~", why=str(error)) from None
    if not folder.is_absolute():
        raise PlanError("home-not-absolute", path=folder)
    return folder


def _usual() -> Path:
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if data.is_absolute():
        return data / "pgpaces"
    if os.geteuid() == 0:
        return Path(ROOT_HOME)
    import platformdirs

    return Path(platformdirs.user_data_dir("pgpaces", appauthor=False))


def expanded(name: str | Path) -> Path:
    """A path with the home folder in place of `~` or `~user`. Raises PlanError."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise PlanError("no-home-of-user", path=name, folder=Path(name).parts[0]) from None


def make_folder(path: Path) -> None:
    """Make a folder with its parents; existing ones are left as they are."""
    mode = _MODE_ROOT if os.geteuid() == 0 else _MODE_USER
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        folder.chmod(mode)  # whatever the umask


@contextlib.contextmanager
def alone(cache: Path, remains: str, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lets one pgpaces at a time fill a cache; removes what a killed one left there.

    remains: the pattern of its names. waits: called where another one is at work.
    """
    folder = os.open(cache, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(folder, fcntl.LOCK_EX)
        for left in cache.glob(remains):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(folder)


def python_path() -> str:
    """PYTHONPATH of a process `python -P -m`: nothing in the current folder is imported there."""
    paths = (str(_PACKAGES), os.environ.get("PYTHONPATH", ""))
    return os.pathsep.join(path for path in paths if path)


def is_there(path: str | Path, kind: Callable[[Path], bool] = Path.exists) -> bool:
    """Whether a path exists, as this kind, such as Path.is_file; False without permission."""
    try:
        return kind(Path(path))
    except OSError:
        return False


def matching(folder: Path, pattern: str) -> list[Path]:
    """The paths in a folder that match, sorted; none where it is absent or cannot be entered."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []
