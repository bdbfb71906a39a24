"""The commands of scripts, by the engine's parser."""

from __future__ import annotations

import functools

from msgspec import Struct

from pgpaces import _engine
from pgpaces.core.texts import decoded, encoded


class ScriptCommand(Struct, frozen=True):
    """A command of a script: line, first line of its text, whether it is SQL."""

    line: int
    text: str
    is_sql: bool


def shown(name: str) -> str:
    """The name of a script in messages, where bytes that are not UTF-8 cannot stand."""
    return encoded(name).decode("utf-8", "replace")


@functools.lru_cache(maxsize=16)
def commands_in(name: str, text: str, *, parameters: bool = False) -> tuple[ScriptCommand, ...]:
    """The commands of a script, which is parsed once. Raises ScriptError with line, column, caret.

    parameters: its SQL is sent with parameters, whose number is limited.
    """
    written = text if text.isascii() else encoded(text)
    parsed = _engine.parse_script(shown(name), written, parameters)
    return tuple(ScriptCommand(line, decoded(first), is_sql) for line, first, is_sql in parsed)
