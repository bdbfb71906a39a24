"""Counts of a program that no clock is in: instructions, clock reads, system calls.

Each figure is the difference of a long and a short run, so that start and end are not in it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from programs import ProgramError

# Callgrind names a function once and goes on with its number.
_CALLED = re.compile(r"^cfn=\((\d+)\)(?: (.*))?$")
_CALLS = re.compile(r"^calls=(\d+)")
_COST = re.compile(r"^[0-9+*-]\S* \d+$")
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.M)
_NAMED = re.compile(r"^c?fn=\((\d+)\) (.*)$")


@dataclass(frozen=True)
class Executed:
    """What a program did in user mode."""

    instructions: int
    clock_reads: int


def calls(profile: str, function: str) -> int:
    """How often a function was called, of callgrind's file. Versions of a name (@) are one."""
    lines = profile.splitlines()
    names = {found[1]: found[2] for text in lines if (found := _NAMED.match(text))}
    total, called = 0, ""
    for text in lines:
        if found := _CALLED.match(text):
            called = names.get(found[1], "").partition("@")[0]
        elif called == function and (found := _CALLS.match(text)):
            total += int(found[1])
    return total


def _complete(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """What a program says on stderr. Raises ProgramError."""
    done = subprocess.run(
        command, capture_output=True, text=True, env=dict(environment), check=False
    )
    if done.returncode:
        raise ProgramError.of(command, done.returncode, done.stderr)
    return done.stderr


def executed(command: Sequence[str], environment: Mapping[str, str]) -> Executed:
    """What a program executes, by callgrind; which hides the vdso, so clock reads are calls."""
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile"
        callgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}"]
        said = _complete([*callgrind, *command], environment)
        found = re.search(r"Collected : (\d+)", said)
        if not found:
            raise ProgramError(f"callgrind collected nothing: {said[-1000:]}")
        text = profile.read_text(errors="replace")
        return Executed(int(found[1]), calls(text, "clock_gettime"))


def executed_by_threads(command: Sequence[str], environment: Mapping[str, str]) -> Executed:
    """What the threads of a program execute, but its first: what that does grows with the seconds.

    Under callgrind a transaction takes long, so seconds of the first would be in the figure.
    """
    with tempfile.TemporaryDirectory() as folder:
        callgrind = ["valgrind", "--tool=callgrind", "--separate-threads=yes"]
        _complete([*callgrind, f"--callgrind-out-file={folder}/thread", *command], environment)
        threads = [path for path in Path(folder).iterdir() if path.name != "thread-01"]
        texts = [path.read_text(errors="replace") for path in threads]
        totals = (int(found[1]) for each in texts if (found := _TOTAL.search(each)))
        return Executed(sum(totals), sum(calls(each, "clock_gettime") for each in texts))


def inside(profile: str, library: str) -> int:
    """Instructions of a library's own code, without those that it calls, of callgrind's file."""
    total, within, called = 0, False, False
    for text in profile.splitlines():
        if text.startswith("ob="):
            within = library in text
        elif text.startswith("calls="):
            called = True
        elif _COST.match(text):
            total += int(text.split()[1]) if within and not called else 0
            called = False
    return total


def engine_instructions(run: Callable[[Sequence[str]], object]) -> int:
    """What a thread of the engine executes in user mode, by callgrind.

    run: runs pgpaces with one such thread behind these words. Its main thread, 1, is left out: what
    it does grows with the seconds, not with the transactions.
    """
    with tempfile.TemporaryDirectory() as folder:
        callgrind = ["valgrind", "--tool=callgrind", "--compress-strings=no"]
        run([*callgrind, "--separate-threads=yes", f"--callgrind-out-file={folder}/thread"])
        threads = (path for path in Path(folder).iterdir() if path.name != "thread-01")
        texts = [path.read_text(errors="replace") for path in threads]
        return max(inside(text, "_engine.") for text in texts)


def by_perf(text: str) -> int:
    """The count in what `perf stat -x,` writes."""
    found = re.search(r"^(\d+),,raw_syscalls:sys_enter", text, re.M)
    if not found:
        raise ProgramError(f"perf counted nothing: {text[-1000:]}")
    return int(found[1])


def by_strace(text: str) -> int:
    """The total in what `strace -c` writes."""
    found = re.search(r"^100\.00\s+\S+\s+\S+\s+(\d+)\s.*total$", text, re.M)
    if not found:
        raise ProgramError(f"strace counted nothing: {text[-1000:]}")
    return int(found[1])


@dataclass(frozen=True)
class Counter:
    """A way to count system calls: words before the program's, with a place for the file."""

    name: str
    words: tuple[str, ...]
    read: Callable[[str], int]

    def count(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """All system calls of a program."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "counts"
            words = [word.format(file=file) for word in self.words]
            _complete([*words, *command], environment)
            return self.read(file.read_text())


# perf only counts; strace stops the program at each call, which changes how calls batch.
_PERF = ("perf", "stat", "-x,", "-o", "{file}", "-e", "raw_syscalls:sys_enter", "--")
COUNTERS = (
    Counter("perf", _PERF, by_perf),
    Counter("strace", ("strace", "-c", "-f", "-o", "{file}"), by_strace),
)


def counter() -> Counter | None:
    """The first way that works here."""
    for candidate in COUNTERS:
        if shutil.which(candidate.words[0]) is None:
            continue
        try:
            candidate.count(["true"], {"PATH": "/usr/bin:/bin"})
        except ProgramError:
            continue
        return candidate
    return None
