"""The catalog of findings agrees with the code that makes them, and `pgpaces explain` with both."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import pgpaces
from pgpaces.cli.main import cli
from pgpaces.core.errors import PlanError
from pgpaces.core.findings import Finding, catalog, filled, finding, placeholders, weight
from tests.errors import raises
from tests.folders import ROOT

CODE = Path(pgpaces.__file__).parent
# What a sentence has in place of a value: of a usual length, by the format.
SAMPLES = {"ms": 123.4, "s": 31.4, "moment": 75, "percent": 99.5, "rate": 1234.5, "size": 15.3e6,
           ",": 1302, "": "x", ".0f": 81.0, ".1f": 12.3, ".3f": 1.05,
           "+,.0f": -3_600_000.0, ",.1f": 3595.5}  # fmt: skip


def made() -> Iterator[tuple[str, set[str], bool]]:
    """Names that code gives to findings, each with the values there, and whether there are more."""
    for path in CODE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "finding":
                continue
            named = [n.value for n in ast.walk(node.args[0]) if isinstance(n, ast.Constant)]
            values = {each.arg for each in node.keywords if each.arg}
            for name in named:
                yield name, values, any(each.arg is None for each in node.keywords)


def needed(name: str) -> set[str]:
    entry = catalog()[name]
    return placeholders(f"{entry.sentence} {entry.means} {entry.do}")


@pytest.mark.parametrize(("name", "values", "more"), [*made()])
def test_a_finding_has_the_values_that_its_texts_need(name, values, more):
    assert values <= needed(name)
    assert more or needed(name) <= values


@pytest.mark.parametrize("name", catalog())
def test_a_name_is_made_by_code_and_named_in_a_test(name):
    everything = "".join(path.read_text("utf-8") for path in CODE.rglob("*.py"))
    assert f'"{name}"' in everything
    tests = (path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert any(f'"{name}"' in text or f"{name}: " in text for text in tests)


@pytest.mark.parametrize("name", catalog())
def test_a_sentence_fits_on_a_line_and_says_what_to_do_where_the_trial_is_invalid(name):
    entry = catalog()[name]
    samples = {}
    for part in entry.sentence.split("{")[1:]:
        key, _, spec = part.partition("}")[0].partition(":")
        samples[key] = SAMPLES[spec]
    assert len(filled(entry.sentence, samples)) <= 76
    assert entry.do or entry.severity != "invalid"
    assert not entry.do.endswith(".")
    assert entry.means.endswith(".")


def test_a_name_that_this_version_does_not_know_is_shown_with_its_values():
    unknown = Finding("unheard-of", {"waited_s": 3.0, "share_percent": 12.5, "wal_bytes": 3e6})
    assert str(unknown) == "unheard-of: waited 3 s, share 12.5%, wal 3 MB"
    assert (unknown.severity, unknown.advice) == ("caution", "")
    assert sorted([unknown, Finding("too-hot")], key=weight)[0].name == "too-hot"


def test_a_value_that_is_unknown_or_no_number_is_said_to_be_unknown():
    lag = finding("standby-lag", "b", mean_bytes=float("nan"), max_bytes=None)
    assert str(lag) == "standby-lag: b: replay lag unknown on average, at most unknown"
    json.dumps(lag.values, allow_nan=False)


def test_explain_prints_an_entry_lists_all_and_suggests_the_nearest_name():
    def explain(*words: str) -> str:
        return CliRunner(catch_exceptions=False).invoke(cli, ["explain", *words]).stdout

    listed = [line.split()[0] for line in explain().splitlines()]
    assert listed == [*catalog()]
    assert "What to do: use a longer warm-up" in explain("cache-warming")
    assert {each["name"] for each in json.loads(explain("--json"))} == {*catalog()}
    with raises(PlanError, "unknown-finding", finding="cpu-stel", near="cpu-steal"):
        explain("cpu-stel")
