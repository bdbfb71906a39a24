"""The page in a real browser: charts are drawn, nothing leaves it, everybody can read it."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import resources

import pytest
from playwright.sync_api import Page

from pgpaces.answers.sweep.lookup import page_of
from pgpaces.answers.sweep.report import report as report_of
from pgpaces.show.charts import DARK, LIGHT
from pgpaces.show.html import html
from pgpaces.show.section import Report, Section, Table, TableCell
from pgpaces.store.store import Store
from tests.browser.pages import opened_page
from tests.unit import answered
from tests.unit.reports import hostile

pytestmark = pytest.mark.browser

PHONE = {"width": 360, "height": 740}
BOXES = """() => [...document.querySelectorAll('figure svg')]
    .filter(svg => !svg.closest('details:not([open])'))
    .map(svg => ({box: svg.getBoundingClientRect().toJSON(),
                  marks: svg.querySelectorAll('path, line, text').length}))"""
COLORS = """() => {
    const svg = document.querySelector('#missed svg');
    return [...new Set([...svg.querySelectorAll('path')].map(e => getComputedStyle(e).stroke)
        .concat([...svg.querySelectorAll('text')].map(e => getComputedStyle(e).fill)))];
}"""


def unfold(page: Page, within: str = "") -> None:
    page.evaluate(f"document.querySelectorAll('{within} details').forEach(d => d.open = true)")


def rgb(color: str) -> str:
    return f"rgb({', '.join(str(int(color[at : at + 2], 16)) for at in (1, 3, 5))})"


@pytest.mark.parametrize("how", ["light", "dark"])
def test_charts_are_drawn_in_the_colors_of_light_and_dark(browser, report, how):
    look, other = (LIGHT, DARK) if how == "light" else (DARK, LIGHT)
    with opened_page(browser, report, color_scheme=how) as (page, wrong):
        found = page.evaluate(BOXES)
        assert len(found) == 1
        for each in found:
            assert each["box"]["width"] > 250
            assert each["box"]["height"] > 100
            assert each["marks"] > 20
        colors = page.evaluate(COLORS)
        assert {rgb(color) for color in map(look.get, ("line0", "line1", "line2"))} <= set(colors)
        assert rgb(look["muted"]) in colors
        assert rgb(other["line0"]) not in colors
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == rgb(look["background"])
        assert wrong == []


def test_what_others_wrote_is_shown_and_does_nothing(browser, tmp_path):
    path = tmp_path / "hostile.html"
    path.write_text(html(report_of(hostile())), encoding="utf-8")
    # Without the page's own policy: nothing may depend on it.
    with opened_page(browser, path.as_uri(), viewport=PHONE, bypass_csp=True) as (page, wrong):
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.reload()
        unfold(page)
        assert page.evaluate("document.scripts.length") == 1, "the page's own"
        assert page.evaluate("document.querySelectorAll('a, img, iframe, object').length") == 0
        assert "</pre><script>alert(1)</script>" in page.locator("body").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        assert wrong == []


def test_details_open_without_a_script_and_by_keyboard(browser, report):
    with opened_page(browser, report, java_script_enabled=True) as (page, wrong):
        summary = page.locator("details.cell > summary").first
        summary.focus()
        page.keyboard.press("Enter")
        assert page.locator("details.cell[open] table").first.is_visible()
        figure = page.locator("figure").first
        figure.locator("summary").focus()
        page.keyboard.press("Enter")
        assert figure.locator("table tbody tr").first.is_visible()
        assert wrong == []


@pytest.mark.parametrize("how", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing_that_shuts_anybody_out(browser, small_report, how):
    axe = resources.files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
    # The page's own policy lets no script in; the inspector comes past it.
    with opened_page(browser, small_report, color_scheme=how, bypass_csp=True) as (page, _):
        unfold(page)
        page.evaluate(axe)
        # What a chart consists of is nobody's to read: it is an image with a name and a table.
        found = page.evaluate("axe.run({exclude: [['figure svg > *']]})")
        told = [(v["id"], v["nodes"][0]["html"][:200]) for v in found["violations"]]
        assert told == []
        assert len(found["passes"]) > 20


def test_a_phone_scrolls_tables_in_their_boxes_and_nothing_else(browser, report):
    with opened_page(browser, report, viewport=PHONE) as (page, wrong):
        unfold(page)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        wide = page.evaluate(
            """() => [...document.querySelectorAll('body *')].filter(e =>
                !e.closest('.scroll') && !e.closest('svg') &&
                e.getBoundingClientRect().right > innerWidth + 1)
                .map(e => e.outerHTML.slice(0, 99))"""
        )
        assert wide == []
        small = page.evaluate(
            """() => Math.min(...[...document.querySelectorAll('figure svg text')]
                .filter(e => e.textContent.trim()).map(e => e.getBoundingClientRect().height))"""
        )
        assert small > 8, "texts of charts stay legible"
        assert wrong == []


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """The page of a search for a capacity."""
    store = Store.existing(answered.unpacked(tmp_path_factory.mktemp("searched")))
    path = tmp_path_factory.mktemp("page") / "capacity.html"
    path.write_text(html(report_of(page_of(store, ("capacity",)))), encoding="utf-8")
    assert path.stat().st_size <= 400_000
    return path.as_uri()


@pytest.mark.slow
def test_no_mark_lies_on_the_label_of_the_threshold(browser, searched):
    with opened_page(browser, searched) as (page, wrong):
        clashes = page.evaluate(
            """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
                const boxes = (what) => [...svg.querySelectorAll(what)].map(
                    e => e.getBoundingClientRect()).filter(box => box.width);
                const labels = [...svg.querySelectorAll('text')].filter(
                    e => e.textContent.startsWith('may miss')).map(e => e.getBoundingClientRect());
                return labels.flatMap(x => boxes('path[data-description]').filter(y =>
                    x.left < y.right && y.left < x.right && x.top < y.bottom && y.top < x.bottom));
            }).length"""
        )
        assert page.locator("text", has_text="may miss").count() >= 1
        assert page.locator("path[data-description]").count() > 5
        assert clashes == 0
        assert wrong == []


def test_texts_of_charts_do_not_lie_on_each_other(browser, report):
    with opened_page(browser, report) as (page, _):
        unfold(page)
        clashes = page.evaluate(
            """() => [...document.querySelectorAll('figure svg')].filter(
                    svg => !svg.closest('details:not([open])')).flatMap(svg => {
                const texts = [...svg.querySelectorAll('text')].filter(
                    e => e.textContent.trim() && getComputedStyle(e).opacity > 0);
                const boxes = texts.map(e => [e.textContent, e.getBoundingClientRect()]);
                return boxes.flatMap(([a, x], i) => boxes.slice(i + 1).filter(([b, y]) =>
                    x.left + 1 < y.right && y.left + 1 < x.right &&
                    x.top + 3 < y.bottom && y.top + 3 < x.bottom).map(([b]) =>
                    svg.closest('figure').id + ': ' + a + ' / ' + b));
            })"""
        )
        assert clashes == []


def test_it_prints_in_light_without_what_is_folded_and_without_losing_columns(browser, report):
    with opened_page(browser, report, color_scheme="dark") as (page, _):
        page.emulate_media(media="print", color_scheme="dark")
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == rgb(LIGHT["background"])
        page.set_viewport_size({"width": 690, "height": 1000})
        assert page.evaluate("document.documentElement.scrollWidth") <= 690
        assert page.locator("details:not([open])").first.is_hidden()
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_hollow_marks_show_cells_without_a_valid_trial(browser, report):
    with opened_page(browser, report) as (page, _):
        hollow = page.locator('#missed svg path[fill-opacity="0"]').count()
        assert hollow >= 3
        assert page.locator("#cells tr.invalid").count() == 1
        assert page.locator("#cells .chip.invalid").count() == 1


def test_a_mark_says_its_value_under_the_pointer_and_by_keyboard(browser, report):
    with opened_page(browser, report) as (page, wrong):
        unfold(page)
        chart = page.locator("#missed > svg")
        chart.scroll_into_view_if_needed()
        mark = chart.locator("[data-description]").last
        description = mark.get_attribute("data-description") or ""
        mark.hover(force=True)
        assert page.locator("#tip").inner_text().splitlines() == description.split(" · ")
        page.mouse.move(0, 0)
        assert page.locator("#tip").is_hidden()
        chart.focus()
        page.keyboard.press("ArrowRight")
        first = chart.locator("[data-description]").first.get_attribute("data-description") or ""
        assert page.locator("#tip").inner_text().splitlines() == first.split(" · ")
        page.keyboard.press("Escape")
        assert page.locator("#tip").is_hidden()
        assert wrong == []


def test_a_place_of_a_chart_over_time_says_the_row_of_its_table(browser, tmp_path):
    store = Store.existing(answered.unpacked(tmp_path))
    (tmp_path / "run.html").write_text(html(report_of(page_of(store, ("single",)))), "utf-8")
    with opened_page(browser, (tmp_path / "run.html").as_uri()) as (page, wrong):
        figure = page.locator("#latency")
        figure.locator("svg").first.focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        cells = figure.locator("tbody tr").nth(2).locator("th, td")
        said = page.locator("#tip").inner_text().splitlines()
        assert [line.rpartition(": ")[2] for line in said] == cells.all_text_contents()
        assert figure.locator(".cross").count() == 1
        assert wrong == []


RISING = [
    ("2026-11-01 23:59:59", "2026-11-02 00:00:00", "2026-11-02 00:00:01"),
    ("900 B", "812 KiB", "17.45 MiB", "1 GiB"),
    ("64kB", "4MB", "1GB"),
    ("90us", "500ms", "1s", "2min", "1h"),
    ("-3", "0.5", "950,000", "14.5 million", "1 billion"),
    ("9/s", "10/s", "1,000/s"),
    ("1.2e-07", "3e-05", "0.0004", "0.02", "1e+03"),
]


def test_a_column_of_dates_or_units_sorts_by_what_they_mean(browser, tmp_path):
    """A table for each kind, all on one page."""
    tables = [
        Table(f"t{n}", "T", ("x",), 0, tuple((TableCell(text),) for text in one[1::2] + one[::2]))
        for n, one in enumerate(RISING)
    ]
    shown = Section("s", "S", tables=tuple(tables))
    about = Report("R", "", datetime.now(UTC), "0", "", (), (shown,), shown)
    (tmp_path / "r.html").write_text(html(about), encoding="utf-8")
    with opened_page(browser, (tmp_path / "r.html").as_uri()) as (page, _):
        for number, rising in enumerate(RISING):
            table = page.locator("#s table").nth(number)
            table.locator("thead button").click()
            assert tuple(table.locator("tbody th").all_inner_texts()) == rising
            table.locator("thead button").click()
            assert tuple(table.locator("tbody th").all_inner_texts()) == rising[::-1]


def test_a_table_sorts_by_what_its_numbers_are(browser, report):
    with opened_page(browser, report) as (page, wrong):
        table = page.locator("#cells table").first
        column = table.locator("thead th").all_inner_texts()
        place = next(n for n, name in enumerate(column) if name.startswith("p95"))
        cells = table.locator(f"tbody tr > :nth-child({place + 1})")

        def numbers() -> list[float]:
            found = [text.splitlines()[0].replace(",", "") for text in cells.all_inner_texts()]
            return [float(text) for text in found if text[0].isdigit()]

        before = numbers()
        head = table.locator("thead button").nth(place)
        head.click()
        assert numbers() == sorted(before)
        head.click()
        assert numbers() == sorted(before, reverse=True)
        assert table.locator("thead th").nth(place).get_attribute("aria-sort") == "descending"
        assert wrong == []


def test_a_command_is_copied_by_its_button(browser, report):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(report)
    unfold(page)
    page.locator("#rerun .copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == "pgpaces sweep pi.toml"
    context.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_button_of_a_long_command_is_in_view(browser, report, width):
    with opened_page(browser, report, viewport={"width": width, "height": 900}) as (page, _):
        unfold(page)
        outside = page.evaluate(
            """() => [...document.querySelectorAll('.copy')].filter(button => {
                button.nextElementSibling.textContent = 'pgpaces sweep '.repeat(40);
                const box = button.closest('.scroll').getBoundingClientRect();
                const own = button.getBoundingClientRect();
                return own.left < box.left || own.right > box.right || own.right > innerWidth;
            }).length"""
        )
        assert page.locator(".copy").count() > 0
        assert outside == 0


def test_without_a_script_every_number_is_there_and_no_button(browser, report):
    with opened_page(browser, report, java_script_enabled=False) as (page, wrong):
        assert page.locator("button").count() == 0
        assert page.locator("tbody tr").count() > 50
        assert page.locator("h1").is_visible()
        assert wrong == []
