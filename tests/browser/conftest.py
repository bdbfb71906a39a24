"""A browser for the tests of pages, and a page that a sweep might have given."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import expect, sync_playwright

from pgpaces.analysis.validity import Validity
from pgpaces.answers.sweep.page import About, gather
from pgpaces.answers.sweep.report import report as report_of
from pgpaces.show.html import html
from pgpaces.spec.design import Design, Factor
from tests.needs import check, chromium
from tests.unit.experiments import WORKERS, experiment, made

# A board whose CPUs are busy draws slowly.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def browser():
    check("chromium")
    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield opened
        opened.close()


def written(path: Path, plan: Design, seconds: int) -> str:
    """The address of the page of an experiment, one of whose cells has no valid trial."""
    digests = [made(slot, seconds) for slot in plan.asks()]
    digests = [
        replace(each, summary=replace(each.summary, validity=Validity("invalid")))
        if each.trial.setup.clients == 6 and each.trial.spec[f"set.{NAME}"] == "4"
        else each
        for each in digests
    ]
    about = About(datetime(2026, 11, 2, tzinfo=UTC), "0.1.0", "pgpaces sweep pi.toml", "01E")
    page = html(report_of(gather(digests, about, experiment(design=plan))))
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    clients, workers = Factor("clients", ("1", "4", "6", "8")), Factor(WORKERS, ("0", "2", "4"))
    path = tmp_path_factory.mktemp("report") / "report.html"
    return written(path, Design((clients, workers), trials=2), 60)


@pytest.fixture(scope="session")
def small_report(tmp_path_factory):
    """Every part of a page, each as small as it can be."""
    clients, workers = Factor("clients", ("1", "6")), Factor(WORKERS, ("0", "4"))
    path = tmp_path_factory.mktemp("report") / "small.html"
    return written(path, Design((clients, workers), trials=2), 12)


NAME = WORKERS.removeprefix("set.")
