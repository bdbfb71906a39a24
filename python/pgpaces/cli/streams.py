"""What is printed: answers and errors, to streams that may be closed, full or without a reader."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import click

from pgpaces.core.errors import PgpacesError, RunError

# The errors of a stream that cannot be written.
_WRITE_ERRORS = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE, errno.EBADF
)  # fmt: skip

_NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)

_STDOUT, _STDERR = 1, 2


def occupy() -> None:
    """Opens /dev/null for closed standard streams: else a file, such as the store, would be one.

    An answer to a closed stdout is an error: it is open for reading only. stdout takes every
    character.
    """
    for standard in range(_STDERR + 1):
        # The lowest free descriptor is the one that is opened.
        mode = os.O_RDONLY if standard == _STDOUT else os.O_RDWR
        descriptor = os.open(os.devnull, mode)
        if descriptor == standard:
            os.set_inheritable(descriptor, True)
        else:
            os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = os.fdopen(_STDOUT, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_STDERR, "w", closefd=False)
    # Of an 8-bit locale, in which a ? in an answer is better than none. stderr escapes anyway.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


@contextlib.contextmanager
def output() -> Iterator[None]:
    """Raises RunError where output cannot be written, or no more files can be opened.

    A closed pipe is no error.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _NO_MORE_FILES:
            raise RunError("too-many-open-files", why=error.strerror) from None
        if error.errno not in _WRITE_ERRORS or error.filename is not None:
            raise
        silence(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise RunError("cannot-write-output", why=error.strerror) from None


def silence(stream: TextIO) -> None:
    """Redirects a stream to /dev/null, so that no later flush fails."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def put(answer: str | bytes) -> None:
    """Prints an answer; bytes as they are, whatever the encoding of the terminal.

    Raises RunError where it cannot be written; a closed pipe is no error.
    """
    with output():
        click.echo(answer, nl=False)


def announce(name: str, /, **values: Any) -> None:
    """Prints a message of the catalog on stderr, in one line."""
    from pgpaces.core.messages import message
    from pgpaces.show.escape import line

    click.echo(line(message(name, **values)), err=True)


def fail(error: PgpacesError) -> None:
    from pgpaces.show.escape import lines

    click.echo(f"pgpaces: error: {lines(error.message)}", err=True)
    if error.hint:
        click.echo(f"pgpaces: hint: {lines(error.hint)}", err=True)
