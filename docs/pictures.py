"""Takes pictures of pages that README and docs/ show, of real runs, by Chromium.

`make pictures` takes nine minutes. `make pictures ARGS=report` makes docs/pictures/report.png, the
head of the report of a sweep. ARGS=watch makes watch-*.png: an experiment on the live page, from
its first trial to its last, and a run that fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blocks import ROOT
from playwright.sync_api import Browser, Page, sync_playwright

PICTURES = ROOT / "docs" / "pictures"
EXPERIMENT = "examples/pi-reporting.toml"
SWEEP = ("reporting", "--users", "8,16,32,64", "--pace", "1/s", "-L", "500ms", "-T", "40s")
# Sessions that wait for each other, and transactions that fail.
SCRIPTS = {
    "hot.sql": "BEGIN;\nSELECT pg_advisory_xact_lock(1);\nSELECT pg_sleep(0.08);\nCOMMIT;\n",
    "fails.sql": "\\set a random(1, 3)\nSELECT 1 / (:a - 1);\n",
}
FAILING = ("--rate", "40", "-c", "12", "-L", "200ms", "-T", "24s", "--warmup", "2s")
WATCH_MS, TOP = 1500, {"width": 1280, "height": 1150}
HEAD = {"width": 1200, "height": 760}


class Load:
    """A command of pgpaces with its live page: what it prints, and the page's address."""

    def __init__(self, home: Path, *words: str) -> None:
        environment = {**os.environ, "PGPACES_HOME": str(home)}
        environment["PGPACES_STORE"] = str(home / "results.db")
        command = [sys.executable, "-m", "pgpaces", *words, "--live"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        self.lines: list[str] = []
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.match(r"live: (\S+)", line):
                self.address = found[1]
                break
        else:
            raise SystemExit("".join(self.lines))
        threading.Thread(target=lambda: self.lines.extend(self.process.stderr or ())).start()

    @property
    def ended(self) -> bool:
        """Whether the command has ended."""
        return self.process.poll() is not None


@contextmanager
def opened(browser: Browser, load: Load, **how: Any) -> Iterator[Page]:
    """The live page, once there are numbers on it."""
    page = browser.new_page(**how)
    page.goto(load.address)
    page.locator("#tiles dd").first.wait_for()
    yield page
    page.close()


def take(page: Page, name: str, *, whole: bool = True) -> None:
    """Writes a picture. whole: of all of the page, whose charts are drawn where they are seen."""
    size = page.viewport_size
    assert size is not None
    if whole:
        height = page.evaluate("document.documentElement.scrollHeight")
        page.set_viewport_size({"width": size["width"], "height": height})
    page.wait_for_timeout(WATCH_MS)
    page.screenshot(path=PICTURES / f"{name}.png")
    page.set_viewport_size(size)


def experiment(browser: Browser, home: Path) -> None:
    """Its beginning, half of it, and its end."""
    load = Load(home, "sweep", EXPERIMENT, "--quick")
    with opened(browser, load, viewport=TOP) as page:
        take(page, "watch-start", whole=False)
        while not load.ended and sum("/18 " in line for line in load.lines) < 9:
            page.wait_for_timeout(WATCH_MS)
        page.get_by_text("; 9 ended").wait_for()
        page.locator("#clock", has_text="second 1").wait_for()
        take(page, "watch-middle")
        page.locator("#h-answer", has_text=re.compile("^The answer$")).wait_for(timeout=600_000)
        take(page, "watch-end")
    load.process.wait()


def failure(browser: Browser, home: Path) -> None:
    """A run of which some sessions wait for others, and some transactions fail."""
    words = ["run"]
    for name, text in SCRIPTS.items():
        (home / name).write_text(text)
        words += ["-f", str(home / name)]
    load = Load(home, *words, *FAILING)
    with opened(browser, load, viewport={"width": 1180, "height": 900}) as page:
        page.get_by_text("second 15").wait_for(timeout=60_000)
        take(page, "watch-failure")
    load.process.wait()


def report(browser: Browser, home: Path) -> None:
    """The head of the report of a sweep."""
    environment = {**os.environ, "PGPACES_HOME": str(home)}
    page = home / "report.html"
    command = [sys.executable, "-m", "pgpaces", "sweep", *SWEEP, "-o", str(page)]
    command += ["--store", str(home / "sweep.db")]
    subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
    opened = browser.new_page(viewport=HEAD)
    opened.goto(page.as_uri())
    opened.wait_for_timeout(WATCH_MS)
    opened.screenshot(path=PICTURES / "report.png")
    opened.close()


def main() -> None:
    """Takes those that are named, or all of them."""
    named = sys.argv[1:] or ["report", "watch"]
    with (
        tempfile.TemporaryDirectory(prefix="pgpaces-", ignore_cleanup_errors=True) as folder,
        sync_playwright() as browsers,
    ):
        Path(folder).chmod(0o755)
        chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        if "report" in named:
            report(browser, Path(folder))
        if "watch" in named:
            experiment(browser, Path(folder))
            failure(browser, Path(folder))
        browser.close()


if __name__ == "__main__":
    main()
