"""`pgpaces pgbench`: pgbench's command line as a face of pgpaces. Reads options and scripts.

The code that needs a server is in run.py, which is imported after the options are read, so that
help and errors come at once.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pgpaces.cli.pgbench.options import (
    AnsweredError,
    Line,
    OptionError,
    PgbenchError,
    parse,
)
from pgpaces.core.errors import PgpacesError, ScriptError
from pgpaces.show import escape

_LEVELS = ("error", "detail", "hint", "warning")


class Voice:
    def __init__(self, program: str) -> None:
        self.program = program

    def tell(self, *lines: Line) -> None:
        """Prints messages: error, detail, hint, warning, info, or plain (without a prefix)."""
        for level, text in lines:
            prefix = f"{self.program}: " if level != "plain" else ""
            prefix += f"{level}: " if level in _LEVELS else ""
            self.say(f"{prefix}{text}\n")

    def say(self, text: str) -> None:
        self._write(escape.stream(text))

    def rewrite(self, text: str) -> None:
        self._write(escape.stream(text) + "\r")

    def _write(self, text: str) -> None:
        # A closed stderr does not end the run.
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()

    def failed(self, error: PgpacesError) -> None:
        self.tell(("error", error.message))
        for level in ("detail", "hint"):
            if text := getattr(error, level, None):
                self.tell((level, text))


def _raise_limit(clients: int) -> None:
    """Raises the limit of open files as the clients need it. Raises OptionError."""
    import resource

    needed = clients + 3
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        advice = "Reduce number of clients, or use limit/ulimit to increase the system limit."
        message = f"need at least {needed} open files, but system limit is {hard}"
        raise OptionError(message, ("hint", advice))
    if soft != hard:
        # The maximum, as threads, the store and Python itself open more.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _take(voice: Voice, name: str, value: Any) -> str | None:
    """Does what an option needs as soon as it is parsed; the content of a script."""
    if name == "seed":
        voice.tell(("info", f"setting random seed to {value}"))
    elif name == "clients":
        _raise_limit(value)
    elif not value.builtin:
        from pgpaces.spec.workload import commands_in

        text = _read(value.name)
        try:
            commands_in(value.name, text)
        except ScriptError as error:
            raise OptionError(error.message) from None  # pgbench has no hint for it
        return text
    return None


def _read(name: str) -> str:
    """A script's text; bytes that are not UTF-8 are preserved. Raises OptionError."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        # For Path an empty name is the current folder, for pgbench a file that does not exist.
        verb = "read" if isinstance(error, IsADirectoryError) and name else "open"
        why = error.strerror if name else os.strerror(errno.ENOENT)
        raise OptionError(f'could not {verb} file "{name}": {why}') from None
    return data.decode("utf-8", "surrogateescape")


def main(argv: Sequence[str], program: str) -> int:
    """Runs pgbench's arguments; the exit code.

    program: the base name of the called program; pgbench, or pgpaces with a subcommand.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # as it was read
    voice = Voice(program)
    command = f"{program} pgbench" if program == "pgpaces" else program
    try:
        try:
            options = parse(argv, os.environ, partial(_take, voice), command=command)
        except AnsweredError as answer:
            if answer.stream == "stderr":
                sys.stderr.write(answer.text)
            else:
                from pgpaces.cli.output import put

                put(answer.text)
            return 0
        from pgpaces.cli.pgbench import run

        if options.initialize:
            return run.initialize(options, voice)
        return run.run(options, voice)
    except PgbenchError as error:
        voice.tell(*error.lines)
        return error.exit_code
    except PgpacesError as error:
        voice.failed(error)
        return 1
    except KeyboardInterrupt:
        voice.tell(("info", "interrupted"))
        return 130
