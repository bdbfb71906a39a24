"""A message is a name and values. messages.toml has the words.

A message reports progress or describes something. What a check reports is a finding.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pgpaces.core.findings import filled

CATALOG = Path(__file__).with_name("messages.toml")


@functools.cache
def catalog() -> Mapping[str, str]:
    """The sentence of each message, by its name."""
    return tomllib.loads(CATALOG.read_text("utf-8"))


def message(name: str, /, **values: Any) -> str:
    """The sentence of a message with these values."""
    return filled(catalog()[name], values)
