"""The schema of workload.toml. Imported only when a workload is read."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, field

from pgpaces.core.tables import Table
from pgpaces.core.units import COUNT_MAX

SCALE_MAX = 1_000_000


_Words = (
    Annotated[str, Meta(min_length=1)]
    | Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)]
)


class Script(Table, frozen=True, kw_only=True):
    """One of `scripts`."""

    file: str
    weight: Annotated[int, Meta(ge=0, le=COUNT_MAX)] = 1


class LoadDefaults(Table, frozen=True, kw_only=True):
    """`[load]`."""

    rate: str | None = None
    clients: Annotated[int, Meta(ge=1, le=COUNT_MAX)] | None = None
    latency_limit: str | None = None
    start_every: str | None = None


class CommandKeys(Table, frozen=True, kw_only=True):
    """`[command]`."""

    run: _Words
    before: _Words | None = None
    input: tuple[str, ...] = ()
    rows: str | None = None
    timeout: str = "2h"
    succeeds: Annotated[tuple[Annotated[int, Meta(ge=0, le=255)], ...], Meta(min_length=1)] = (0,)


class CommandVariant(Table, frozen=True, kw_only=True):
    """`[command]` of a variant."""

    run: _Words | None = None
    before: _Words | None = None
    input: tuple[str, ...] | None = None
    rows: str | None = None
    timeout: str | None = None


class Program(Table, frozen=True, kw_only=True):
    """A program of `init`."""

    run: _Words
    input: tuple[str, ...] = ()


class Variant(Table, frozen=True, kw_only=True):
    """`[variants.NAME]`: the keys that differ."""

    description: str | None = None
    kind: Literal["scripts", "command", "users"] | None = None
    scale: Annotated[int, Meta(ge=1, le=SCALE_MAX)] | None = None
    writes: bool | None = None
    init: tuple[str | Program, ...] | None = None
    scripts: Annotated[tuple[Script, ...], Meta(min_length=1, max_length=1000)] | None = None
    command: CommandVariant | None = None
    users: str | None = None
    load: LoadDefaults | None = None
    variables: Mapping[str, str | int | float] | None = None


class DataFileKeys(Table, frozen=True, kw_only=True):
    """`[files.NAME]`: a file that programs read."""

    # A name, and perhaps a version: to pip other words are options, folders and addresses.
    package: Annotated[
        str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(==[\w.+!-]+)?\Z")
    ]
    path: str
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class NeedsKeys(Table, frozen=True, kw_only=True):
    """`[needs]`: requirements, with their Debian packages."""

    programs: Mapping[str, str] = field(default_factory=dict)
    extensions: Mapping[str, str] = field(default_factory=dict)


class File(Table, frozen=True, kw_only=True):
    """The whole file."""

    description: str
    kind: Literal["scripts", "command", "users"] = "scripts"
    scale: Annotated[int, Meta(ge=1, le=SCALE_MAX)] = 1
    writes: bool = True
    init: tuple[str | Program, ...]
    scripts: Annotated[tuple[Script, ...], Meta(max_length=1000)] = ()
    command: CommandKeys | None = None
    users: str | None = None
    load: LoadDefaults = field(default_factory=LoadDefaults)
    variables: Mapping[str, str | int | float] = field(default_factory=dict)
    files: Mapping[str, DataFileKeys] = field(default_factory=dict)
    needs: NeedsKeys = field(default_factory=NeedsKeys)
    variants: Mapping[str, Variant] = field(default_factory=dict)
