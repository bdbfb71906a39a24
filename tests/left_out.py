"""Leaves tests out if a machine lacks what they need, and counts them in the last lines."""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.needs import NEEDS, REASON, check


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        check(*marker.args)


def _left_out(config: pytest.Config) -> list[tuple[str, str]]:
    """Each test that was left out, and what it needs, or another reason to skip it."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    # A worker of xdist knows only some of the tests.
    alone = reporter is not None and not hasattr(config, "workerinput")
    reports = reporter.stats.get("skipped", []) if alone else []
    reasons = [str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports]
    names = [reason.removeprefix(REASON).partition(": ")[0] for reason in reasons]
    return [
        (report.nodeid, name if name in NEEDS else reason)
        for report, name, reason in zip(reports, names, reasons, strict=True)
    ]


def _forbidden(config: pytest.Config) -> list[tuple[str, str]]:
    """The tests that CI has to run and did not."""
    excused = {name for name, need in NEEDS.items() if need.excuse}
    in_ci = os.environ.get("CI") == "true"
    return [(test, name) for test, name in _left_out(config) if in_ci and name not in excused]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _forbidden(session.config):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Iterator[None]:
    """Say in the last lines what this machine lacks, and how many tests were left out for it."""
    yield
    counts = Counter(name for _, name in _left_out(config))
    for line in _told(counts):
        terminalreporter.write_line(line)
    for test, name in _forbidden(config):
        terminalreporter.write_line(f"CI may not leave this test out: {test} needs {name}")


def _told(counts: Counter[str]) -> Iterator[str]:
    if not counts:
        yield "No test was left out."
        return
    width = max(map(len, [*counts, "missing"]))
    yield "Some tests were left out, because this machine lacks what they need:"
    yield f"  {'missing':{width}}  tests left out"
    for name, count in counts.most_common():
        package = NEEDS[name].package if name in NEEDS else ""
        yield f"  {name:{width}}  {count:14}  {package and f'apt install {package}'}".rstrip()
