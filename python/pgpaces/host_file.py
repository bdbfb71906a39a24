"""Host files: TOML that says what a machine costs. The keys are those of `costs.py`.

Reads files; knows no servers.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import asdict

from pgpaces import tables
from pgpaces.costs import KEYS, Costs
from pgpaces.errors import PlanError
from pgpaces.home import home

NAME = "host.toml"
VARIABLE = "PGPACES_HOST_FILE"


def read(path: Path) -> Costs:
    """What a file says. Raises PlanError with the key and what is wrong."""
    from pgpaces.host_toml import CostTable

    found = tables.document(path, "the host file ", PlanError)
    try:
        return Costs(**asdict(tables.table(CostTable, found)))
    except tables.WrongKeyError as error:
        if not error.known:
            raise PlanError(f"the host file {path}: {error}") from None
        near = f"did you mean {error.near}?" if error.near else f"keys are {', '.join(KEYS)}"
        raise PlanError(f"the host file {path}: there is no key '{error.key}'", near) from None
    except PlanError as error:
        raise PlanError(f"the host file {path}: {error.message}", error.hint) from None


def find(named: str | Path | None = None) -> Costs | None:
    """Of the file that is named, else of $PGPACES_HOST_FILE, else of host.toml in our home.

    None where nobody names one and there is none in our home. Raises PlanError.
    """
    if named := named or os.environ.get(VARIABLE):
        return read(Path(named).expanduser())
    usual = home() / NAME
    try:
        there = usual.is_file()
    except OSError:
        return None
    return read(usual) if there else None
