"""What commands print besides findings and errors: a name of messages.toml and values."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

CATALOG = Path(__file__).with_name("messages.toml")


@functools.cache
def catalog() -> Mapping[str, str]:
    """The sentence of each message, by its name."""
    return tomllib.loads(CATALOG.read_text("utf-8"))


class Message(Struct, frozen=True):
    """A sentence as a value: a name of messages.toml, and values by name."""

    name: str
    values: Mapping[str, Any]

    def __str__(self) -> str:
        return message(self.name, **self.values)


def said(name: str, /, **values: Any) -> Message:
    """The sentence of this name with these values, as a value."""
    return Message(name, values)


def message(name: str, /, **values: Any) -> str:
    """The sentence of this name with its values."""
    from pgpaces.core.findings import filled

    return filled(catalog()[name], values)
