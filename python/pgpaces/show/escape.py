"""Escapes untrusted text (of servers, scripts, files) for the medium that shows it. Pure.

Such a text may contain escape sequences that rewrite a terminal, bidirectional controls, formulas
that a spreadsheet would compute, and lone surrogates. Knows nothing of the meaning of the texts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

# C0 but tab and line feed, DEL, C1; line and paragraph separators, bidirectional controls,
# invisible fillers and tags; U+FFFE and U+FFFF, which XML and so SVG exclude; lone surrogates.
_CONTROLS = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e"
    "\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\ufffe\\uffff\\U000e0000-\\U000e007f"
)
_SURROGATES = "\\ud800-\\udfff"
_UNSHOWABLE = re.compile(f"[{_CONTROLS}{_SURROGATES}]")
_CONTROL = re.compile(f"[{_CONTROLS}]")
_SURROGATE = re.compile(f"[{_SURROGATES}]")
# A quoted word of shlex, or the quote within one; and what is not typed.
_QUOTED = re.compile("\"'\"|'[^']*'")
_UNTYPED = re.compile(f"[\\t\\n{_CONTROLS}{_SURROGATES}]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _escaped(match: re.Match[str]) -> str:
    """A character as an escape of Python and of other languages."""
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def lines(text: str) -> str:
    """For a terminal: control characters become escapes, `\\x1b`; line feeds and tabs stay."""
    return _UNSHOWABLE.sub(_escaped, text.replace("\r\n", "\n"))


def line(text: str) -> str:
    """The same in one line: line feeds and tabs become spaces, so that no text forges a line.

    Not in a command of pgpaces, which a shell is to read.
    """
    text = command(text) if text.startswith("pgpaces ") else text
    return lines(re.sub(r"\s*\n\s*|\t", " ", text))


def command(text: str) -> str:
    """Words as shlex.quote writes them; those with control characters as bash reads `$'\\n'`."""
    return _QUOTED.sub(_in_bash, text)


def _in_bash(word: re.Match[str]) -> str:
    plain = word[0].replace("\\", "\\\\").replace("\n", "\\n")
    return f"${_UNTYPED.sub(_byte, plain)}" if _UNTYPED.search(word[0]) else word[0]


def _byte(match: re.Match[str]) -> str:
    """A character as an escape of bash, in which `\\x` is a byte."""
    code = ord(match[0])
    if 0x80 <= code < 0x100:
        return f"\\u{code:04x}"
    return _escaped(match) if code not in range(0xDC80, 0xDD00) else f"\\x{code - 0xDC00:02x}"


def stream(text: str) -> str:
    """For an output that passes on bytes of any encoding (surrogateescape), which stay."""
    return _CONTROL.sub(_escaped, text)


def csv_cell(value: object) -> object:
    """A cell of CSV. A text that a spreadsheet would read as a formula gets an apostrophe.

    Numbers stay numbers, whatever their sign.
    """
    if not isinstance(value, str):
        return value
    text = _SURROGATE.sub("\ufffd", value).replace("\0", "\ufffd")
    text = f"'{text}" if text.startswith(_FORMULA) else text
    return re.sub(r"\r\n?", "\n", text)  # a lone carriage return would end a row


def json_text(document: object) -> str:
    """A document as valid JSON: lone surrogates become U+FFFD; infinity and NaN become null."""
    return json.dumps(_plain(document), indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_plain(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
