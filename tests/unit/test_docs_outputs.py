"""The outputs that the documentation shows are of commands that exist, in the words of today.

docs/outputs.py runs them and puts in what they print; here no server is started.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs_tools import tool
from tests.unit import documented

ROOT = Path(__file__).resolve().parents[2]
# How an answer begins: its verdict, or what leads where there is none.
HEADLINES = (
    r"[✓✗?] (PASS|FAIL|UNKNOWN|NO CHANGE)  ",
    r"[✓✗?] (BETTER|WORSE|EQUIVALENT|INCONCLUSIVE)  ",
    r"CAPACITY  Meets it up to ",
    r"ASSOCIATED  with ",
    r"loaded [\d,]+ rows in ",
    r"[\d,.]+ tx/s \(95% CI ",
    r"(It|With .+) (meets|misses) the limit ",
)
# Words that the program no longer says.
OLD = re.compile(
    r"not estimable|\b(proved|refuted|it holds|it breaks|beside:|soundness|server of ours)\b"
)


def outputs() -> ModuleType:
    return tool("outputs")


def shown() -> list[tuple[str, object]]:
    return [
        (documented.name_of(page), found)
        for page in documented.PAGES
        for found in outputs().outputs(page.read_text(encoding="utf-8"))
    ]


SHOWN = shown()


def test_outputs_are_found() -> None:
    assert len(SHOWN) >= 20
    markers = sum(
        page.read_text(encoding="utf-8").count("<!-- output") for page in documented.PAGES
    )
    assert markers == len(SHOWN), "a marker without its block"


@pytest.mark.parametrize(("page", "found"), SHOWN, ids=lambda value: str(value)[:60])
def test_an_output_is_of_commands_that_exist_and_in_the_words_of_today(
    page: str, found: object
) -> None:
    commands = outputs().commands(found.shell)
    lines = [words for line in commands for words in documented.command_lines(line)]
    assert lines
    for words in lines:
        documented.parsed(words)
    assert found.text.strip()
    assert not OLD.search(found.text)
    assert all(len(line) <= outputs().WIDTH for line in found.text.splitlines())
    if not found.parts or found.parts[0] == "1":
        assert any(re.match(form, found.text) for form in HEADLINES), found.text
    for part, text in zip(found.parts, found.text.splitlines(), strict=False):
        if len(found.parts) == 1 and not part.isdigit():
            assert text.lstrip().startswith(re.sub(r" \+\d+|\?$", "", part))


def test_the_first_output_is_of_what_make_run_runs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in ("README.md", "docs/tutorial/first-answer.md"):
        first = next(found for name, found in SHOWN if name == page)
        assert f"\t{first.shell}\n" in makefile


PRINTED = """\
? UNKNOWN  0.0% missed
  throughput   1 tx/s
  waits        CPU 1%, a long list of them that
               needs two lines
  next         pgpaces why
               pgpaces show

level   against
─────
on      off
"""


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("1", "? UNKNOWN  0.0% missed\n"),
        ("throughput", "  throughput   1 tx/s\n"),
        (
            "waits",
            "  waits        CPU 1%, a long list of them that\n               needs two lines\n",
        ),
        ("waits +0", "  waits        CPU 1%, a long list of them that\n"),
        ("level", "level   against\n─────\non      off\n"),
        ("!?", ""),
    ],
)
def test_a_part_is_a_line_with_those_that_continue_it(part: str, text: str) -> None:
    assert outputs().part(PRINTED, part) == text


def test_a_part_that_was_not_printed_is_an_error() -> None:
    with pytest.raises(outputs().OutputError, match="no line begins with 'outcomes'"):
        outputs().part(PRINTED, "outcomes")


def test_commands_of_a_block_are_its_lines_with_continued_ones_joined() -> None:
    shell = ". .venv/bin/activate\npgpaces run x \\\n    --rate 1\npgpaces show\n"
    assert outputs().commands(shell) == ["pgpaces run x --rate 1", "pgpaces show"]


def test_a_page_is_renewed_with_what_its_commands_print(tmp_path: Path) -> None:
    page = (
        "<!-- file: host.toml -->\n```toml\nprice = 1\n```\n\n```sh\npgpaces a\n```\n\n"
        "<!-- output -->\n```text\nold\n```\n\n"
        "<!-- output of `pgpaces b`: 1 -->\n```text\nold\n```\n"
    )
    asked: list[str] = []

    class Home:
        folder = tmp_path

        def printed(self, command: str, store: str) -> tuple[str, str]:
            assert (tmp_path / "host.toml").read_text() == "price = 1\n"
            asked.append(command)
            return f"new {command}  \nmore\n", ""

    new = outputs().renewed(page, Home(), "page.db")
    assert asked == ["pgpaces a", "pgpaces b"]
    assert new == page.replace("old", "new pgpaces a\nmore", 1).replace("old", "new pgpaces b")
    assert not (tmp_path / "host.toml").exists()
