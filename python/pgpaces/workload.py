"""Workloads: folders of a `workload.toml`, SQL that creates the data, and scripts.

Reads folders and says what is wrong with them; runs nothing.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pgpaces.errors import WorkloadError

if TYPE_CHECKING:
    from pydantic import BaseModel

SHIPPED = Path(__file__).parent / "workloads"
FILE = "workload.toml"
_SCALE_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class WorkloadScript:
    """A script: its name (the file's, without its ending), weight and text.

    source: what messages call it. Bytes of the text that are not UTF-8 are lone surrogates.
    """

    name: str
    weight: int
    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class InitStep:
    """An SQL file that creates data, run by psql with the variables scale and seed."""

    name: str
    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload as its folder describes it.

    load: the defaults of `[load]` as written, for example {"rate": "1/s"}.
    writes: its scripts change data, so each trial starts from a fresh copy.
    variants: names of others of its kind; this is `NAME/VARIANT` if it is one.
    """

    name: str
    folder: Path
    description: str
    scale: int
    writes: bool
    init: tuple[InitStep, ...]
    scripts: tuple[WorkloadScript, ...]
    load: dict[str, str]
    variables: dict[str, str]
    variants: tuple[str, ...] = ()

    @property
    def data_hash(self) -> str:
        """What the data depends on, as a hash: the init steps' text."""
        digest = hashlib.sha256()
        for step in self.init:
            digest.update(step.text.encode() + b"\0")
        return digest.hexdigest()

    @property
    def hash(self) -> str:
        """What a result depends on: data, scripts, weights and variables."""
        digest = hashlib.sha256(self.data_hash.encode())
        for script in self.scripts:
            digest.update(
                f"{script.name}\0{script.weight}\0{script.text}\0".encode(errors="surrogateescape")
            )
        digest.update(repr(sorted(self.variables.items())).encode())
        return digest.hexdigest()


def read_script(path: str, weight: int = 1) -> WorkloadScript:
    """A script file; `-` is the standard input. Raises WorkloadError where it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise WorkloadError(f'could not open file "{path}": {error.strerror}') from None
    text = data.decode("utf-8", "surrogateescape")
    return WorkloadScript(path, weight, text, source=path)


def of_scripts(name: str, scripts: Sequence[WorkloadScript], description: str = "") -> Workload:
    """A workload that is nothing but scripts: it makes no data."""
    return Workload(
        name=name,
        folder=Path(),
        description=description,
        scale=1,
        writes=True,
        init=(),
        scripts=tuple(scripts),
        load={},
        variables={},
    )


def _schema() -> type[BaseModel]:
    """The model of workload.toml; pydantic is imported only where a workload is read."""
    from pydantic import BaseModel, ConfigDict, Field

    class Script(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        file: str
        weight: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1

    class LoadDefaults(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        rate: str | None = None
        clients: Annotated[int, Field(ge=1)] | None = None
        latency_limit: str | None = None

    class Variant(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        description: str | None = None
        scale: Annotated[int, Field(ge=1, le=_SCALE_MAX)] | None = None
        writes: bool | None = None
        init: list[str] | None = None
        scripts: Annotated[list[Script], Field(min_length=1, max_length=1000)] | None = None
        load: LoadDefaults | None = None
        variables: dict[str, str | int | float] | None = None

    class File(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        description: str
        scale: Annotated[int, Field(ge=1, le=_SCALE_MAX)] = 1
        writes: bool = True
        init: list[str]
        scripts: Annotated[list[Script], Field(min_length=1, max_length=1000)]
        load: LoadDefaults = LoadDefaults()
        variables: dict[str, str | int | float] = {}
        variants: dict[str, Variant] = {}

    return File


def shipped() -> list[str]:
    """The names of the workloads that come with pgpaces."""
    return sorted(folder.parent.name for folder in SHIPPED.glob(f"*/{FILE}"))


def find(name: str) -> Workload:
    """The workload called `name`: a shipped one, or a folder; NAME/VARIANT: a variant of it.

    Raises WorkloadError where there is none or its folder is not as it should be.
    """
    base, _, variant = name.rpartition("/")
    looks_like_path = "/" in name or name in {".", ".."}
    if not looks_like_path and (SHIPPED / name / FILE).is_file():
        return read(SHIPPED / name)
    folder = Path(name).expanduser()
    if (folder / FILE).is_file():
        return read(folder)
    if base and "/" not in base and (SHIPPED / base / FILE).is_file():
        return read(SHIPPED / base, variant)
    if base and (folder.parent / FILE).is_file():
        return read(folder.parent, variant)
    if folder.is_dir():
        raise WorkloadError(
            f"folder '{name}' is not a workload: it has no {FILE}",
            f"`pgpaces workload new {name}` writes one",
        )
    near = difflib.get_close_matches(name, shipped(), n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    raise WorkloadError(
        f"there is no workload '{name}'",
        f"{guess}shipped are {', '.join(shipped())}; or name a folder, such as ./{Path(name).name}",
    )


def variant(base: Workload, name: str) -> Workload:
    """Another variant of a workload. Raises WorkloadError where it has none of this name."""
    return read(base.folder, name)


def read(folder: Path, variant: str | None = None) -> Workload:
    """The workload in `folder`, or a variant of it. Raises WorkloadError."""
    document = _document(folder / FILE)
    name = folder.resolve().name
    if variant is not None:
        if variant not in document["variants"]:
            near = ", ".join(document["variants"]) or "none"
            raise WorkloadError(f"workload {name} has no variant '{variant}'", f"it has {near}")
        own = {k: v for k, v in document["variants"][variant].items() if v is not None}
        document, name = {**document, **own}, f"{name}/{variant}"
    return Workload(
        name=name,
        folder=folder,
        description=document["description"],
        scale=document["scale"],
        writes=document["writes"],
        init=tuple(_init_step(folder, entry) for entry in document["init"]),
        scripts=tuple(
            WorkloadScript(
                Path(entry["file"]).stem, entry["weight"], _text(folder, folder / entry["file"])
            )
            for entry in document["scripts"]
        ),
        load={k: str(v) for k, v in document["load"].items() if v is not None},
        variables={name: str(value) for name, value in document["variables"].items()},
        variants=tuple(document["variants"]),
    )


def _init_step(folder: Path, entry: str) -> InitStep:
    path = folder / entry
    return InitStep(path.name, path, _text(folder, path))


def _document(path: Path) -> dict[str, Any]:
    from pydantic import ValidationError

    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path} is not TOML: {error}") from None
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read: {error.strerror}") from None
    schema = _schema()
    try:
        return schema.model_validate(raw).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        near = difflib.get_close_matches(key, schema.model_fields, n=1)
        hint = f"did you mean '{near[0]}'?" if first["type"] == "extra_forbidden" and near else None
        raise WorkloadError(f"{path}: key '{key}': {first['msg'].lower()}", hint) from None


def _text(folder: Path, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise WorkloadError(
            f"workload {folder.name}: file {path.name} cannot be read: {error.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise WorkloadError(f"workload {folder.name}: {path.name} is not UTF-8") from None


def create(folder: Path) -> Path:
    """Writes a small workload to start from into `folder`, which must not exist or be empty.

    Raises WorkloadError where it holds something.
    """
    if folder.exists() and any(folder.iterdir()):
        raise WorkloadError(f"{folder} is not empty", "name a new folder")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", folder.name):
        raise WorkloadError(
            f"'{folder.name}' cannot be a workload's name", "use letters and digits"
        )
    shutil.copytree(SHIPPED / "_new", folder, dirs_exist_ok=True)
    (folder / "workload.toml.in").rename(folder / FILE)
    return folder
