"""Specifications drawn: SVG for the page, SVG and PNG for files. The only module that draws.

The library that draws is not to be had everywhere; where it is missing the page says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape as quoted
from typing import Any, Literal

from pgpaces.errors import RunError
from pgpaces.report.charts import specification
from pgpaces.report.look import LIGHT, PAGE, Look
from pgpaces.section import Figure, Report

_ATTRIBUTES = re.compile(r' (?:class|role|aria-[a-z]+|pointer-events|xmlns:xlink)="[^"]*"')
_EMPTY = re.compile(r'<path d="M0,0h0v0h0Z"[^>]*/>|<g></g>|<g/>')
# What others wrote is never within a tag: there its angle brackets are escaped.
_TAG = re.compile(r"<[^<>]*>")
_DECIMALS = re.compile(r"(\d+\.\d)\d+")
_SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)"[^>]*>')


def available() -> bool:
    """Whether charts can be drawn here."""
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        return False
    return True


def inline(figure: Figure) -> str:
    """An SVG element for the page, whose colours are the page's and whose numbers are short."""
    made = _EMPTY.sub("", _TAG.sub(_shortened, _svg(figure, PAGE)))
    label = quoted(f"{figure.title}: {figure.about}", quote=True)

    def head(found: re.Match[str]) -> str:
        width, height = found[1], found[2]
        return (
            f'<svg role="img" aria-label="{label}" viewBox="0 0 {width} {height}"'
            f' style="max-width:{width}px">'
        )

    return _SIZE.sub(head, made, count=1)


def _shortened(tag: re.Match[str]) -> str:
    """A tag without what a picture does not need, its numbers to a tenth of a pixel."""
    return _DECIMALS.sub(r"\1", _ATTRIBUTES.sub("", tag[0]))


def _svg(figure: Figure, look: Look) -> str:
    import vl_convert

    text: str = vl_convert.vegalite_to_svg(_json(figure, look))
    return text


def _json(figure: Figure, look: Look) -> Any:
    return json.dumps(specification(figure.charts, look), allow_nan=False)


def pictures(report: Report, form: Literal["svg", "png"], look: Look = LIGHT) -> dict[str, bytes]:
    """Every chart as a file by its name. Raises RunError where nothing can draw here."""
    return {f"{figure.key}.{form}": picture(figure, form, look) for figure in report.figures()}


def picture(figure: Figure, form: Literal["svg", "png"], look: Look = LIGHT) -> bytes:
    """A chart as a file. Raises RunError where nothing can draw here."""
    if not available():
        raise RunError(
            "charts cannot be drawn here: the library vl-convert-python is not installed",
            "install it where there is a wheel of it, or export csv or json",
        )
    import vl_convert

    if form == "svg":
        return _svg(figure, look).encode("utf-8", "replace")
    made: bytes = vl_convert.vegalite_to_png(_json(figure, look), scale=2)
    return made


def drawn(figures: Iterable[Figure]) -> dict[str, str]:
    """The SVG of each figure by its key; nothing where nothing can draw."""
    return {figure.key: inline(figure) for figure in figures} if available() else {}
