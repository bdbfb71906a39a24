"""Statements that are one row of a summary: equal but for constants, in branches of an `\\if`.

Scripts write variants of one statement so. Commands in, places out; knows nothing of times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from pgpaces.spec.setup import ScriptCommand

Commands = Sequence[ScriptCommand]
# The engine keeps this many characters of the first line of a statement.
_CHARACTERS_MAX = 127
_CONSTANT = re.compile(
    r"\bE'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\bNULL\b|(?<![:\w.])\d+(?:\.\d+)?\b",
    re.IGNORECASE | re.DOTALL,
)


class Alike(Struct, frozen=True):
    """Statements of several branches. places: in the script; text: `?` where they differ."""

    places: tuple[int, ...]
    text: str


def alike(commands: Commands, script: str) -> tuple[Alike, ...]:
    """The like statements of each `\\if` whose branches have at most one statement each.

    script: its text; commands have only the beginning of each statement.
    """
    # open_: of each `\if` that has not ended, the places of the statements of its branches.
    groups, open_, whole = [], list[list[list[int]]](), _whole(commands, script)
    for place, command in enumerate(commands):
        word = "" if command.is_sql else command.text.split(maxsplit=1)[0]
        if word == "\\if":
            open_.append([[]])
        elif word in ("\\elif", "\\else") and open_:
            open_[-1].append([])
        elif word == "\\endif" and open_:
            inner = [places for places in open_.pop() if places]
            texts = [whole[places[0]] for places in inner if len(places) == 1]
            if len(texts) == len(inner) > 1 and (text := _common(texts)):
                groups.append(Alike(tuple(places[0] for places in inner), text))
            if open_:
                open_[-1][-1].extend(each for places in inner for each in places)
        elif command.is_sql and open_:
            open_[-1][-1].append(place)
    return tuple(groups)


def _whole(commands: Commands, script: str) -> list[str]:
    """The text of each command: the lines up to the next one. Empty where two share a line."""
    lines = script.splitlines()
    starts = [command.line for command in commands]
    ends = [*starts, len(lines) + 1][1:]
    shared = {line for line, count in Counter(starts).items() if count > 1}
    return [
        "" if start in shared else "\n".join(lines[start - 1 : end - 1])
        for start, end in zip(starts, ends, strict=True)
    ]


def _common(texts: Sequence[str]) -> str:
    """The first line of all, with `?` for constants that differ; empty if they are not alike."""
    if len({tuple(_CONSTANT.split(text)) for text in texts}) > 1:
        return ""
    constants = list(zip(*(_CONSTANT.findall(text) for text in texts), strict=True))
    parts = _CONSTANT.split(texts[0])
    shown = [each[0] if len(set(each)) == 1 else "?" for each in constants]
    text = "".join(part + then for part, then in zip(parts, [*shown, ""], strict=True))
    return text.strip().removesuffix(";").partition("\n")[0].rstrip()[:_CHARACTERS_MAX]
