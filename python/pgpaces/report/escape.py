"""Text of others (servers, scripts, files) made harmless for the medium that shows it. Pure.

What somebody else wrote may hold escape sequences that rewrite a terminal, marks that turn lines
round, formulas that a spreadsheet would compute, and pieces of characters. Knows nothing of what
the texts say.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

# C0 but tab and line feed, DEL, C1; line and paragraph separators, and the marks and overrides of
# direction, invisible fillers and tags among them; pieces of surrogate pairs.
_CONTROLS = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e"
    "\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\U000e0000-\\U000e007f"
)
_PIECES = "\\ud800-\\udfff"
_UNSHOWABLE = re.compile(f"[{_CONTROLS}{_PIECES}]")
_CONTROL = re.compile(f"[{_CONTROLS}]")
_PIECE = re.compile(f"[{_PIECES}]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _named(found: re.Match[str]) -> str:
    """A character as Python and many others write it."""
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def lines(text: str) -> str:
    """For a terminal: characters that do something are named, `\\x1b`; lines and tabs stay."""
    return _UNSHOWABLE.sub(_named, text.replace("\r\n", "\n"))


def line(text: str) -> str:
    """The same in one line: ends of lines and tabs are blanks, so that nobody forges a line."""
    return lines(re.sub(r"\s*\n\s*|\t", " ", text))


def stream(text: str) -> str:
    """For an output that passes bytes of any encoding on (surrogateescape): these stay."""
    return _CONTROL.sub(_named, text)


def csv_cell(value: object) -> object:
    """A cell of CSV. A text that a spreadsheet would take for a formula gets an apostrophe.

    Numbers stay numbers, whatever their sign.
    """
    if not isinstance(value, str):
        return value
    text = _PIECE.sub("\ufffd", value).replace("\0", "\ufffd")
    text = f"'{text}" if text.startswith(_FORMULA) else text
    return re.sub(r"\r\n?", "\n", text)  # a lone carriage return would end a row


def json_text(document: object) -> str:
    """A document as JSON that every reader takes: pieces of characters are U+FFFD, and numbers

    that JSON does not have (infinity, none) are null.
    """
    return json.dumps(_plain(document), indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _PIECE.sub("\ufffd", value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_plain(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
