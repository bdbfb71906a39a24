"""The report as one self-contained HTML page: no network, no script, light and dark, to be printed.

Values and texts go through a template that escapes everything; only drawn charts are put in as they
are, and their texts were escaped when they were drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pgpaces.report import draw, escape, look
from pgpaces.section import Figure, Report, Section, Sentence

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def card(said: Sequence[Sentence], sections: Sequence[Section]) -> str:
    """Sentences with the charts and tables of some sections, for a notebook."""
    figures = [figure for section in sections for figure in section.figures]
    return (
        _environment()
        .get_template("card.html")
        .render(
            said=said,
            sections=sections,
            style=_variables(look.LIGHT),
            svg={key: _safe(text) for key, text in draw.drawn(figures).items()},
        )
    )


def html(report: Report) -> str:
    """The page."""
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            sections=[each for each in report.sections if each.rank != "text"],
            style=_style(),
            svg={key: _safe(text) for key, text in draw.drawn(report.figures()).items()},
            drawn=draw.available(),
        )
    )


def _side_by_side(figures: Iterable[Figure]) -> list[list[Figure]]:
    """Charts in their order, those together that share their axes."""
    return [list(group) for _, group in groupby(figures, lambda each: each.beside or each.key)]


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
    """The colours of light and dark, then the rest of the style sheet."""
    from importlib import resources

    rest = resources.files("pgpaces.report").joinpath("templates/page.css").read_text("utf-8")
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(look.DARK)}}}}}"
    return _safe(f":root{{{_variables(look.LIGHT)}}}\n{dark}\n{rest}")


def _variables(chosen: look.Look) -> str:
    """The colours as CSS variables."""
    pairs = {**chosen.colours(), "paper": chosen.background}
    return "".join(f"--{name}:{colour};" for name, colour in pairs.items())
