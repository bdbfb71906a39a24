"""The schema of workload.toml. Imported only where a workload is read, as pydantic is."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pgpaces.units import COUNT_MAX

SCALE_MAX = 1_000_000


class Part(BaseModel):
    """What has these keys and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


_Words = (
    Annotated[str, Field(min_length=1)]
    | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
)


class Script(Part):
    """One of `scripts`."""

    file: str
    weight: Annotated[int, Field(ge=0, le=COUNT_MAX)] = 1


class LoadDefaults(Part):
    """`[load]`."""

    rate: str | None = None
    clients: Annotated[int, Field(ge=1, le=COUNT_MAX)] | None = None
    latency_limit: str | None = None
    start_every: str | None = None


class CommandKeys(Part):
    """`[command]`."""

    run: _Words
    before: _Words | None = None
    input: list[str] = []
    rows: str | None = None
    timeout: str = "2h"
    succeeds: Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=1)] = [0]


class CommandVariant(Part):
    """`[command]` of a variant."""

    run: _Words | None = None
    before: _Words | None = None
    input: list[str] | None = None
    rows: str | None = None
    timeout: str | None = None


class Program(Part):
    """A program of `init`."""

    run: _Words
    input: list[str] = []


class Variant(Part):
    """`[variants.NAME]`: what differs."""

    description: str | None = None
    kind: Literal["scripts", "command", "users"] | None = None
    scale: Annotated[int, Field(ge=1, le=SCALE_MAX)] | None = None
    writes: bool | None = None
    init: list[str | Program] | None = None
    scripts: Annotated[list[Script], Field(min_length=1, max_length=1000)] | None = None
    command: CommandVariant | None = None
    users: str | None = None
    load: LoadDefaults | None = None
    variables: dict[str, str | int | float] | None = None


class DataFileKeys(Part):
    """`[files.NAME]`: a file that programs read."""

    # A name, and perhaps a version: to pip other words are options, folders and addresses.
    package: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(==[\w.+!-]+)?$")
    ]
    path: str
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class NeedsKeys(Part):
    """`[needs]`: what must be there, and the Debian package that brings it."""

    programs: dict[str, str] = {}
    extensions: dict[str, str] = {}


class File(Part):
    """The whole file."""

    description: str
    kind: Literal["scripts", "command", "users"] = "scripts"
    scale: Annotated[int, Field(ge=1, le=SCALE_MAX)] = 1
    writes: bool = True
    init: list[str | Program]
    scripts: Annotated[list[Script], Field(max_length=1000)] = []
    command: CommandKeys | None = None
    users: str | None = None
    load: LoadDefaults = LoadDefaults()
    variables: dict[str, str | int | float] = {}
    files: dict[str, DataFileKeys] = {}
    needs: NeedsKeys = NeedsKeys()
    variants: dict[str, Variant] = {}
