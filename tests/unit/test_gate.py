"""What a verdict leaves for continuous integration."""

import os
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from pgpaces.cli.compare import check, compare
from pgpaces.core.findings import finding
from pgpaces.show import ci, markdown
from pgpaces.show.section import Headline, Section, Table, TableCell
from pgpaces.store.store import Store
from tests.errors import sentence
from tests.unit.calling import refused
from tests.unit.documented import parsed
from tests.unit.stored import Kept, keep, keep_trial, opened
from tests.unit.trials import second

ROOT = Path(__file__).parents[2]
MAIN = "after is 12% worse than before: 5, 10 or\n20 tx/s"
LEFT_OUT = finding("trials-left-out", count=4)
ROW = tuple(TableCell(text) for text in ("rate", "100 <b>", "88"))
TABLE = Table("metrics", "Metrics", ("metric", "before", "after"), 1, (ROW,))


def verdict(word, mark):
    top = Headline(word, mark, "after against before, 24 pairs")
    title, found = "after against before", (LEFT_OUT,)
    return Section("comparison", title, MAIN, (TABLE,), headline=top, findings=found)


def case_of(content):
    suites = ElementTree.fromstring(content)
    case = suites.find("testsuite/testcase")
    assert case is not None
    return case


@pytest.mark.parametrize(
    ("word", "mark", "element"),
    [
        ("WORSE", "fail", "failure"),
        ("UNKNOWN", "unknown", "error"),
        ("BETTER", "pass", None),
        ("SAME", "pass", None),
    ],
)
def test_junit_has_a_failure_where_it_is_worse_and_an_error_where_nothing_is_decided(
    word, mark, element
):
    content = ci.junit(verdict(word, mark), "the screen")
    case = case_of(content)
    assert [child.tag for child in case] == [*([element] if element else []), "system-out"]
    suite = ElementTree.fromstring(content).find("testsuite")
    assert int(suite.get("failures", "")) + int(suite.get("errors", "")) == bool(element)
    assert case.get("classname") == "pgpaces.comparison"
    assert case.get("name") == "after against before"
    assert case.findtext("system-out") == "the screen"
    if element:
        reason = case.find(element)
        assert reason.get("type") == word.lower()
        assert reason.get("message", "").startswith("after is 12% worse than before")
        assert str(LEFT_OUT) in (reason.text or "")


def test_what_xml_cannot_hold_is_named_in_junit():
    content = ci.junit(verdict("WORSE", "fail"), "a\x1b[31m\x00<b>&\ud800\uffff")
    assert case_of(content).findtext("system-out") == "a\\x1b[31m\\x00<b>&\\ud800\\uffff"


@pytest.mark.parametrize(
    ("mark", "level"),
    [("fail", "error"), ("unknown", "warning"), ("pass", "notice")],
)
def test_an_annotation_is_one_line_that_no_text_can_forge(mark, level):
    said = ci.annotation(verdict("A: b, c", mark))
    assert said == (
        f"::{level} title=pgpaces%3A a%3A b%2C c::after is 12%25 worse than before: 5, 10 or 20"
        " tx/s"
    )


def test_a_summary_begins_with_the_verdict_and_folds_its_tables():
    made = markdown.summary(verdict("WORSE", "fail"))
    assert made.startswith("## ❌ WORSE: after against before, 24 pairs\n")
    assert "<details><summary>Metrics</summary>\n\n| metric | before | after |" in made
    assert "100 &lt;b&gt;" in made
    assert made.endswith("\n\n")


@pytest.fixture
def store(tmp_path):
    """Five runs of a baseline, and one that took three times as long."""
    place = opened(tmp_path)
    for number in range(5):
        keep(place, Kept(f"01G{number}", ms=10 + number / 10, at=number))
        place.tag("good", f"01G{number}")
    keep(place, Kept("01SLOW", ms=30.0, at=9.0))
    return tmp_path / "results.db"


def checked(store, *words):
    line = ["01SLOW", "--baseline", "good", "--metric", "mean", "--store", str(store), *words]
    return CliRunner().invoke(check, line, standalone_mode=False)


def test_check_writes_both_files_and_appends_to_the_summary(store, tmp_path):
    junit, summary = tmp_path / "junit.xml", tmp_path / "summary.md"
    summary.write_text("before\n")
    result = checked(store, "--junit", str(junit), "--summary", str(summary))
    assert result.return_value == 30, result.output
    assert case_of(junit.read_bytes()).find("failure") is not None
    assert summary.read_text().startswith("before\n## ❌ WORSE: ")
    assert "::error" not in result.stderr


def test_junit_has_no_colors_where_the_terminal_has_them(store, tmp_path, monkeypatch):
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "WORSE" in checked(store, "--junit", str(tmp_path / "junit.xml")).stdout
    text = case_of((tmp_path / "junit.xml").read_bytes()).findtext("system-out")
    assert text.startswith("✗ WORSE")
    error = refused(checked(store, "--junit", str(tmp_path / "absent" / "junit.xml")))
    assert (error.name, error.values["path"].name) == ("cannot-write-report", "junit.xml")


def test_an_annotation_is_only_for_github_and_leaves_stdout_alone(store, monkeypatch):
    plain = checked(store, "--json")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = checked(store, "--json")
    assert result.stdout == plain.stdout
    assert result.stderr.startswith("::error title=pgpaces%3A worse::")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--gate",), 32)])
def test_a_comparison_ends_with_its_verdict_only_as_a_gate(words, code, store):
    line = ["good", "01SLOW", "--metric", "mean", "--store", str(store), *words]
    result = CliRunner().invoke(compare, line, standalone_mode=False)
    assert (result.return_value, result.exception) in [(code, None)], result.output


@pytest.mark.parametrize(
    ("ended", "unknown", "code", "verdict"),
    [
        (0, "pass", 0, "good"),
        (30, "pass", 30, "worse"),
        (32, "pass", 0, "unknown"),
        (32, "fail", 32, "unknown"),
        (5, "pass", 5, "none"),
    ],
)
def test_the_step_of_the_action_ends_as_its_comparison(ended, unknown, code, verdict, tmp_path):
    stub = tmp_path / "bin" / "pgpaces"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{tmp_path}/words"\nexit {ended}\n')
    stub.chmod(0o755)
    job = {"RUNNER_TEMP": tmp_path, "GITHUB_STEP_SUMMARY": tmp_path / "summary.md"}
    job |= {"GITHUB_OUTPUT": tmp_path / "output", "UNKNOWN": unknown}
    job |= {"WORKLOAD": "./a shop", "A": "variant=base", "B": "variant=head", "METRIC": "mean"}
    job |= {"DELTA": "10%", "PAIRS": "24", "ARGUMENTS": "--clients 2\n-T  5s\n"}
    done = subprocess.run(
        [ROOT / "packaging" / "compare.sh"],
        env={name: str(value) for name, value in job.items()}
        | {"PATH": f"{stub.parent}:{os.environ['PATH']}"},
        check=False,
    )
    assert done.returncode == code
    [report] = tmp_path.glob("pgpaces-*")
    assert (tmp_path / "output").read_text() == f"verdict={verdict}\nreport={report}\n"
    words = (tmp_path / "words").read_text().splitlines()
    command, given = parsed(words)
    assert command.name == "compare"
    assert (given["what"], given["gate"]) == ("./a shop", True)
    assert words[-4:] == ["--clients", "2", "-T", "5s"]


@pytest.mark.parametrize(
    ("ended", "unknown", "code", "verdict"),
    [(0, "fail", 0, "safe"), (30, "pass", 30, "harmful"), (32, "fail", 32, "unknown"),
     (32, "pass", 0, "unknown"), (5, "pass", 5, "none")],
)  # fmt: skip
def test_the_step_of_the_action_rehearses_new_migrations(ended, unknown, code, verdict, tmp_path):
    stub = tmp_path / "bin" / "pgpaces"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{tmp_path}/words"\nexit {ended}\n')
    stub.chmod(0o755)
    folder = tmp_path / "shop"
    (folder / "db" / "old").mkdir(parents=True)
    job = {"RUNNER_TEMP": tmp_path, "GITHUB_STEP_SUMMARY": tmp_path / "summary.md"}
    job |= {"GITHUB_OUTPUT": tmp_path / "output", "UNKNOWN": unknown, "MIGRATIONS": "db"}
    job |= {"WORKLOAD": ".", "FROM_DATABASE": "service=shop", "ARGUMENTS": "--rate 9/s\n"}
    job |= {"PATH": f"{stub.parent}:{os.environ['PATH']}", "HOME": tmp_path, "BASE": "HEAD~1"}
    environment = {name: str(value) for name, value in job.items()}

    def shell(line: str) -> int:
        return subprocess.run(line, shell=True, check=False, cwd=folder, env=environment).returncode

    commit = "git add . && git -c user.name=n -c user.email=e@example.com commit -qm m"
    (folder / "db" / "1.sql").write_text("SELECT 1")
    assert shell(f"git init -q . && {commit} && echo 7 >other && {commit}") == 0
    step = ROOT / "packaging" / "rehearse.sh"
    assert (shell(str(step)), (tmp_path / "words").exists()) == (0, False), "there is no new one"
    assert (tmp_path / "output").read_text() == "verdict=none\n"
    for name in ("3 b.sql", "2.sql", "old/4.sql", "5.txt"):
        (folder / "db" / name).write_text("SELECT 2")
    (folder / "db" / "1.sql").write_text("SELECT 3")
    assert shell(commit) == 0
    assert shell(str(step)) == code
    command, given = parsed((tmp_path / "words").read_text().splitlines())
    assert command.name == "rehearse"
    assert given["names"] == ("db/2.sql", "db/3 b.sql", "db/old/4.sql", ".")
    assert (given["from_database"], given["rate"]) == ("service=shop", "9/s")
    [report] = tmp_path.glob("pgpaces-*")
    assert f"verdict={verdict}\nreport={report}\n" in (tmp_path / "output").read_text()


ACTIONS = {"action.yml": "compare", "rehearse/action.yml": "rehearse"}


@pytest.mark.parametrize("action", ACTIONS)
def test_the_python_of_the_action_is_not_that_of_later_steps(action):
    assert "GITHUB_PATH" not in (ROOT / action).read_text(encoding="utf-8")


@pytest.mark.parametrize("action", ACTIONS)
def test_the_action_gives_its_step_every_input_that_it_declares(action):
    text = (ROOT / action).read_text(encoding="utf-8")
    declared = re.findall(r"^  ([a-z-]+):$", text.split("\noutputs:")[0], re.MULTILINE)
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == set(declared)
    name = ACTIONS[action]
    step = (ROOT / "packaging" / f"{name}.sh").read_text(encoding="utf-8")
    given = re.findall(r"^        ([A-Z_]+): ", text.split(f"id: {name}")[1], re.MULTILINE)
    assert len(given) > 5
    for name in given:
        assert f"${{{name}:" in step, name


@pytest.mark.parametrize("command", ["compare", "check"])
def test_a_gate_does_not_pass_where_no_transaction_of_a_side_succeeded(command, store):
    """Nor is it unknown: that ends as a run in which nothing succeeded."""
    place = Store.open(store)
    failed = second(0, [], due=40, failed={"22012": 40})
    keep_trial(place, replace(place.load("01SLOW"), id="01NONE", intervals=(failed,)))
    words = {"compare": ["good", "01NONE", "--gate"], "check": ["01NONE", "--baseline", "good"]}
    line = [*words[command], "--anyway", "--metric", "mean", "--store", str(store)]
    main = {"compare": compare, "check": check}[command]
    result = CliRunner().invoke(main, line, standalone_mode=False)
    assert result.return_value == 5, result.output
    why = "every transaction failed (40): 22012"
    said = " ".join(result.stderr.split())
    assert sentence("no-measurement", group="01NONE", why=why) in said
    answer = " ".join(result.stdout.split())
    told = finding("side-without-valid-trial", "01NONE", count=1, why=why)
    assert str(told) in answer
    assert command == "check" or "01NONE vs. good, trials: 0 vs. 5" in answer
