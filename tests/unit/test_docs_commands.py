"""What docs/commands.py takes for a command, and when it says that one ran.

It runs the commands of all pages in a lab of its own; here nothing is started but a shell.
"""

from __future__ import annotations

import re
from itertools import cycle
from pathlib import Path

import pytest

from tests.docs_tools import tool
from tests.unit import documented

TOOL = tool("commands")
TABLES = TOOL.TABLES
PAGES = {documented.name_of(page): page.read_text(encoding="utf-8") for page in documented.PAGES}
COMMANDS = {name: TOOL.commands(text) for name, text in PAGES.items()}


def test_commands_are_the_lines_of_shell_blocks_with_continued_ones_joined() -> None:
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
def test_a_command_ran_was_cut_in_its_load_or_failed(ended: dict, verdict: str) -> None:
    assert TOOL.verdict(TOOL.Ended(seconds=1, printed="", **ended)) == verdict


def test_what_installs_is_not_tried_and_what_lacks_a_program_only_where_it_lacks() -> None:
    assert TOOL.not_tried("apt install pipx") == "installs on this machine, from a registry"
    assert TOOL.not_tried("pgpaces run reporting") is None
    query = "duckdb -c 'SELECT 1'"
    assert TOOL.not_tried(query, which=lambda name: None) == "needs duckdb"
    assert TOOL.not_tried(query, which=lambda name: f"/bin/{name}" if name else None) is None


def test_a_name_that_the_reader_knows_is_a_run_of_the_page() -> None:
    filled = TOOL.filled("pgpaces runs tag before RUN RUN", iter(["A", "B", "C"]))
    assert filled == "pgpaces runs tag before A B"
    assert TOOL.filled("make run RUNS", iter(())) == "make run RUNS"


def test_the_tables_name_what_pages_print() -> None:
    printed = [command for page in COMMANDS.values() for command in page]
    for each in TABLES["not_tried"]:
        assert any(re.search(each["command"], command) for command in printed), each
    for page, table in TABLES["pages"].items():
        assert table.keys() <= {"prepare", "before", "seconds", "load"}, page
        for key in ("before", "seconds"):
            assert set(table.get(key, ())) <= set(COMMANDS[page]), page
    names = re.findall(TABLES["runs"], "".join(printed))
    assert {"RUN", "4F8Z2K1Q", "9M0A7T3C"} <= set(names)


def test_a_shell_keeps_what_a_page_set_and_ctrl_c_ends_a_command_alone(tmp_path: Path) -> None:
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
