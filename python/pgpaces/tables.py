"""Files of TOML: read as the keys that a class declares, with the key that is wrong in words."""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

_SAID = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What has these keys and no others."""


T = TypeVar("T", bound=msgspec.Struct)


class WrongKeyError(ValueError):
    """A key that does not exist, or whose value cannot be. key: with those above it.

    known: keys that there are where one does not exist; near: the most like it.
    """

    def __init__(self, key: str, text: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(f"key '{key}': {text}")
        self.key, self.text, self.known = key, text, known
        self.near = next(iter(difflib.get_close_matches(key.rpartition(".")[2], known, n=1)), None)


def document(path: Path, what: str, error: type[Exception], hint: str | None = None) -> Any:
    """What a file of TOML holds. Raises `error`, which says what cannot be read. hint: then."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as found:
        raise error(f"{what}{path} is not TOML: {found}") from None
    except OSError as found:
        raise error(f"{what}{path} cannot be read: {found.strerror}", hint) from None


def table(kind: type[T], given: object, place: str = "") -> T:
    """A table as its class has it, with defaults. place: keys above it. Raises WrongKeyError."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        said = _SAID.fullmatch(str(error))
        assert said is not None, "it matches anything"
        text, way = said[1], said[2] or ""
        _among(kind, given, way, place)
        keys = [key for key in (place, way.replace("[", ".").replace("]", "")) if key]
        if unknown := _UNKNOWN.fullmatch(text):
            key = ".".join([*keys, unknown[1]])
            raise WrongKeyError(key, "there is none", kind.__struct_encode_fields__) from None
        if missing := _MISSING.fullmatch(text):
            keys, text = [*keys, missing[1]], "It is not there"
        raise WrongKeyError(".".join(keys), text[:1].lower() + text[1:]) from None


def _among(kind: type[msgspec.Struct], given: Any, way: str, place: str) -> None:
    """Raises WrongKeyError for the one of several named tables that is wrong. way: to it."""
    key = way.partition("[...]")[0]
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    if way == key or key not in types:
        return
    given_type = types[key]
    if get_origin(given_type) is Annotated:
        given_type = get_args(given_type)[0]
    inner = get_args(given_type)[-1]
    if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
        for name, found in given[key].items():
            table(inner, found, f"{place}.{key}.{name}".strip("."))
