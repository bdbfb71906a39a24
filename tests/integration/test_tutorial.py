"""What the tutorial says and no machine changes: counts due, sums, words of verdicts."""

from __future__ import annotations

import re

import pytest
from msgspec import to_builtins
from tests.commands import adds_up
from tests.docs_tools import tool
from tests.folders import ROOT

PAGE = ROOT / "docs" / "tutorial" / "first-answer.md"
SHOWN = tool("outputs").outputs(PAGE.read_text(encoding="utf-8"))


def counted(text: str) -> tuple[int, list[int]]:
    """What was due in an output, and how many ended in each class."""
    line = next(line for line in text.splitlines() if line.startswith("  outcomes"))
    due, *classes = (int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", line))
    return due, classes


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.shell[:50])
def test_what_became_of_the_transactions_adds_up(shown):
    if "  outcomes" in shown.text:
        due, classes = counted(shown.text)
        assert due == sum(classes)


def test_a_load_of_one_length_and_rate_has_one_number_due_on_all_pages():
    [first, second] = [
        next(found for found in tool("outputs").outputs(page.read_text(encoding="utf-8")))
        for page in (ROOT / "README.md", PAGE)
    ]
    assert counted(first.text)[0] == counted(second.text)[0]


@pytest.mark.postgres
def test_the_load_that_is_too_much_fails_with_the_number_due_that_the_page_shows(
    pgpaces_home,
):
    import pgpaces

    of_page = [shown for shown in SHOWN if "--rate 300" in shown.shell]
    assert len(of_page) == 2
    run = pgpaces.run("reporting", rate=300, latency_limit="500ms", duration=5, policy="skip")
    assert {counted(shown.text)[0] for shown in of_page} == {run.counts.due}
    assert adds_up({"counts": to_builtins(run.counts)})
    # A machine whose CPUs others had, or that was late itself, allows no verdict.
    assert run.verdict == ("FAIL" if run.validity.state == "valid" else "UNKNOWN")
    assert "FAIL" in of_page[0].text
    assert run.counts.skipped
