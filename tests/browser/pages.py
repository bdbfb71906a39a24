"""Pages in Chromium."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page


@contextmanager
def opened_page(browser: Browser, address: str, **how: Any) -> Iterator[tuple[Page, list[str]]]:
    """The page, and what went wrong in it: console, errors, requests to elsewhere."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 2400}, **how})
    page, wrong = context.new_page(), []
    origin = address if address.startswith("file:") else "/".join(address.split("/")[:3])
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("request", lambda r: r.url.startswith((origin, "data:")) or wrong.append(r.url))
    page.goto(address)
    yield page, wrong
    context.close()
