"""The catalogs agree with the code that makes findings and errors, and `explain` with both."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain

import pytest
from click.testing import CliRunner

from pgpaces.cli.main import cli
from pgpaces.core import causes, errors, messages, metrics
from pgpaces.core.errors import PlanError
from pgpaces.core.findings import Finding, catalog, filled, finding, placeholders, weight
from tests.errors import raises
from tests.folders import ROOT

CODE = ROOT / "python" / "pgpaces"
# What a sentence has in place of a value: of a usual length, by the format.
SAMPLES = {"ms": 123.4, "s": 31.4, "moment": 75, "percent": 99.5, "rate": 1234.5, "size": 15.3e6,
           ",": 1302, "": "x", ".1%": 0.123, ".0f": 81.0, ".1f": 12.3, ".3f": 1.05,
           "+,.0f": -3_600_000.0, "+.1f": -12.3, ",.1f": 3595.5, "shares": {"x": 0.2}}  # fmt: skip
ENGINE = [p for p in (ROOT / "crates/engine/src").rglob("*.rs") if "tests" not in str(p)]
OTHERS = ast.Starred | ast.Call | ast.JoinedStr | ast.NamedExpr


@pytest.fixture(scope="module")
def engine() -> str:
    """The code of the engine without its tests, which make nothing."""
    texts = (path.read_text("utf-8") for path in ENGINE)
    return "".join(text.partition("#[cfg(test)]\nmod tests {")[0] for text in texts)


@pytest.fixture(scope="module")
def code(engine) -> str:
    return "".join((*(path.read_text("utf-8") for path in CODE.rglob("*.py")), engine))


@cache
def nodes() -> list[ast.AST]:
    trees = (ast.parse(path.read_text("utf-8")) for path in CODE.rglob("*.py"))
    return [node for tree in trees for node in ast.walk(tree)]


def made(*makers: str) -> Iterator[tuple[str, set[str], bool, bool]]:
    """Names that calls of these give, each with the values there, and whether there are more.

    The last: whether one of two names is chosen, so that a value may be of the other.
    """
    for node in (each for each in nodes() if isinstance(each, ast.Call)):
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if called not in makers or not node.args or isinstance(node.args[0], OTHERS):
            continue
        values = {each.arg for each in node.keywords if each.arg}
        name = re.sub(r"if .* else", "", ast.unparse(node.args[0]))
        for found in re.findall(r"'([a-z0-9-]+)'", name):
            several = any(each.arg is None for each in node.keywords)
            yield found, values, several, isinstance(node.args[0], ast.IfExp)


def needed(name: str) -> tuple[set[str], set[str]]:
    """The values that the sentence needs, and those that all texts of the entry have."""
    if name in catalog():
        entry = catalog()[name]
        every = placeholders(f"{entry.sentence} {entry.means} {entry.do}")
        return every, every
    if name in (observations := causes.catalog().observations):
        return placeholders(observations[name]), placeholders(observations[name])
    error = errors.catalog().get(name) or {"sentence": [messages.catalog()[name]]}
    least = placeholders(error["sentence"][0])
    return least, least.union(*map(placeholders, error.get("hint", ())))


MAKERS = ("finding", "message", "said", "announce", "StoppedError")
CLASSES = [*(name for name in vars(errors) if name.endswith("Error")), "UnusableError"]


def test_a_finding_an_error_or_a_message_has_the_values_that_its_texts_need():
    for name, values, more, chosen in made(*MAKERS, *CLASSES):
        least, every = needed(name)
        assert chosen or values <= every, name
        assert more or least <= values, name


def test_metrics_that_code_names_have_entries_and_every_entry_is_used(code):
    functions = "metric|title|axis|header|number|shown|column|metric_cell"
    found = {*re.findall(rf'(?<![.\w])(?:metrics\.)?(?:{functions})\("([a-z][\w.]*)"', code)}
    assert {"throughput", "missed", "p99"} <= found <= {*metrics.catalog()}
    assert not {*metrics.catalog()} & {*catalog(), *errors.catalog()}
    for name, entry in metrics.catalog().items():
        assert f'"{name}"' in code, name
        assert re.fullmatch(r"(\S+ ){2,24}\S+\.", entry.about)


def test_a_name_is_made_by_code_and_that_of_a_finding_or_an_error_is_named_in_a_test(engine):
    """What code only compares with is not made."""
    paths = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "crates/engine").rglob("*.rs")]
    texts = [path.read_text("utf-8") for path in paths if "tests" in str(path.relative_to(ROOT))]
    texts += [path.read_text("utf-8").partition("\nmod tests {")[2] for path in ENGINE]
    text = "".join(texts)
    named = {*re.findall(r"(?<![\w-])[a-z0-9]+(?:-[a-z0-9]+)*(?![\w-])", text)}
    catalogs = (
        catalog(), errors.catalog(), messages.catalog(), causes.catalog().observations,
    )  # fmt: skip
    compared = {
        id(part) for node in nodes() if isinstance(node, ast.Compare) for part in ast.walk(node)
    }
    said = {n.value for n in nodes() if isinstance(n, ast.Constant) and id(n) not in compared}
    said.update(re.findall(r'(?<!== )"([a-z0-9-]+)"', engine))
    for name in chain(*catalogs):
        assert name in said, name
        assert sum(name in each for each in catalogs) == 1, name
        assert name not in catalog() or f'"{name}"' in text or f"{name}: " in text, name
        assert name not in errors.catalog() or name in named, name


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


@pytest.mark.parametrize(
    ("form", "pair", "text"),
    [("share", (0.001, 0.015), "0.1–1.5%"), ("s", (2.1, 3.4), "2.1–3.4 s"),
     ("s", (95, 130), "95 s–2 min 10 s"), ("s", (0.5, 2), "500 ms–2 s"),
     ("number", (3.0, float("inf")), "over 3")],
)  # fmt: skip
def test_the_ends_of_an_interval_share_their_unit_if_they_have_the_same(form, pair, text):
    assert filled(f"{{it:ends {form}}}", {"it": pair}) == text
    assert filled(f"a{{it:ci {form}}}", {"it": pair}) == f"a (95% CI {text})"
    assert filled(f"a{{it:ci {form}}}", {"it": None}) == "a"


def test_explain_prints_an_entry_lists_all_and_suggests_the_nearest_name():
    def explain(*words: str) -> str:
        return CliRunner(catch_exceptions=False).invoke(cli, ["explain", *words]).stdout

    listed = [line.split()[0] for line in explain().splitlines()]
    reasons = [f"cause-{key}" for key in causes.catalog().causes]
    assert listed == [*catalog(), *errors.catalog(), *metrics.catalog(), *reasons]
    assert "What to do: use a longer warm-up" in explain("cache-warming")
    assert "Better: lower" in explain("p95")
    assert [each["name"] for each in json.loads(explain("--json"))] == listed
    with raises(PlanError, "unknown-name", name="cpu-stel", near="cpu-steal"):
        explain("cpu-stel")
