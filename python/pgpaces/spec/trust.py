"""Whether a workload's folder may execute programs: its user confirms its content once.

Programs of shipped workloads and of the user's own options are executed. Every other folder is read
from a private copy, so that later changes of the folder are not executed; its digest is that of the
copy.

HOME/trust/DIGEST has the confirmations, by the digest of all files of a folder, or of a script.

An unconfirmed workload executes no programs: scripts run, and psql runs SQL without its commands.

The engine's parser finds the programs of scripts. A search for lines with commands of psql, and for
COPY ... PROGRAM, is only a hint. The guard is that psql itself refuses its commands.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.core.errors import ScriptError, TrustError, WorkloadError
from pgpaces.core.home import home, is_there, make_folder
from pgpaces.spec import workload
from pgpaces.spec.setup import ScriptCommand
from pgpaces.spec.workload import Workload, WorkloadScript, commands_in

# Folders of tools, and of files that Python compiles again.
_LEFT_OUT = {".git", ".hg", ".svn", "__pycache__"}
# Prefixes, so that no script has the digest of a folder, whatever its text.
_FOLDER, _SCRIPT = b"pgpaces folder 1\n", b"pgpaces script 1\n"
_COPY_BYTES = 64 * 2**20  # a larger file is linked
_TOTAL_BYTES = 2**30


_SHELL = ("\\shell", "\\setshell")
_MODULES = (".py", ".pyc", ".so")
# Lines of SQL that are commands of psql, and statements by which the server runs a program.
_PSQL = re.compile(r"^[ \t]*\\[a-z!][^\n]*", re.MULTILINE)
_PROGRAM = re.compile(r"\bcopy\b[^;]{0,500}?\bprogram\b[^;]{0,500}", re.IGNORECASE)


class Action(Struct, frozen=True):
    """Something that is executed: what runs it, in words; the file that asks for it; its text."""

    what: str
    file: str
    text: str


class Question(Struct, frozen=True):
    """May a folder, or a script, execute these actions? Without any, it is not asked."""

    path: Path
    actions: tuple[Action, ...]


Consent = Callable[[Question], bool]


def refuse(question: Question) -> bool:
    """The answer without a user to ask."""
    return False


def grant(question: Question) -> bool:
    """The answer if the user trusts the workloads that are named."""
    return True


def answer(trust: bool) -> Consent:
    """The answer of a caller who specifies in advance whether the workloads are trusted."""
    return grant if trust else refuse


def of_typed(consent: Consent) -> Consent:
    """Consent to every script, because the user named it; for folders as before."""
    return lambda question: question.path.is_file() or consent(question)


def find(name: str, consent: Consent = refuse) -> Workload:
    """The workload called `name`, ready to run.

    consent: whether an unconfirmed folder may execute programs. Raises WorkloadError, and
    TrustError if it may not.
    """
    folder, variant = workload.located(name)
    candidate = workload.read(folder, variant)  # whose errors name the folder itself
    if candidate.trusted:
        return workload.performed(candidate)
    copy = _copied(folder)
    return _agreed(copy, workload.read(copy.folder, variant), consent)


def variant(base: Workload, name: str, consent: Consent = refuse) -> Workload:
    """Another variant of a workload. Raises WorkloadError if it does not exist, TrustError."""
    candidate = workload.read(base.folder, name)
    if candidate.trusted:
        return workload.performed(candidate)
    copy = _COPIES.get(base.folder) or _copied(base.folder)
    return _agreed(copy, workload.read(copy.folder, name), consent)


def script(path: str, weight: int, consent: Consent) -> WorkloadScript:
    """A script that an experiment names. Raises WorkloadError, and TrustError as for folders."""
    read = workload.read_script(path, weight)
    if listed := actions_of_script(read):
        text = read.text.encode(errors="surrogateescape")
        digest = hashlib.sha256(_SCRIPT + text).hexdigest()
        if not _recorded(digest):
            if not consent(Question(Path(path), listed)):
                raise TrustError("script-unconfirmed", path=path)
            _record(digest, Path(path), listed)
    return read


def check(candidate: Workload) -> None:
    """Raises TrustError for an unconfirmed workload that would execute programs."""
    if not candidate.trusted and next(programs_of(candidate), None) is not None:
        shown = shlex.quote(str(candidate.folder))
        raise TrustError("workload-unconfirmed", workload=candidate.name, folder=shown)


def confirm_made(folder: Path) -> None:
    """Confirms a folder that pgpaces just created, if it executes nothing and can be copied."""
    with contextlib.suppress(WorkloadError):
        copy = _copied(folder)
        if not actions_of_folder(workload.read(copy.folder)):
            _record(copy.digest, copy.original, ())


class _Copy(Struct, frozen=True):
    folder: Path
    original: Path
    digest: str


_COPIES: dict[Path, _Copy] = {}
_CONFIRMED: set[str] = set()


def _agreed(copy: _Copy, candidate: Workload, consent: Consent) -> Workload:
    executes = actions_of(candidate)
    if not (trusted := _recorded(copy.digest)):
        listed = actions_of_folder(candidate) if executes else ()
        if trusted := consent(Question(copy.original, listed)):
            _record(copy.digest, copy.original, listed)
        elif executes:
            shown = shlex.quote(str(copy.original))
            raise TrustError("workload-unconfirmed", workload=candidate.name, folder=shown)
    return workload.performed(replace(candidate, trusted=trusted, original=copy.original))


def _recorded(digest: str) -> bool:
    return digest in _CONFIRMED or is_there(home() / "trust" / digest, Path.is_file)


def _record(digest: str, path: Path, listed: tuple[Action, ...]) -> None:
    """Stores a confirmation; if that fails, the next run asks again."""
    _CONFIRMED.add(digest)
    lines = [f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC", str(path)]
    lines += [f"{each.what}, {each.file}: {each.text}" for each in listed]
    with contextlib.suppress(OSError):
        folder = home() / "trust"
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)
        text = "".join(f"{' '.join(line.split())}\n" for line in lines)
        (folder / digest).write_bytes(text.encode("utf-8", "backslashreplace"))


def _copied(folder: Path) -> _Copy:
    original = folder.resolve()
    try:
        place = Path(tempfile.mkdtemp(dir=_folder_of_copies().name, prefix=""))
        target = place / original.name
        _copy(original, target)
        copy = _Copy(target, original, _digest(target))
    except OSError as error:
        raise WorkloadError("cannot-copy-folder", path=folder, why=str(error)) from None
    # One copy of the same content is enough.
    for earlier in list(_COPIES.values()):
        same = (earlier.original, earlier.digest) == (copy.original, copy.digest)
        if same and earlier.folder.is_dir():
            shutil.rmtree(place, ignore_errors=True)
            return earlier
    _COPIES[target] = copy
    return copy


@functools.cache
def _folder_of_copies() -> tempfile.TemporaryDirectory[str]:
    """It is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="pgpaces-")


def _paths(root: Path) -> Iterator[Path]:
    """What a copy of a folder consists of: links, folders, and regular files, in a fixed order."""
    own = home().resolve()

    def fail(error: OSError) -> None:
        raise error

    for at, folders, files in os.walk(root, onerror=fail):
        folder = Path(at)
        folders[:] = sorted(n for n in folders if n not in _LEFT_OUT and folder / n != own)
        for path in (folder / name for name in (*folders, *sorted(files))):
            if path.is_symlink() or path.is_dir() or path.is_file():
                yield path


def _copy(original: Path, target: Path) -> None:
    """Copies a folder. Raises WorkloadError if it is too large or its links lead out of it."""
    size = 0
    target.mkdir()
    for path in _paths(original):
        at = path.relative_to(original)
        copy = target / at
        if path.is_symlink():
            copy.symlink_to(os.path.relpath(_inside(path, original), path.parent.resolve()))
        elif path.is_dir():
            copy.mkdir()
        elif (about := path.stat()).st_size > _COPY_BYTES:
            try:
                os.link(path, copy, follow_symlinks=False)
            except OSError:  # on another file system
                copy.symlink_to(path)
        else:
            if (size := size + about.st_size) > _TOTAL_BYTES:
                gib = _TOTAL_BYTES // 2**30
                raise WorkloadError("folder-too-large", path=original, maximum=gib)
            # Not through a link that has replaced the file meanwhile.
            source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(source, "rb") as file, copy.open("xb") as made:
                shutil.copyfileobj(file, made)
            copy.chmod(0o700 if about.st_mode & 0o111 else 0o600)


def _inside(link: Path, folder: Path) -> Path:
    """Where a link leads. Raises WorkloadError if that is outside of its folder."""
    try:
        to = link.resolve()
    except (OSError, RuntimeError):
        to = Path("/")  # a loop
    if not to.is_relative_to(folder):
        about = f"workload {folder.name}"
        raise WorkloadError("outside-folder", file=link.relative_to(folder), to=to).at(about)
    return to


def _digest(folder: Path) -> str:
    """A digest of the names, kinds, and contents of all files in a copy."""
    found = hashlib.sha256(_FOLDER)
    for path in _paths(folder):
        words = [os.fsencode(path.relative_to(folder))]
        if path.is_symlink() and not path.readlink().is_absolute():
            words += [b"link", os.fsencode(path.readlink())]
        elif path.is_file():
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
            words += [b"program" if path.stat().st_mode & 0o111 else b"file", content]
        for word in words:  # each with its length, so that no two lists are the same
            found.update(b"%d:%s" % (len(word), word))
    return found.hexdigest()


def actions_of(candidate: Workload) -> tuple[Action, ...]:
    """The actions of a workload, without those of scripts that the user named."""
    found = [*programs_of(candidate)]
    for step in candidate.init:
        if step.run is None:
            found += _of_sql(_relative(candidate.folder, step.path), step.text)
    for name, command in _commands(candidate):
        if command.is_sql:
            found += _of_server(name, command.text)
    return tuple(dict.fromkeys(found))


def actions_of_folder(candidate: Workload) -> tuple[Action, ...]:
    """The actions of a workload, its base and its variants."""
    every = [candidate]
    for name in (None, *candidate.variants):
        try:
            every.append(workload.read(candidate.folder, name))
        except WorkloadError:
            continue  # it cannot be run in its present state
    return tuple(dict.fromkeys(action for each in every for action in actions_of(each)))


def programs_of(candidate: Workload) -> Iterator[Action]:
    """The programs that pgpaces itself would run on this machine: an exact list."""
    for step in candidate.init:
        if step.run is not None:
            yield Action("program that makes data", workload.FILE, step.text)
    if candidate.command is not None:
        if candidate.command.before is not None:
            before = candidate.command.before
            text = before if isinstance(before, str) else str(workload.Command(before))
            yield Action("program before each trial", workload.FILE, text)
        yield Action("program that is timed", workload.FILE, str(candidate.command))
    if any(step.run is not None for step in candidate.init) or candidate.command is not None:
        for file in candidate.files:
            yield Action("package that pip downloads", workload.FILE, file.package)
    if candidate.users_file is not None:
        yield Action("Python users", _relative(candidate.folder, candidate.users_file), "")
        for path in sorted(candidate.folder.rglob("*")):
            if path.suffix in _MODULES and path != candidate.users_file:
                yield Action("Python module they may import", _relative(candidate.folder, path), "")
    yield from _of_shell(_commands(candidate))


def _relative(folder: Path, path: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _commands(candidate: Workload) -> Iterator[tuple[str, ScriptCommand]]:
    for script in candidate.scripts if candidate.is_scripts else ():
        name = f"{script.name}.sql"
        for command in () if script.source else _parsed(name, script.text):
            yield name, command


def _parsed(name: str, text: str) -> tuple[ScriptCommand, ...]:
    try:
        return commands_in(name, text)
    except ScriptError:
        return ()  # it does not run: an attempt reports the error


def actions_of_script(script: WorkloadScript) -> tuple[Action, ...]:
    """The shell commands of a script that is no part of a folder."""
    return tuple(dict.fromkeys(_of_shell((script.name, each) for each in _parsed("", script.text))))


def _of_shell(commands: Iterable[tuple[str, ScriptCommand]]) -> Iterator[Action]:
    for name, command in commands:
        if not command.is_sql and command.text.split(None, 1)[0].lower() in _SHELL:
            yield Action("shell command of a script", name, command.text)


def _of_sql(name: str, text: str) -> Iterator[Action]:
    for line in dict.fromkeys(_PSQL.findall(text)):
        yield Action("command of psql", name, line.strip())
    yield from _of_server(name, text)


def _of_server(name: str, text: str) -> Iterator[Action]:
    for statement in _PROGRAM.findall(text):
        yield Action("program that the server runs", name, " ".join(statement.split()))
