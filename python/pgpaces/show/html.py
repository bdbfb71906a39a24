"""The report as one self-contained HTML page: no network, light and dark, printable.

Its one script shows values of charts, sorts tables and copies commands. The page shows every number
without it, and the content security policy of the page allows no other script.

The template escapes all values and texts, except for drawn charts, whose texts were escaped when
they were drawn.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as quoted

from pgpaces.show import charts, draw, escape
from pgpaces.show.section import Figure, Report, Section

# The width of a chart over time at the top of the page, in pixels.
_WIDE = 1080
# The page leaves out the command that makes a page.
_REPORT = "pgpaces report"


def card(section: Section, figure: Figure | None) -> str:
    """One section with its chart, as a notebook shows an answer."""
    drawn = figure is not None and draw.available()
    return (
        _templates()
        .get_template("card.html")
        .render(
            section=section,
            figure=figure,
            style=_variables(charts.LIGHT),
            svg=Markup(draw.inline(figure)) if figure and drawn else "",
        )
    )


def html(report: Report, *, served: bool = False, part: str = "", trials: str = "") -> str:
    """The page: the question in words and its answer first, with the main chart.

    served: with a link to the list of runs, and its script and style as files of the server. part:
    only the answer and the numbers, for another page of the server. trials: where it lists those of
    the experiment.
    """
    script = template("page.js")
    head = report.top.headline
    drawn = draw.available()
    lead = report.lead
    wide = drawn and lead is not None and lead.over_time
    return (
        _templates()
        .get_template("page.html")
        .render(
            report=report,
            head=head,
            next=[each.command for each in report.top.next if not each.command.startswith(_REPORT)],
            lead=lead,
            wide=Markup(draw.inline(lead, _WIDE)) if lead and wide else "",
            sections=[
                each for each in report.sections if not (part and each.rank in ("details", "page"))
            ],
            served=served,
            part=part,
            trials=trials,
            style=style_sheet(),
            script=Markup(script),
            script_hash=Markup(f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"),
            svg={each.name: Markup(draw.inline(each)) for each in report.figures() if drawn},
            drawn=drawn,
        )
    )


def environment(package: str) -> Environment:
    """The templates of a package. They escape every text, its control characters too."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: escape.line(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _templates() -> Environment:
    templates = environment("pgpaces.show")
    templates.filters["block"] = lambda text: Markup(quoted(escape.lines(text)))
    # A name with possible line breaks after its underscores.
    templates.filters["soft"] = lambda text: Markup(
        str(quoted(escape.line(text))).replace("_", "_<wbr>")
    )
    return templates


def style_sheet() -> Markup:
    rest = template("page.css")
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(charts.DARK)}}}}}"
    return Markup(f":root{{{_variables(charts.LIGHT)}}}\n{dark}\n{rest}")


def template(name: str) -> str:
    return resources.files("pgpaces.show").joinpath("templates", name).read_text("utf-8")


def _variables(chosen: charts.Look) -> str:
    names = {name: name for name in chosen if name != "font"} | {"background": "paper"}
    return "".join(f"--{name}:{chosen[color]};" for color, name in names.items())
