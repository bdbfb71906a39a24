"""`pgpaces pgbench`: pgbench's command line as a face of pgpaces. Reads options and scripts.

What needs a server is in setup.py and run.py, which are imported when the options
have been read, so that help and errors come at once.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pgpaces.cli.pgbench.options import (
    InfoText,
    OptionHandler,
    Options,
    ScriptOption,
    builtin_text,
    parse,
)
from pgpaces.cli.pgbench.values import Line, OptionError, PgbenchError
from pgpaces.errors import PgpacesError, ScriptError
from pgpaces.report import escape

_LEVELS = ("error", "detail", "hint", "warning")


class Voice:
    """Tells on stderr as pgbench does, in the name of the program that was called."""

    def __init__(self, program: str) -> None:
        self.program = program

    def tell(self, *lines: Line) -> None:
        """Messages: error, detail, hint, warning, info, or plain for what has no prefix."""
        for level, text in lines:
            prefix = f"{self.program}: " if level != "plain" else ""
            prefix += f"{level}: " if level in _LEVELS else ""
            self.say(f"{prefix}{text}\n")

    def say(self, text: str) -> None:
        """Text as it stands, but for characters that would do something to a terminal."""
        self._write(escape.stream(text))

    def rewrite(self, text: str) -> None:
        """A line that the next one goes over."""
        self._write(escape.stream(text) + "\r")

    def _write(self, text: str) -> None:
        # Whoever closes stderr wants to hear no more; the run goes on.
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()

    def failed(self, error: PgpacesError) -> None:
        """What kept us from going on; some errors have a detail."""
        self.tell(("error", error.message))
        for level in ("detail", "hint"):
            if text := getattr(error, level, None):
                self.tell((level, text))


class Texts(OptionHandler):
    """Reads and checks scripts when their options are met, and remembers them by name."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice
        self._files: list[str] = []

    def seed(self, value: int) -> None:
        """Says which one it is, as pgbench does where somebody asked for one."""
        self._voice.tell(("info", f"setting random seed to {value}"))

    def clients(self, count: int) -> None:
        """Lets us open as many files as the clients need. Raises OptionError."""
        import resource

        needed = count + 3
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < needed:
            advice = "Reduce number of clients, or use limit/ulimit to increase the system limit."
            message = f"need at least {needed} open files, but system limit is {hard}"
            raise OptionError(message, ("hint", advice))
        if soft != hard:
            # Threads, the store and Python itself open further ones.
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def script(self, script: ScriptOption) -> None:
        """Reads a file and parses it. Raises OptionError."""
        if script.builtin:
            return
        text = _read(script.name)
        from pgpaces.generators import engine

        try:
            engine.commands(script.name, text)
        except ScriptError as error:
            raise OptionError(error.message) from None  # pgbench has no hint for it
        self._files.append(text)

    def of(self, scripts: Sequence[ScriptOption]) -> list[str]:
        """The texts of scripts, in their order."""
        files = iter(self._files)
        return [builtin_text(s.name) if s.builtin else next(files) for s in scripts]


def _read(name: str) -> str:
    """A script's text; bytes that are no UTF-8 survive. Raises OptionError."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        # No name at all is the folder that we are in for Path, and nothing for pgbench.
        verb = "read" if isinstance(error, IsADirectoryError) and name else "open"
        why = error.strerror if name else os.strerror(errno.ENOENT)
        raise OptionError(f'could not {verb} file "{name}": {why}') from None
    return data.decode("utf-8", "surrogateescape")


def main(argv: Sequence[str], program: str) -> int:
    """Does what pgbench's words behind the program's name ask for; the exit code.

    program: the base name that we were called by; pgbench, or pgpaces with a sub-command.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")
    voice = Voice(program)
    texts = Texts(voice)
    command = f"{program} pgbench" if program == "pgpaces" else program
    try:
        found = parse(argv, os.environ, texts, command)
        if isinstance(found, InfoText):
            _print(found)
            return 0
        return _do(found, texts, voice)
    except PgbenchError as error:
        voice.tell(*error.lines)
        return error.exit_code
    except PgpacesError as error:
        voice.failed(error)
        return 1
    except KeyboardInterrupt:
        voice.tell(("info", "interrupted"))
        return 130


def _print(answer: InfoText) -> None:
    from pgpaces.cli.main import put

    if answer.stream == "stdout":
        put(answer.text)
    else:
        sys.stderr.write(answer.text)


def _do(options: Options, texts: Texts, voice: Voice) -> int:
    if options.initialize:
        from pgpaces.cli.pgbench import setup

        return setup.initialize(options, voice)
    from pgpaces.cli.pgbench import run

    return run.run(options, texts.of(options.scripts), voice)
