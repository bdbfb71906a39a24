"""Specifications drawn: SVG for the page, SVG and PNG for files. The only module that draws.

The library that draws is not to be had everywhere; where it is missing the page says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from pgpaces.errors import RunError
from pgpaces.report.charts import plot_width, specification
from pgpaces.report.style import LIGHT, PAGE, Look
from pgpaces.section import Figure, Report

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_DECIMALS = re.compile(r"(\d+\.\d)\d+")
_MOVED = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")
_NAMESPACE = "{http://www.w3.org/2000/svg}"
# What a picture does not need, and what is so without being said.
_UNUSED = ("class", "role", "pointer-events", "aria-roledescription", "aria-hidden")
_DEFAULTS = {
    "opacity": "1",
    "stroke-width": "1",
    "stroke-dasharray": "1,0",
    "font-family": "inherit",
    "font-size": "12px",
    "transform": "translate(0,0)",
    "x2": "0",
    "y2": "0",
}
_INHERITED = ("stroke", "fill", "stroke-width", "text-anchor", "font-weight")


def available() -> bool:
    """Whether charts can be drawn here."""
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        return False
    return True


def inline(figure: Figure, width: int = 0) -> str:
    """An SVG element for the page, whose colors are the page's and whose numbers are short.

    width: of charts above each other, in pixels, where it is not the usual one.

    data-told: what a point says. data-series: the number of the series that a mark or an entry of
    the legend (class key) belongs to. data-plot: where the plot begins and ends in pixels, and the
    places of the x axis there, of charts above each other whose table has these places.
    """
    from xml.etree import ElementTree

    if width:
        figure = replace(figure, charts=tuple(replace(c, width=width) for c in figure.charts))
    root = ElementTree.fromstring(_svg(figure, PAGE, told=True))
    box = root.get("width", "0"), root.get("height", "0")
    names = {each.name: (number, f"var(--{each.color})")
             for number, each in enumerate(figure.charts[0].series)}  # fmt: skip
    if len(figure.charts) == 1 and len(names) > 1:
        _series(root, names)
    found = [child for each in root for child in _pruned(each)]
    root.attrib = {
        "role": "img",
        "aria-label": f"{figure.title}: {figure.about}",
        "viewBox": f"0 0 {box[0]} {box[1]}",
        "style": f"max-width:{box[0]}px;font-size:12px",
        **_plot(figure, found),
    }
    root[:], root.tag = found, "svg"
    return ElementTree.tostring(root, encoding="unicode").replace(" />", "/>")


def _plot(figure: Figure, found: Sequence[Element]) -> dict[str, str]:
    low, high = figure.charts[0].x.ends
    moved = _MOVED.match(found[0].get("transform", "")) if found else None
    if len(figure.charts) == 1 or moved is None or low is None or high is None:
        return {}
    left = float(moved[1])
    end = left + plot_width(figure.charts[0])
    return {"data-plot": f"{left:g} {end:g} {low:g} {high:g}"}


def _series(root: Element, names: Mapping[str, tuple[int, str]]) -> None:
    """Says of each mark and each entry of the legend to which series it belongs."""
    colors = {color: number for number, color in names.values()}
    for group in root.iter(f"{_NAMESPACE}g"):
        role = group.get("class", "").partition(" ")[2]
        if role.startswith(("role-axis", "role-title")):
            continue
        for leaf in group:
            number = colors.get(leaf.get("stroke", ""), colors.get(leaf.get("fill", "")))
            if role == "role-legend-label" and (leaf.text or "") in names:
                number = names[leaf.text or ""][0]
            if leaf.tag != f"{_NAMESPACE}g" and number is not None:
                leaf.set("data-series", str(number))
                if role.startswith("role-legend"):
                    leaf.set("data-key", "")


def _pruned(element: Element) -> list[Element]:
    """An element without what cannot be seen; groups that do nothing are left out."""
    children = [child for each in element for child in _pruned(each)]
    told = element.attrib.pop("aria-label", "")
    kept = {
        name: _DECIMALS.sub(r"\1", value)
        for name, value in element.attrib.items()
        if name not in _UNUSED and _DEFAULTS.get(name) != value
    }
    element.tag = tag = element.tag.removeprefix(_NAMESPACE)
    if tag == "g":
        if not children or not kept:
            return children
    elif tag == "text":
        if not (element.text or len(element)):
            return []
    elif not {"fill", "stroke"} & set(kept) or kept.get("display") == "none":
        return []
    if told and tag == "path":
        kept["data-told"] = told
    element.attrib = kept
    element[:] = children
    if tag == "g":
        _hoist(element)
    return [element]


def _hoist(group: Element) -> None:
    """What all children of a group have is said once, where children inherit it."""
    for name in _INHERITED:
        values = {child.get(name) for child in group}
        if len(group) > 1 and len(values) == 1 and (value := values.pop()) is not None:
            group.set(name, value)
            for child in group:
                del child.attrib[name]


def _svg(figure: Figure, look: Look, *, told: bool = False) -> str:
    import vl_convert

    text: str = vl_convert.vegalite_to_svg(_json(figure, look, told=told))
    return text


def _json(figure: Figure, look: Look, *, told: bool = False) -> Any:
    return json.dumps(specification(figure.charts, look, told=told), allow_nan=False)


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
