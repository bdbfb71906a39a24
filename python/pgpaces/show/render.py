"""A report in any form: the bytes of a file, or the files of a folder."""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal, get_args

from pgpaces.core.errors import PlanError
from pgpaces.show.section import Report

Form = Literal["html", "md", "text", "csv", "json", "parquet", "svg", "png"]
FORMS: tuple[Form, ...] = get_args(Form)
Picture = Literal["svg", "png"]
FOLDERS: tuple[Picture, ...] = get_args(Picture)
_ENDINGS = {".htm": "html", ".markdown": "md", ".txt": "text", ".pq": "parquet"}


def form_of(path: str) -> Form:
    """The form by the extension of a file. Raises PlanError for other extensions."""
    ending = PurePath(path).suffix.lower()
    name = _ENDINGS.get(ending, ending.removeprefix("."))
    for form in FORMS:
        if form == name:
            return form
    raise PlanError("unknown-form", path=path)


def render(report: Report, form: Form, width: int = 100) -> bytes:
    """The report as one file. width: of the text form, in characters."""
    if form == "html":
        from pgpaces.show.html import html

        return html(report).encode("utf-8", "replace")
    if form == "md":
        from pgpaces.show.markdown import markdown

        return markdown(report).encode("utf-8", "replace")
    if form == "text":
        from pgpaces.show.terminal import terminal

        return terminal(report, width).encode("utf-8", "replace")
    from pgpaces.show import data

    if form == "parquet":
        return data.parquet(data.tidy(report.rows()))
    if form in ("csv", "json"):
        text = data.csv(data.tidy(report.rows())) if form == "csv" else data.json(report)
        return text.encode("utf-8", "replace")
    raise PlanError("form-of-folder", form=form)
