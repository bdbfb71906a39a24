"""The folder of everything pgpaces keeps: servers, their data, the store."""

import os
from collections.abc import Callable
from pathlib import Path

ROOT_HOME = "/var/lib/pgpaces"


def home() -> Path:
    """$PGPACES_HOME, else pgpaces in $XDG_DATA_HOME, else /var/lib/pgpaces or the data folder.

    Root has no data folder unless it says so: the user that runs its servers could not enter one
    below /root.
    """
    if chosen := os.environ.get("PGPACES_HOME"):
        return Path(chosen).expanduser().absolute()
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if data.is_absolute():
        return data / "pgpaces"
    if os.geteuid() == 0:
        return Path(ROOT_HOME)
    import platformdirs

    return Path(platformdirs.user_data_dir("pgpaces", appauthor=False))


def is_there(path: str | Path, kind: Callable[[Path], bool] = Path.exists) -> bool:
    """Whether something is there, such as a Path.is_file; what may not be looked at is not."""
    try:
        return kind(Path(path))
    except OSError:
        return False
