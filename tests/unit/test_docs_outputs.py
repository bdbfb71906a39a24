"""Outputs and commands of the documentation: they exist, in the words of today.

docs/outputs.py runs them and puts in what they print; here no server is started.
"""

import re
from itertools import cycle
from pathlib import Path

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


def outputs():
    return tool("outputs")


def shown():
    return [
        (documented.name_of(page), found)
        for page in documented.PAGES
        for found in outputs().outputs(page.read_text(encoding="utf-8"))
    ]


SHOWN = shown()


def test_outputs_are_found():
    assert len(SHOWN) >= 20
    pages = (page.read_text(encoding="utf-8") for page in documented.PAGES)
    markers = sum(text.count("<!-- output") for text in pages)
    assert markers == len(SHOWN), "a marker without its block"
    shell = ". .venv/bin/activate\npgpaces run x \\\n    --rate 1\npgpaces show\n"
    assert outputs().commands(shell) == ["pgpaces run x --rate 1", "pgpaces show"]


WAITS = "  waits        CPU 1%, a long list of them that\n"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("1", "? UNKNOWN  0.0% missed\n"),
        ("throughput", "  throughput   1 tx/s\n"),
        ("waits", f"{WAITS}               needs two lines\n"),
        ("waits +0", WAITS),
        ("level", "level   against\n─────\non      off\n"),
        ("!?", ""),
    ],
)
def test_a_part_is_a_line_with_those_that_continue_it(part, text):
    assert outputs().part(PRINTED, part) == text
    with pytest.raises(outputs().OutputError, match="no line begins with 'outcomes'"):
        outputs().part(PRINTED, "outcomes")


@pytest.mark.parametrize(("page", "found"), SHOWN, ids=lambda value: str(value)[:60])
def test_an_output_is_of_commands_that_exist_and_in_the_words_of_today(page, found):
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


def test_the_first_output_is_of_what_make_run_runs():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in ("README.md", "docs/tutorial/first-answer.md"):
        first = next(found for name, found in SHOWN if name == page)
        assert f"\t{first.shell}\n" in makefile


def test_a_page_is_renewed_with_what_its_commands_print(tmp_path):
    page = (
        "<!-- file: host.toml -->\n```toml\nprice = 1\n```\n\n```sh\npgpaces a\n```\n\n"
        "<!-- output -->\n```text\nold\n```\n\n"
        "<!-- output of `pgpaces b`: 1 -->\n```text\nold\n```\n"
    )
    asked = []

    class Home:
        folder = tmp_path

        def printed(self, command, store):
            assert (tmp_path / "host.toml").read_text() == "price = 1\n"
            asked.append(command)
            return f"new {command}  \nmore\n", ""

    new = outputs().renewed(page, Home(), "page.db")
    assert asked == ["pgpaces a", "pgpaces b"]
    assert new == page.replace("old", "new pgpaces a\nmore", 1).replace("old", "new pgpaces b")
    assert not (tmp_path / "host.toml").exists()


TOOL = tool("commands")
TABLES = TOOL.TABLES
TEXTS = {documented.name_of(page): page.read_text(encoding="utf-8") for page in documented.PAGES}
COMMANDS = {name: TOOL.commands(text) for name, text in TEXTS.items()}


def test_commands_are_the_lines_of_shell_blocks_with_continued_ones_joined():
    page = (
        "```sh\nexport A=b\n\n# first\npgpaces run x \\\n    --rate 1\n```\n\n"
        "```sql\nSELECT 1;\n```\n\n```sh\ncreatedb bench\n```\n"
    )
    assert TOOL.commands(page) == ["export A=b", "pgpaces run x --rate 1", "createdb bench"]


@pytest.mark.parametrize(
    ("ended", "verdict"),
    [
        ({"code": 0}, "ran"),
        # The condition of --fail-if was true, and a comparison that is inconclusive.
        ({"code": 30}, "ran"),
        ({"code": 32}, "ran"),
        ({"code": 1}, "failed"),
        ({"code": 130}, "failed"),
        ({"code": None, "cut": True, "loaded": True}, "failed"),
        ({"code": 130, "cut": True, "loaded": True}, "cut"),
        # Ctrl-C before there was any load, and an error after it.
        ({"code": 130, "cut": True}, "failed"),
        ({"code": 5, "cut": True, "loaded": True}, "failed"),
        # It ended at the moment of Ctrl-C.
        ({"code": 0, "cut": True, "loaded": True}, "ran"),
    ],
)
def test_a_command_ran_was_cut_in_its_load_or_failed(ended, verdict):
    assert TOOL.verdict(TOOL.Ended(seconds=1, printed="", **ended)) == verdict


def test_what_installs_is_not_tried_and_what_lacks_a_program_only_where_it_lacks():
    assert TOOL.not_tried("apt install pipx") == "installs on this machine, from a registry"
    assert TOOL.not_tried("pgpaces run reporting") is None
    query = "duckdb -c 'SELECT 1'"
    assert TOOL.not_tried(query, which=lambda name: None) == "needs duckdb"
    assert TOOL.not_tried(query, which=lambda name: f"/bin/{name}" if name else None) is None


def test_a_name_that_the_reader_knows_is_a_run_of_the_page():
    filled = TOOL.filled("pgpaces runs tag before RUN RUN", iter(["A", "B", "C"]))
    assert filled == "pgpaces runs tag before A B"
    assert TOOL.filled("make run RUNS", iter(())) == "make run RUNS"


def test_the_tables_name_what_pages_print():
    printed = [command for page in COMMANDS.values() for command in page]
    for each in TABLES["not_tried"]:
        assert any(re.search(each["command"], command) for command in printed), each
    for page, table in TABLES["pages"].items():
        assert table.keys() <= {"prepare", "before", "seconds", "load"}, page
        for key in ("before", "seconds"):
            assert set(table.get(key, ())) <= set(COMMANDS[page]), page
    names = re.findall(TABLES["runs"], "".join(printed))
    assert {"RUN", "4F8Z2K1Q", "9M0A7T3C"} <= set(names)


def test_a_shell_keeps_what_a_page_set_and_ctrl_c_ends_a_command_alone(tmp_path):
    terminal = TOOL.Terminal(tmp_path, {"PATH": "/usr/bin:/bin", "PS1": "", "PS2": ""})
    try:
        assert terminal.run("a=b; export a", 60, lambda _: False).code == 0
        ended = terminal.run('sh -c "echo $a; exit 7"', 60, lambda _: False)
        assert (ended.code, ended.printed.strip(), ended.cut) == (7, "b", False)
        answers = cycle([False, True])
        ended = terminal.run("sleep 60; echo no", 0, lambda _: next(answers))
        assert (ended.code, ended.cut, ended.loaded) == (130, True, True)
        assert "no" not in ended.printed
        ended = terminal.run('printf "go on? [y/N]: "; read answer; echo "$answer$a"', 60, bool)
        assert ended.printed.split() == ["go", "on?", "[y/N]:", "yb"]
    finally:
        terminal.close()
