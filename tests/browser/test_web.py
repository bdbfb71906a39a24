"""What `pgpaces serve` shows in a browser while a trial runs: the numbers of the store."""

from __future__ import annotations

import lzma
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from axe_core_python.sync_playwright import Axe
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect

from pgpaces.core.record import Interval
from pgpaces.core.series import Sample
from pgpaces.show.number_text import milliseconds
from pgpaces.spec.design import Design
from pgpaces.spec.result import Blocked, Observed, Place, Trial
from pgpaces.store.store import Store
from pgpaces.trial import record
from pgpaces.web import app as serving
from pgpaces.web import live
from pgpaces.web.listening import listen
from tests.browser.pages import opened_page
from tests.unit.answered import STORED
from tests.unit.stored import Kept, begun, keep, opened
from tests.unit.trials import changed, second, series, times
from tests.waiting import until

pytestmark = pytest.mark.browser

TOKEN = "secret"
OWN = live.ProcessLoad(7, "pi4", since="")
DRAWN = "canvas => canvas.toDataURL()"


class Served:
    """A server of pages over a store, with a trial that the test lets run second by second."""

    def __init__(self, folder: Path) -> None:
        self.store: Store = opened(folder)
        self.stopped = threading.Event()
        self._port = listen("127.0.0.1", 0, TOKEN)
        site = serving.Site(str(self.store.path), OWN, self.stopped.set)
        self._server = serving.server(site, self._port)
        self._thread = threading.Thread(target=self._server.run, args=([self._port.socket],))
        self._thread.start()
        self.url = self._port.url

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.store.close()

    def begin(self, id_: str = "01C000000000000000000000RN", **changes: Any) -> Trial:
        trial = series([], id=id_, host={"hostname": OWN.hostname, "pid": OWN.pid})
        plan = {"limit_ns": 20_000_000, "rate": 10.0}
        trial = changed(trial, state="running", plan=plan, **changes)
        self.store.begin(trial)
        return trial

    def second(self, number: int) -> Interval:
        """A second of ten transactions of 5 ms, one of which is late and one failed."""
        outcomes = {"due": 10, "on_time": 8, "late": 1, "failed": {"40001": 1}}
        interval = second(number, [5.0] * 8 + [50.0], **outcomes)
        dispatch = times([0.5])
        return replace(
            interval, dispatch=dispatch, messages=(("40001", "could not serialize <b>access</b>"),)
        )

    def seconds(self, trial: Trial, numbers: range) -> None:
        """Such seconds."""
        for number in numbers:
            self.store.add(trial.id, self.second(number))

    def going(self, kind: str) -> str:
        """The path of a run of three seconds, or of its experiment, which goes on."""
        experiment = begun(self.store, Design({"clients": ("1",)}), "grid")
        self.store.beat_experiment(experiment)
        place = Place(experiment, "c", {"clients": "1"}, 1) if kind == "experiments" else None
        trial = self.begin(place=place)
        self.seconds(trial, range(3))
        return f"{kind}/{experiment if place else trial.id}"

    def end(self, trial: Trial, state: str = "finished") -> None:
        self.store.finish(replace(trial, state=state, measured_ns=10**9), {})


@pytest.fixture
def served(tmp_path, monkeypatch):
    # No process beats for a trial of a test, however slowly a page is drawn.
    monkeypatch.setattr("pgpaces.store.encoding._STALE", timedelta(hours=1))
    served = Served(tmp_path)
    yield served
    served.close()


def tile(page: Page, name: str) -> Any:
    return page.locator("#tiles div").filter(has=page.get_by_text(name, exact=True)).locator("dd")


def chart(page: Page, title: str) -> Any:
    return page.locator("#charts figure").filter(has_text=title)


def canvas_of(page: Page, title: str) -> Any:
    return chart(page, title).locator("canvas")


@contextmanager
def watched(
    browser: Browser, served: Served, seconds: int, path: str = "live", **how: Any
) -> Iterator[tuple[Page, Trial]]:
    """The page of a trial with so many seconds, which goes on; nothing goes wrong in it."""
    trial = served.begin()
    served.seconds(trial, range(seconds))
    with opened_page(browser, f"{served.url}{path.format(trial.id)}", **how) as (page, wrong):
        expect(tile(page, "due")).to_have_text(str(10 * seconds))
        yield page, trial
        # What a test reads of a canvas is told of; the page itself reads nothing.
        assert not [each for each in wrong if "willReadFrequently" not in each]
    served.end(trial)


# The number of pixels of a chart that have a color of the page, whatever their transparency.
PIXELS = """(canvas, name) => {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const wanted = [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] > 60 && wanted.every((value, n) => Math.abs(value - data[at + n]) < 9))
      count += 1;
  return count;
}"""


def test_a_trial_is_watched_from_its_first_second_to_its_report(browser, served):
    trial = served.begin()
    served.seconds(trial, range(-2, -1))
    served.store.add(trial.id, second(-1, [5.0], due=2))
    late = second(-1, [50.0], due=0, on_time=0, late=1).tallies  # the other one
    first = served.second(0)
    served.store.add(trial.id, replace(first, tallies=(*late, *first.tallies)))
    served.seconds(trial, range(1, 3))
    with opened_page(browser, f"{served.url}live") as (page, wrong):
        expect(page.locator("#state")).to_have_text("running")
        expect(tile(page, "due")).to_have_text("30")
        expect(tile(page, "missed")).to_have_text("20% (6)")
        expect(page.locator("#h-errors")).to_contain_text("also of warm-up")
        expect(tile(page, "failed")).to_have_text("3")
        expect(page.locator("#errors")).to_contain_text("could not serialize <b>access</b>")
        before = [canvas.evaluate(DRAWN) for canvas in page.locator("canvas").all()]
        served.seconds(trial, range(3, 30))
        expect(tile(page, "due")).to_have_text("300")
        after = [canvas.evaluate(DRAWN) for canvas in page.locator("canvas").all()]
        # The last three are of machines and the server, which this trial did not monitor.
        assert page.locator("#charts figure").count() == 10
        assert page.locator("#charts figure:visible").count() == 7
        assert not set(before[:5]) & set(after[:5])
        generator = chart(page, "Lag of the generator, ms").locator("canvas")
        assert generator.evaluate(PIXELS, "--line3") > 50
        assert chart(page, "CPU of the generator, %").count() == 1
        served.end(trial)
        expect(page.locator("#again")).to_contain_text(trial.id)
        page.get_by_text("Open the report").click()
        expect(page.locator(".headline")).to_contain_text("FAIL")
        expect(page.locator(".headline")).to_contain_text("300")
        assert wrong == []


def test_the_latency_limit_is_drawn_and_named_where_all_latencies_are_below_it(browser, served):
    trial = served.begin()
    for number in range(5):
        served.store.add(trial.id, second(number, [5.0] * 10))
    with opened_page(browser, f"{served.url}live") as (page, _):
        expect(tile(page, "due")).to_have_text("50")
        latency = chart(page, "Latency, ms")
        expect(latency.locator("figcaption")).to_have_text("Latency, ms; limit 20 ms")
        assert latency.locator("canvas").evaluate(PIXELS, "--alarm") > 50
        assert chart(page, "Load").locator("canvas").evaluate(PIXELS, "--alarm") == 0
    served.end(trial)


SMALL = {"width": 800, "height": 500}


def test_a_chart_out_of_sight_is_drawn_when_it_comes_into_it(browser, served):
    with watched(browser, served, 10, "runs/{}", viewport=SMALL) as (page, _):
        rate, flight = (chart(page, name).locator(".plot") for name in ("Load", "In flight"))
        rate.scroll_into_view_if_needed()
        expect(canvas_of(page, "Load")).to_have_count(1)
        rate.press("+")
        drawn = canvas_of(page, "In flight")
        expect(drawn).to_have_count(0)
        flight.scroll_into_view_if_needed()
        until(lambda: drawn.evaluate(PIXELS, "--line0") > 0, "it is drawn")
        zoomed = drawn.evaluate(DRAWN)
        flight.press("0")
        until(lambda: drawn.evaluate(DRAWN) != zoomed, "it was made with the zoom of the others")


def test_charts_that_come_into_sight_with_others_show_the_whole_time(browser, served):
    with watched(browser, served, 5, "runs/{}", viewport=SMALL) as (page, trial):
        chart(page, "Load").locator(".plot").scroll_into_view_if_needed()
        expect(canvas_of(page, "Load")).to_have_count(1)
        page.locator("#h-errors").scroll_into_view_if_needed()
        served.seconds(trial, range(5, 40))
        expect(tile(page, "due")).to_have_text("400")
        page.set_viewport_size({"width": 800, "height": 4000})
        drawn = canvas_of(page, "Missed")
        expect(drawn).to_have_count(1)
        page.wait_for_timeout(200)
        before = drawn.evaluate(DRAWN)
        chart(page, "Missed").locator(".plot").press("0")
        page.wait_for_timeout(200)
        assert drawn.evaluate(DRAWN) == before


def test_who_waits_for_whom_and_marks_appear_while_it_runs(browser, served):
    with watched(browser, served, 3) as (page, trial):
        expect(page.locator("#blocked")).to_be_hidden()
        expect(page.locator("#marks")).to_be_hidden()
        pair = Blocked("load", "Lock:tuple", "X", "<b>psql</b>", "active", "UPDATE a", 2, 0, 1)
        elsewhere = page.locator("figure").filter(has_text="Generator's machine")
        expect(elsewhere).to_be_hidden()
        for title in ("Server's machine", "Active sessions"):
            expect(chart(page, title)).to_be_hidden()
        samples = [Sample(1, "host", "disk_sda_busy", 7.0), Sample(1, "waits", "Lock:tuple", 1.0),
                   Sample(1, "checkpoints", "checkpoints", 1.0),
                   Sample(1, "generator", "cpu_busy", 50.0)]  # fmt: skip
        served.store.add(trial.id, None, samples, observed=[Observed(blocked=(pair,))])
        served.seconds(trial, range(3, 4))
        expect(elsewhere).to_be_visible()
        for title in ("Server's machine", "Active sessions"):
            expect(chart(page, title)).to_be_visible()
        expect(page.locator("#marks")).to_have_text("Marks on the charts: 1 at 1 s: checkpoint")
        row = page.locator("#blocked tbody tr")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("<b>psql</b> (active)")
        expect(row.locator("td").last).to_have_text("0 to 1")


def test_every_mark_has_its_number_and_its_text(browser, served):
    with watched(browser, served, 30) as (page, trial):
        canvas = canvas_of(page, "Load")
        before = canvas.evaluate(PIXELS, "--muted")
        checkpoints = [Sample(2 * n, "checkpoints", "checkpoints", 1.0) for n in range(12)]
        served.store.add(trial.id, None, checkpoints)
        served.seconds(trial, range(30, 31))
        expect(tile(page, "due")).to_have_text("310")
        texts = page.locator("#marks span").inner_text().split("; ")
        assert texts == [f"{n + 1} at {2 * n} s: checkpoint" for n in range(12)]
        assert canvas.evaluate(PIXELS, "--muted") > before + 12 * 50


def test_a_second_browser_and_a_reload_have_the_whole(browser, served):
    with watched(browser, served, 20) as (first, trial):
        with opened_page(browser, f"{served.url}runs/{trial.id}") as (second_page, _):
            expect(tile(second_page, "due")).to_have_text("200")
            served.seconds(trial, range(20, 25))
            for page in (first, second_page):
                expect(tile(page, "due")).to_have_text("250")
        first.reload()
        expect(tile(first, "due")).to_have_text("250")


def test_pause_holds_the_page_and_loses_nothing(browser, served):
    trial = served.begin()
    served.seconds(trial, range(5))
    with opened_page(browser, f"{served.url}live") as (page, _):
        expect(tile(page, "due")).to_have_text("50")
        page.get_by_role("button", name="Pause").click()
        served.end(trial, "interrupted")
        served.seconds(trial, range(5, 6))
        expect(page.locator("#state")).to_have_text("interrupted")
        expect(tile(page, "due")).to_have_text("50")
        page.get_by_role("button", name="Go on").click()


def test_the_cursor_goes_by_keys_and_the_table_has_the_numbers(browser, served):
    with watched(browser, served, 7) as (page, trial):
        served.store.add(trial.id, None, [Sample(7, "host", "cpu_busy", 62.5)])
        served.seconds(trial, range(7, 8))
        expect(tile(page, "due")).to_have_text("80")
        plot = page.locator(".plot").first
        plot.focus()
        plot.press("ArrowLeft")
        legend = plot.locator(".u-legend")
        expect(legend).to_contain_text("7")
        expect(legend).to_contain_text("10")
        page.get_by_text("The last seconds as a table").click()
        row = page.locator("#seconds tbody tr").first
        expect(row.locator("th")).to_have_text("7")
        expect(row.locator("td").first).to_have_text("10")
        columns = page.locator("#seconds thead th").all_text_contents()
        assert columns == [name.replace("_", " ") for name in (*live.COLUMNS, *live.MACHINE[1:])]
        number = columns.index("cpu busy") - 1
        expect(row.locator("td").nth(number)).to_have_text("62.5")
        label = "Server's machine over time; the last 20 seconds are in the table below"
        expect(page.get_by_label(label, exact=True)).to_be_visible()


def test_charts_are_zoomed_by_keys_and_by_the_mouse(browser, served):
    with watched(browser, served, 40) as (page, _):
        plot, canvas = chart(page, "Load").locator(".plot"), canvas_of(page, "Load")
        whole = canvas.evaluate(DRAWN)

        def settled(same: bool) -> None:
            """Waits until the chart looks as at the start, or different."""
            look = f"([canvas, whole]) => (canvas.toDataURL() === whole) === {str(same).lower()}"
            page.wait_for_function(look, arg=[canvas.element_handle(), whole])

        for key, same in (("+", False), ("0", True), ("+", False), ("-", True)):
            plot.press(key)
            settled(same)
        area = plot.locator(".u-over").bounding_box()
        assert area is not None
        page.mouse.move(area["x"] + 100, area["y"] + 50)
        page.mouse.down()
        page.mouse.move(area["x"] + 250, area["y"] + 50)
        page.mouse.up()
        settled(False)
        page.get_by_role("button", name="Whole time").click()
        settled(True)


def test_only_the_printed_link_stops_the_load_also_from_a_page_of_another_site(browser, served):
    link = f"{served.url}live?token={TOKEN}"
    with watched(browser, served, 2) as (reader, _):
        assert reader.get_by_role("button", name="Stop the load").count() == 0
        context = browser.new_context()
        page, chat = context.new_page(), "http://chat.test/"
        html = f'<a href="{link}">the load</a>'
        page.route(chat, lambda route: route.fulfill(body=html, content_type="text/html"))
        page.goto(chat)
        page.get_by_role("link").click()
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Stop the load").click()
        expect(page.get_by_role("button", name="Stopping")).to_be_visible()
        assert "token" not in page.url
        assert served.stopped.is_set()
        context.close()


def test_an_experiment_fills_while_its_trials_run(browser, served):
    experiment = begun(served.store, Design({"clients": ("1", "2")}), "grid")
    served.store.beat_experiment(experiment)

    def run(number: int) -> Trial:
        levels = {"clients": str(number)}
        place = Place(experiment, f"cell{number}", levels, 1)
        return served.begin(f"01C00000000000000000000{number}RN", place=place)

    one = run(1)
    served.seconds(one, range(20))
    with opened_page(browser, f"{served.url}live") as (page, wrong):
        expect(page.locator("h1")).to_have_text("grid")
        expect(tile(page, "due")).to_have_text("200")
        served.end(one)
        expect(page.locator("#part")).to_contain_text("The answer so far")
        two = run(2)
        served.seconds(two, range(7))
        expect(tile(page, "due")).to_have_text("70")
        expect(page.locator("#running")).to_contain_text("; 1 ended")
        served.end(two)
        served.store.finish_experiment(experiment, "finished")
        page.get_by_text("Open the report").click()
        expect(page.get_by_role("link", name="All runs")).to_be_visible()
        assert wrong == []


# Of measured experiments, by the number of their trials that have ended: what is there to read.
NARROWING = {
    "capacity": {
        9: "rate: 107/s pass, unknown above",
        15: "rate: 116/s pass, 200/s fail",
    },
    "pairs": {
        6: "(95% CI 0.527 to 2.88 times)",
        14: "(95% CI −26 to +31%)",
    },
}


@pytest.mark.slow  # that an answer fills while trials run is looked at above
@pytest.mark.parametrize("name", NARROWING)
def test_the_range_of_a_search_and_of_a_comparison_narrows_while_they_run(
    browser, served, tmp_path, name
):
    measured = tmp_path / "measured.db"
    measured.write_bytes(lzma.decompress(STORED.read_bytes()))
    source = Store.open(measured)
    [row] = [each for each in source.experiments() if each.name == name]
    served.store.begin_experiment(replace(row, state="running", ended_at=None))
    served.store.beat_experiment(row.id)
    ids = source.ended(row.id)

    def end(number: int) -> None:
        """So many of its trials have ended."""
        for id_ in ids[len(served.store.ended(row.id)) : number]:
            assert source.copy(served.store, id_) is None

    end(min(NARROWING[name]))
    with opened_page(browser, f"{served.url}experiments/{row.id}") as (page, wrong):
        for number, text in NARROWING[name].items():
            end(number)
            expect(page.locator("#part")).to_contain_text(text)
            expect(page.locator("#h-answer")).to_have_text("The answer so far")
            assert page.locator("#part svg").count()
            assert not page.get_by_text("What to do next").count()
        end(len(ids))
        served.store.finish_experiment(row.id, "finished")
        expect(page.locator("#h-answer")).to_have_text("The answer")
        # No number of pairs that one would run decides this comparison.
        expect(page.get_by_text("What to do next")).to_have_count(int(name == "capacity"))
        assert wrong == []
    source.close()


@pytest.mark.parametrize("kind", ["runs", "experiments"])
def test_a_page_whose_server_is_gone_says_so_and_how_to_open_it_again(browser, served, kind):
    path = served.going(kind)
    with opened_page(browser, served.url + path) as (page, _):
        expect(tile(page, "due")).to_have_text("30")
        expect(page.locator("#state")).to_have_text("running")
        expect(page.locator("#again")).to_be_hidden()
        served.close()
        expect(page.locator("#state")).to_have_text("connecting")
        again = page.locator("#again")
        expect(again).to_contain_text(f"pgpaces serve --store {served.store.path}")
        expect(again).to_contain_text(path.partition("/")[2])


@pytest.mark.parametrize("kind", ["runs", "experiments"])
def test_a_page_connects_again_after_a_refusal(browser, served, kind):
    context = browser.new_context()
    page = context.new_page()
    page.route("**/events/**", lambda route: route.fulfill(status=503), times=1)
    page.goto(served.url + served.going(kind))
    expect(tile(page, "due")).to_have_text("30")
    expect(page.locator("#state")).to_have_text("running")
    context.close()


def test_the_list_compares_by_two_clicks(browser, served):
    for n, id_ in enumerate(("01A000000000000000000000RN", "01B000000000000000000000RN")):
        keep(served.store, Kept(id_, ms=10 + n, at=n))
    with opened_page(browser, served.url) as (page, wrong):
        boxes = page.locator("input[name=run]")
        boxes.nth(1).check()
        boxes.nth(0).click()
        expect(page.locator(".headline")).to_contain_text("UNKNOWN 01B")
        assert "run=01A000000000000000000000RN&run=01B000000000000000000000RN" in page.url
        assert wrong == []


PHONE = {"width": 390, "height": 800}


RUNS = ("01A000000000000000000000RN", "01B000000000000000000000RN")
# Of each page its path, and what is on it when it is complete.
PAGES = {
    "list": ("", "#h-runs"),
    "trials": ("?of={grid}", "#h-runs"),
    "report of a run": (f"runs/{RUNS[0]}", "#h-answer"),
    "report of an experiment": ("experiments/{grid}", "#h-answer"),
    "comparison": (f"compare?run={RUNS[0]}&run={RUNS[1]}", "#h-answer"),
    "trend": (f"trend/{RUNS[0]}", "#h-answer"),
    "live run": ("runs/{live}", "#tiles dd"),
    "live experiment": ("experiments/{going}", "#part .lead"),
    "error": ("runs/nope", ".note"),
    "waiting": ("live", ".note"),
}


def stored(served: Served, *, going: bool) -> dict[str, str]:
    """Runs, an experiment, and, if going, a trial and an experiment that run; their ids."""
    for n, id_ in enumerate(RUNS):
        keep(served.store, Kept(id_, ms=10 + n, at=n))
    design = Design({"clients": ("1", "2")})
    ids = {name: begun(served.store, design, name) for name in ("grid", "going")}
    for name, id_ in ids.items():
        for n in (1, 2):
            place = Place(id_, f"c{n}", {"clients": str(n)}, 1)
            keep(served.store, Kept(f"01F{name.upper():0<21}{n}N", place=place))
    if going:
        trial = served.begin()
        served.seconds(trial, range(5))
        ids["live"] = trial.id
        served.store.beat_experiment(ids["going"])
    return ids


# Of pages that are put together of the same parts one is enough in `make test`.
LOOKED_AT = {
    *(("comparison", "light"), ("live experiment", "light"), ("error", "light")),
    *(("waiting", "light"), ("list", "dark"), ("live run", "dark")),
}
ALL_LOOKS = [*((name, "light") for name in PAGES), ("list", "dark"), ("live run", "dark")]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        pytest.param(*look, marks=() if look in LOOKED_AT else pytest.mark.slow)
        for look in ALL_LOOKS
    ],
)
def test_pages_are_accessible_and_fit_a_phone(browser, served, name, how):
    ids, (path, complete) = stored(served, going="live" in name), PAGES[name]
    address = f"{served.url}{path.format(**ids)}"
    with opened_page(browser, address, viewport=PHONE, color_scheme=how) as (page, wrong):
        expect(page.locator(complete).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        results = Axe().run(page)
        assert [each["id"] for each in results["violations"]] == []
        status = ["console: Failed to load resource: the server responded with a status of 404"]
        assert [w.partition(" (")[0] for w in wrong] == (status if name == "error" else [])


def test_the_link_of_a_load_opens_it_when_it_has_begun(browser, served):
    with opened_page(browser, f"{served.url}live") as (page, wrong):
        expect(page.locator("h1")).to_contain_text("Waiting")
        trial = served.begin()
        served.seconds(trial, range(3))
        expect(tile(page, "due")).to_have_text("30")
        assert wrong == []


def test_numbers_of_the_list_and_of_a_comparison_are_those_of_the_store(browser, served):
    plan = {"limit_ns": 20_000_000, "rate": 40.0}
    summaries = [
        record.store_imported(served.store, series([[ms] * 39 + [50.0]] * 5, id=id_, plan=plan))
        for id_, ms in zip(RUNS, (10.0, 12.0), strict=True)
    ]
    with opened_page(browser, served.url) as (page, _):
        for id_, summary in zip(RUNS, summaries, strict=True):
            assert summary.latency.p99 is not None
            row = page.locator("#h-runs ~ div tbody tr").filter(has_text=id_[-8:])
            due, _, p99 = row.locator("td").all_text_contents()[4:7]
            assert due == str(summary.counts.due) == "200"
            assert p99 == milliseconds(summary.latency.p99.value, "–")
    address = f"{served.url}compare?run={RUNS[0]}&run={RUNS[1]}"
    with opened_page(browser, address) as (page, _):
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        text = page.locator("main").inner_text()
        first, second_p95 = (summary.latency.p95 for summary in summaries)
        assert first is not None
        assert second_p95 is not None
        assert f"+{100 * (second_p95.value / first.value - 1):.0f}%" in text
        assert re.search(rf"p95 latency, ms\s+{first.value:.3g}\s+–\s+{second_p95.value:.3g}", text)
