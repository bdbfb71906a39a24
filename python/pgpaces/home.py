"""The folder of everything pgpaces keeps: servers, their data, the store."""

import os
from pathlib import Path

ROOT_HOME = "/var/lib/pgpaces"


def home() -> Path:
    """$PGPACES_HOME, else /var/lib/pgpaces for root, else the user's data folder."""
    if chosen := os.environ.get("PGPACES_HOME"):
        return Path(chosen).expanduser().absolute()
    if os.geteuid() == 0:
        return Path(ROOT_HOME)
    import platformdirs

    return Path(platformdirs.user_data_dir("pgpaces", appauthor=False))
