"""Whether a workload's folder may execute programs: its user confirms its content once.

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
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import stat
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
# The folder of this process's copies, by the home; and the locks on it against other processes.
_PLACES: dict[Path, Path] = {}
_LOCKS: list[int] = []
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
        place = Path(tempfile.mkdtemp(dir=_place(), prefix=""))
        target = place / original.name
        copy = _Copy(target, original, _Copying(original, target).digest())
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
        lock = os.open(root, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for remains in root.iterdir():
                _remove_unlocked(remains)
            place = Path(tempfile.mkdtemp(dir=root, prefix=""))
            _LOCKS.append(os.open(place, os.O_RDONLY))
            fcntl.flock(_LOCKS[-1], fcntl.LOCK_EX)
        finally:
            os.close(lock)
    except OSError:
        place = Path(tempfile.mkdtemp(prefix="pgpaces-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    _PLACES[root] = place
    return place


def _remove_unlocked(place: Path) -> None:
    """Removes the folder of a process that was killed."""
    with contextlib.suppress(OSError):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(place, ignore_errors=True)
        finally:
            os.close(descriptor)


class _Copying:
    def __init__(self, original: Path, target: Path) -> None:
        self._original, self._target = original, target
        root = home().resolve()
        self._excluded = {root, root / "cache" / "folders"}  # the copy is in them
        self._hash = hashlib.sha256(_FOLDER)
        self._bytes = 0

    def digest(self) -> str:
        """Copies the folder; returns the digest. Raises WorkloadError, OSError."""
        self._folder(Path())
        return self._hash.hexdigest()

    def _folder(self, at: Path) -> None:
        if len(at.parts) > _DEPTH:
            raise WorkloadError("folder-too-deep", path=self._original, maximum=_DEPTH)
        (self._target / at).mkdir()
        with os.scandir(self._original / at) as iterator:
            entries = sorted(iterator, key=lambda entry: os.fsencode(entry.name))
        for entry in entries:
            path = at / entry.name
            if entry.name in _LEFT_OUT or self._original / path in self._excluded:
                continue
            if entry.is_symlink():
                self._link(path)
            elif entry.is_dir(follow_symlinks=False):
                self._add(b"folder", os.fsencode(path))
                self._folder(path)
            elif entry.is_file(follow_symlinks=False):
                self._file(path)

    def _add(self, *words: bytes) -> None:
        """Adds words to the digest, each with its length, so that no two lists are the same."""
        for word in words:
            self._hash.update(b"%d:%s" % (len(word), word))

    def _link(self, path: Path) -> None:
        link = self._original / path
        try:
            to = link.resolve()
        except (OSError, RuntimeError):
            to = Path("/")  # a loop
        if not to.is_relative_to(self._original):
            about = f"workload {self._original.name}"
            raise WorkloadError("outside-folder", file=path, to=to).at(about)
        text = os.path.relpath(to, link.parent.resolve())
        (self._target / path).symlink_to(text)
        self._add(b"link", os.fsencode(path), os.fsencode(text))

    def _file(self, path: Path) -> None:
        descriptor = os.open(self._original / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return
            mode = 0o700 if status.st_mode & 0o111 else 0o600
            self._add(b"file", os.fsencode(path), b"%o" % mode)
            if status.st_size > _COPY_BYTES and self._linked(path, status):
                self._add(hashlib.file_digest(file, "sha256").digest())
                return
            content = hashlib.sha256()
            with (self._target / path).open("xb") as copy:
                for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
                    size = len(chunk)
                    self._bytes += size
                    if self._bytes > _TOTAL_BYTES:
                        gib = _TOTAL_BYTES // 2**30
                        raise WorkloadError("folder-too-large", path=self._original, maximum=gib)
                    content.update(chunk)
                    copy.write(chunk)
            (self._target / path).chmod(mode)
            self._add(content.digest())

    def _linked(self, path: Path, status: os.stat_result) -> bool:
        """Makes the copy a hard link to the file that is being read; whether that succeeded."""
        target = self._target / path
        try:
            os.link(self._original / path, target, follow_symlinks=False)
        except OSError:
            return False
        if os.path.samestat(target.lstat(), status):
            return True
        target.unlink()
        return False


def actions_of(candidate: Workload) -> tuple[Action, ...]:
    """The actions of a workload, without those of scripts that the user named.

    Raises WorkloadError if SQL includes files outside of the folder, as far as the search finds it.
    """
    found = [*programs_of(candidate)]
    for step in candidate.init:
        if step.run is None:
            visited = {step.path.resolve()}
            found += _of_sql(candidate.folder, step.path, step.text, visited=visited)
    for name, command in _commands(candidate):
        if command.is_sql:
            found += _of_server(name, command.text)
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
    for step in candidate.init:
        if step.run is not None:
            yield Action("program that makes data", workload.FILE, step.text)
    if candidate.command is not None:
        if candidate.command.before is not None:
            text = workload.words_text(candidate.command.before)
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
