"""Files that commands write: reports and other answers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pgpaces.cli.streams import announce
from pgpaces.core.errors import RunError
from pgpaces.core.home import is_there

if TYPE_CHECKING:
    from pgpaces.answers.sweep.page import Page
    from pgpaces.show.render import Form
    from pgpaces.show.section import Report


def write_page(page: Page, output: str) -> None:
    from pgpaces.answers.sweep.report import report as report_of

    write_report(report_of(page), output)


def write_report(report: Report, output: str) -> None:
    from pgpaces.show.render import form_of

    announce("written", path=write(report, form_of(output), Path(output)))


def write(document: Report, form: Form, path: Path) -> Path:
    from pgpaces.show import render

    picture = next((each for each in render.FOLDERS if each == form), None)
    if picture is None:
        return save(render.render(document, form), path)
    from pgpaces.show.draw import pictures

    with writing(path):
        files = pictures(document, picture)
        path.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (path / name).write_bytes(content)
    return path


def save(content: bytes, path: Path) -> Path:
    """Writes a file, which replaces an older one only once it is complete. Raises RunError.

    A device, such as /dev/null, or a pipe is written directly; links are followed.
    """
    with writing(path):
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return path
        whole = path.resolve()
        temporary = whole.with_name(f".{whole.name}.{os.getpid()}")
        try:
            temporary.write_bytes(content)
            temporary.replace(whole)
        finally:
            temporary.unlink(missing_ok=True)
    return path


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        inside = path / "report.html" if is_there(path, Path.is_dir) else None
        why = error.strerror or error
        raise RunError("cannot-write-report", path=path, why=why, inside=inside) from None
