"""Expressions have pgbench's values, and what it cannot compute we cannot either, in its words."""

import re

import pytest
from tests.conformance.side_by_side import (
    Bench,
    Statement,
    compare,
    number_of,
    one,
    table,
    together,
)

from pgpaces.core.errors import ScriptError

EXPRESSIONS = [line.strip() for line in table("expressions.txt")]
GIVEN = (("i", "42"), ("d", "2.5"), ("e", "1e3"), ("t", "yes"), ("f", "off"), ("z", "NULL"),
         ("neg", " -7"), ("text", "twelve"), ("empty", ""), ("sign", "+"),
         ("large", "9223372036854775808"))  # fmt: skip


def computed(statements: list[Statement]) -> dict[str, str]:
    """Value by expression; the statements end in a comment with its number."""
    found = (re.fullmatch(r"SELECT '(.*)' /\* (\d+) \*/;", sql) for sql, _ in statements)
    return {EXPRESSIONS[int(m[2])]: m[1] for m in found if m}


def test_every_expression_has_pgbenchs_value(bench):
    script = "".join(
        f"\\set x {expression}\nSELECT ':x' /* {n} */;\n"
        for n, expression in enumerate(EXPRESSIONS)
    )
    case = one(script, variables=tuple(v for v in GIVEN if v[1]))
    [theirs], [ours] = bench.theirs(case), bench.ours(case)
    expected = computed(theirs)
    assert len(expected) == len(set(EXPRESSIONS))
    compare(expected, computed(ours))


def refused(stderr: str) -> dict[int, str]:
    """Why pgbench gave up each client."""
    found = re.findall(r"^pgbench: error: (.*)\npgbench: error: client (\d+) aborted", stderr, re.M)
    return {int(client): why for why, client in found}


def value(bench: Bench, script: str, variables: tuple[tuple[str, str], ...]) -> str:
    """What we compute and send, or why we cannot."""
    try:
        [[(sql, _)]] = bench.ours(one(script, variables=variables))
    except ScriptError as error:
        return error.message.removeprefix("script0:1: ")
    return sql


def test_what_pgbench_cannot_compute_we_cannot_either_and_say_it_alike(bench):
    scripts = {e: f"\\set x {e}\nSELECT :x;\n" for e in table("failing.txt")}
    variables = tuple(v for v in GIVEN if v[1])
    said = refused(bench.pgbench(together(scripts.values(), variables=variables), 2).stderr)
    theirs = {expression: said.get(n) for n, expression in enumerate(scripts)}
    assert None not in theirs.values()
    bench.statements()
    compare(theirs, {e: value(bench, script, variables) for e, script in scripts.items()})


@pytest.mark.parametrize("expression", ["true = true", "true <> false", "true != true"])
def test_booleans_can_be_compared_which_pgbench_cannot(bench, expression):
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


def test_a_text_from_the_command_line_becomes_the_value_that_pgbench_makes_of_it(bench):
    variables = {text: (f"v{n}", text) for n, text in enumerate(TEXTS)}
    scripts = {text: f"\\set x :{name}\nSELECT ':x';\n" for text, (name, _) in variables.items()}
    case = together(scripts.values(), variables=tuple(variables.values()))
    said = refused(bench.pgbench(case, 2).stderr)
    sent = {number_of(client): client[1:] for client in bench.statements()}
    theirs = {text: said[n] if n in said else sent[n][0][0] for n, text in enumerate(scripts)}
    assert said
    assert sent
    compare(theirs, {t: value(bench, script, (variables[t],)) for t, script in scripts.items()})


def test_an_empty_text_has_no_value(start_load, fake_server):
    """pgbench refuses it on the command line, but \\gset can find one."""
    load = start_load(fake_server().dsn(), "\\set x :v\n", clients=1, variables=[("v", "")])
    with pytest.raises(ScriptError, match='malformed variable "v" value: ""'):
        load.finish()
