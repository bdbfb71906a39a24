"""Specifications drawn: SVG for the page, SVG and PNG for files. The only module that draws.

The drawing library has no wheel for some platforms; the page states that it is missing.
"""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

from pgpaces.core.errors import RunError
from pgpaces.show.charts import LIGHT, MARGIN, PAGE, WIDTH, Look, specification
from pgpaces.show.render import Picture
from pgpaces.show.section import Figure

_MOVED = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")
# A character that JSON writes as two halves of UTF-16.
_PAIR = re.compile(r"\\ud[89ab]..\\ud[c-f]..")
_DECIMALS = re.compile(r"\d+\.\d\d+")
_SVG = "http://www.w3.org/2000/svg"
# Attributes of a drawing that a page does not need.
_UNUSED = ("class", "role", "pointer-events", "aria-roledescription", "aria-hidden")
ElementTree.register_namespace("", _SVG)


def available() -> bool:
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        return False
    return True


def inline(figure: Figure, width: int = WIDTH) -> str:
    """An SVG element with the colors of the page and short numbers.

    data-description: the point in words. data-plot: of stacked charts, the horizontal bounds of the
    plot in pixels, and the values of the x axis there.
    """
    root = ElementTree.fromstring(_drawn("svg", figure, PAGE, width=width))
    box = root.get("width", "0"), root.get("height", "0")
    for element in root.iter():
        words = element.attrib.pop("aria-label", "")
        if words and element.tag == f"{{{_SVG}}}path":
            element.set("data-description", words)
        for name in (*_UNUSED, *(["d"] if element.get("d") == "" else [])):
            element.attrib.pop(name, None)
        for name in {"d", "transform"} & set(element.attrib):
            shorter = _DECIMALS.sub(
                lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), element.get(name, "")
            )
            element.set(name, shorter)
    root.attrib = {
        "role": "img",
        "aria-label": f"{figure.title}: {figure.about}",
        "viewBox": f"0 0 {box[0]} {box[1]}",
        "style": f"max-width:{box[0]}px",
        **_plot(figure, root, width),
    }
    return ElementTree.tostring(root, encoding="unicode")


def _plot(figure: Figure, root: ElementTree.Element, width: int) -> dict[str, str]:
    places = (_MOVED.match(each.get("transform", "")) for each in root.iter(f"{{{_SVG}}}g"))
    moved = next(filter(None, places), None)
    if not figure.over_time or moved is None:
        return {}
    left, (low, high) = float(moved[1]), figure.encodings["x"]["scale"]["domain"]
    return {"data-plot": f"{left:g} {left + width - MARGIN:g} {low:g} {high:g}"}


def _drawn(form: Picture, figure: Figure, look: Look, *, width: int = WIDTH) -> Any:
    """A drawn specification. Vega cuts long labels, also between two halves of a character, and
    cannot draw one half: then there is U+FFFD in place of such characters.
    """
    import vl_convert

    text = json.dumps(specification(figure, look, width), allow_nan=False)
    convert = getattr(vl_convert, f"vegalite_to_{form}")
    how = {"scale": 2} if form == "png" else {}
    try:
        return convert(text, **how)
    except ValueError:
        if not _PAIR.search(text):
            raise
        return convert(_PAIR.sub(r"\\ufffd", text), **how)


def picture(figure: Figure, form: Picture, look: Look = LIGHT) -> bytes:
    """A chart as a file. Raises RunError without the drawing library."""
    if not available():
        raise RunError("cannot-draw-charts")
    drawn: bytes | str = _drawn(form, figure, look)
    return drawn.encode("utf-8", "replace") if isinstance(drawn, str) else drawn
