"""What people see first: the first screen of each answer, frozen as one text file.

`python -m tests.unit.faces` writes tests/golden/screens again after an intended change.
"""

import io
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest import mock

from msgspec.structs import replace
from rich.console import Console

import pgpaces
from pgpaces.analysis.summary import summarize
from pgpaces.answers import disk, run
from pgpaces.answers.sweep.lookup import page_of
from pgpaces.answers.sweep.report import report
from pgpaces.show import terminal
from pgpaces.show.section import Section
from pgpaces.store.store import Store
from tests.unit import answered, cards

FROZEN = answered.GOLDEN / "screens"
WIDTHS = (60, 80, 120)
WIDE = ("run single", "experiment swept", "compare")
# Other runs have the same sentences; their answers are frozen as values.
LEFT_OUT = ("run closed", "run paced", "run shaped", "run statements", "run users")
# By the first word of the name; a sweep has a line for each cell besides.
LINES_MAX = {"run": 14, "experiment": 14, **dict.fromkeys(("compare", "check", "disk"), 16),
             **dict.fromkeys(("trend", "why"), 16)}  # fmt: skip

# A number of a headline.
_NUMBER = re.compile(r"\d[\d.,–]*%?")


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
    yield "why", pgpaces.why("single", store=store).section


def shown(section: Section, width: int, *, color: bool = False, whole: bool = False) -> str:
    """A section as a terminal of a width shows it: its first screen, or the whole."""
    system = "standard" if color else None
    console = Console(
        file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False,
        force_terminal=color, color_system=system, legacy_windows=False,
    )  # fmt: skip
    for part in (terminal.whole if whole else terminal.brief)(section, width):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def screens(every: Iterable[tuple[str, Section]]) -> dict[str, str]:
    """Their texts by file name."""
    return {
        f"{name.replace(' ', '-')}-{width}.txt": "".join(
            f"{line.rstrip()}\n" for line in shown(section, width).splitlines()
        )
        for name, each in every
        if name not in LEFT_OUT
        for section in (each if name in WIDE else _in_numbers(each),)
        for width in (WIDTHS if name in WIDE else (80,))
    }


def _in_numbers(section: Section) -> Section:
    """A run whose first line has the verdict and the numbers, but not the words."""
    if (top := section.headline) is None or section.key != "run":
        return section
    return replace(section, headline=replace(top, text=" ".join(_NUMBER.findall(top.text))))


def frozen() -> dict[str, str]:
    """The frozen screens by file name."""
    return {each.name: each.read_text(encoding="utf-8") for each in FROZEN.iterdir()}


def main() -> None:
    """Freezes them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"PGPACES_HOME": folder}),
    ):
        now = screens(sections(answered.unpacked(Path(folder))))
    shutil.rmtree(FROZEN, ignore_errors=True)
    FROZEN.mkdir()
    for name, text in now.items():
        (FROZEN / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{FROZEN}\n")


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    main()
