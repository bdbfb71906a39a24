"""\\if takes the branches that pgbench takes, with all that stands in them."""

import random

import pytest
from tests.conformance.side_by_side import one

CONDITIONS = [
    *("1", "0", "-1", "0.0", "0.1", "true", "false", "null", "not null", "1 = 1", "1 > 2"),
    *(":n > 2", ":n is null", ":t", "not :t", ":d", ":z", ":zero", "null or true"),
    *("case when :n = 3 then null else 7 end", "random(0, 1)", "random(1, 9) % 2 = 0"),
]
GIVEN = (("n", "3"), ("t", "yes"), ("d", "2.5"), ("z", "NULL"), ("zero", "0.0"))


@pytest.mark.slow
def test_a_condition_holds_where_it_holds_in_pgbench(bench):
    scripts = {
        condition: f"\\if {condition}\nSELECT 'if';\n\\elif {condition}\nSELECT 'elif';\n"
        "\\else\nSELECT 'else';\n\\endif\nSELECT 'end';\n"
        for condition in CONDITIONS
    }
    bench.check_each(scripts, variables=GIVEN, transactions=10)


SCRIPTS = {
    "no else": "\\if 0\nSELECT 1;\n\\endif\nSELECT 2;\n",
    "empty branches": "\\if 0\n\\elif 0\n\\elif 1\n\\else\n\\endif\nSELECT 2;\n",
    "the first that holds": "\\if 0\nSELECT 1;\n\\elif 1\nSELECT 2;\n\\elif 1 / 0\nSELECT 3;\n"
    "\\else\nSELECT 4;\n\\endif\nSELECT 5;\n",
    "none after one that holds is computed": "\\if 1\n\\elif 1 / 0\n\\endif\nSELECT 1;\n",
    "nothing in a branch that is not taken is computed": "\\if 0\n\\set x 1 / 0\n"
    "\\if 1 / 0\n\\elif 1 / 0\n\\endif\n\\sleep :nowhere\n\\endif\nSELECT 1;\n",
    "draws are not made there either": "\\if 0\n\\set x random(1, 9)\n\\endif\n"
    "\\set y random(1, 1000)\nSELECT :y;\n",
    "nested": "\\if 1\n\\if 0\nSELECT 1;\n\\else\n\\if 1\nSELECT 2;\n\\endif\nSELECT 3;\n\\endif\n"
    "SELECT 4;\n\\else\n\\if 1\nSELECT 5;\n\\endif\n\\endif\n",
    "nested in what is not taken": "\\if 0\n\\if 1\nSELECT 1;\n\\else\nSELECT 2;\n\\endif\n"
    "\\elif 0\n\\if 1\nSELECT 3;\n\\endif\n\\else\nSELECT 4;\n\\endif\nSELECT 5;\n",
    "values stay": "\\if :n = 3\n\\set n :n + 1\n\\elif :n = 4\n\\set n 9\n\\endif\nSELECT :n;\n",
    "deep": "\\if 1\n" * 1500 + "SELECT 1;\n" + "\\else\nSELECT 2;\n\\endif\n" * 1500,
}  # fmt: skip


@pytest.mark.parametrize("protocol", ["simple", "prepared"])
def test_branches_are_taken_as_in_pgbench(bench, protocol):
    bench.check_each(SCRIPTS, protocol=protocol, transactions=3, variables=GIVEN)


def test_branches_in_the_middle_of_lines_are_taken_as_in_pgbench(bench):
    script = "SELECT 1 \\if 0\nSELECT 2 \\else\nSELECT 3 \\endif\nSELECT 4"
    assert bench.check(one(script, transactions=3))


def grown(source: random.Random, depth: int) -> str:
    """A script of branches in branches."""
    parts = []
    for _ in range(source.randint(1, 3)):
        if depth == 0 or source.random() < 0.4:
            parts.append(f"SELECT {source.randint(1, 10**6)};\n")
            continue
        parts.append(f"\\if {source.choice(CONDITIONS)}\n{grown(source, depth - 1)}")
        for _ in range(source.randint(0, 2)):
            parts.append(f"\\elif {source.choice(CONDITIONS)}\n{grown(source, depth - 1)}")
        if source.random() < 0.5:
            parts.append(f"\\else\n{grown(source, depth - 1)}")
        parts.append("\\endif\n")
    return "".join(parts)


def test_branches_at_random_are_taken_as_in_pgbench(bench):
    scripts = {
        f"seed {seed}": grown(random.Random(seed), 4) + "SELECT 'end';\n" for seed in range(15)
    }
    bench.check_each(scripts, transactions=20, variables=GIVEN)
