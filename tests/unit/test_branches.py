"""Statements of several branches that are one: found, named, and added up."""

import pytest
from msgspec.structs import replace

from pgpaces.analysis.branches import alike
from pgpaces.analysis.summary import summarize
from pgpaces.core.record import StatementTally
from pgpaces.core.times import times_of
from pgpaces.spec.workload import commands_in
from tests.unit.trials import changed, series

SQL = "SELECT count(*) FROM article WHERE kind = {} LIMIT 10;"
SHOWN = "SELECT count(*) FROM article WHERE kind = ? LIMIT 10"
SCRIPT = f"""\\set pick random(1, 9)
\\if :pick <= 3
{SQL.format("'it''s'")}
\\elif :pick <= 6
{SQL.format("NULL")}
\\else
{SQL.format("7")}
\\endif
SELECT 1;
"""


def commands_of(script):
    return commands_in("a", script)


def test_branches_that_differ_in_a_constant_are_one_statement():
    [found] = alike(commands_of(SCRIPT), SCRIPT)
    assert found.places == (2, 4, 6)
    assert found.text == SHOWN, "what is the same in all of them stays"


def test_long_texts_are_compared_to_their_ends():
    head = "SELECT " + "a, " * 60
    script = f"\\if 1\n{head} 'x'\nFROM t;\n\\else\n{head} 'y'\nFROM {{}};\n\\endif\n"
    [found] = alike(commands_of(script.format("t")), script.format("t"))
    assert found.text == head[:127]
    assert alike(commands_of(script.format("u")), script.format("u")) == ()


@pytest.mark.parametrize(
    "script",
    [
        "SELECT 1;\nSELECT 2;\n",
        "\\if :a\nSELECT 1;\n\\endif\n\\if :b\nSELECT 2;\n\\endif\n",
        "\\if :a\nSELECT a FROM b;\n\\else\nSELECT b FROM b;\n\\endif\n",
        "\\if :a\nSELECT *\nFROM a;\n\\else\nSELECT *\nFROM b;\n\\endif\n",
        "\\if :a\nSELECT :p1;\n\\else\nSELECT :p2;\n\\endif\n",
        "\\if :a\nSELECT 1;\nSELECT 2;\n\\else\nSELECT 3;\n\\endif\n",
        "\\if :a\nSELECT 1; SELECT 2;\n\\else\nSELECT 3; SELECT 4;\n\\endif\n",
        "\\if :a\nSELECT 1;\n\\else\n\\endif\n",
    ],
)
def test_other_statements_stay_apart(script):
    assert alike(commands_of(script), script) == ()


def test_the_times_of_all_branches_are_those_of_one_line():
    whole = series([[10.0]] * 40)
    script = whole.workload.scripts[0].but(commands=commands_of(SCRIPT), text=SCRIPT)
    workload = whole.workload.but(scripts=(script,))
    # Not each of them in each second, and the last one not at all.
    ran = [(2, 4.0) if n % 2 else (4, 8.0) for n, _ in enumerate(whole.intervals)]
    intervals = tuple(
        replace(each, statements=(StatementTally(0, place, times=times_of([round(ms * 1e6)])),))
        for each, (place, ms) in zip(whole.intervals, ran, strict=True)
    )
    [found] = summarize(changed(whole, workload=workload, intervals=intervals)).statements
    assert (found.line, found.text) == (3, SHOWN)
    assert found.times.mean.value == pytest.approx(6, rel=0.1)
