"""Host files: TOML that says what a machine costs. The keys are those of `costs.py`.

Reads files; knows no servers.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any

from pgpaces.costs import KEYS, Costs
from pgpaces.errors import PlanError
from pgpaces.home import home

NAME = "host.toml"
VARIABLE = "PGPACES_HOST_FILE"


def read(path: Path) -> Costs:
    """What a file says. Raises PlanError with the key and what is wrong."""
    from pydantic import ValidationError

    from pgpaces.host_toml import CostTable

    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"the host file {path} is not TOML: {error}") from None
    except OSError as error:
        raise PlanError(f"the host file {path} cannot be read: {error.strerror}") from None
    try:
        return Costs(**CostTable.model_validate(raw).model_dump())
    except ValidationError as error:
        raise _explained(path, error.errors()) from None
    except PlanError as error:
        raise PlanError(f"the host file {path}: {error.message}", error.hint) from None


def _explained(path: Path, errors: list[Any]) -> PlanError:
    """What is to be said first: a key that does not exist."""
    error = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    key = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, KEYS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"keys are {', '.join(KEYS)}"
        return PlanError(f"the host file {path}: there is no key '{key}'", hint)
    text = error["msg"][:1].lower() + error["msg"][1:]
    return PlanError(f"the host file {path}: key '{key}': {text}")


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
