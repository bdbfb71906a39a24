"""TOML files: read as the keys that a class declares, with errors that name the wrong key."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from pgpaces.core.errors import PgpacesError, PlanError

_MESSAGE = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table with these keys and no others."""


T = TypeVar("T", bound=msgspec.Struct)


def document(path: Path, error: type[PgpacesError], *, new: str | Path = "") -> Any:
    """The content of a TOML file. Raises `error`. new: the file, if `pgpaces sweep` creates it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise error("not-toml", path=path, why=str(cause)) from None
    except OSError as cause:
        raise error("cannot-read-toml", path=path, why=cause.strerror, new=new) from None


def table(
    kind: type[T], content: object, place: str = "", *, examples: Mapping[str, str] | None = None
) -> T:
    """A table as its class, with defaults. Raises PlanError, which names the wrong key.

    place: keys above it. examples: of values, by key.
    """
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        match = _MESSAGE.fullmatch(str(error))
        assert match is not None, "it matches anything"
        text, way = match[1], match[2] or ""
        _among(kind, content, way, place=place)
        keys = [key for key in (place, way.replace("[", ".").replace("]", "")) if key]
        if unknown := _UNKNOWN.fullmatch(text):
            key, valid = ".".join([*keys, unknown[1]]), kind.__struct_encode_fields__
            near = next(iter(difflib.get_close_matches(unknown[1], valid, n=1)), None)
            raise PlanError("unknown-key", key=key, near=near, keys=valid) from None
        if missing := _MISSING.fullmatch(text):
            keys, text = [*keys, missing[1]], "It is not there"
        key, why = ".".join(keys), text[:1].lower() + text[1:]
        example = (examples or {}).get(key.partition(".")[0])
        raise PlanError("wrong-value", key=key, why=why, example=example) from None


def _among(kind: type[msgspec.Struct], content: Any, way: str, *, place: str) -> None:
    """Raises PlanError for the wrong one of several named tables. way: to it."""
    key = way.partition("[...]")[0]
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    if way == key or key not in types:
        return
    declared = types[key]
    if get_origin(declared) is Annotated:
        declared = get_args(declared)[0]
    inner = get_args(declared)[-1]
    if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
        for name, one in content[key].items():
            table(inner, one, f"{place}.{key}.{name}".strip("."))
