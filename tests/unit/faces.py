"""What people see first: each answer in one screen, at three widths and in color, frozen as text.

`python -m tests.unit.faces` writes tests/golden/faces.txt anew, for a change that is meant.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest import mock

from rich.console import Console

import pgpaces
from pgpaces.answers.summary import summarize
from pgpaces.questions import disk, run
from pgpaces.questions.sweep.lookup import page_of
from pgpaces.questions.sweep.report import report
from pgpaces.report import terminal
from pgpaces.section import Section
from pgpaces.store.store import Store
from tests.unit import answered, cards

FROZEN = answered.GOLDEN / "faces.txt"
WIDTHS = (60, 80, 120)
LINES_MAX = 24


def sections(store: Path) -> Iterator[tuple[str, Section]]:
    """Every kind of answer, by a name."""
    opened = Store.existing(store)
    for name in answered.RUNS:
        trial = opened.load(opened.find(name))
        series = opened.digests([trial.id])[0].series
        yield f"run {name}", run.section(trial, summarize(trial), series)
    for name in answered.EXPERIMENTS:
        yield f"experiment {name}", report(page_of(opened, (name,))).top
    levels = (f"clients={n},set.work_mem=4MB" for n in (1, 4))
    also = ("p95", "missed")
    yield "compare", pgpaces.compare(*levels, experiment="swept", also=also, store=store).section
    yield "check", pgpaces.check("single", baseline="good", anyway=True, store=store).section
    yield "disk", disk.section(cards.row(cards.card(2100, 520, 31)))
    yield "trend", pgpaces.trend("good", metric="p95", store=store).section
    yield "forecast", pgpaces.forecast("scaling", store=store).section
    yield "why", pgpaces.why("single", store=store).section


def shown(section: Section, width: int, *, color: bool = False) -> str:
    """A section as a terminal of a width shows it."""
    system = "standard" if color else None
    console = Console(
        file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False,
        force_terminal=color, color_system=system, legacy_windows=False,
    )  # fmt: skip
    for part in terminal.brief(section, width):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def pictures(every: Iterable[tuple[str, Section]]) -> str:
    """All of them. In color, escape sequences are between angle brackets."""
    found = []
    for name, section in every:
        for width in WIDTHS:
            found.append(f"==== {name}, {width} columns\n{_lines(shown(section, width))}\n")
        text = re.sub("\x1b\\[([0-9;]*)m", r"<\1>", shown(section, 80, color=True))
        found.append(f"==== {name}, 80 columns, in color\n{_lines(text)}\n")
    return "\n".join(found)


def _lines(text: str) -> str:
    return "\n".join(each.rstrip() for each in text.splitlines())


def main() -> None:
    """Freezes them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"PGPACES_HOME": folder}),
    ):
        every = sections(answered.unpacked(Path(folder)))
        FROZEN.write_text(pictures(every), encoding="utf-8")
    sys.stdout.write(f"{FROZEN}\n")


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    main()
