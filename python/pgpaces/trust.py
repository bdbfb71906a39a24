"""Whether a workload's folder may execute programs: its user says so once, for what is in it.

What shipped workloads and the user's own words execute is executed. Every other folder is read from
a private copy, so that nothing which changes meanwhile is executed; its digest is that of the copy.

HOME/trust/DIGEST          what was confirmed, by the digest of all files of a folder, or a script
HOME/cache/folders/NAME    copies, as long as the pgpaces that uses them

What is not confirmed executes nothing: scripts run, and psql runs SQL without its own commands.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pgpaces import actions, workload
from pgpaces.actions import Action
from pgpaces.errors import TrustError, WorkloadError
from pgpaces.home import home
from pgpaces.workload import Workload, WorkloadScript

# Of tools, and no part of a workload; what Python compiled it compiles again.
_LEFT_OUT = {".git", ".hg", ".svn", "__pycache__"}
# So that no script has the digest of a folder, whatever it says.
_FOLDER, _SCRIPT = b"pgpaces folder 1\n", b"pgpaces script 1\n"
_COPY_BYTES = 64 * 2**20  # a file that is longer is linked, where that can be
_TOTAL_BYTES = 2**30
_DEPTH = 64
_CHUNK_BYTES = 2**20


class Question(Struct, frozen=True):
    """Whether a folder, or a script, may execute what it would; empty: nothing that was found."""

    path: Path
    actions: tuple[Action, ...]


Consent = Callable[[Question], bool]


def refuse(question: Question) -> bool:
    """What is said where nobody is asked."""
    return False


def grant(question: Question) -> bool:
    """What is said where the user trusts the workloads that are named."""
    return True


def answer(trust: bool) -> Consent:
    """What whoever says beforehand whether the workloads are trusted says when asked."""
    return grant if trust else refuse


def of_typed(consent: Consent) -> Consent:
    """The same where the user named every script: these may execute what they like."""
    return lambda question: question.path.is_file() or consent(question)


def find(name: str, consent: Consent = refuse) -> Workload:
    """The workload called `name`, to be run.

    consent: whether a folder that is not known may execute programs. Raises WorkloadError, and
    TrustError where it may not.
    """
    folder, variant = workload.located(name)
    found = workload.read(folder, variant)  # whose errors name the folder itself
    if found.trusted:
        return workload.performed(found)
    copy = _copied(folder)
    return _agreed(copy, workload.read(copy.folder, variant), consent)


def variant(base: Workload, name: str, consent: Consent = refuse) -> Workload:
    """Another variant of a workload. Raises WorkloadError where it has none, TrustError."""
    found = workload.read(base.folder, name)
    if found.trusted:
        return workload.performed(found)
    copy = _COPIES.get(base.folder) or _copied(base.folder)
    return _agreed(copy, workload.read(copy.folder, name), consent)


def script(path: str, weight: int, consent: Consent) -> WorkloadScript:
    """A script that an experiment names. Raises WorkloadError, and TrustError as for folders."""
    found = workload.read_script(path, weight)
    if listed := actions.of_script(found):
        text = found.text.encode(errors="surrogateescape")
        digest = hashlib.sha256(_SCRIPT + text).hexdigest()
        if not _recorded(digest):
            if not consent(Question(Path(path), listed)):
                raise TrustError(
                    f"script {path} has shell commands, and was not confirmed",
                    "read it; if you trust it, say --trust (in Python: trust=True)",
                )
            _record(digest, Path(path), listed)
    return found


def check(found: Workload) -> None:
    """Raises TrustError for what would execute something and was not confirmed."""
    if not found.trusted and next(actions.programs(found), None) is not None:
        raise _refusal(found, found.folder)


def confirm_made(folder: Path) -> None:
    """Confirms a folder that was just made here, if it executes nothing and can be copied."""
    with contextlib.suppress(WorkloadError):
        copy = _copied(folder)
        if not actions.of_folder(workload.read(copy.folder)):
            _record(copy.digest, copy.original, ())


class _Copy(Struct, frozen=True):
    """A copy of a folder, and the digest of what it holds."""

    folder: Path
    original: Path
    digest: str


_COPIES: dict[Path, _Copy] = {}
# Where this process has its copies, by the home; and what holds that against other processes.
_PLACES: dict[Path, Path] = {}
_HELD: list[int] = []
_CONFIRMED: set[str] = set()


def _agreed(copy: _Copy, found: Workload, consent: Consent) -> Workload:
    executes = actions.of(found)
    if not (trusted := _recorded(copy.digest)):
        listed = actions.of_folder(found) if executes else ()
        if trusted := consent(Question(copy.original, listed)):
            _record(copy.digest, copy.original, listed)
        elif executes:
            raise _refusal(found, copy.original)
    return workload.performed(replace(found, trusted=trusted, original=copy.original))


def _refusal(found: Workload, folder: Path) -> TrustError:
    return TrustError(
        f"workload {found.name} executes programs, and its folder was not confirmed",
        f"`pgpaces workload show {shlex.quote(str(folder))}` lists them; if you trust the folder,"
        " say --trust (in Python: trust=True)",
    )


def _recorded(digest: str) -> bool:
    return digest in _CONFIRMED or (home() / "trust" / digest).is_file()


def _record(digest: str, path: Path, listed: tuple[Action, ...]) -> None:
    """Keeps that a content was confirmed; where nothing can be kept, the next run asks again."""
    _CONFIRMED.add(digest)
    lines = [f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC", str(path)]
    lines += [f"{each.what}, {each.file}: {each.text}" for each in listed]
    with contextlib.suppress(OSError):
        folder = home() / "trust"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = "".join(f"{' '.join(line.split())}\n" for line in lines)
        (folder / digest).write_bytes(text.encode("utf-8", "backslashreplace"))


def _copied(folder: Path) -> _Copy:
    """A copy of a folder's content as it is now. Raises WorkloadError."""
    original = folder.resolve()
    try:
        place = Path(tempfile.mkdtemp(dir=_place(), prefix=""))
        made = place / original.name
        copy = _Copy(made, original, _Copying(original, made).digest())
    except OSError as error:
        raise WorkloadError(
            f"folder {folder} cannot be copied: {error}",
            "set PGPACES_HOME to a folder of yours on a disk with room",
        ) from None
    # Of one content one copy is enough, however often it is asked for.
    known = next((each for each in list(_COPIES.values()) if _same(each, copy)), None)
    if known is not None:
        shutil.rmtree(place, ignore_errors=True)
        return known
    _COPIES[made] = copy
    return copy


def _same(one: _Copy, other: _Copy) -> bool:
    same = (one.original, one.digest) == (other.original, other.digest)
    return same and one.folder.is_dir()


def _place() -> Path:
    """A private folder that goes with this process, or with a later one if it is killed.

    Where the home cannot be written it is a temporary one. Raises OSError.
    """
    root = home() / "cache" / "folders"
    if (known := _PLACES.get(root)) is not None and known.is_dir():
        return known
    try:
        root.mkdir(parents=True, exist_ok=True)
        place = _locked(root)
    except OSError:
        place = Path(tempfile.mkdtemp(prefix="pgpaces-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    _PLACES[root] = place
    return place


def _locked(root: Path) -> Path:
    """A new folder in this one, locked; those that nobody has locked any more are removed."""
    lock = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in root.iterdir():
            _remove_left(left)
        place = Path(tempfile.mkdtemp(dir=root, prefix=""))
        _HELD.append(os.open(place, os.O_RDONLY))
        fcntl.flock(_HELD[-1], fcntl.LOCK_EX)
    finally:
        os.close(lock)
    return place


def _remove_left(place: Path) -> None:
    """Removes what a pgpaces left behind that was killed."""
    with contextlib.suppress(OSError):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(place, ignore_errors=True)
        finally:
            os.close(descriptor)


class _Copying:
    """Copies a folder, and takes the digest of what was copied."""

    def __init__(self, original: Path, made: Path) -> None:
        self._original, self._made = original, made
        ours = home().resolve()
        self._ours = {ours, ours / "cache" / "folders"}  # the copy is in them
        self._hash = hashlib.sha256(_FOLDER)
        self._bytes = 0

    def digest(self) -> str:
        """Does it. Raises WorkloadError, OSError."""
        self._folder(Path())
        return self._hash.hexdigest()

    def _folder(self, at: Path) -> None:
        if len(at.parts) > _DEPTH:
            raise WorkloadError(f"folder {self._original} has folders in folders, {_DEPTH} deep")
        (self._made / at).mkdir()
        with os.scandir(self._original / at) as entries:
            found = sorted(entries, key=lambda entry: os.fsencode(entry.name))
        for entry in found:
            path = at / entry.name
            if entry.name in _LEFT_OUT or self._original / path in self._ours:
                continue
            if entry.is_symlink():
                self._link(path)
            elif entry.is_dir(follow_symlinks=False):
                self._tell(b"folder", os.fsencode(path))
                self._folder(path)
            elif entry.is_file(follow_symlinks=False):
                self._file(path)

    def _tell(self, *words: bytes) -> None:
        """Adds words to the digest, each with its length: no name can stand for two."""
        for word in words:
            self._hash.update(b"%d:%s" % (len(word), word))

    def _link(self, path: Path) -> None:
        link = self._original / path
        try:
            to = link.resolve()
        except (OSError, RuntimeError):
            to = Path("/")  # it leads to itself
        if not to.is_relative_to(self._original):
            raise WorkloadError(
                f"workload {self._original.name}: the link '{path}' leads out of the folder, to"
                f" {to}",
                "a workload reads files of its folder only: copy it there",
            )
        text = os.path.relpath(to, link.parent.resolve())
        (self._made / path).symlink_to(text)
        self._tell(b"link", os.fsencode(path), os.fsencode(text))

    def _file(self, path: Path) -> None:
        descriptor = os.open(self._original / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return
            mode = 0o700 if status.st_mode & 0o111 else 0o600
            self._tell(b"file", os.fsencode(path), b"%o" % mode)
            if status.st_size > _COPY_BYTES and self._linked(path, status):
                self._tell(hashlib.file_digest(file, "sha256").digest())
                return
            content = hashlib.sha256()
            with (self._made / path).open("xb") as copy:
                for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
                    self._count(len(chunk))
                    content.update(chunk)
                    copy.write(chunk)
            (self._made / path).chmod(mode)
            self._tell(content.digest())

    def _linked(self, path: Path, status: os.stat_result) -> bool:
        """Whether the copy could be made the same file, as long as it is the one that is read."""
        made = self._made / path
        try:
            os.link(self._original / path, made, follow_symlinks=False)
        except OSError:
            return False
        if os.path.samestat(made.lstat(), status):
            return True
        made.unlink()
        return False

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > _TOTAL_BYTES:
            raise WorkloadError(
                f"folder {self._original} holds more than {_TOTAL_BYTES // 2**30} GiB",
                "keep data that programs read elsewhere, and name it by -D NAME=PATH",
            )
