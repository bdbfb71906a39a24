"""Reads every workload that is run (`find`, `variant`), and knows whether it may execute programs.

The user of a folder confirms its content once.

Programs of shipped workloads and of the user's own options are executed. Every other folder is read
from a private copy, so that later changes of the folder are not executed; its digest is that of the
copy.

HOME/trust/DIGEST          confirmations, by the digest of all files of a folder, or a script
HOME/cache/folders/NAME    copies, which exist as long as the pgpaces process that uses them

An unconfirmed workload executes no programs: scripts run, and psql runs SQL without its commands.

The programs that files would execute are found by the engine's parser in scripts, and by a simple
search in SQL files: an indication, no guard. The guard is that psql itself refuses its commands.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.core.errors import ScriptError, TrustError, WorkloadError
from pgpaces.core.home import alone, home, is_there, make_folder
from pgpaces.spec import workload
from pgpaces.spec.setup import ScriptCommand
from pgpaces.spec.workload import Workload, WorkloadScript, commands_in

# Folders of tools, and of files that Python compiles again.
_LEFT_OUT = {".git", ".hg", ".svn", "__pycache__"}
# Prefixes, so that no script has the digest of a folder, whatever its text.
_FOLDER, _SCRIPT = b"pgpaces folder 1\n", b"pgpaces script 1\n"
_COPY_BYTES = 64 * 2**20  # a larger file is linked, if possible
_TOTAL_BYTES = 2**30
_DEPTH = 64
_CHUNK_BYTES = 2**20


_SHELL = ("\\shell", "\\setshell")
_INCLUDES_MAX = 100
_MODULES = (".py", ".pyc", ".so")
# An unterminated part extends to the end of the text, so that the search does not backtrack.
_PARTS = re.compile(
    r"--[^\n]*|/\*.*?(?:\*/|\Z)"
    r"|(?P<data>\bcopy\s+(?:\"[^\"]*\"|[^\s(;'\"\\])+\s*(?:\([^();'\\]*\))?\s*from\s+stdin\b"
    r"[^;\\]{0,500};[^\n]*\n.*?(?:^\\\.|\Z))"
    r"|(?P<string>\$(?P<tag>[^\W\d]\w*)?\$.*?(?:\$(?P=tag)\$|\Z)"
    r"|\$\$.*?(?:\$\$|\Z)"
    r"|\be'(?:[^'\\]|\\.|'')*(?:'|\Z)|'(?:[^']|'')*(?:'|\Z)|\"(?:[^\"]|\"\")*(?:\"|\Z))"
    r"|\\[;:]|(?P<psql>\\[^\n]*)",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
_PROGRAM = re.compile(r"\b(?:from|to)\s+program\b\s*(?:e?'|\$|:)[^;\n]{0,500}", re.IGNORECASE)
_COPY = re.compile(r"\bcopy\b[^;]*\Z", re.IGNORECASE)
_COPY_CHARACTERS = 500  # before its program
_FILE = re.compile(
    r"\\(?P<what>include_relative|include|ir|i|copy)\b(?P<rest>[^\n]*)", re.IGNORECASE
)
_COPIED = re.compile(r".*\b(?:from|to)\s+(?!program\b|stdin\b|stdout\b|pstd)(?P<rest>.*)", re.I)
_NAME = re.compile(r"\s*(?:'(?P<single>(?:[^']|'')*)'|\"(?P<double>[^\"]*)\"|(?P<bare>[^\s;]+))")


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


def answer(trust: bool) -> Consent:
    """The answer of a caller who specifies in advance whether the workloads are trusted."""
    return lambda question: trust


refuse, grant = answer(False), answer(True)


def of_typed(consent: Consent) -> Consent:
    """Consent to every script, because the user named it; for folders as before."""
    return lambda question: question.path.is_file() or consent(question)


def find(name: str, consent: Consent = refuse) -> Workload:
    """The workload called `name`, ready to run.

    consent: whether an unconfirmed folder may execute programs. Raises WorkloadError, and
    TrustError if it may not.
    """
    return _ready(*workload.located(name), consent)


def variant(base: Workload, name: str, consent: Consent = refuse) -> Workload:
    """Another variant of a workload. Raises WorkloadError if it does not exist, TrustError."""
    return _ready(base.folder, name, consent)


def _ready(folder: Path, variant: str | None, consent: Consent) -> Workload:
    candidate = workload.read(folder, variant)  # whose errors name the folder itself
    if candidate.trusted:
        return workload.performed(candidate)
    copy = _COPIES.get(folder) or _copied(folder)
    candidate = workload.read(copy.folder, variant)
    executes = actions_of(candidate)
    if not (trusted := _recorded(copy.digest)):
        listed = actions_of_folder(candidate) if executes else ()
        if trusted := consent(Question(copy.original, listed)):
            _record(copy.digest, copy.original, listed)
        elif executes:
            raise _unconfirmed(candidate.name, copy.original)
    return workload.performed(replace(candidate, trusted=trusted, original=copy.original))


def _unconfirmed(name: str, folder: Path) -> TrustError:
    return TrustError("workload-unconfirmed", workload=name, folder=shlex.quote(str(folder)))


def script(path: str, weight: int, consent: Consent) -> WorkloadScript:
    """A script that an experiment names. Raises WorkloadError, and TrustError as for folders."""
    read = workload.read_script(path, weight)
    if listed := tuple(dict.fromkeys(_of_shell(read, read.name))):
        text = read.text.encode(errors="surrogateescape")
        digest = hashlib.sha256(_SCRIPT + text).hexdigest()
        if not _recorded(digest):
            if not consent(Question(Path(path), listed)):
                raise TrustError("script-unconfirmed", path=path)
            _record(digest, Path(path), listed)
    return read


def check(candidate: Workload) -> None:
    """Raises TrustError for an unconfirmed workload that would execute programs."""
    if not candidate.trusted and any(programs_of(candidate)):
        raise _unconfirmed(candidate.name, candidate.folder)


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
# The folder of this process's copies, by the home; and the locks on it against other processes.
_PLACES: dict[Path, Path] = {}
_LOCKS: list[int] = []
_CONFIRMED: set[str] = set()


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
        place = Path(tempfile.mkdtemp(dir=_place(), prefix=""))
        target = place / original.name
        copy = _Copy(target, original, _copy(original, target))
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


def _place() -> Path:
    """A private folder that is removed at the end of this process, or by a later one after a kill.

    A temporary folder if the home is not writable. Raises OSError.
    """
    root = home() / "cache" / "folders"
    if (existing := _PLACES.get(root)) is not None and existing.is_dir():
        return existing
    try:
        make_folder(root)
        with alone(root, ".*"):
            for remains in root.iterdir():
                with contextlib.suppress(OSError):  # locked: its process runs
                    lock = _locked(remains)
                    shutil.rmtree(remains, ignore_errors=True)
                    os.close(lock)
            place = Path(tempfile.mkdtemp(dir=root, prefix=""))
            _LOCKS.append(_locked(place))
    except OSError:
        place = Path(tempfile.mkdtemp(prefix="pgpaces-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    _PLACES[root] = place
    return place


def _locked(folder: Path) -> int:
    """A descriptor that holds the lock of a folder. Raises OSError if another process has it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _copy(original: Path, target: Path) -> str:
    """Copies a folder; returns the digest of the copy. Raises WorkloadError, OSError."""
    root = home().resolve()
    excluded = {root, root / "cache" / "folders"}  # the copy is in them
    digest, size, folders = hashlib.sha256(_FOLDER), 0, [Path()]
    while folders:
        at = folders.pop()
        if len(at.parts) > _DEPTH:
            raise WorkloadError("folder-too-deep", path=original, maximum=_DEPTH)
        (target / at).mkdir()
        for source in sorted((original / at).iterdir(), key=os.fsencode):
            path, words = at / source.name, list[bytes]()
            if source.name in _LEFT_OUT or source in excluded:
                continue
            status = source.lstat()
            if stat.S_ISDIR(status.st_mode):
                folders.append(path)
                words = [b"folder"]
            elif stat.S_ISLNK(status.st_mode):
                to = _link_inside(original, path)
                (target / path).symlink_to(to)
                words = [b"link", os.fsencode(to)]
            elif stat.S_ISREG(status.st_mode):
                content, mode, copied = _copy_file(source, target / path, _TOTAL_BYTES - size)
                size += copied
                if size > _TOTAL_BYTES:
                    gib = _TOTAL_BYTES // 2**30
                    raise WorkloadError("folder-too-large", path=original, maximum=gib)
                words = [b"file", content, b"%o" % mode]
            # Each word with its length, so that no two lists are the same.
            for word in (os.fsencode(path), *words) if words else ():
                digest.update(b"%d:%s" % (len(word), word))
    return digest.hexdigest()


def _link_inside(original: Path, path: Path) -> str:
    """Where a link in a folder leads, relative to it. Raises WorkloadError if that is outside."""
    link = original / path
    try:
        to = link.resolve()
    except (OSError, RuntimeError):
        to = Path("/")  # a loop
    if not to.is_relative_to(original):
        raise WorkloadError("outside-folder", file=path, to=to).at(f"workload {original.name}")
    return os.path.relpath(to, link.parent.resolve())


def _copy_file(source: Path, target: Path, most: int) -> tuple[bytes, int, int]:
    """Copies a file; its digest, its mode, the bytes that were copied, few more than `most`.

    A large one becomes a hard link to the file that is read, if possible. Raises OSError.
    """
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(source))
        mode = 0o700 if status.st_mode & 0o111 else 0o600
        if status.st_size > _COPY_BYTES:
            with contextlib.suppress(OSError):
                os.link(source, target, follow_symlinks=False)
            if target.exists():
                if os.path.samestat(target.lstat(), status):
                    return hashlib.file_digest(file, "sha256").digest(), mode, 0
                target.unlink()
        content, size = hashlib.sha256(), 0
        with target.open("xb") as copy:
            while size <= most and (chunk := file.read(_CHUNK_BYTES)):
                content.update(chunk)
                size += copy.write(chunk)
        target.chmod(mode)
        return content.digest(), mode, size


def actions_of(candidate: Workload) -> tuple[Action, ...]:
    """The actions of a workload, without those of scripts that the user named.

    Raises WorkloadError if SQL includes files outside of the folder, as far as the search finds it.
    """
    found = [*programs_of(candidate)]
    for step in candidate.init:
        if step.run is None:
            visited = {step.path.resolve()}
            found += _of_sql(candidate.folder, step.path, step.text, visited=visited)
    for each in _own_scripts(candidate):
        for command in _commands(each):
            if command.is_sql:
                found += _of_server(f"{each.name}.sql", command.text)
    return tuple(dict.fromkeys(found))


def actions_of_folder(candidate: Workload) -> tuple[Action, ...]:
    """The actions of a workload, its base and its variants. Raises as `actions_of`."""
    every = [candidate]
    for name in (None, *candidate.variants):
        try:
            every.append(workload.read(candidate.folder, name))
        except WorkloadError:
            continue  # it cannot be run in its present state
    return tuple(dict.fromkeys(action for each in every for action in actions_of(each)))


def programs_of(candidate: Workload) -> Iterator[Action]:
    """The programs that pgpaces itself would run on this machine: an exact list."""
    of_init = [step.text for step in candidate.init if step.run is not None]
    for text in of_init:
        yield Action("program that makes data", workload.FILE, text)
    if candidate.command is not None:
        if candidate.command.before is not None:
            text = workload.words_text(candidate.command.before)
            yield Action("program before each trial", workload.FILE, text)
        yield Action("program that is timed", workload.FILE, str(candidate.command))
    if of_init or candidate.command is not None:
        for file in candidate.files:
            yield Action("package that pip downloads", workload.FILE, file.package)
    if candidate.users_file is not None:
        yield Action("Python users", _relative(candidate.folder, candidate.users_file), "")
        for path in sorted(candidate.folder.rglob("*")):
            if path.suffix in _MODULES and path != candidate.users_file:
                yield Action("Python module they may import", _relative(candidate.folder, path), "")
    for script in _own_scripts(candidate):
        yield from _of_shell(script, f"{script.name}.sql")


def _relative(folder: Path, path: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _own_scripts(candidate: Workload) -> list[WorkloadScript]:
    return [each for each in candidate.scripts if candidate.is_scripts and not each.source]


def _commands(script: WorkloadScript) -> tuple[ScriptCommand, ...]:
    try:
        return commands_in(script.name, script.text)
    except ScriptError:
        return ()  # it does not run: an attempt reports the error


def _of_shell(script: WorkloadScript, name: str) -> Iterator[Action]:
    for command in _commands(script):
        if not command.is_sql and command.text.split(None, 1)[0].lower() in _SHELL:
            yield Action("shell command of a script", name, command.text)


def _of_sql(folder: Path, path: Path, text: str, *, visited: set[Path]) -> Iterator[Action]:
    """Actions of a file for psql, and of its includes whose names are no variables."""
    name, plain, last, lines = _relative(folder, path), list[str](), 0, set[str]()
    for part in _PARTS.finditer(text):
        plain += [text[last : part.start()], part["string"] or " "]
        last = part.end()
        if part["psql"] and part["psql"] not in lines:
            lines.add(part["psql"])
            yield Action("command of psql", name, part["psql"].strip())
            for file in _included(folder, path, part["psql"]):
                if file.resolve() not in visited and len(visited) < _INCLUDES_MAX:
                    visited.add(file.resolve())
                    try:
                        more = file.read_text("utf-8", "replace") if file.is_file() else ""
                    except OSError:
                        continue
                    yield from _of_sql(folder, file, more, visited=visited)
    yield from _of_server(name, "".join([*plain, text[last:]]))


def _included(folder: Path, path: Path, line: str) -> Iterator[Path]:
    """The files that a command of psql reads as SQL. Raises WorkloadError for one elsewhere."""
    for match in _FILE.finditer(line):
        rest = match["rest"]
        if match["what"].lower() == "copy":
            copied = _COPIED.fullmatch(rest)
            rest = copied["rest"] if copied else ""
        name = _NAME.match(rest)
        if name is None:
            continue
        file = (name["single"] or "").replace("''", "'") or name["double"] or name["bare"] or ""
        if not file or ":" in file or "`" in file or file.startswith("~"):
            continue  # the name is only known while psql runs
        try:
            inside = (path.parent / file).resolve().is_relative_to(folder.resolve())
        except (OSError, RuntimeError, ValueError):
            inside = False
        if not inside:
            about = f"workload {folder.name}: {path.name}"
            raise WorkloadError("outside-folder", file=file).at(about)
        if match["what"].lower() != "copy":
            yield path.parent / file


def _of_server(name: str, text: str) -> Iterator[Action]:
    for match in _PROGRAM.finditer(text):
        start = max(0, match.start() - _COPY_CHARACTERS)
        if (copy := _COPY.search(text[start : match.start()])) is not None:
            command = " ".join(f"{copy[0]}{match[0]}".split())
            yield Action("program that the server runs", name, command)
