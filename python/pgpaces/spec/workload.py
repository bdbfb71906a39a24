"""Workloads: folders of a `workload.toml`, SQL that creates the data, and scripts; its schema.

Reads and checks folders; runs nothing.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from pgpaces import _engine
from pgpaces.core import toml_files
from pgpaces.core.errors import PlanError, WorkloadError, similar
from pgpaces.core.texts import decoded, encoded
from pgpaces.core.units import COUNT_MAX, duration_ns, whole
from pgpaces.spec.setup import ScriptCommand
from pgpaces.spec.users import Users, of_file, of_functions

SHIPPED = Path(__file__).parents[1] / "workloads"
FILE = "workload.toml"
# A byte order mark at the beginning of a file is skipped, as psql does.
_ENCODING = ("utf-8-sig", "surrogateescape")
_SCALE_MAX = 1_000_000
# Keys that belong to one kind each; a variant of another kind does not inherit them.
_OF_A_KIND = ("scripts", "command", "users")
# The default load of a command: one execution, without warm-up.
_ONCE: Mapping[str, str] = {"transactions": "1", "warmup": "0s"}


class WorkloadScript(Struct, frozen=True):
    """A script: its name (the file's, without extension), weight and text.

    source: its name in messages. queries: the number it sends, if its author declares it. Bytes of
    the text that are not UTF-8 are lone surrogates. Raises PlanError for an invalid weight.
    """

    name: str
    weight: int
    text: str
    source: str = ""
    queries: int | None = None

    def __post_init__(self) -> None:
        whole(self.weight, f"{self.name}: weight", 0)


_Words = (
    Annotated[str, Meta(min_length=1)]
    | Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)]
)


def words_text(run: tuple[str, ...] | str) -> str:
    """The words of a program, or its text for the shell, as one types it."""
    return run if isinstance(run, str) else shlex.join(run)


class Command(toml_files.Table, frozen=True):
    """`[command]`: a program whose time is measured, instead of scripts.

    run: its words, or one text for the shell. before: a command that runs once before it. input:
    patterns of the files that it reads. rows: SQL that counts the loaded rows; None: the server's
    counters. timeout: of one execution. succeeds: exit codes of success. Raises PlanError.
    """

    run: _Words
    before: _Words | None = None
    input: tuple[str, ...] = ()
    rows: str | None = None
    timeout: str = "2h"
    succeeds: Annotated[tuple[Annotated[int, Meta(ge=0, le=255)], ...], Meta(min_length=1)] = (0,)

    def __post_init__(self) -> None:
        duration_ns(self.timeout, "timeout")

    @property
    def timeout_ns(self) -> int:
        return duration_ns(self.timeout, "timeout")

    def __str__(self) -> str:
        return words_text(self.run)

    @property
    def script(self) -> WorkloadScript:
        words = self.run.split() if isinstance(self.run, str) else self.run
        return WorkloadScript(Path(words[0]).name if words else "command", 1, str(self))


class Program(toml_files.Table, frozen=True):
    """A program of `init`. input: patterns of the files that it reads."""

    run: _Words
    input: tuple[str, ...] = ()


class InitStep(Struct, frozen=True):
    """A step that creates data: an SQL file for psql, with variables scale and seed, or a program.

    run: the program's words, or one text for the shell; None for a file. input: patterns of the
    files that it reads. path: of the file, or of the one that names the program.
    """

    name: str
    path: Path
    text: str
    run: tuple[str, ...] | str | None = None
    input: tuple[str, ...] = ()


class DataFileKeys(toml_files.Table, frozen=True):
    """`[files.NAME]`: a file that programs read, at `path` in a package of PyPI."""

    # A name, and perhaps a version: to pip other words are options, folders and addresses.
    package: Annotated[
        str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(==[\w.+!-]+)?\Z")
    ]
    path: str
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class DataFile(DataFileKeys, frozen=True):
    """It, with the name of the variable that has its path, or that of the user's own file."""

    name: str


class Needs(toml_files.Table, frozen=True, kw_only=True):
    """`[needs]`: required programs and extensions, by name, with their Debian packages.

    NN in the name of a package stands for PostgreSQL's major version.
    """

    programs: Mapping[str, str] = field(default_factory=dict)
    extensions: Mapping[str, str] = field(default_factory=dict)


class Workload(Struct, frozen=True, kw_only=True):
    """A workload as its folder describes it.

    load: the defaults of `[load]` as written, for example {"rate": "1/s"}.
    writes: its scripts change data, so each trial starts from a fresh copy.
    variants: names of its variants; the name of a variant is `NAME/VARIANT`.
    command: timed instead of scripts; one script represents it. users: perform Python functions
    instead; a script represents each function.
    files: those that its programs read and users may replace. users_file: the Python file of its
    users, which `performed` executes. trusted: it may execute its programs; for a folder only after
    the user's confirmation (trust.py). original: the user's folder, if `folder` is a private copy.
    alone: scripts, a command or functions without a workload, hence without data of their own.
    """

    name: str
    folder: Path = Path()
    description: str = ""
    scale: int = 1
    writes: bool = True
    init: tuple[InitStep, ...] = ()
    scripts: tuple[WorkloadScript, ...]
    load: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    variants: tuple[str, ...] = ()
    command: Command | None = None
    users: Users | None = None
    files: tuple[DataFile, ...] = ()
    needs: Needs = field(default_factory=Needs)
    users_file: Path | None = None
    trusted: bool = True
    original: Path | None = None
    alone: bool = False

    @property
    def is_scripts(self) -> bool:
        return self.command is None and self.users is None and self.users_file is None

    def uses(self, variable: str) -> bool:
        texts = [script.text for script in self.scripts] + [step.text for step in self.init]
        texts += [str(self.command), str(self.command.before)] if self.command else []
        texts += [self.users.text] if self.users else []
        word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(variable)}(?![A-Za-z0-9])", re.IGNORECASE)
        return any(word.search(text) for text in texts)

    @property
    def data_hash(self) -> str:
        """A hash of the init steps' text, on which the data depends.

        Without the inputs of programs: see database/inputs.py.
        """
        digest = hashlib.sha256()
        for step in self.init:
            digest.update(encoded(step.text) + b"\0")
            if step.run is not None:
                digest.update(repr((step.run, step.input)).encode(errors="surrogateescape"))
        return digest.hexdigest()

    @property
    def reference(self) -> str | None:
        """Its name for `find`: a shipped name, or a folder; None without a folder."""
        if self.folder == Path():
            return None
        base, slash, variant = self.name.partition("/")
        if self.folder.parent != SHIPPED:
            base = str(self.original or self.folder)
        return f"{base}{slash}{variant}"

    @property
    def hash(self) -> str:
        """A hash of what affects results: data, scripts or command, weights and variables."""
        digest = hashlib.sha256(self.data_hash.encode())
        for script in self.scripts:
            digest.update(encoded(f"{script.name}\0{script.weight}\0"))
            digest.update(encoded(script.text))
            digest.update(b"\0")
        digest.update(repr(sorted(self.variables.items())).encode())
        if self.command is not None:
            digest.update(repr(self.command).encode(errors="surrogateescape"))
        if self.users is not None:
            digest.update(self.users.text.encode(errors="surrogateescape"))
        return digest.hexdigest()


class Script(toml_files.Table, frozen=True):
    """One of `scripts`."""

    file: str
    weight: Annotated[int, Meta(ge=0, le=COUNT_MAX)] = 1


class LoadDefaults(toml_files.Table, frozen=True):
    """`[load]`."""

    rate: str | None = None
    clients: Annotated[int, Meta(ge=1, le=COUNT_MAX)] | None = None
    latency_limit: str | None = None
    start_every: str | None = None


class Keys(toml_files.Table, frozen=True, kw_only=True):
    """The keys of a workload; those of a variant are laid over them."""

    description: str
    kind: Literal["scripts", "command", "users"] = "scripts"
    scale: Annotated[int, Meta(ge=1, le=_SCALE_MAX)] = 1
    writes: bool = True
    init: tuple[str | Program, ...]
    scripts: Annotated[tuple[Script, ...], Meta(max_length=1000)] = ()
    command: Command | None = None
    users: str | None = None
    load: LoadDefaults = LoadDefaults()
    variables: Mapping[str, str | int | float] = field(default_factory=dict)
    files: Mapping[str, DataFileKeys] = field(default_factory=dict)
    needs: Needs = field(default_factory=Needs)


class File(Keys, frozen=True, kw_only=True):
    """The whole file. variants: the keys that differ, by the name of the variant."""

    variants: Mapping[str, Any] = field(default_factory=dict)


K = TypeVar("K", bound=Keys)


def read_script(path: str, weight: int = 1) -> WorkloadScript:
    """A script file; `-` is the standard input. Raises WorkloadError if it cannot be read."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise WorkloadError("unreadable-script", path=path, why=error.strerror) from None
    return WorkloadScript(path, weight, data.decode(*_ENCODING), source=path)


def of_scripts(name: str, scripts: Sequence[WorkloadScript], description: str = "") -> Workload:
    return Workload(name=name, description=description, scripts=tuple(scripts), alone=True)


def of_tasks(functions: Sequence[Callable[..., Any]], base: Workload | None = None) -> Workload:
    """Users that perform these functions, on the data of `base`. Raises WorkloadError."""
    users = of_functions(functions)
    base = base or of_scripts("users", (), "Python functions")
    return _with_users(replace(base, users_file=None, command=None, load={}), users)


def performed(base: Workload) -> Workload:
    """The workload with its users, whose Python file is executed. Raises WorkloadError."""
    file = base.users_file
    if file is None:
        return base
    named = (base.original or base.folder) / file.relative_to(base.folder)
    return _with_users(base, of_file(file, named))


def _with_users(base: Workload, users: Users) -> Workload:
    """It with a script for each task; the load of the workload goes before their own pause."""
    own, path = {"think_time": users.pause, "think": "fixed"}, f"{users.path or ''}"
    scripts = tuple(
        WorkloadScript(task.name, task.weight, task.source, path, task.queries)
        for task in users.tasks
    )
    load = {**({} if users.pause is None else own), **base.load}
    return replace(base, users=users, scripts=scripts, load=load)


def of_command(command: Command) -> Workload:
    script = command.script
    return Workload(name=script.name, scripts=(script,), load=_ONCE, command=command, alone=True)


def shipped() -> list[str]:
    return sorted(folder.parent.name for folder in SHIPPED.glob(f"*/{FILE}"))


def is_shipped(folder: Path) -> bool:
    return folder.resolve().is_relative_to(SHIPPED.resolve())


def find(name: str) -> Workload:
    return read(*located(name))


def located(name: str) -> tuple[Path, str | None]:
    """The folder of the workload called `name`, shipped or not, and the variant of NAME/VARIANT.

    Raises WorkloadError if there is none.
    """
    base, slash, variant = name.rpartition("/")
    try:
        folder = Path(name).expanduser()
    except RuntimeError:  # of an unknown user
        folder = Path(name)
    places: list[tuple[Path, str | None]] = [(folder, None)]
    if not slash:
        places.insert(0, (SHIPPED / name, None))
    elif base:
        places += [(SHIPPED / base, variant)] if "/" not in base else []
        places.append((folder.parent, variant))
    try:
        for place in places:
            if (place[0] / FILE).is_file():
                return place
        is_folder = folder.is_dir()
    except OSError as error:
        raise WorkloadError("unreadable-workload", path=name, why=error.strerror) from None
    if is_folder:
        raise WorkloadError("not-a-workload", folder=name, file=FILE)
    ours = shipped()
    near = similar(name, ours)
    raise WorkloadError(
        "unknown-workload", workload=name, near=near, shipped=ours, base=Path(name).name
    )


def read(folder: Path, variant: str | None = None) -> Workload:
    """The workload in `folder`, or a variant of it; executes nothing. Raises WorkloadError.

    `performed` adds the scripts of users.
    """
    path = _inside(folder, FILE)
    raw = toml_files.document(path, WorkloadError)
    whole, name = _checked(File, raw, path), folder.resolve().name
    variants = {
        each: _checked(Keys, _laid_over(raw, own), path, place=f"variants.{each}")
        for each, own in whole.variants.items()
    }
    for each, own in variants.items():
        _check_kind(own, f"{name}/{each}")
    keys: Keys = whole
    if variant is None:
        _check_kind(keys, name)
    else:
        if variant not in variants:
            near, every = similar(variant, variants), list(variants) or None
            raise WorkloadError(
                "unknown-variant", workload=name, variant=variant, near=near, variants=every
            )
        keys, name = variants[variant], f"{name}/{variant}"
    _check_words(folder, keys)
    command, load = keys.command, {k: str(v) for k, v in asdict(keys.load).items() if v is not None}
    scripts = tuple(
        WorkloadScript(Path(each.file).stem, each.weight, _text(folder, each.file))
        for each in keys.scripts
    )
    if command is not None:
        if loads := [key for key in ("rate", "clients") if key in load]:
            raise WorkloadError("command-with-load", workload=name, key=loads[0])
        scripts, load = (command.script,), {**_ONCE, **load}
    return Workload(
        name=name,
        folder=folder,
        description=keys.description,
        scale=keys.scale,
        writes=keys.writes or command is not None,
        init=tuple(_init_step(folder, entry) for entry in keys.init),
        scripts=scripts,
        load=load,
        command=command,
        users_file=_inside(folder, keys.users) if keys.users else None,
        trusted=is_shipped(folder),
        variables={name: str(value) for name, value in keys.variables.items()},
        variants=tuple(variants),
        files=tuple(DataFile(**asdict(own), name=name) for name, own in keys.files.items()),
        needs=keys.needs,
    )


def _check_kind(keys: Keys, name: str) -> None:
    if not getattr(keys, keys.kind):
        raise WorkloadError("kind-missing", workload=name, own=keys.kind)
    for other in _OF_A_KIND:
        if other != keys.kind and getattr(keys, other):
            raise WorkloadError("two-kinds", workload=name, own=keys.kind, other=other)


def _laid_over(raw: Mapping[str, Any], own: Any) -> Any:
    """The keys of a file with those of a variant in their place."""
    if not isinstance(own, Mapping):
        return own  # refused as the whole
    kind = raw.get("kind", "scripts")
    gone = () if own.get("kind", kind) == kind else (*_OF_A_KIND, "load")
    base = {key: value for key, value in raw.items() if key not in ("variants", *gone)}
    if isinstance(command := own.get("command"), dict):
        own = {**own, "command": base.get("command", {}) | command}
    return {**base, **own}


def _check_words(folder: Path, keys: Keys) -> None:
    """Raises WorkloadError if words of programs name files above the folder."""
    programs: list[Program | Command] = [e for e in keys.init if not isinstance(e, str)]
    programs += [keys.command] if keys.command else []
    for each in programs:
        for words in (each.run, getattr(each, "before", None) or (), each.input):
            for word in () if isinstance(words, str) else words:
                if Path(word).parts[:1] == ("..",):
                    _inside(folder, word)


def _init_step(folder: Path, entry: str | Program) -> InitStep:
    if isinstance(entry, str):
        path = _inside(folder, entry)
        return InitStep(path.name, path, _text(folder, entry))
    run = entry.run
    words = run.split() if isinstance(run, str) else run
    # The name of the script rather than of an interpreter that a placeholder names.
    first = next((word for word in words if not word.startswith("{")), "program")
    return InitStep(Path(first).name, folder / FILE, words_text(run), run, entry.input)


def _checked(kind: type[K], raw: Any, path: Path, *, place: str = "") -> K:
    """A document as its schema, with defaults. Raises WorkloadError, which names the key."""
    try:
        return toml_files.table(kind, raw, place)
    except PlanError as wrong:
        wrong.values.pop("keys", None)  # of the whole file, not of a table in it
        error = WorkloadError(wrong.name, **wrong.values)
        if place and "key" not in wrong.values:
            error = error.at(place)
        raise error.at(str(path)) from None


def _inside(folder: Path, name: str) -> Path:
    """A file by its name in the folder. Raises WorkloadError for one outside of it."""
    path, root = folder / name, SHIPPED if is_shipped(folder) else folder
    about = f"workload {folder.name}"
    try:
        resolved = path.resolve()
        irregular = resolved.exists() and not resolved.is_file()
    except (OSError, RuntimeError, ValueError) as error:
        raise WorkloadError("cannot-read", path=name, why=str(error)).at(about) from None
    if not resolved.is_relative_to(root.resolve()):
        to = resolved if path.is_symlink() else None
        raise WorkloadError("outside-folder", file=name, to=to).at(about)
    if irregular:
        raise WorkloadError("not-a-regular-file", file=name).at(about)
    return path


def _text(folder: Path, name: str) -> str:
    path = _inside(folder, name)
    try:
        return path.read_text(*_ENCODING)
    except OSError as error:
        about = f"workload {folder.name}"
        raise WorkloadError("cannot-read", path=path.name, why=error.strerror).at(about) from None


def create(folder: Path) -> Path:
    """Writes a small workload to start from into `folder`, which must be new or empty.

    Raises WorkloadError if it is not empty, or cannot be written.
    """
    try:
        occupied = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise WorkloadError("unwritable-folder", path=folder, why=error.strerror) from None
    if occupied:
        raise WorkloadError("folder-not-empty", path=folder)
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", folder.name):
        raise WorkloadError("bad-workload-name", workload=folder.name)
    shutil.copytree(SHIPPED / "_new", folder, dirs_exist_ok=True)
    (folder / "workload.toml.in").rename(folder / FILE)
    return folder


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
