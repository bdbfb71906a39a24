"""The gates of the bench and the page that it writes; nothing is measured here."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

import figures  # noqa: E402
import instructions  # noqa: E402
import page  # noqa: E402
import syscalls  # noqa: E402
from figures import Figure, Note  # noqa: E402


def figure(ours, theirs=(), **more):
    return Figure("Section", "name", "us", ours, theirs, **more)


@pytest.mark.parametrize(
    ("now", "ok"),
    [({"a": 109.0}, [True]), ({"a": 111.0}, [False]), ({"a": 89.0}, [True]),
     ({"new": 1.0}, [False, False])],
)  # fmt: skip
def test_the_gate_is_red_for_a_tenth_more_and_for_what_has_no_measurement_or_baseline(now, ok):
    found = [figure((1.0, 9.0, 2.0), gate=True), figure((3.0,)), Note("Section", "text")]
    assert figures.baseline(found) == {"Section: name": 2.0}, "nothing with a clock in it"
    assert [verdict.ok for verdict in figures.verdicts(now, {"a": 100.0})] == ok


def test_the_baseline_names_what_is_measured():
    keys = json.loads((ROOT / "bench" / "baseline.json").read_text())
    cases = {f"{instructions.SECTION}: {case.label('')}" for case in instructions.CASES}
    assert cases <= keys.keys()
    assert f"{syscalls.SECTION}: select-only, epoll, 1 client" in keys


def test_a_page_is_filled_between_its_markers_only(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- measured: cost -->\nold\n<!-- end -->\nafter\n")
    page.write(path, {"kernel": "6"}, 9, [figure((1.0,), (2.0,)), Note("Section", "a \\1 note")])
    text = path.read_text()
    assert text.startswith("before\n<!-- measured: cost -->\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "The machine: kernel 6." in text
    assert re.search(r"\nSection\n  name, us +2\.00 +1\.00 +0\.50\n", text)
    assert "- Section: a \\1 note" in text
    assert "old" not in text
    path.write_text("nothing\n")
    with pytest.raises(ValueError, match="no measured part"):
        page.write(path, {}, 9, [])
