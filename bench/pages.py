"""Pages of results: a list of 100,000 runs, and a browser that follows a run of an hour."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import programs
import psutil
from figures import Figure, Finding, Goal, Note
from msgspec.structs import replace
from session import Session

from pgpaces.core.record import Interval
from pgpaces.core.series import Sample, Series
from pgpaces.store.store import Store, new_id

SECTION = "Pages"
RUNS, HOUR, OPENED, FOLLOWED_S = 100_000, 3600, 3, 20
# Copies of a run, each a second older: all columns but the identity and the start.
COPIES = """
WITH RECURSIVE number (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM number WHERE n < ?)
INSERT INTO trial (id, started_at, {columns})
SELECT printf('%026d', n), strftime('%Y-%m-%d %H:%M:%f000', started_at, -n || ' seconds'), {columns}
FROM trial, number WHERE id = ?
"""


def section(session: Session) -> Iterator[Finding]:
    """How long both take, and the CPU of the browser's page while it follows."""
    path = session.place.home / "pages.db"
    run = _run(session, path)
    with closing(sqlite3.connect(path)) as store, store:
        names = [row[1] for row in store.execute("PRAGMA table_info(trial)")]
        columns = ", ".join(f'"{name}"' for name in names if name not in ("id", "started_at"))
        store.execute(COPIES.format(columns=columns), (RUNS, run))
    with _served(session, path) as address:
        listed = tuple(_opened_s(address) for _ in range(session.pairs))
        goal = Goal("ours", "at most", 0.5)
        yield Figure(SECTION, f"a list of {RUNS} runs", "s", listed, goal=goal)
        yield from _hour(path, run, address)


def _run(session: Session, path: Path) -> str:
    """A run of some seconds, stored: its id."""
    target = ("--target", session.place.server.dsn("postgres"), "--store", str(path))
    load = ("select-only", "--scale", "1", "--rate", "100", "-L", "20ms", "-T", "8s")
    command = [sys.executable, "-m", "pgpaces", "run", *load, "--warmup", "0", *target, "--json"]
    done = subprocess.run(
        command, env=session.place.environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise programs.ProgramError.of(command, done.returncode, done.stderr)
    return str(json.loads(done.stdout)["value"]["run"])


@contextmanager
def _served(session: Session, path: Path) -> Iterator[str]:
    """The address of `pgpaces serve`."""
    command = [sys.executable, "-m", "pgpaces", "serve", "--listen", "0", "--store", str(path)]
    environment = session.place.environment()
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield next(word for word in process.stderr.readline().split() if word.startswith("http"))
    finally:
        process.terminate()
        process.communicate()


def _opened_s(address: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        answer.read()
    return time.perf_counter() - began


def _hour(path: Path, run: str, address: str) -> Iterator[Finding]:
    """A run that has gone on for an hour, and goes on, in Chromium."""
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        yield Note(SECTION, "a run of an hour: not measured, no Chromium with Playwright here")
        return
    store = Store.open(path)
    trial = replace(store.load(run), id=new_id(), state="running", ended_at=None)
    seconds = [each for each in store.seconds(run) if each.second >= 0]
    series = store.series(run).series()
    store.begin(trial)

    def add(second: int) -> None:
        place = second % len(seconds)
        store.add(trial.id, _at(second, seconds[place]), _samples(second, place, series))

    for second in range(HOUR):
        add(second)
    ended = threading.Event()

    def go_on() -> None:
        second = HOUR
        while not ended.wait(1):
            add(second)
            second += 1

    threading.Thread(target=go_on, daemon=True).start()
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        watched = [_watched(browser, f"{address}runs/{trial.id}") for _ in range(OPENED)]
        browser.close()
    opened, busy, every = zip(*watched, strict=True)
    ended.set()
    yield Figure(SECTION, "a run of an hour: its page opened", "s", opened,
                 goal=Goal("ours", "at most", 1.0))  # fmt: skip
    yield Figure(SECTION, "a run of an hour: its page followed, main thread", "% of a core",
                 busy, goal=Goal("ours", "at most", 5.0))  # fmt: skip
    name = "a run of an hour: its page followed, all of Chromium without a GPU"
    yield Figure(SECTION, name, "% of a core", every)


def _watched(browser: Any, address: str) -> tuple[float, float, float]:
    """How long a page takes to open, s, and what it takes to follow, as `_busy` says."""
    page = browser.new_page()
    began = time.perf_counter()
    page.goto(address)
    page.locator("#tiles dd").first.wait_for()
    opened_s = time.perf_counter() - began
    page.wait_for_timeout(3000)
    busy = _busy(page)
    page.close()
    return (opened_s, *busy)


def _busy(page: Any) -> tuple[float, float]:
    """The shares of a core that the page's main thread and all of Chromium take, %."""
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable")

    def task_s() -> float:
        metrics = tools.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    began, main, whole = time.perf_counter(), task_s(), _chromium_s()
    page.wait_for_timeout(FOLLOWED_S * 1000)
    main, whole = task_s() - main, _chromium_s() - whole
    share = 100 / (time.perf_counter() - began)
    return share * main, share * whole


def _chromium_s() -> float:
    """CPU time of all processes of browsers here."""
    browsers = (each for each in psutil.process_iter(["name"]) if "chrom" in each.info["name"])
    return sum(sum(each.cpu_times()[:2]) for each in browsers)


def _at(second: int, interval: Interval) -> Interval:
    """The same as another second."""
    tallies = tuple(replace(each, due_second=second) for each in interval.tallies)
    return replace(interval, second=second, tallies=tallies)


def _samples(second: int, place: int, series: Sequence[Series]) -> list[Sample]:
    """What was read in second `place`, as of another one."""
    return [
        Sample(second, each.source, each.name, value, each.unit)
        for each in series
        for value in each.between(place, place + 1)[:1]
    ]
