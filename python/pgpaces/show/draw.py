"""Specifications drawn: SVG for the page, SVG and PNG for files. The only module that draws.

The drawing library has no wheel for some platforms; the page states that it is missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from pgpaces.core.errors import RunError
from pgpaces.show.charts import MARGIN, specification
from pgpaces.show.render import Picture
from pgpaces.show.section import Figure
from pgpaces.show.style import LIGHT, PAGE, WIDTH, Look

_DECIMALS = re.compile(r"\d+\.\d+")
_MOVED = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")
# A character that JSON writes as two halves of UTF-16.
_PAIR = re.compile(r"\\ud[89ab]..\\ud[c-f]..")
_NAMESPACE = "{http://www.w3.org/2000/svg}"
# Attributes that a picture does not need, and those with their default value.
_UNUSED = ("class", "role", "pointer-events", "aria-roledescription", "aria-hidden")
_DEFAULTS = {
    "opacity": "1",
    "stroke-width": "1",
    "stroke-dasharray": "1,0",
    "font-family": "inherit",
    "font-size": "12px",
    "transform": "translate(0,0)",
    "text-anchor": "start",
    "x2": "0",
    "y2": "0",
}
_INHERITED = ("fill", "stroke", "stroke-width", "text-anchor")


def available() -> bool:
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        return False
    return True


def inline(figure: Figure, width: int = WIDTH) -> str:
    """An SVG element with the colors of the page and short numbers.

    data-description: the point in words. data-series: the number of the series of a mark or of an
    entry of the legend (data-key). data-plot: of stacked charts, the horizontal bounds of the plot
    in pixels, and the values of the x axis there.
    """
    root = ElementTree.fromstring(_drawn("svg", figure, PAGE, width=width))
    box = root.get("width", "0"), root.get("height", "0")
    series = figure.encodings.get("color", {}).get("scale", {"domain": []})
    if not figure.over_time and len(series["domain"]) > 1:
        _series(root, series["domain"], series["range"])
    children = [child for each in root for child in _pruned(each)]
    root.attrib = {
        "role": "img",
        "aria-label": f"{figure.title}: {figure.about}",
        "viewBox": f"0 0 {box[0]} {box[1]}",
        "style": f"max-width:{box[0]}px;font-size:12px",
        **_plot(figure, children, width),
    }
    root[:], root.tag = children, "svg"
    return ElementTree.tostring(root, encoding="unicode").replace(" />", "/>")


def _plot(figure: Figure, children: Sequence[Element], width: int) -> dict[str, str]:
    moved = _MOVED.match(children[0].get("transform", "")) if children else None
    if not figure.over_time or moved is None:
        return {}
    left, (low, high) = float(moved[1]), figure.encodings["x"]["scale"]["domain"]
    return {"data-plot": f"{left:g} {left + width - MARGIN:g} {low:g} {high:g}"}


def _series(root: Element, names: Sequence[str], inks: Sequence[str]) -> None:
    colors = {f"var(--{ink})": number for number, ink in enumerate(inks)}
    for group in root.iter(f"{_NAMESPACE}g"):
        role = group.get("class", "").partition(" ")[2]
        if role.startswith(("role-axis", "role-title")):
            continue
        for leaf in group:
            number = colors.get(leaf.get("stroke", ""), colors.get(leaf.get("fill", "")))
            if role == "role-legend-label" and (leaf.text or "") in names:
                number = names.index(leaf.text or "")
            if leaf.tag != f"{_NAMESPACE}g" and number is not None:
                leaf.set("data-series", str(number))
                if role.startswith("role-legend"):
                    leaf.set("data-key", "")


def _pruned(element: Element) -> list[Element]:
    """An element without invisible parts and without groups that have no effect."""
    children = [child for each in element for child in _pruned(each)]
    description = element.attrib.pop("aria-label", "")
    attributes = {
        name: _DECIMALS.sub(_tenths, value)
        for name, value in element.attrib.items()
        if name not in _UNUSED and _DEFAULTS.get(name) != value
    }
    element.tag = tag = element.tag.removeprefix(_NAMESPACE)
    if tag == "g":
        children = _joined(children)
        _share(children, attributes)
        if not children or not attributes:
            return children
    elif tag == "line" and (attributes.get("opacity") == "0" or not {"x2", "y2"} & set(attributes)):
        return []
    elif tag == "text":
        if not (element.text or len(element)):
            return []
    elif not {"fill", "stroke"} & set(attributes) or attributes.get("display") == "none":
        return []
    if description and tag == "path":
        attributes["data-description"] = description
    element.attrib = attributes
    element[:] = children
    if tag == "text" and (moved := _MOVED.fullmatch(attributes.get("transform", ""))):
        del attributes["transform"]
        attributes |= {"x": moved[1], "y": moved[2]}
    return [element]


def _share(children: Sequence[Element], attributes: dict[str, str]) -> None:
    """Moves what all children of a group have in common to its attributes."""
    for name in _INHERITED:
        values = {child.get(name, "") for child in children}
        if len(children) > 2 and len(values) == 1 and "" not in values:
            attributes[name] = values.pop()
            for child in children:
                del child.attrib[name]


def _tenths(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def _joined(children: Sequence[Element]) -> list[Element]:
    """The children of a group, whose lines of one look, as those of a grid, are one path."""
    kept: dict[Any, Element] = {}
    for child in children:
        if child.tag != "line" or "data-series" in child.attrib:
            kept[id(child)] = child
            continue
        moved = _MOVED.fullmatch(child.attrib.pop("transform", "")) or ("", "0", "0")
        x2, y2 = (child.attrib.pop(name, "0") for name in ("x2", "y2"))
        step = f"v{y2}" if x2 == "0" else f"h{x2}" if y2 == "0" else f"l{x2},{y2}"
        path = kept.setdefault(tuple(sorted(child.attrib.items())), child)
        path.tag = "path"
        path.set("d", f"{path.get('d', '')}M{moved[1]},{moved[2]}{step}")
    return list(kept.values())


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
