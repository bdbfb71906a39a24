"""A script's SQL without a server: what the binding gives to Python, for every shipped script."""

import re

import pytest

from pgpaces.core.errors import PlanError, ScriptError
from pgpaces.core.texts import encoded
from pgpaces.load import engine
from pgpaces.spec import workload
from pgpaces.spec.workload import commands_in
from tests.errors import raises

SHIPPED = [
    pytest.param(name, script, id=f"{name}:{script.name}")
    for name in workload.shipped()
    for script in workload.find(name).scripts
]


@pytest.mark.parametrize(("name", "script"), SHIPPED)
def test_every_statement_of_a_shipped_script_is_there_with_its_values(name, script):
    variables = {"scale": "2", **workload.find(name).variables}
    found = engine.rehearse(script.name, script.text, tuple(variables.items()), seed=7)
    commands = commands_in(script.name, script.text)
    # What a server answers is not known: a statement that takes it is not there.
    answers = re.findall(r"SELECT (\w+) .*\\gset", script.text)
    assert [place for place, _ in found] == [
        n
        for n, c in enumerate(commands)
        if c.is_sql and not any(f":{a}" in c.text for a in answers)
    ]
    assert not any(f":{variable}" in sql for _, sql in found for variable in ("aid", "scale"))


def test_bytes_of_any_encoding_come_back_as_they_were_read():
    text = b"\\set n 1\nSELECT '\xe4', :n, :v;".decode("utf-8", "surrogateescape")
    value = b"\xfc".decode("utf-8", "surrogateescape")
    [(place, sql)] = engine.rehearse("a.sql", text, [("v", value)])
    assert (place, encoded(sql)) == (1, b"SELECT '\xe4', 1, \xfc;")


def test_names_need_not_be_utf_8():
    assert engine.rehearse("\udcff.sql", "SELECT :\udcff;", [("\udcff", "7")]) == [(0, "SELECT 7;")]
    with pytest.raises(ScriptError, match="\ufffd\\.sql:1: invalid command"):
        commands_in("\udcff.sql", "\\nosuch")


def test_the_seed_decides():
    text = "\\set n random(1, 1000000000)\nSELECT :n;"
    assert engine.rehearse("a", text, seed=1) == engine.rehearse("a", text, seed=1)
    assert engine.rehearse("a", text, seed=1) != engine.rehearse("a", text, seed=2)


@pytest.mark.parametrize(
    ("text", "variables", "error"),
    [
        ("\\set n 1 / 0", (), ScriptError("script-gives-up", text="a.sql:1: division by zero")),
        ("\\nosuch", (), ScriptError("script-not-parsed")),
        ("-- nothing", (), ScriptError("script-empty")),
        ("SELECT '\0';", (), ScriptError("script-has-nul")),
        ("SELECT 1;", [("1x", "")], PlanError("bad-variable-name", variable="1x")),
        ("SELECT 1;", [("v", "\0")], PlanError("variable-has-nul", variable="v")),
    ],
)
def test_what_cannot_be_rehearsed_says_why(text, variables, error):
    with raises(type(error), error.name, **error.values):
        engine.rehearse("a.sql", text, variables)


@pytest.mark.parametrize("variant", ["triggers", "log"])
@pytest.mark.parametrize(("hot", "scale", "most"), [("0", "1", 100_000), ("7", "50", 7)])
def test_hot_narrows_the_sensors_that_are_touched(variant, hot, scale, most):
    [script] = workload.find(f"sensor/{variant}").scripts
    given = (("hot", hot), ("scale", scale))
    ids = []
    for seed in range(300):
        [first, *_] = engine.rehearse(script.name, script.text, given, seed=seed)
        ids.append(int(first[1].rpartition("= ")[2].rstrip(";")))
    assert min(ids) >= 1
    assert most / 2 < max(ids) <= most
