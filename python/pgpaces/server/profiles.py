"""Profiles: named settings, in TOML files. Shipped ones, and the user's.

A file has these keys:

    about = "Its purpose."
    [settings]
    shared_buffers = "1GB"
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from pgpaces.core import toml_files
from pgpaces.core.errors import PlanError, similar
from pgpaces.core.home import expanded, home, is_there, matching

SHIPPED = Path(__file__).with_name("profiles")
_JIT_SINCE, _NO_JIT = 11, ("jit", "off")
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")


class Profile(Struct, frozen=True):
    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    about: str = ""


def find(name: str) -> Profile:
    """A profile by its name (the user's before a shipped one) or by the path of its file.

    Raises PlanError.
    """
    path = _path(name)
    if path is None:
        near = similar(name, names())
        raise PlanError("unknown-profile", profile=name, near=near, profiles=names())
    return read(path)


def names() -> list[str]:
    folders = (_user_folder(), SHIPPED)
    stems = {path.stem for folder in folders for path in matching(folder, "*.toml")}
    return sorted(stem for stem in stems if _path(stem) is not None)


def ready_made(name: str) -> Mapping[str, str] | None:
    """The settings of a profile; None where there is no such profile."""
    return None if _path(name) is None else find(name).settings


def read(path: Path) -> Profile:
    """The profile in a file. Raises PlanError."""
    document = toml_files.document(path, PlanError)
    about, settings = document.pop("about", ""), document.pop("settings", {})
    if document:
        keys = ("about", "settings")
        key = next(iter(document))
        raise PlanError("unknown-key", key=key, near=similar(key, keys), keys=keys).at(str(path))
    if not isinstance(about, str) or not isinstance(settings, dict):
        raise PlanError("not-a-profile", path=path)
    return Profile(path.stem, dict(_settings(settings, path, "")), about)


def _settings(table: Mapping[str, Any], path: Path, prefix: str) -> list[tuple[str, str]]:
    """Names and values as texts; TOML turns `auto_explain.log_analyze` into a table."""
    settings = []
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict):
            settings += _settings(value, path, f"{name}.")
        elif not _SETTING.fullmatch(name) or not isinstance(value, str | int | float):
            raise PlanError("bad-setting-value", path=path, setting=name, value=value)
        elif isinstance(value, bool):
            settings.append((name, "on" if value else "off"))
        else:
            settings.append((name, str(value)))
    return settings


def known(settings: Mapping[str, str], major: int) -> dict[str, str]:
    """The settings without a `jit = off`, where the server has no such setting."""
    off = {name for name, value in settings.items() if (name.lower(), value.lower()) == _NO_JIT}
    return {name: v for name, v in settings.items() if major >= _JIT_SINCE or name not in off}


def _user_folder() -> Path:
    return home() / "profiles"


def _path(name: str) -> Path | None:
    if name.endswith(".toml"):
        path = expanded(name)
        return path if is_there(path, Path.is_file) else None
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        return None
    # "default" means no settings everywhere, whatever files there are.
    folders = (SHIPPED,) if name == "default" else (_user_folder(), SHIPPED)
    candidates = (folder / f"{name}.toml" for folder in folders)
    return next((path for path in candidates if is_there(path, Path.is_file)), None)
