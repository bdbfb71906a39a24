"""Host files: TOML with the costs of a machine. The keys are those of `costs.py`.

Reads files; knows no servers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, defstruct
from msgspec.structs import asdict

from pgpaces.core import tables
from pgpaces.core.errors import PlanError
from pgpaces.core.home import expanded, home, is_there
from pgpaces.spec.costs import KEYS, Costs
from pgpaces.spec.workload import wrong_key

NAME = "host.toml"
VARIABLE = "PGPACES_HOST_FILE"

_AMOUNT = Annotated[float, Meta(ge=0)]
# The keys as TOML has them, with their descriptions.
CostTable: Any = defstruct(
    "CostTable",
    [
        (name, Annotated[str, Meta(description=text)], "USD")
        if name == "currency"
        else (name, Annotated[_AMOUNT | None, Meta(description=text)], None)
        for name, text in KEYS.items()
    ],
    bases=(tables.Table,),
    frozen=True,
    kw_only=True,
)


def read(path: Path) -> Costs:
    """The costs in a file. Raises PlanError with the key and the defect."""
    content = tables.document(path, PlanError)
    try:
        return Costs(**asdict(tables.table(CostTable, content)))
    except tables.WrongKeyError as error:
        raise wrong_key(error).at(f"the host file {path}") from None
    except PlanError as error:
        raise error.at(f"the host file {path}") from None


def find(named: str | Path | None = None) -> Costs | None:
    """The costs in the named file, else $PGPACES_HOST_FILE, else host.toml in the data folder.

    None if no file is named and the data folder has none. Raises PlanError.
    """
    if named := named or os.environ.get(VARIABLE):
        return read(expanded(named))
    usual = home() / NAME
    return read(usual) if is_there(usual, Path.is_file) else None
