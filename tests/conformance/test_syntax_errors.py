"""What pgbench does not parse we refuse too, and say why in its words, down to the caret."""

import subprocess
from pathlib import Path

from tests.conformance.side_by_side import PGBENCH, compare, table

from pgpaces import _engine
from pgpaces.core.errors import ScriptError
from pgpaces.core.texts import encoded

SIGNS = {"¶": "\n", "␍": "\r", "␉": "\t"}
# pgbench 15 counts the lines in front of \gset wrongly.
LINE_DIFFERS_IN_15 = ("\\gset¶", "\\aset¶", "\\aset y¶")
UNKNOWN_TO_15 = "syncpipeline"
TOO_MANY = [
    "\\shell" + " x" * 256 + "\n",
    "\\sleep" + " 1" * 300,
    "\\gset" + "\\\n x" * 256 + "\nSELECT 1;",
]


def script(line: str) -> str:
    """The script that stands in a line of the table."""
    return line.translate(str.maketrans(SIGNS))


def theirs(version: str, text: str, folder: Path) -> str:
    (folder / "script").write_bytes(text.encode())
    done = subprocess.run(
        [str(PGBENCH[version]), "-n", "-f", "script", "-h", str(folder), "d"],
        capture_output=True, check=False, cwd=folder,
    )  # fmt: skip
    return done.stderr.decode(errors="replace").removesuffix("\n")


def ours(text: str) -> str:
    try:
        _engine.parse_script("script", encoded(text))
    except ScriptError as error:
        return f"pgbench: error: {error.message}"
    return "nothing is wrong"


def differs(line: str, version: str) -> bool:
    """Whether this pgbench differs from later ones."""
    return version == "15" and (UNKNOWN_TO_15 in line or line.endswith(LINE_DIFFERS_IN_15))


def test_a_bad_script_is_refused_in_pgbenchs_words(pgbench_version, tmp_path):
    lines = [line for line in table("bad_scripts.txt") if not differs(line, pgbench_version)]
    texts = TOO_MANY + [script(line) for line in lines]
    said = {text: theirs(pgbench_version, text, tmp_path) for text in texts}
    compare(said, {text: ours(text) for text in texts})


JUST_ALLOWED = [
    "\\shell" + " x" * 255,
    "SELECT 1 \\gset\\\n\\\n x\\\n",
    # What is wrong with these is found out when they are run.
    "\\set 1x 1",
    "\\set x.y 1",
    "\\setshell a-b echo 1",
    f"\\set x least({', '.join('1' * 17)})",
]


def test_what_is_just_allowed_is_allowed(pgbench_version, tmp_path):
    for text in JUST_ALLOWED:
        assert _engine.parse_script("script", encoded(text)), text
        assert "connection to server" in theirs(pgbench_version, text, tmp_path), text


def test_a_nul_byte_is_refused_with_its_line():
    """pgbench takes it for the end of the script."""
    assert ours("SELECT 1;\nSELECT '\0';").endswith("script:2: a script cannot contain a NUL byte")


def test_nesting_has_a_limit_and_length_has_none():
    assert _engine.parse_script("script", encoded("\\set x " + "(" * 9990 + "1" + ")" * 9990))
    assert _engine.parse_script("script", encoded("\\set x 1" + " + 1" * 200_000))
    assert "nests too deeply" in ours("\\set x " + "(" * 100_000)
    assert "nests too deeply" in ours("\\set x " + "-" * 100_000 + "1")
    assert _engine.parse_script("script", encoded("\\if 1\n" * 20_000 + "\\endif\n" * 20_000))


def test_commands_are_shown_as_pgbench_shows_them():
    """Its -r cuts long lines of SQL in the same place, and no lines of meta commands."""
    text = "SELECT\n1;\n  SELECT '" + "x" * 200 + "';\n\\set y \\\n 1 + 2  \n\\sleep 1us\r\n"
    assert _engine.parse_script("script", encoded(text)) == [
        (1, b"SELECT", True),
        (3, b"SELECT '" + b"x" * 119, True),
        (4, b"\\set y \\\n 1 + 2  ", False),
        (6, b"\\sleep 1us", False),
    ]
