"""Expressions have pgbench's values, and what it cannot compute we cannot either, in its words."""

import re
from typing import Any

import pytest
from tests.conformance.side_by_side import Bench, Statement, one, table

from pgpaces.core.errors import ScriptError

EXPRESSIONS = [line.strip() for line in table("expressions.txt")]
GIVEN = (("i", "42"), ("d", "2.5"), ("e", "1e3"), ("t", "yes"), ("f", "off"), ("z", "NULL"),
         ("neg", " -7"), ("text", "twelve"), ("empty", ""), ("sign", "+"),
         ("large", "9223372036854775808"))  # fmt: skip


def computed(statements: list[Statement]) -> dict[str, str]:
    """Value by expression; the statements end in a comment with its number."""
    found = (re.fullmatch(r"SELECT '(.*)' /\* (\d+) \*/;", sql) for sql, _ in statements)
    return {EXPRESSIONS[int(m[2])]: m[1] for m in found if m}


def test_every_expression_has_pgbenchs_value(bench: Bench) -> None:
    script = "".join(
        f"\\set x {expression}\nSELECT ':x' /* {n} */;\n"
        for n, expression in enumerate(EXPRESSIONS)
    )
    case = one(script, variables=tuple(v for v in GIVEN if v[1]))
    [theirs], [ours] = bench.theirs(case), bench.ours(case)
    expected, found = computed(theirs), computed(ours)
    assert len(expected) == len(set(EXPRESSIONS))
    assert {e: (v, found.get(e)) for e, v in expected.items() if found.get(e) != v} == {}


@pytest.mark.parametrize("expression", table("failing.txt"))
def test_what_pgbench_cannot_compute_we_cannot_either_and_say_it_alike(
    bench: Bench, expression: str
) -> None:
    script = f"\\set x {expression}\nSELECT :x;\n"
    case = one(script, variables=tuple(v for v in GIVEN if v[1]))
    theirs = bench.pgbench(case, 2).stderr
    with pytest.raises(ScriptError) as caught:
        bench.start(case).finish()
    said = re.sub(r"^script0:1: ", "", caught.value.message)
    assert f"pgbench: error: {said}" in theirs.splitlines()


@pytest.mark.parametrize("expression", ["true = true", "true <> false", "true != true"])
def test_booleans_can_be_compared_which_pgbench_cannot(bench: Bench, expression: str) -> None:
    case = one(f"\\set x {expression}\nSELECT :x;\n")
    assert "cannot coerce boolean to int" in bench.pgbench(case, 2).stderr
    bench.statements()
    value = "false" if expression == "true != true" else "true"
    assert bench.ours(case) == [[(f"SELECT {value};", ())]]


TEXTS = [
    *("12", "+12", "-3", " 7", "007", "1.5", "1e3", ".5", "5.", "-.5e-2", "1E+2", "0x10"),
    *("Yes", "y", "true", "TRUE", "t", "tru", "on", "ON", "o", "no", "N", "fal", "off", "of"),
    *("null", "NULL", "nul", "twelve", "12abc", "1.5x", "1 2", "- 3", "--3", " ", " -3 ", "7 "),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e400", "1e-400"),
    *("inf", "nan", "Infinity", " 1.5", "1.5 ", " yes", "yes ", "+", "-", "\t5", "\v6", "1_0"),
    *("-inf", "-nan", "nan(12)", "nan(", "infi", "0x", "0x1.8p3", "-0x1p-4", "0x.8", "0x1p2000"),
    *("2.5e-310", "1.7976931348623157e308", "1.8e308", "0e999", "-0", "-0.0", "+.5", ".", "e5"),
    *("trueish", "oN", "offf", "0x123456789abcdef01", "0x1p-1074", "0x1p-1075", "1e+", "1d5"),
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_from_the_command_line_becomes_the_value_that_pgbench_makes_of_it(
    bench: Bench, text: str
) -> None:
    case = one("\\set x :v\nSELECT ':x';\n", variables=(("v", text),))
    done = bench.pgbench(case, 0, 2)
    theirs = bench.statements()
    if done.returncode == 0:
        assert bench.ours(case) == theirs
        return
    with pytest.raises(ScriptError) as caught:
        bench.start(case).finish()
    said = re.sub(r"^script0:1: ", "", caught.value.message)
    assert f"pgbench: error: {said}" in done.stderr.splitlines()


def test_an_empty_text_has_no_value(start_load: Any, fake_server: Any) -> None:
    """pgbench refuses it on the command line, but \\gset can find one."""
    load = start_load(fake_server().dsn(), "\\set x :v\n", clients=1, variables=[("v", "")])
    with pytest.raises(ScriptError, match='malformed variable "v" value: ""'):
        load.finish()
