"""The report as one self-contained HTML page: no network, light and dark, to be printed.

Its one script shows values of charts, sorts tables and copies commands; every number is there
without it, and the page's own policy lets no other script run.

Values and texts go through a template that escapes everything; only drawn charts are put in as they
are, and their texts were escaped when they were drawn.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pgpaces.report import draw, escape, style
from pgpaces.section import Figure, Report, Section

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


# The width of a chart over time that is seen first, in pixels.
_WIDE = 1080
# A page needs no command that makes it.
_REPORT = "pgpaces report"


def card(section: Section, figure: Figure | None) -> str:
    """An answer with a chart, for a notebook."""
    drawn = figure is not None and draw.available()
    return (
        _environment()
        .get_template("card.html")
        .render(
            section=section,
            figure=figure,
            style=_variables(style.LIGHT),
            svg=_safe(draw.inline(figure)) if figure and drawn else "",
        )
    )


def html(report: Report) -> str:
    """The page: the question with its answer first, with the chart that shows it."""
    script = _template("page.js")
    head = report.top.headline
    lead = report.lead if draw.available() else None
    wide = lead is not None and len(lead.charts) > 1
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            head=head,
            sentences=[each for each in report.sentences if not head or each.text != head.text],
            next=[each for each in report.top.next if not each.startswith(_REPORT)],
            lead=lead,
            wide=_safe(draw.inline(lead, _WIDE)) if lead and wide else "",
            sections=[each for each in report.sections if each.rank != "text"],
            style=_style(),
            script=_safe(script),
            script_hash=_safe(f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"),
            svg={key: _safe(text) for key, text in draw.drawn(report.figures()).items()},
            drawn=draw.available(),
        )
    )


def _side_by_side(figures: Iterable[Figure]) -> list[list[Figure]]:
    """Charts in their order, those together that share their axes."""
    return [list(group) for _, group in groupby(figures, lambda each: each.group or each.key)]


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from markupsafe import escape as quoted

    def clean(value: Any) -> Any:
        """No text that does anything gets out, wherever it comes from."""
        return escape.line(value) if type(value) is str else value

    made = Environment(
        loader=PackageLoader("pgpaces.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["block"] = lambda text: Markup(quoted(escape.lines(text)))
    made.filters["soft"] = _soft
    made.filters["side_by_side"] = _side_by_side
    return made


def _soft(text: str) -> Markup:
    """A name that may be broken behind its underscores."""
    from markupsafe import Markup
    from markupsafe import escape as quoted

    return Markup(str(quoted(escape.line(text))).replace("_", "_<wbr>"))


def _safe(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(text)


def _style() -> Markup:
    """The colors of light and dark, then the rest of the style sheet."""
    rest = _template("page.css")
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(style.DARK)}}}}}"
    return _safe(f":root{{{_variables(style.LIGHT)}}}\n{dark}\n{rest}")


def _template(name: str) -> str:
    from importlib import resources

    return resources.files("pgpaces.report").joinpath("templates", name).read_text("utf-8")


def _variables(chosen: style.Look) -> str:
    """The colors as CSS variables."""
    pairs = {**chosen.colors(), "paper": chosen.background}
    return "".join(f"--{name}:{color};" for name, color in pairs.items())
