"""Lines that only tell progress, by name. The catalog, messages.toml, has their words."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pgpaces.core.findings import filled

CATALOG = Path(__file__).with_name("messages.toml")


def message(name: str, /, **values: Any) -> str:
    """The sentence of the catalog with these values."""
    return filled(catalog()[name], values)


@functools.cache
def catalog() -> Mapping[str, str]:
    """The sentence of each message, with its placeholders."""
    return tomllib.loads(CATALOG.read_text("utf-8"))
