"""The data folder of pgpaces: servers, their data, the store."""

import os
from collections.abc import Callable
from pathlib import Path

ROOT_HOME = "/var/lib/pgpaces"


def home() -> Path:
    """$PGPACES_HOME, else pgpaces in $XDG_DATA_HOME, else /var/lib/pgpaces or the data folder.

    Root has no data folder by default: the user that runs its servers cannot enter one below /root.
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
    """Whether a path exists, as this kind, such as Path.is_file; False without permission."""
    try:
        return kind(Path(path))
    except OSError:
        return False
