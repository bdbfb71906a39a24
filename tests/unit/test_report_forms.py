"""A report in all its forms: complete, escaped, and the same numbers in each."""

from __future__ import annotations

import csv as tables
import io
import json
import math
import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

import arro3.io
import pytest
import vl_convert
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis.digest import Digest
from pgpaces.analysis.validity import Validity
from pgpaces.answers import over_time
from pgpaces.answers.sweep.page import Page, gather
from pgpaces.answers.sweep.report import report as report_of
from pgpaces.answers.sweep.screen import PANELS_MAX, chart
from pgpaces.core.errors import PlanError
from pgpaces.show import charts, draw, render
from pgpaces.show.charts import DARK, DASHES, LIGHT, PAGE, SERIES_MAX, SHAPES, specification
from pgpaces.show.html import html
from pgpaces.show.markdown import markdown, text
from pgpaces.show.section import Figure, Report
from pgpaces.show.section import figure as figure_of
from pgpaces.show.terminal import terminal
from pgpaces.spec.design import Ask, Cell, Design, Factor
from pgpaces.spec.result import Estimate, Place
from pgpaces.spec.target import Target
from tests.errors import raises
from tests.unit.experiments import WORKERS, experiment, made, moved
from tests.unit.reports import ABOUT, PLAN, nasty_report, page_of, reported, whole_page
from tests.unit.trials import changed, planned

NAME = WORKERS.removeprefix("set.")
LIBRARIES = "set.shared_preload_libraries"
CONTROL = "[\x00-\x08\x0b-\x1f\x7f\u202e\ud800-\udfff]"


def of(*factors: Factor, seconds: int = 12, **changes: Any) -> Page:
    """A page of one trial for each cell, all of the same load or of that of their clients."""
    plan = Design({f.name: f.levels for f in factors}, **changes)
    own = len([each for each in factors if each.name in ("clients", WORKERS)])
    found = [
        moved(made(Ask(Cell(slot.cell.levels[:own]), slot.block), seconds),
              **dict(slot.cell.levels))
        for slot in plan.asks()
    ]  # fmt: skip
    return gather(found, ABOUT, experiment(design=plan))


def three_factors() -> Page:
    servers = Factor("server", ("15", "18"))
    return of(Factor("clients", ("1", "8")), Factor(WORKERS, ("0", "2", "4")), servers, trials=1)


def said(report: Report, form: render.Form) -> str:
    return " ".join(render.render(report, form, 200).decode().split())


def test_the_page_needs_nobody_else():
    made_page = html(reported())
    assert not re.search(
        r"""(?:src|href)\s*=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)""", made_page
    )
    assert made_page.count("<svg ") == len(list(reported().figures()))


def test_the_page_runs_its_own_script_and_no_other():
    for made_page in (html(reported()), html(nasty_report())):
        [script] = re.findall(r"<script[^>]*>(.*?)</script>", made_page, re.DOTALL)
        digest = b64encode(sha256(script.encode()).digest()).decode()
        assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in (
            made_page
        )


def test_every_chart_has_its_numbers_as_a_table():
    for figure in reported().figures():
        assert figure.rows, figure.name
        assert all(len(row) == len(figure.columns) for row in figure.rows), figure.name
    assert html(reported()).count("The numbers as a table") == len(list(reported().figures()))


def test_what_others_wrote_does_nothing_in_any_form():
    made_page = html(nasty_report())
    assert made_page.count("<script") == 1, "the page's own"
    assert "49" not in re.findall(r"<title>(.*?)</title>", made_page)[0]
    assert "{{7*7}}" in made_page
    made_page.encode()
    shown = markdown(nasty_report())
    outside = re.sub(r"(`+) .*? \1(?!`)", "", shown)
    assert "<script" not in outside
    assert not re.search(r"(?<!\\)\]\(", outside)
    # An address is no link; a character by its number has a sign that is not escaped again.
    assert text("read.sql@9 #1") == "read.sql&#64;9 \\#1"
    for each in (made_page, shown, *(terminal(nasty_report(), width) for width in (40, 80, 200))):
        assert not re.search(CONTROL, each)
    json.loads(render.render(nasty_report(), "json"))
    assert render.render(nasty_report(), "parquet")


@given(st.text())
@settings(max_examples=60)
def test_a_text_stays_in_its_cell_of_a_markdown_table(value):
    shown = text(value)
    assert "\n" not in shown
    assert not re.search(r"(?<!\\)(?:\\\\)*\|", shown)
    assert "<" not in shown


def test_csv_and_parquet_have_each_metric_of_each_cell_and_trial():
    rows = list(tables.DictReader(io.StringIO(render.render(reported(), "csv").decode())))
    missed = [row for row in rows if row["metric"] == "missed" and not row["script"]]
    assert [bool(row["run"]) for row in missed].count(False) == len(whole_page().rows)
    assert len({row["run"] for row in missed} - {""}) == len(whole_page().digests)
    read = arro3.io.read_parquet(io.BytesIO(render.render(reported(), "parquet"))).read_all()
    assert read.num_rows == len(rows)
    assert list(read.schema.names) == list(rows[0])
    values = [value.as_py() for value in read["value"]]
    assert values == [float(row["value"]) for row in rows]


def test_a_spreadsheet_takes_no_text_for_a_formula():
    shown = render.render(nasty_report(), "csv").decode("utf-8", "replace")
    rows = tables.reader(io.StringIO(shown))
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "@", "+"))]


@pytest.mark.parametrize("width", [40, 60, 100, 180])
def test_text_keeps_to_the_width_of_the_terminal(width):
    lines = terminal(reported(), width).splitlines()
    assert max(map(len, lines)) <= width
    joined = "".join("".join(lines).split())
    assert "".join(reported().top.headline.text.split()) in joined


def test_a_page_without_the_library_that_draws_has_the_tables_and_says_so(monkeypatch):
    monkeypatch.setattr(draw, "available", lambda: False)
    made_page = html(reported())
    assert "<svg" not in made_page
    assert "Charts could not be drawn" in made_page
    assert made_page.count("The numbers as a table") == len(list(reported().figures()))


def specifications(figure: Figure) -> list[str]:
    return [
        json.dumps(specification(figure, look), allow_nan=False) for look in (LIGHT, DARK, PAGE)
    ]


@pytest.mark.usefixtures("drawn")
def test_specifications_are_plain_values_and_draw_without_a_warning():
    for figure in reported().figures():
        for each in specifications(figure):
            json.loads(each)
        svg = draw.inline(figure)
        assert "NaN" not in svg, figure.name
        assert " id=" not in svg, "names in one page must not clash"
        assert "var(--" in svg
        assert not re.search(r"#[0-9a-f]{6}\b", svg), figure.name
    assert vl_convert.vegalite_to_png(specifications(figure)[0]).startswith(b"\x89PNG")


def test_texts_of_others_are_never_expressions():
    for figure in nasty_report().figures():
        found = json.loads(json.dumps(specification(figure, PAGE)))
        for key, value in walk(found):
            if key in ("expr", "test", "labelExpr", "signal", "field"):
                assert "alert" not in str(value)
        draw.inline(figure)


def test_a_name_that_looks_like_a_place_of_a_template_is_a_name():
    axis = charts.names("$line0", ("$ink", "$if"))
    made_figure = figure_of(
        "f", "", "", columns=(), data=(), template="factor", panels=[""], x=axis, y=axis
    )
    assert specification(made_figure, LIGHT)["spec"]["encoding"]["x"] == {**axis, "field": "x"}


@pytest.mark.usefixtures("drawn")
def test_a_label_that_is_cut_within_a_character_can_be_drawn():
    name = "🐘" * 40
    rows = [{"x": each, "series": each, "value": 1.0, "valid": True} for each in (name, "b")]
    axes = {"x": charts.names(name, (name, "b")), "y": charts.amounts(name)}
    made_figure = figure_of("f", name, "", columns=(name,), data=rows, template="factor",
                         panels=[""], **axes, **charts.series((name, "b")))  # fmt: skip
    assert draw.inline(made_figure).startswith("<svg")
    assert draw.picture(made_figure, "png").startswith(b"\x89PNG")


def walk(value: object) -> list[tuple[str, object]]:
    if isinstance(value, dict):
        return [pair for k, v in value.items() for pair in [(k, v), *walk(v)]]
    return [pair for v in value for pair in walk(v)] if isinstance(value, list) else []


@pytest.mark.usefixtures("drawn")
def test_invalid_trials_are_hollow_and_never_vanish():
    invalid = [
        replace(d, summary=replace(d.summary, validity=Validity("invalid")))
        for d in whole_page().digests
    ]
    page = page_of(invalid)
    made_page = html(report_of(page))
    assert 'fill-opacity="0"' in draw.inline(next(report_of(page).figures()))
    assert 'fill-opacity="0"' not in draw.inline(next(reported().figures()))
    assert made_page.count('class="invalid"') >= len(page.rows) + len(whole_page().digests)


def test_many_lines_are_few_and_what_is_left_out_is_said():
    base = made(Ask(Cell(()), 1), 10)
    numbers = Factor("set.a", tuple(map(str, range(9))))
    plan = Design({"clients": ("1", "2"), numbers.name: numbers.levels, "set.b": tuple("abcdefgh")})
    found = [moved(base, **dict(slot.cell.levels)) for slot in plan.asks()]
    [figure] = chart(gather(found, ABOUT, experiment(design=plan)))
    assert len({row["panel"] for row in figure.data}) == PANELS_MAX
    assert len({row["series"] for row in figure.data if "x" in row}) <= SERIES_MAX
    assert "Cells without a mark: " in figure.about


def test_servers_have_panels_and_settings_have_lines():
    [figure] = chart(three_factors())
    assert {row["panel"] for row in figure.data} == {"server=15", "server=18"}
    found = json.loads(json.dumps(specification(figure, LIGHT)))
    color = found["spec"]["encoding"]["color"]
    assert color["legend"]["title"] == NAME
    assert color["scale"]["domain"][:3] == ["0", "2", "4"]


def test_a_grid_of_names_has_charts_too():
    factors = Factor("set.jit", ("on", "off")), Factor("protocol", ("simple", "prepared"))
    page = of(*factors, seconds=60, trials=1)
    assert page.main is None
    first = next(report_of(page).figures())
    assert first.name == "p95", "nothing was missed"
    color = specification(first, LIGHT)["spec"]["encoding"]["color"]
    assert color["scale"]["domain"][:2] == ["simple", "prepared"], "a color for each"
    assert color["legend"]["title"] == "protocol"
    assert len({row["shift"] for row in first.data if "x" in row}) == 2, "beside each other"
    html(report_of(page))
    terminal(report_of(page), 80)


@pytest.mark.parametrize("clients", [("1", "4", "8"), ("4",)])
@pytest.mark.parametrize("others", [{}, {"protocol": ("simple", "prepared")}])
def test_an_empty_level_is_shown_in_quotes_in_texts_tables_and_charts(clients, others):
    """As one that is two quotes."""

    def shown(empty: str) -> tuple[str, str, list[dict[str, object]]]:
        levels = {"clients": clients, LIBRARIES: (empty, "auto_explain"), **others}
        plan = Design({**levels, "set.search_path": (empty,)}, trials=2)
        found = [
            moved(made(Ask(Cell(cell.levels[: len(clients) > 1]), block), 12), **dict(cell.levels))
            for block in (1, 2)
            for cell in plan.cells()
        ]
        about = replace(ABOUT, failures=((plan.cells()[0].key, 1, "it broke"),))
        report = report_of(gather(found, about, experiment(design=plan)))
        specified = [specification(figure, LIGHT) for figure in report.figures()]
        return markdown(report), terminal(report), specified

    assert shown("") == shown("''")


def test_long_names_along_an_axis_stand_aslant_and_none_is_left_out():
    names = ("a-rather-long-variant", "another-long-variant", "third-of-the-variants")
    page = of(Factor("variant", names), seconds=60, trials=1)
    first = next(report_of(page).figures())
    drawn = specification(first, LIGHT)["spec"]["encoding"]["x"]["axis"]
    assert drawn["labelAngle"] != 0
    assert drawn["labelOverlap"] is False


def test_boards_of_a_kind_are_one_cell_of_the_page():
    boards = ("a", "b", "c")
    plan = Design({"clients": ("1", "4"), "target": boards}, trials=2)
    targets = tuple(Target(name, f"host={name}", kind="pi4") for name in boards)
    found = [
        moved(made(Ask(Cell(slot.cell.levels[:1]), slot.block), 10), **dict(slot.cell.levels))
        for slot in plan.asks()
    ]
    page = gather(found, ABOUT, experiment(design=plan, targets=targets))
    assert [factor.name for factor in page.factors] == ["clients"]
    assert [len(row.trials) for row in page.rows] == [6, 6]
    assert page.missing == 0


@pytest.mark.parametrize(
    ("path", "form"),
    [("a.html", "html"), ("b.HTM", "html"), ("c.md", "md"), ("d.txt", "text"), ("e.pq", "parquet"),
     ("report", None), ("report.docx", None), (".html", None)],
)  # fmt: skip
def test_the_ending_of_a_file_names_its_form(path, form):
    if form is not None:
        assert render.form_of(path) == form
        return
    with raises(PlanError, "unknown-form", path=path):
        render.form_of(path)


def test_a_limit_of_one_script_is_not_said_to_be_that_of_all():
    own = [
        replace(d, trial=planned(d.trial, limits=(("by_fk1", 200_000_000),)))
        for d in whole_page().digests
    ]
    page = page_of(own)
    assert page.limits == ("500 ms", "by_fk1 200 ms")
    assert page.limit is None
    assert whole_page().limit == "500 ms"
    assert "&gt; 500 ms" in html(reported())
    assert "&gt; 500 ms" not in html(report_of(page))


def test_the_first_trial_of_an_experiment_does_not_answer_for_it():
    first = made(PLAN.asks()[1], 60)
    run, early = report_of(gather([first], ABOUT)), report_of(page_of([first]))
    assert run.top.headline is not None
    assert early.top.headline is not None
    assert (run.top.headline.word, early.top.headline.word) == ("PASS", "SWEEP")
    assert early.top.headline.text == early.top.conclusion


def test_every_load_whose_time_is_above_the_chart_says_so_also_of_close_ones():
    levels = ("0.1/s", "0.2/s", "0.3/s")
    plan = Design({"rate": levels})
    late = made(Ask(Cell((("clients", "8"), (WORKERS, "0"))), 1), 60)
    digests = []
    for slot in plan.asks():
        place = Place("E", slot.cell.key, dict(slot.cell.levels), 1)
        id_ = f"01{slot.cell.key}"
        digests.append(replace(late, trial=replace(late.trial, id=id_, place=place)))
    page = gather(digests, ABOUT, experiment(design=plan))
    rows = (
        replace(row, estimates={n: e for n, e in row.estimates.items() if n != "missed"})
        for row in page.rows
    )
    page = replace(page, rows=tuple(rows))
    [p95] = chart(page)
    assert len({row["x"] for row in p95.data if row.get("above")}) == 3


@pytest.mark.parametrize("width", [60, 80, 120])
def test_long_names_of_factors_are_short_in_a_terminal_and_explained(width):
    shown = terminal(report_of(three_factors()), width)
    assert "mpwpg: max_parallel_workers_per_gather" in shown
    (head,) = [line for line in shown.splitlines() if line.startswith("clients  ")]
    assert head.split()[:3] == ["clients", "mpwpg", "server"]
    assert head.endswith("verdict")


def built(found: Digest, version: str, build: str | None) -> Digest:
    server = found.trial.server.but(version=version, build=build)
    return replace(found, trial=changed(found.trial, server=server))


@pytest.mark.parametrize(
    ("builds", "told"),
    [
        ((("15.18", "Debian"), ("18.6", "Maven's")), True),
        ((("15.18", "Debian"), ("18.6", "Debian")), False),
        # Where it is one version, builds are what is compared.
        ((("15.18", "Debian"), ("15.18", "Maven's")), False),
        # Of an external server it is not known.
        ((("15.18", None), ("18.6", "Maven's")), False),
    ],
)
def test_versions_of_different_builds_are_told_in_all_forms(builds, told):
    plan = Design({"server": ("15", "18"), "clients": ("1", "4")})
    of_level = dict(zip(("15", "18"), builds, strict=True))
    digests = [
        built(made(slot, 12), *of_level[dict(slot.cell.levels)["server"]]) for slot in plan.asks()
    ]
    found = gather(digests, ABOUT, experiment(design=plan))
    for form in ("html", "md", "text", "json"):
        shown = said(report_of(found), form)  # type: ignore[arg-type]
        assert ("server-builds-differ" in shown) is told, form
        assert ("Debian (15.18)" in shown) is told, form


WIDE = Design({"clients": tuple(map(str, range(1, 501)))})


def test_a_page_without_a_trial_says_why_in_all_forms():
    keys = [cell.key for cell in WIDE.cells()]
    same = tuple((key, 1, "no route to host\x1b[31m") for key in keys)
    differ = tuple((key, 1, f"reason {n}") for n, key in enumerate(keys))
    one, many = (
        report_of(gather([], replace(ABOUT, failures=each), experiment(design=WIDE)))
        for each in (same, differ)
    )
    forms: tuple[render.Form, ...] = ("html", "md", "text")
    for form in forms:
        shown = said(one, form)
        assert "could not start: 500; first error (clients=1, trial 1): no route" in shown
        assert "clients=1, trial 1, and 499 more" in shown, form
        assert "\x1b" not in shown
        shown = said(many, form)
        assert ("reason 19" in shown, "reason 20" in shown) == (True, False)
        assert "and 480 more reasons" in shown
    assert len(json.loads(render.render(one, "json"))["value"]["failures"]) == 500


def test_a_terminal_shows_cells_that_ran_and_the_first_of_the_others():
    slots = WIDE.asks()
    ran = [made(slot, 12) for slot in slots if dict(slot.cell.levels)["clients"] in ("3", "9")]
    for found, listed in ((ran, 22), ([], 20)):
        page = gather(found, ABOUT, experiment(design=WIDE))
        shown = terminal(report_of(page), 120)
        # The first 20 in the table, once for all others, and in the finding.
        assert shown.count("not run") == (20 if found else 0) + 2
        assert f"and {500 - listed} more cells that were not run" in shown
        assert len(shown.splitlines()) < 250
    assert "and 0 more" not in terminal(reported(), 120)
    assert "more cells that were not run" not in terminal(reported(), 120)


def test_without_a_limit_the_most_is_not_called_the_fastest_where_intervals_overlap():
    slots = [Ask(Cell(((WORKERS, w),)), block) for block in (1, 2) for w in ("0", "1")]
    overlap = "(its interval overlaps 1 other interval)"

    def answer(rates: dict[str, float]) -> str:
        rows = []
        for slot in slots:
            one = made(slot, 10)
            value = rates[dict(slot.cell.levels)[WORKERS]]
            spread = Estimate(value, value * 0.99, value * 1.01, 60)
            rows.append(
                replace(
                    one,
                    trial=planned(one.trial, limit_ns=None, limits=(), policy="run"),
                    summary=replace(one.summary, throughput=spread),
                )
            )
        return " ".join(report_of(gather(rows, ABOUT)).top.sentences)

    assert overlap in answer({"0": 100.0, "1": 100.5})
    assert overlap not in answer({"0": 100.0, "1": 200.0})


@pytest.mark.parametrize(
    ("state", "severity"), [("running", "nothing"), ("interrupted", "caution")]
)
def test_trials_that_are_missing_are_a_warning_only_once_the_experiment_has_ended(state, severity):
    failures = ((PLAN.cells()[0].key, 1, "96 free connections"),)
    for why in ((), failures):
        about = replace(ABOUT, state=state, failures=why)
        page = gather(whole_page().digests[:-2], about, experiment(design=PLAN))
        top = report_of(page).top
        [shown] = [e for e in top.findings if e.name in ("trials-to-run", "trials-missing")]
        assert (shown.severity, shown.values["count"]) == (severity, 2)
        assert any("96 free connections" in each for each in top.sentences) == bool(why)


def test_charts_over_time_end_where_a_percentile_is_of_what_did_not_succeed():
    def failing(digest: Digest) -> Digest:
        first, *rest = digest.series
        lost = replace(first, p95_ms=math.inf, p99_ms=math.inf, lag_p99_ms=math.inf)
        return replace(
            digest, series=(lost, *rest), trial=planned(digest.trial, limit_ns=500_000_000)
        )

    figure, *_ = over_time.section(failing(whole_page().digests[0]), ()).figures
    assert figure.rows[0][3:5] == ("> 500", "> 500")
    assert figure.rows[0][-1] == "–"
    assert "> 500" not in figure.rows[1]
    assert figure.data[0]["p95"] is None
    assert math.inf not in [value for row in figure.data for value in row.values()]


# Backgrounds that the page's style sheet puts behind charts, beside that of the page.
BEHIND = {"light": (LIGHT, ("#ffffff", "#f4f6f9")), "dark": (DARK, ("#191f28", "#1b212b"))}
LINES = [name for name in LIGHT if name.startswith("line")]


def luminance(color: str) -> float:
    """Relative luminance as in WCAG 2.2."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", BEHIND)
def test_texts_and_lines_stand_out_from_the_background(name):
    look, backgrounds = BEHIND[name]
    for behind in (*backgrounds, look["background"]):
        assert all(
            contrast(text, behind) >= 4.5 for text in map(look.get, ("ink", "muted", "alarm"))
        )
        assert all(contrast(line, behind) >= 3 for line in map(look.get, LINES)), behind


def test_lines_are_told_apart_without_colors_too():
    assert len({str(dash) for dash in DASHES}) == len(DASHES) == len(set(SHAPES)) == len(LINES)
