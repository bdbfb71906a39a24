"""The site of docs/ in a browser: every page on a phone, search, dark, and several versions."""

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.pages import opened_page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PAGES = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
ADDRESSES = {str(page.with_suffix(".html")).replace("README", "index") for page in PAGES}
WIDTH = "document.documentElement.scrollWidth"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def make(folder: Path, *words: str, **environment: str) -> None:
    variables = {**os.environ, "SITE_DIR": str(folder), **environment}
    subprocess.run(["make", "site", *words], cwd=ROOT, env=variables, check=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    make(folder)
    return folder


@pytest.fixture(scope="module")
def site(folder):
    with served(folder) as address:
        yield address


def test_every_page_fits_a_phone_and_asks_no_other_server(browser, site):
    phone = {"width": 390, "height": 844}
    with opened_page(browser, site, viewport=phone) as (page, wrong):
        for address in sorted(ADDRESSES):
            page.goto(site + address)
            expect(page.locator("h1")).to_be_visible()
            assert page.evaluate(WIDTH) == 390, address
            assert wrong == [], address


def test_the_navigation_and_llms_txt_have_every_page_once(browser, site):
    with opened_page(browser, site) as (page, _):
        links = page.locator(".md-nav--primary a.md-nav__link[href]")
        hrefs = links.evaluate_all("links => links.map(link => link.href.split('#')[0])")
        assert {href.removeprefix(site) or "index.html" for href in hrefs} == ADDRESSES
        text = page.request.get(f"{site}llms.txt").text()
    assert text.startswith("# pgpaces\n\n> Puts PostgreSQL through its paces")
    items = re.findall(r"^- \[.+\]\((\S+)\): \S.*[.?!]$", text, re.MULTILINE)
    assert sorted(items) == sorted(ADDRESSES)
    assert len(items) == text.count("\n- ")


@pytest.mark.parametrize(
    ("query", "address", "marked"),
    [
        ("warm-up", "explanation/validity-and-intervals.html", "warm"),
        ("--dry-run", "reference/cli.html", "dry"),
        ("host.toml", "reference/experiment-toml.html", "host.toml"),
    ],
)
def test_the_search_finds_words_with_hyphens_and_shows_where_they_are(
    browser, site, query, address, marked
):
    with opened_page(browser, site) as (page, wrong):
        page.get_by_placeholder("Search").click()
        page.keyboard.type(query)
        first = page.locator(".md-search-result__item").first.get_by_role("link")
        # The results follow the typing: those of its beginning are of other pages.
        expect(first.first).to_have_attribute("href", re.compile(re.escape(site + address)))
        first.filter(has=page.locator("mark")).first.click()
        page.wait_for_url(f"{site}{address}*")
        expect(page.locator("article mark", has_text=marked).first).to_be_attached()
        assert wrong == []
