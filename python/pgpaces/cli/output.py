"""What commands print and write: answers, messages, and errors; reports and other files.

Imported by every command, so it imports nothing large. Standard streams may be closed, full, or
without a reader.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

from pgpaces.core.errors import PgpacesError, PlanError, RunError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pgpaces.answers.answer import Answer
    from pgpaces.show.render import Form
    from pgpaces.show.section import Report, Section

# Exit codes: a verdict, and a load that the guard or a user ended.
FAIL_EXIT, KILLED_EXIT, UNKNOWN_EXIT, INTERRUPTED_EXIT = 30, 31, 32, 130
# The errors of a stream that cannot be written.
_WRITE_ERRORS = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE, errno.EBADF
)  # fmt: skip
_NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)
_STDOUT, _STDERR = 1, 2
# A smaller width, such as COLUMNS=0, has no room for a word.
_WIDTH_MIN = 40
# A connection string with a password.
SECRET = re.compile(r"password|^[^/]*://[^@/]*:[^@/]*@", re.IGNORECASE)
# A command of a text, without those that follow it.
_COMMAND = re.compile(r"pgpaces [a-z].*?(?= && pgpaces |; pgpaces |\Z)", re.DOTALL)


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


def check(params: Mapping[str, Any]) -> None:
    """Raises PlanError for files that cannot be written, before hours are spent."""
    if params["output"]:
        from pgpaces.show import render

        render.form_of(params["output"])
    for path in filter(None, (params.get(name) for name in ("output", "junit", "summary"))):
        folder = Path(path).resolve().parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise PlanError("folder-not-writable", path=folder)


def tell(answer: Answer, params: Mapping[str, Any]) -> None:
    """Prints an answer, and writes its report where `--output` names a file."""
    show(answer.section, as_json=params["as_json"], verbose=params["verbose"])
    if params["output"]:
        write_report(answer.document(), params["output"])


def show(answer: Section | Sequence[Section], *, as_json: bool, verbose: bool = False) -> None:
    put(shown(answer, as_json=as_json, verbose=verbose))


def shown(answer: Section | Sequence[Section], *, as_json: bool, verbose: bool = False) -> str:
    """An answer, or several, as JSON, in one screen each, or all of it."""
    several = isinstance(answer, Sequence)
    sections = answer if isinstance(answer, Sequence) else (answer,)
    if not as_json:
        return text(sections, verbose=verbose)
    from pgpaces.show import data, escape

    documents = [data.document(with_own_store(each)) for each in sections]
    return escape.json_text(documents if several else documents[0])


def put_report(document: Report, form: Form) -> None:
    from pgpaces.show import render, terminal

    if form == "text":
        put(rendered(lambda width: terminal.parts(document, width)))
    else:
        put(render.render(document, form))


def text(sections: Sequence[Section], *, verbose: bool, plain: bool = False) -> str:
    """Answers for the width of the terminal: each in one screen, or all of it.

    plain: without colors, for a file.
    """
    from pgpaces.show import terminal

    show = terminal.whole if verbose else terminal.brief

    def parts(width: int) -> Iterator[RenderableType]:
        for number, each in enumerate(sections):
            yield from ("",) if number else ()
            yield from show(with_own_store(each), width)

    return rendered(parts, plain=plain)


def with_own_store(section: Section) -> Section:
    from msgspec.structs import replace

    return replace(
        section,
        next=tuple(replace(each, command=with_store(each.command)) for each in section.next),
        aside=tuple(map(with_store, section.aside)),
    )


def with_store(text: str) -> str:
    """A text that ends in commands, with the --store of this command line but without a password.

    A store that $PGPACES_STORE names is that of the next command too.
    """
    context = click.get_current_context(silent=True)
    store = None if context is None else context.params.get("store_path")
    if store is None:
        return text
    from pgpaces.show import escape

    word = escape.command(shlex.quote("DSN" if SECRET.search(store) else store))
    return _COMMAND.sub(
        lambda one: one[0] if " --store" in one[0] else f"{one[0]} --store {word}", text
    )


def rendered(parts: Callable[[int], Iterable[RenderableType]], *, plain: bool = False) -> str:
    """What a terminal of the user's width shows. parts: by that width. plain: without colors."""
    from rich.console import Console, Group

    colors: Literal["auto"] | None = None if plain else "auto"
    console = Console(highlight=False, markup=False, emoji=False, color_system=colors)
    console.width = max(_WIDTH_MIN, console.width)
    with console.capture() as shown:
        # A command is not cropped, and not broken either: as a part of a group it stays as it is.
        console.print(Group(*parts(console.width)), crop=False)
    return shown.get()


def put_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a list. names: of its columns."""
    from rich.text import Text

    from pgpaces.show.escape import line
    from pgpaces.show.terminal import grid

    made = grid(names[0], names[1:])
    for row in rows:
        made.add_row(*(Text(line(each)) for each in row))
    put("".join(f"{each.rstrip()}\n" for each in rendered(lambda _: [made]).splitlines()))


def write_report(report: Report, output: str, form: Form | None = None) -> None:
    """Writes a report, by default in the form of the file's extension, and prints its path.

    Pictures are files of a folder. Raises PlanError, RunError.
    """
    from pgpaces.show import draw, render

    path, chosen = Path(output), form or render.form_of(output)
    picture = next((each for each in render.FOLDERS if each == chosen), None)
    if picture is None:
        save(render.render(report, chosen), path)
    else:
        with writing(path):
            files = {
                f"{each.name}.{picture}": draw.picture(each, picture) for each in report.figures()
            }
            path.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                (path / name).write_bytes(content)
    announce("written", path=path)


def save(content: bytes, path: Path) -> None:
    """Writes a file, which replaces an older one only once it is complete. Raises RunError.

    A device, such as /dev/null, or a pipe is written directly; links are followed.
    """
    with writing(path):
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        whole = path.resolve()
        temporary = whole.with_name(f".{whole.name}.{os.getpid()}")
        try:
            temporary.write_bytes(content)
            temporary.replace(whole)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        from pgpaces.core.home import is_there

        inside = path / "report.html" if is_there(path, Path.is_dir) else None
        why = error.strerror or error
        raise RunError("cannot-write-report", path=path, why=why, inside=inside) from None
