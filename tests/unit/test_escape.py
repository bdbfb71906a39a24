"""What others wrote is harmless wherever it is shown: terminals, CSV, JSON."""

import csv
import io
import json
import re
import shlex
import subprocess
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from pgpaces.show import escape
from pgpaces.show import terminal as text
from tests.needs import needs

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates and NUL as well
CASES = [
    ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
    ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
    ("\x9b2J", "\\x9b2J"),
    ("ok\rFAIL", "ok\\x0dFAIL"),
    ("a\bb\x7f\x00", "a\\x08b\\x7f\\x00"),
    ("user\u202egnp.exe", "user\\u202egnp.exe"),
    ("\u2066in\u2069\u200f", "\\u2066in\\u2069\\u200f"),
    ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
    ("tag\U000e0041", "tag\\U000e0041"),
    ("latin \udce9", "latin \\udce9"),
    ("no XML \ufffe\uffff", "no XML \\ufffe\\uffff"),
    ("Zoë 数据 🐘", "Zoë 数据 🐘"),
    ("100% [red] [/] :smile:", "100% [red] [/] :smile:"),
]


@pytest.mark.parametrize(("wild", "tame"), CASES)
def test_what_a_terminal_would_obey_is_named(wild, tame):
    assert escape.lines(wild) == tame
    assert escape.line(wild) == tame


def test_lines_stay_where_there_may_be_several_and_nobody_forges_one_elsewhere():
    forged = "no such table\r\n  pgpaces: all went well\n\tat x\u2028y"
    assert escape.lines(forged) == ("no such table\n  pgpaces: all went well\n\tat x\\u2028y")
    assert escape.line(forged) == "no such table pgpaces: all went well at x\\u2028y"


@needs("bash")
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))))
@example(["a\nb.sql", "it's\n\\n", "\x1b[2J", "\x9b2J", "caf\udce9", "\u202egnp", "\U000e0041"])
def test_a_command_can_be_pasted_whatever_its_words_are(words):
    shown = escape.line(f"pgpaces run {shlex.join(words)}")
    assert not [c for c in shown if does_something(c)]
    done = subprocess.run(
        ["bash", "-c", f"pgpaces() {{ printf '%s\\0' \"$@\"; }}; {shown}"],
        env={"LC_ALL": "C.UTF-8"}, capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.decode(errors="surrogateescape").split("\0") == ["run", *words, ""]


def does_something(character):
    return unicodedata.category(character) in {"Cc", "Cs"} or unicodedata.bidirectional(
        character
    ) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@given(ANY_TEXT)
def test_no_text_does_anything_to_a_terminal(wild):
    assert not [c for c in escape.line(wild) if does_something(c)]
    assert not [c for c in escape.lines(wild) if does_something(c) and c not in "\n\t"]
    escape.lines(wild).encode()  # and every terminal can be sent it


@given(ANY_TEXT)
def test_bytes_of_other_encodings_pass_through_the_face(wild):
    shown = escape.stream(wild)
    assert not [c for c in shown if does_something(c) and c not in "\n\t" and ord(c) < 0xD800]
    pieces = re.compile("[\ud800-\udfff]")
    assert pieces.findall(shown) == pieces.findall(wild)


@given(ANY_TEXT)
def test_markup_in_a_cell_is_text(wild):
    console = Console(file=io.StringIO(), width=10_000, color_system=None)
    made = text.grid("statement", ())
    made.add_row(text.cell(f"|[red]{wild}[/]|"))
    console.print(made)
    assert isinstance(console.file, io.StringIO)
    assert f"|[red]{escape.line(wild)}[/]|" in console.file.getvalue()


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_a_formula_in_csv_is_a_text(start):
    kept = start.replace("\r", "\n")  # a lone carriage return would end a row
    assert escape.csv_cell(f"{start}cmd|' /C calc'!A0") == f"'{kept}cmd|' /C calc'!A0"
    assert escape.csv_cell(f"x{start}1") == f"x{kept}1"


@pytest.mark.parametrize("number", [-1, 0, -0.5, 1e-9, None])
def test_numbers_in_csv_stay_as_they_are(number):
    assert escape.csv_cell(number) is number


@given(st.lists(ANY_TEXT, min_size=2, max_size=4))
def test_csv_is_read_as_it_was_written_and_computes_nothing(wild):
    cells = [str(escape.csv_cell(each)) for each in wild]
    table = io.StringIO(newline="")
    csv.writer(table, lineterminator="\n").writerow(cells)
    table.getvalue().encode()
    assert list(csv.reader(io.StringIO(table.getvalue(), newline=""))) == [cells]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=8,
)


@given(VALUES)
def test_json_is_what_every_reader_takes(value):
    written = escape.json_text(value)

    def refuse(word):
        raise AssertionError(word)

    read = json.loads(written, parse_constant=refuse)
    json.dumps(read, ensure_ascii=False).encode()  # no half of a character


def test_nul_and_halves_of_characters_in_json():
    read = json.loads(escape.json_text({"a\udce9": ("\0", "\ud83d", float("inf"), 1.5)}))
    assert read == {"a\ufffd": ["\0", "\ufffd", None, 1.5]}
