"""Programs that make data: what they are given, and what data is known by that they made."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.core.errors import PlanError, RunError
from pgpaces.database import inputs, programs, psql
from pgpaces.database.inputs import filled, named, user_path
from pgpaces.spec import workload
from tests.errors import raises

WAY = psql.ClientProgram(
    Path("/opt/pg/bin/psql"), {"host": "/tmp/a b", "user": "u", "password": "geheim"}, "d"
)
VALUES = {"scale": "2", "seed": "1", "hot": "5"}


def of(tmp_path: Path, *steps: str) -> workload.Workload:
    made = tmp_path / "mine"
    made.mkdir(exist_ok=True)
    toml = f'description = "d"\ninit = [{", ".join(steps)}]\n[[scripts]]\nfile = "s.sql"\n'
    (made / "workload.toml").write_text(toml)
    (made / "s.sql").write_text("SELECT 1;")
    return workload.read(made)


def test_words_and_variables_lead_to_the_database_without_a_password(tmp_path):
    run = ("sh", "{dsn}", "{scratch}/{scale}.txt", "{hot}")
    with programs.program_environment(WAY, of(tmp_path), VALUES, say=print) as found:
        order = found.order("it", run)
        assert order.words == (
            "sh",
            "host='/tmp/a b' user=u dbname=d",
            f"{found.scratch}/2.txt",
            "5",
        )
        assert order.variables["PGPACES_HOT"] == "5"
        assert order.variables["PATH"].startswith(f"/opt/pg/bin{os.pathsep}")
        assert "geheim" not in repr(order) + repr(order.words) + repr(order.variables)
        assert order.shown("so it is: geheim") == "so it is: ***"
        assert found.scratch.is_dir()
        hidden = found.order("it", "echo", frozenset({"hot"})).variables
        assert ("PGPACES_HOT" in hidden, hidden["PGPACES_SCALE"]) == (False, "2")
    assert not found.scratch.exists()


def test_what_nobody_knows_is_refused_with_what_is_known(tmp_path):
    with programs.program_environment(WAY, of(tmp_path), VALUES, say=print) as found:
        with raises(PlanError, "unknown-command-value", word="{hott}", value="{hott}") as error:
            found.order("it", ("sh", "{hott}"))
        assert "{hot}" in error.value.values["known"]
        with raises(RunError, "program-not-found", program="nowhere-at-all"):
            found.order("it", ("nowhere-at-all",))


@pytest.mark.parametrize(
    ("run", "names"),
    [
        (("load", "{hot}", "x{scale}y{scale}"), {"hot", "scale"}),
        ('load "$PGPACES_HOT" ${PGPACES_SCRATCH}/x', {"hot", "scratch"}),
        ("awk '{print}'", set()),
        (("sh", "-c", "echo $PGPACES_Seed_1 $PGPACES_HOT_2"), {"hot_2"}),
    ],
)
def test_what_a_program_names_is_found(run, names):
    assert named(run) - {"s"} == names


@given(st.text(alphabet="ab{} ", max_size=12), st.text(alphabet="ab{} ", max_size=5))
def test_a_word_without_a_placeholder_stays_and_values_are_not_looked_at(text, value):
    values = {"a": value, "b": "{a}", "aa": "", "ab": "", "ba": "", "bb": ""}
    if not named((text,)) <= values.keys():
        return
    assert filled(text, {name: f"{{{name}}}" for name in values}) == text
    assert filled("{b}", values) == "{a}"


def test_data_is_known_by_what_its_programs_read(tmp_path):
    step = '{ run = ["sh", "make.sh", "{hot}", "{scratch}/x"], input = ["*.csv"] }'
    found = of(tmp_path, step)
    script, table = found.folder / "make.sh", found.folder / "a.csv"
    script.write_text("true")
    table.write_text("1,2")
    seen = [inputs.identity(found, VALUES)]
    script.write_text("fals")  # as long as before
    seen.append(inputs.identity(found, VALUES))
    table.write_text("1,3")
    seen.append(inputs.identity(found, VALUES))
    (found.folder / "b.csv").write_text("1")
    seen.append(inputs.identity(found, VALUES))
    seen.append(inputs.identity(found, {**VALUES, "hot": "6"}))
    assert len(set(seen)) == len(seen)
    assert inputs.identity(found, {**VALUES, "hot": "6", "cold": "7"}) == seen[-1]
    os.utime(table)
    assert inputs.identity(found, {**VALUES, "hot": "6"}) == seen[-1]
    for values in ({}, VALUES):
        assert inputs.identity(of(tmp_path), values) == "", "no program reads anything"
    missing = of(tmp_path, '{ run = "load", input = ["*.pbf"] }')
    with raises(RunError, "input-matches-nothing", pattern="*.pbf"):
        inputs.identity(missing, VALUES)
    file = workload.DataFile("p==1", "p/m", "0" * 64, "map")
    with raises(RunError, "data-file-missing", variable="map"):
        user_path(file, {"map": str(tmp_path / ("m" * 300))})


@pytest.mark.parametrize("word", ["true; " * 100, "/" + "a" * 300, "a\\u0000b"])
def test_a_word_that_can_be_no_files_name_is_none(tmp_path, word):
    found = of(tmp_path, f'{{ run = ["sh", "-c", "{word}"] }}')
    assert inputs.identity(found, VALUES)


@pytest.mark.parametrize("name", ["a [b]", "it's ?", "every*"])
def test_patterns_are_of_names_in_the_folder_whatever_it_is_called(tmp_path, name):
    (folder := tmp_path / name).mkdir()
    for file in ("1.csv", "2.csv", "[x].csv"):
        (folder / file).touch()
    assert {path.name for path in inputs.matching(["[12].csv"], folder)} == {"1.csv", "2.csv"}
    for pattern in ("[x].csv", str(folder / "[x].csv"), f"../{name}/[x].csv"):
        assert inputs.matching([pattern], folder) == {folder / "[x].csv"}


@pytest.mark.parametrize("pattern", ["", "/", ".", "a**b", "none-*"])
def test_patterns_that_name_no_file_are_refused(tmp_path, pattern):
    with raises(RunError, "input-matches-nothing", pattern=pattern):
        inputs.matching([pattern], tmp_path)


def test_a_home_that_holds_no_cache_is_told(tmp_path, monkeypatch):
    (tmp_path / "home").touch()
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    with (
        programs.program_environment(WAY, of(tmp_path), VALUES, say=print) as found,
        raises(RunError, "home-unusable", path=tmp_path / "home/cache/workloads/mine"),
    ):
        found.order("it", ("sh", "{cache}"))
