"""Puts what commands really print into the pages that show it.

An output is a block ```text after a marker, an HTML comment:

    <!-- output -->                          what the `sh` block before it prints, its last command
    <!-- output: 1, outcomes, next? -->      parts of that
    <!-- output of `pgpaces show`: waits --> of a command that the page does not print as a block

A part is a line's number, or the text that a line begins with: with the lines that continue it
(indented more; of a line that is not indented, all up to an empty one). `+2` after it takes two
lines more instead; with `?` it may be absent. A block after `<!-- file: NAME -->` is written for
the commands of its page. Parts may be of what goes to standard error, too.

`make outputs` runs all pages, `python docs/outputs.py PAGE...` some. The commands run on managed
servers in a home of their own, which is removed at the end; the pages' stores are apart.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from blocks import FENCE, ROOT, name_of, pages, shell_lines, write_files

WIDTH = 80
# What a command may take; no page asks for one that takes longer.
TIMEOUT_S = 900
# A condition that was true (--fail-if) is an answer, and so is one that is unknown.
ANSWERED = (0, 30, 32)


class OutputError(Exception):
    """A command failed, or did not print what its page shows."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An output of a page: the shell's text that prints it, which parts of it, where it stands."""

    shell: str
    parts: tuple[str, ...]
    text: str
    start: int
    end: int


def say(line: str) -> None:
    """A line of progress."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def outputs(page: str) -> list[Shown]:
    """The outputs that a page shows, in their order."""
    found, shell = [], ""
    for block in FENCE.finditer(page):
        if block["kind"] == "output":
            parts = tuple(part.strip() for part in (block["parts"] or "").split(",") if part)
            asked = block["command"] or shell
            found.append(Shown(asked, parts, block["text"], *block.span("text")))
        shell = block["text"] if block["language"] == "sh" else shell
    return found


def commands(shell: str) -> list[str]:
    """The lines of a shell block that call pgpaces."""
    return [line for line in shell_lines(shell) if re.search(r"\bpgpaces ", line)]


def part(printed: str, wanted: str) -> str:
    """The lines that a part names; "" if it is absent and may be. Raises OutputError."""
    lines = printed.splitlines(keepends=True)
    if wanted.isdigit():
        return lines[int(wanted) - 1]
    named = re.fullmatch(r"(.*?)(?: \+(\d+))?(\?)?", wanted)
    assert named is not None
    text, more, optional = named.groups()
    for at, line in enumerate(lines):
        if line.lstrip().startswith(text):
            if more is not None:
                return "".join(lines[at : at + int(more) + 1])
            return "".join([line, *_continuing(lines[at + 1 :], _indent(line))])
    if optional:
        return ""
    raise OutputError(f"no line begins with {text!r} in:\n{printed}")


def _continuing(lines: list[str], indent: int) -> Iterator[str]:
    """The lines that continue one of an indent."""
    for line in lines:
        if not line.strip() or (indent and _indent(line) <= indent):
            return
        yield line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


class Home:
    """A folder that commands run in, and that pgpaces keeps its things in; gone at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # A server of root's runs as another user, who has to enter it.
        folder.chmod(0o755)
        (folder / "examples").symlink_to(ROOT / "examples")

    def printed(self, command: str, store: str) -> tuple[str, str]:
        """What a command prints on standard output and on standard error. Raises OutputError."""
        say(f"  {command}")
        environment = os.environ | {
            "PGPACES_HOME": str(self.folder),
            "PGPACES_STORE": str(self.folder / store),
            "PGPACES_HOST_FILE": str(self.folder / "host.toml"),
            "COLUMNS": str(WIDTH),
            "LC_ALL": "C.UTF-8",
        }
        if not (self.folder / "host.toml").exists():
            del environment["PGPACES_HOST_FILE"]
        with subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, errors = process.communicate(timeout=TIMEOUT_S)
            except BaseException:
                # With what the shell has started: it ends its server by itself.
                os.killpg(process.pid, signal.SIGTERM)
                raise
        if process.returncode not in ANSWERED:
            raise OutputError(f"{command}: exit code {process.returncode}\n{errors}")
        return out, errors


def shown(found: Shown, home: Home, store: str) -> str:
    """What an output's commands print, as its page shows it."""
    out = errors = ""
    for command in commands(found.shell):
        out, errors = home.printed(command, store)
    if found.parts:
        out = "".join(part(out + errors, wanted) for wanted in found.parts)
    return re.sub(r" +$", "", out, flags=re.MULTILINE)


def renewed(page: str, home: Home, store: str) -> str:
    """A page with the outputs of today."""
    written = write_files(page, home.folder)
    new, at = [], 0
    try:
        for found in outputs(page):
            new += [page[at : found.start], shown(found, home, store)]
            at = found.end
    finally:
        for path in written:
            path.unlink()
    return "".join([*new, page[at:]])


def main(names: list[str]) -> int:
    """Renews the pages; what fails is said, and its page stays as it was."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="pgpaces-", ignore_cleanup_errors=True) as folder:
        home = Home(Path(folder))
        for page in pages(names):
            text = page.read_text(encoding="utf-8")
            if not outputs(text):
                continue
            say(name_of(page))
            try:
                new = renewed(text, home, f"{page.stem}.db")
                if page.read_text(encoding="utf-8") != text:
                    raise OutputError("it was changed meanwhile, and is left as it is")
            except (OutputError, subprocess.TimeoutExpired) as error:
                say(f"{name_of(page)}: {error}")
                failed += 1
                continue
            page.write_text(new, encoding="utf-8")
        shutil.rmtree(home.folder / "servers", ignore_errors=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
