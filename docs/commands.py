"""Runs every command of README and docs as it is printed, page after page.

Each page has a folder, a store and a shell on a terminal of its own, in which its `sh` blocks are
typed; questions are answered with y. What pages take for granted is made by docs/lab.sh (servers,
hosts, disks, files, in a mount namespace) and named in docs/commands.toml: what is typed before
a page or a command, what is put for a name that the reader knows, what is not tried, and why.

A command has *run* if it ended with an answer, was *cut* if Ctrl-C after 40 s ended it in its load,
and has *failed* otherwise. `make commands` runs all pages (PAGES=docs/tutorial some, CUT=10
cuts earlier); it needs Linux, PostgreSQL 15 and what .ci/run installs.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import termios
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blocks import ROOT, name_of, pages, shell_lines, texts, write_files
from outputs import ANSWERED, say

TABLES = tomllib.loads((ROOT / "docs" / "commands.toml").read_text(encoding="utf-8"))
# What preparing may take before a load starts, and what a command may take after Ctrl-C.
START_S = 600
END_S = 90
INTERRUPTED = 130
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9])|\r(?=\n)")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: its exit code (None: killed), whether it was cut, and in its load."""

    code: int | None
    seconds: float
    printed: str
    cut: bool = False
    loaded: bool = False


def commands(page: str) -> list[str]:
    """The commands of a page: lines of its `sh` blocks, continued ones joined."""
    lines = (line.strip() for shell in texts(page, "sh") for line in shell_lines(shell))
    return [line for line in lines if line and not line.startswith("#")]


def verdict(ended: Ended) -> str:
    """Whether a command ran, was cut in its load, or failed."""
    if ended.cut and ended.code == INTERRUPTED and ended.loaded:
        return "cut"
    return "ran" if ended.code in ANSWERED else "failed"


def not_tried(command: str, which: Callable[[str], str | None] = shutil.which) -> str | None:
    """Why a command is not tried, if it is not."""
    for each in TABLES["not_tried"]:
        if re.search(each["command"], command) and not which(each.get("without", "")):
            return str(each["reason"])
    return None


def filled(command: str, runs: Iterator[str]) -> str:
    """A command with what the reader puts for names that pages cannot know: ids of runs."""
    return re.sub(TABLES["runs"], lambda _: next(runs), command)


class Terminal:
    """A shell on a terminal, in the folder of a page."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.pid, self.fd = pty.fork()
        if not self.pid:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.chdir(folder)
            os.execve("/bin/sh", ["sh", "-i"], environment)
        settings = termios.tcgetattr(self.fd)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(self.fd, termios.TCSANOW, settings)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))

    def _type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def _read(self) -> str:
        """What was printed within a fifth of a second."""
        if not select.select([self.fd], [], [], 0.2)[0]:
            return ""
        return ESCAPES.sub("", os.read(self.fd, 65536).decode(errors="replace"))

    def run(self, command: str, seconds: float, loaded: Callable[[str], bool]) -> Ended:
        """Types a command; cuts it after some seconds, or when its load has started after that."""
        code = self.folder / ".code"
        code.unlink(missing_ok=True)
        (self.folder / ".command").write_text(f"{command}\n", encoding="utf-8")
        self._type(f". {self.folder}/.command; echo $? > {code}\n")
        began, printed, cut_at, in_load = time.monotonic(), "", None, False
        while not (code.exists() and code.read_text().endswith("\n")):
            printed += (new := self._read())
            if new.rstrip().endswith(("[y/N]:", "[y/N]")):
                self._type("y\n")
            waited = time.monotonic() - began
            if cut_at is None:
                in_load = waited > seconds and loaded(printed)
                if in_load or waited > max(seconds, START_S):
                    self._type("\x03")
                    cut_at = waited
            elif waited > cut_at + 1 and os.tcgetpgrp(self.fd) == self.pid:
                # Ctrl-C ended the rest of the line, too.
                self._type(f"(last=$?; [ -f {code} ] || echo $last > {code})\n")
                cut_at = waited
            elif waited > seconds + START_S + END_S:
                os.killpg(os.tcgetpgrp(self.fd), signal.SIGKILL)
                return Ended(None, waited, printed, True, in_load)
        while rest := self._read():
            printed += rest
        waited = time.monotonic() - began
        return Ended(int(code.read_text()), waited, printed, cut_at is not None, in_load)

    def close(self) -> None:
        """The terminal is closed, as by a user who goes away."""
        os.close(self.fd)
        os.waitpid(self.pid, 0)


class Page:
    """A page that is run: its commands, folder and shell, and what became of each command."""

    def __init__(self, page: Path, lab: Path) -> None:
        self.name = name_of(page)
        self.text = page.read_text(encoding="utf-8")
        self.table: dict[str, Any] = TABLES["pages"].get(self.name, {})
        self.folder = lab / "pages" / self.name.removesuffix(".md").replace("/", "-")
        self.store = self.folder / "results.db"
        shutil.copytree(lab / "files", self.folder)
        for path in ROOT.iterdir():
            (self.folder / path.name).symlink_to(path)
        write_files(self.text, self.folder)
        path = f"{ROOT}/.venv/bin:{lab}/bin:{os.environ['PATH']}"
        settings = {"PGPACES_HOME": f"{lab}/home/pgpaces", "PGPACES_STORE": str(self.store)}
        settings |= {"PATH": path, "PAGER": "cat", "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        self.terminal = Terminal(self.folder, {**os.environ, **settings, "PS1": "", "PS2": ""})

    def read(self, query: str) -> list[str]:
        """A column of the page's store; empty without one."""
        try:
            with sqlite3.connect(f"file:{self.store}?mode=ro", uri=True) as store:
                return [row[0] for row in store.execute(query)]
        except sqlite3.OperationalError:
            return []

    def runs(self) -> Iterator[str]:
        """The ids of the page's runs outside experiments, in their order."""
        done = 0
        while ids := self.read("SELECT id FROM trial WHERE experiment IS NULL ORDER BY started_at"):
            yield ids[done % len(ids)]
            done += 1

    def prepare(self, lines: list[str]) -> None:
        """Types what the lab needs. Raises RuntimeError."""
        for line in lines:
            say(f"  (lab)              {line}")
            ended = self.terminal.run(line, START_S, lambda _: False)
            if verdict(ended) != "ran":
                raise RuntimeError(f"{self.name}: {line}: exit code {ended.code}\n{ended.printed}")

    def ended(self, command: str, seconds: float) -> Ended:
        """Runs a command; its load has started if the store has new transactions that succeeded."""
        count = "SELECT coalesce(sum(on_time + late), 0) FROM tally"
        before = self.read(count) or [0]
        load = self.table.get("load")

        def loaded(printed: str) -> bool:
            if load and re.search(load, printed):
                return True
            return (self.read(count) or [0]) > before

        least = self.table.get("seconds", {}).get(command, 0)
        return self.terminal.run(command, max(seconds, least), loaded)

    def results(self, seconds: float) -> Iterator[tuple[str, str]]:
        """What became of each command: a verdict, and the reason of one that was not tried."""
        self.prepare(self.table.get("prepare", []))
        runs = self.runs()
        for printed in commands(self.text):
            if reason := not_tried(printed):
                say(f"  not tried          {printed}\n      {reason}")
                yield "not tried", reason
                continue
            self.prepare(self.table.get("before", {}).get(printed, []))
            command = filled(printed, runs)
            ended = self.ended(command, seconds)
            found = verdict(ended)
            say(f"  {found:9} {ended.seconds:5.1f} s {ended.code!s:>3} {command}")
            if found == "failed":
                say("".join(f"      | {line}\n" for line in ended.printed.splitlines()[-20:]))
            yield found, ""


def run(lab: Path, names: list[str], seconds: float) -> int:
    """Runs pages in the lab; the exit code is 1 if something failed."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in pages(names):
        if not commands(path.read_text(encoding="utf-8")):
            continue
        say(name_of(path))
        page = Page(path, lab)
        try:
            counts.update(page.results(seconds))
        except RuntimeError as error:
            say(f"  the lab failed: {error}")
            counts["failed", "the lab"] += 1
        finally:
            page.terminal.close()
    say("")
    for (found, reason), count in sorted(counts.items()):
        say(f"{count:5} {found}{': ' if reason else ''}{reason}")
    return int(any(found == "failed" for found, _ in counts))


def main(names: list[str]) -> int:
    """Makes the lab in namespaces of its own: nothing of it is left, no process either."""
    seconds = float(os.environ.get("CUT") or 40)
    if lab := os.environ.get("PGPACES_LAB"):
        return run(Path(lab), names, seconds)
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid():
        apart += ["--user", "--map-current-user", "--keep-caps"]
    with tempfile.TemporaryDirectory(prefix="pgpaces-", ignore_cleanup_errors=True) as folder:
        again = ["sh", str(ROOT / "docs" / "lab.sh"), folder, sys.executable, __file__, *names]
        environment = {**os.environ, "PGPACES_LAB": folder}
        return subprocess.run([*apart, *again], check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
