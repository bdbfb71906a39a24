"""What people see first fits a screen, breaks no number, and is what it was."""

import re
import shlex
from datetime import UTC, datetime

import pytest

from pgpaces.cli import output
from pgpaces.show import terminal
from pgpaces.show.screen import table_of, told
from pgpaces.show.section import Headline, Next, Report, Section
from pgpaces.spec.result import Estimate
from tests.unit import answered, documented, faces


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    store = answered.unpacked(tmp_path_factory.mktemp("faces"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPACES_HOME", str(store.parent))
        return dict(faces.sections(store))


def test_screens_are_the_frozen_ones(every):
    assert faces.screens(every.items()) == faces.frozen()


@pytest.mark.parametrize("width", faces.WIDTHS)
def test_each_fits_its_width_and_at_80_columns_a_screen(every, width):
    for name, section in every.items():
        lines = faces.shown(section, width).splitlines()
        assert max(map(len, lines)) <= width, name
        assert [line for line in lines if line.endswith(" ")] == [], name
        # A sweep has a line for each cell, and a quick search one for each load.
        keys = ("cells", "capacity-loads")
        cells = sum(len(each.rows) for each in section.tables if each.key in keys and each.brief)
        if width >= 80:
            assert len(lines) <= faces.LINES_MAX[name.partition(" ")[0]] + cells, name


# Their load cannot be repeated from a command line.
WITHOUT_NEXT = {"run bulk", "run imported"}


def test_each_ends_with_a_command_that_there_is(every):
    for name, section in every.items():
        assert bool(section.next) == (name not in WITHOUT_NEXT), name
        for step in section.next:
            program, *words = shlex.split(step.command.partition(";")[0])
            assert program == "pgpaces", name
            assert documented.parsed(words), name


def test_no_line_begins_with_what_a_number_counts(every):
    for section in every.values():
        for line in faces.shown(section, 60).splitlines():
            assert not re.match(r"\s*(%|ms\b|s\b|MB/s)", line), line


def test_a_verdict_has_a_sign_and_a_color_of_its_own(every):
    seen = {}
    for section in every.values():
        if section.headline is not None and section.headline.mark:
            first = faces.shown(section, 80, color=True).splitlines()[0]
            code = re.match(r"\x1b\[([\d;]+)m(\S)", first)
            assert code is not None, first
            seen[section.headline.mark] = (code[2], code[1])
    assert seen["fail"] == ("✗", "1;31")
    assert seen["pass"] == ("✓", "1;32")
    assert seen["unknown"] == ("?", "1;33")


def test_colors_are_those_that_a_light_and_a_dark_terminal_both_choose_for_their_ground(every):
    codes = {
        code
        for section in every.values()
        for sequence in re.findall(r"\x1b\[([\d;]*)m", faces.shown(section, 80, color=True))
        for code in sequence.split(";")
    }
    # Off, bold, dim, and the eight colors of the terminal's own palette as foreground, but for
    # black and white, one of which is the ground.
    assert codes <= {"0", "1", "2", *(str(color) for color in range(31, 37))}


@pytest.mark.parametrize("width", faces.WIDTHS)
def test_a_command_that_is_copied_is_one_command(every, width):
    section = every["why"]
    text = faces.shown(section, width).partition("  next: ")[2].partition("    ")[0]
    # A shell goes on with the next line after a backslash.
    assert shlex.split(text.replace("\\\n", ""), comments=True) == shlex.split(
        section.next[0].command
    )


@pytest.mark.parametrize("width", [60, 80])
def test_a_word_of_a_command_that_is_wider_than_the_terminal_is_not_broken(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    long = "postgresql://me@" + "host." * 30 + "example/shop?application_name=a"
    words = ["pgpaces", "run", "-f", "/srv/" + "folder/" * 20 + "a.sql", "--target", long]
    copied = shlex.join(words)
    section = Section("s", "S", next=(Next(copied),), headline=Headline("", "", ""))
    report = Report("R", "", datetime.now(UTC), "0", "", (), (section,), section, rerun=copied)
    for shown in (
        output.text((section,), verbose=True),
        terminal.terminal(report, width),
        output.rendered(lambda width: terminal.parts(report, width)),
    ):
        lines = [" ".join(each.split()) for each in shown.replace("\\\n", "").splitlines()]
        assert sum(each.endswith(copied) for each in lines) == 1


def test_no_line_breaks_a_command_without_a_backslash(every):
    for name, section in every.items():
        if section.aside:
            lines = faces.shown(section, 60).splitlines()
            assert [f"  {each}" for each in section.aside if f"  {each}" not in lines] == [], name


def test_a_warning_is_a_consequence_in_few_words(every):
    for name, section in every.items():
        texts = [str(each) for each in section.findings if each.severity != "nothing"]
        assert [text for text in texts if "dispatch lag" in text or len(text) > 220] == [], name


def test_all_of_an_answer_says_a_footnote_once(every):
    section = every["experiment pairs"]
    notes = list(map(str, section.findings))
    shown = faces.shown(section, 200, whole=True)
    assert [shown.count(note) for note in notes] == [1] * max(1, len(notes))


def test_a_sentence_takes_the_facts_that_it_shows_and_needs_all_of_them():
    facts = {"scale": 1, "state": "valid", "name": "w", "seed": 7}
    message = told("run-workload", facts)
    assert dict(message.values) == {"scale": 1, "name": "w", "seed": 7}
    assert str(message) == "w, scale 1, seed 7"
    with pytest.raises(ValueError, match="is not in list"):
        told("run-workload", {"name": "w"})


def test_a_declared_table_has_dashes_and_intervals():
    rate = Estimate(1234.5, 1200.0, 1300.0, 9)
    times = {"p50": 1.25, "p99": None, "p999": 99.96}
    row = {"job": "{read}", "rate": rate, "mb_s": 10.0, **times, "slowing": None}
    found = table_of("table-disk-postgres", [row], brief=True)
    assert (found.key, found.labels, found.note, found.brief) == ("disk-postgres", 1, "", True)
    texts = ["{read}", "1,234", "10", "1.25", "–", "100", "–"]
    assert [cell.text for cell in found.rows[0]] == texts
    assert found.rows[0][1].ends == "1,200–1,300"
    assert len(found.columns) == len(texts)
    with pytest.raises(KeyError):
        table_of("table-disk-postgres", [{"job": "read"}])
