"""Values that may hold a secret, and do not print it. Knows nothing else of pgpaces."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct


class Redacted(Struct, frozen=True):
    """A value whose repr leaves out the fields named in REDACTED: a password, or a long text."""

    REDACTED: ClassVar[tuple[str, ...]] = ()

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = [name for name in self.__struct_fields__ if name not in self.REDACTED]
        return [(name, getattr(self, name)) for name in shown]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"
