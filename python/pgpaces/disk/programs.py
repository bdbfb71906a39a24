"""The programs that measure: fio, pg_test_fsync, cryptsetup. Run, read, and ended with us.

Each writes to a pipe that only we read, at least once a second: one that outlives us, because we
were killed, ends at its next line.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from pgpaces.answers import disks
from pgpaces.answers.disks import Cipher, Flushes, Measured
from pgpaces.disk.jobs import Job, arguments
from pgpaces.errors import RunError
from pgpaces.servers import binaries

# How far a job is: seconds since it began.
Tell = Callable[[float], None]
CIPHER = "aes-xts"
_KEY_BITS = 512
_FSYNC = re.compile(r"^\s+(\w+)\s+([0-9.]+) ops/sec", re.MULTILINE)
_CIPHER = re.compile(rf"{CIPHER}\s+\d+b\s+([0-9.]+) MiB/s\s+([0-9.]+) MiB/s")
_CHUNK = 65536
_ENDING_S = 5.0
_CIPHER_S = 60.0


def find_fio() -> str:
    """Where fio is. Raises RunError where it is not."""
    found = shutil.which("fio")
    if found is None:
        raise RunError("fio is not here, and it does the measuring", "Debian: apt install fio")
    return found


def fio_version(fio: str) -> str:
    """What fio calls its version. Raises RunError where it cannot be run."""
    try:
        done = subprocess.run(
            [fio, "--version"], capture_output=True, text=True, check=True, env=_environment()
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise RunError(f"{fio} cannot be run: {error}") from None
    return done.stdout.strip()


def run_fio(fio: str, job: Job, folder: Path, tell: Tell) -> Measured:
    """Runs a job in a folder. Raises RunError with fio's own words."""
    with tempfile.TemporaryFile() as said:
        started = time.monotonic()
        parts: list[bytes] = []
        with _started([fio, *arguments(job)], folder, said) as program:
            for part in _read(program):
                parts.append(part)
                tell(time.monotonic() - started)
        said.seek(0)
        complaint = said.read().decode(errors="replace").strip()
    documents = disks.statuses(b"".join(parts).decode(errors="replace"))
    try:
        if program.returncode:
            raise ValueError(f"status {program.returncode}")
        return disks.measured(job.name, job.run, documents)
    except ValueError as error:
        why = complaint.splitlines()[0] if complaint else str(error)
        raise RunError(f"fio could not measure '{job.name}': {why}") from None


def test_fsync(folder: Path, tell: Tell) -> Flushes | None:
    """What pg_test_fsync says of single writes; None where no PostgreSQL here has it.

    It is ended behind its first table: the others are writes of other sizes.
    """
    for installation in binaries.installations():
        program = installation.program("pg_test_fsync")
        if os.access(program, os.X_OK):
            text = _first_table([str(program), "-f", str(folder / "flushes"), "-s", "1"], tell)
            found = {name: float(number) for name, number in _FSYNC.findall(text)}
            return Flushes(installation.version, found) if found else None
    return None


def _first_table(command: Sequence[str], tell: Tell) -> str:
    started, text = time.monotonic(), ""
    with _started(command, Path("/"), subprocess.DEVNULL) as program:
        for part in _read(program):
            text += part.decode(errors="replace")
            tell(time.monotonic() - started)
            table, more, _ = text.partition("two 8kB writes")
            if more:
                return table
    return text


def test_cipher() -> Cipher | str:
    """What `cryptsetup benchmark` says of the usual cipher of disks, or why it says nothing."""
    program = shutil.which("cryptsetup") or shutil.which("cryptsetup", path="/usr/sbin:/sbin")
    if program is None:
        return "cryptsetup benchmark: not available here, Debian: apt install cryptsetup-bin"
    command = [program, "benchmark", "-c", CIPHER, "-s", str(_KEY_BITS)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=_environment(), timeout=_CIPHER_S,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cryptsetup benchmark: not available here: {error}"
    if found := _CIPHER.search(done.stdout):
        return Cipher(f"{CIPHER} with {_KEY_BITS} bits", float(found[1]), float(found[2]))
    said = " ".join((done.stdout + done.stderr).split())
    if "algif_skcipher" in said or "not available" in said:
        return (
            f"cryptsetup benchmark: not available here, the kernel gives programs no {CIPHER}"
            " (module algif_skcipher)"
        )
    return f"cryptsetup benchmark: not available here: {said[:200]}"


@contextlib.contextmanager
def _started(
    command: Sequence[str], folder: Path, errors: int | IO[bytes]
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that has ended when this is left. Ctrl-C is ours alone: we end it."""
    program = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=_environment(),
        start_new_session=True,
    )
    try:
        yield program
        if program.poll() is None:
            _end(program)
    except BaseException:
        _end(program)
        raise
    finally:
        assert program.stdout is not None
        program.stdout.close()


def _read(program: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """What a program prints, as it comes; at the end it has ended."""
    assert program.stdout is not None
    while part := os.read(program.stdout.fileno(), _CHUNK):
        yield part
    program.wait()


def _end(program: subprocess.Popen[bytes]) -> None:
    """Ends a program that is not wanted any more; both of ours clean up behind SIGINT."""
    with contextlib.suppress(ProcessLookupError):
        program.send_signal(signal.SIGINT)
    try:
        program.communicate(timeout=_ENDING_S)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def _environment() -> dict[str, str]:
    return binaries.server_environment()
