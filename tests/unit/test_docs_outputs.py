"""The tools that run what the documentation prints; here no server is started."""

import re

from tests.docs_tools import tool
from tests.unit import documented

OUTPUTS = tool("outputs")
COMMANDS = tool("commands")


def test_every_marker_of_an_output_has_its_block():
    for page in documented.PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(list(OUTPUTS.outputs(text))) == text.count("<!-- output"), page


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

    new = OUTPUTS.renewed(page, Home(), "page.db")
    assert asked == ["pgpaces a", "pgpaces b"]
    assert new == page.replace("old", "new pgpaces a\nmore", 1).replace("old", "new pgpaces b")
    assert not (tmp_path / "host.toml").exists()


def test_the_tables_name_what_pages_print():
    pages = {
        documented.name_of(page): COMMANDS.commands(page.read_text(encoding="utf-8"))
        for page in documented.PAGES
    }
    printed = [command for page in pages.values() for command in page]
    for each in COMMANDS.TABLES["not_tried"]:
        assert any(re.search(each["command"], command) for command in printed), each
    for page, table in COMMANDS.TABLES["pages"].items():
        assert table.keys() <= {"prepare", "before", "seconds", "load"}, page
        for key in ("before", "seconds"):
            assert set(table.get(key, ())) <= set(pages[page]), page
    names = re.findall(COMMANDS.TABLES["runs"], "".join(printed))
    assert {"RUN", "4F8Z2K1Q", "9M0A7T3C"} <= set(names)
