"""What commands print besides findings and errors: a name of messages.toml and values."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CATALOG = Path(__file__).with_name("messages.toml")


@functools.cache
def catalog() -> Mapping[str, str]:
    """The sentence of each message, by its name."""
    return tomllib.loads(CATALOG.read_text("utf-8"))


def message(name: str, /, **values: Any) -> str:
    """The sentence of this name with its values."""
    from pgpaces.core.findings import filled

    return filled(catalog()[name], values)
