"""Experiment files and command lines: what is asked for, and what is wrong with it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.core.errors import PlanError
from pgpaces.spec import experiment_file, options, spec, workload
from pgpaces.spec.design import Design, Experiment
from pgpaces.spec.load import trial_plan
from pgpaces.spec.spec import complete, read
from pgpaces.trial import document
from pgpaces.trial.request import request_of
from tests.errors import raises
from tests.unit import experiments

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [*ROOT.glob("examples/*.toml"), experiment_file.TEMPLATE]


def written(tmp_path, text):
    path = tmp_path / "some.toml"
    path.write_text(text, encoding="utf-8")
    return experiment_file.read(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_an_experiment(path):
    experiment = experiment_file.read(path).checked()
    for cell in experiment.design.cells():
        trial_plan(complete(read({**experiment.design.fixed, **dict(cell.levels)}), {}))


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("factors = {clents = [1]}", "unknown-factor", {"factor": "clents", "near": "clients"}),
        ("ratee = '1/s'", "unknown-key", {"key": "ratee", "near": "rate"}),
        ("factors = {clients = 3}", "factor-not-a-list", {"factor": "clients", "value": 3}),
        ("factors = {clients = []}", "no-levels", {"factor": "clients"}),
        ("factors = {clients = [[]]}", "not-a-level", {"key": "clients", "value": []}),
        ("clients = [1, 2]", "levels-outside-factors", {"key": "clients", "value": [1, 2]}),
        ("clients = 1\nfactors = {clients = [2]}", "factor-twice", {"factor": "clients"}),
        ("trials = '3'", "wrong-value", {"key": "trials"}),
        ("trials = 0", "wrong-value", {"key": "trials"}),
        ("missed = '120%'", "not-a-share", {"what": "missed", "value": "120%", "example": "5%"}),
        ("missed = '0%'", "zero-share", {"what": "missed", "value": "0%"}),
        ("missed = 5", "wrong-value", {"key": "missed", "example": 'missed = "5%"'}),
        ("targets = {a = {dns = 'x'}}", "unknown-key", {"key": "targets.a.dns", "near": "dsn"}),
        ("targets = {a = {dsn = 'x', kindd = 'y'}}", "unknown-key", {"key": "targets.a.kindd"}),
        ("workload = 'w'\nfactors = {target = ['pi4']}", "undefined-target", {"level": "pi4"}),
        ("workload = 'w'\nprofile = 'big'", "undefined-profile", {"level": "big"}),
        ("factors = {clients = [1]}", "no-workload", {}),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path, text, name, values):
    with raises(PlanError, name, **values) as caught:
        written(tmp_path, text).checked()
    assert ("some.toml" in caught.value.about) is ("workload" not in text + name)
    with pytest.raises(PlanError, match=r"some\.toml.*TOML"):
        written(tmp_path, "x = ")


@pytest.mark.parametrize(
    ("given_levels", "name", "values"),
    [
        ({"policy": "skip", "rate": "1/s"}, "skip-needs-limits", {}),
        ({"policy": "skip"}, "skip-needs-rate", {}),
        ({"shape": "day"}, "shape-needs-rate", {"shape": "day"}),
        ({"shape": "ramp:0:9", "rate": "2e6"}, "shape-too-high", {"peak": 18e6}),
        ({"shape": "day", "rate": "1", "transactions": "1"}, "shape-needs-duration", {}),
        ({"start_every": "1s", "rate": "1"}, "start-every-of-open-load", {}),
        ({"start_every": "2min", "clients": "2"}, "last-client-too-late", {"last_s": 120}),
        ({"generators": "2", "clients": "1"}, "generators-above-clients", {"generators": 2}),
        ({"cluster": "pi1"}, "not-a-scheduler", {"address": "pi1"}),
        ({"scripts": ""}, "no-scripts", {}),
        ({"users": "4"}, "users-need-pace", {}),
        ({"rate": "1", "users": "1"}, "cannot-combine", {"options": ["--rate", "--users"]}),
        ({"describe": "maybe"}, "not-a-choice", {"value": "maybe"}),
        ({"scripts": "a@x"}, "not-a-number", {"what": "weight", "value": "x"}),
        ({"set": "1"}, "unknown-factor", {"factor": "set"}),
        ({"set.": "1"}, "unknown-factor", {"factor": "set."}),
    ],
)
def test_a_level_that_a_factor_cannot_take_is_said(given_levels, name, values):
    with raises(PlanError, name, **values):
        request_of(given_levels, workload.of_scripts("w", ()))


@pytest.mark.parametrize(
    ("kind", "text"), [(options.SCRIPTS, ""), (options.SCRIPTS, "a@x"), (options.FOLDER, "here")]
)
def test_a_wrong_text_is_said_with_its_option(kind, text):
    with pytest.raises(PlanError, match=r"^--option: "):
        kind.read(text, "--option")


@pytest.mark.parametrize("text", ["", "5", "-1%", "100%", "nan", "inf%"])
def test_what_is_no_share_is_refused(text):
    read = options.SHARE.read
    assert (read("5%", "missed"), read("0.05", "missed"), read("0", "missed")) == (0.05, 0.05, 0)
    with raises(PlanError, "not-a-share", what="missed", value=text):
        read(text, "missed")


@given(st.lists(st.text(st.characters(exclude_characters="\\"), min_size=1), min_size=1))
def test_levels_are_split_at_commas_that_are_not_escaped(texts):
    stripped = tuple(text.strip() for text in texts)
    written = ",".join(text.replace(",", r"\,") for text in texts)
    assert spec.split(written) == stripped


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ssh:pi1,pi2", ("ssh:pi1,pi2",)),
        ("1,2,ssh:pi1,me@pi2,4", ("1", "2", "ssh:pi1,me@pi2", "4")),
        ("ssh:pi1,ssh:pi1,pi2", ("ssh:pi1", "ssh:pi1,pi2")),
        ("generators=ssh:pi1,pi2,clients=4", ("generators=ssh:pi1,pi2", "clients=4")),
    ],
)
def test_hosts_of_generators_are_one_level(text, expected):
    assert spec.split(text) == expected


COMMAND_LINE = [
    ({"clients": ("1", "2")}, {"clients": ("8",)}, []),
    ({"clients": ("1", "2")}, {"clients": ("8", "9")}, ["clients"]),
    ({"rate": ("1/s",), "scale": ("1", "2")}, {"server": ("15", "18")}, ["scale", "server"]),
]


@pytest.mark.parametrize(("before", "given_levels", "factors"), COMMAND_LINE)
def test_the_command_line_goes_before_the_file(before, given_levels, factors):
    merged = Experiment("", "w", Design(before)).with_levels(given_levels)
    assert [factor.name for factor in merged.design.factors] == factors


def test_another_kind_of_load_replaces_the_files():
    design = Design({"users": ("4",), "pace": ("1/s",)})
    merged = Experiment("", "w", design).with_levels({"rate": ("9/s",), "clients": ("2",)})
    assert merged.design.levels == {"rate": ("9/s",), "clients": ("2",)}


def test_what_is_excluded_follows_levels_that_were_replaced():
    excluded = ({"clients": "1", "scale": "9"}, {"clients": "2", "scale": "9"})
    levels = {"clients": ("1", "2"), "scale": ("1", "9")}
    found = Experiment("", "w", Design(levels, exclude=excluded))
    one = found.with_levels({"clients": ("2",)})
    assert [dict(cell.levels) for cell in one.design.cells()] == [{"scale": "1"}]
    others = found.with_levels({"clients": ("4", "8")})
    assert others.design.exclude == ()
    assert len(others.design.cells()) == 4


def test_a_new_file_is_written_once(tmp_path):
    experiment_file.create(tmp_path / "new.toml")
    assert experiment_file.read(tmp_path / "new.toml").checked().design.factors
    with raises(PlanError, "file-exists", path=tmp_path / "new.toml"):
        experiment_file.create(tmp_path / "new.toml")


def test_a_stored_experiment_is_read_as_it_was_written():
    asked = experiments.experiment()
    assert document.read(document.write(asked, "", "")).experiment == asked


def test_a_number_keeps_its_digits(tmp_path):
    made = written(
        tmp_path, "workload = 'w'\nrate = 1234567.5\n[factors]\ndefine.x = [0.1234567, 1e6]"
    )
    assert made.design.levels["rate"] == ("1234567.5",)
    assert made.design.levels["define.x"] == ("0.1234567", "1e+06")


def test_paths_of_background_workloads_are_relative_to_the_file_in_every_table(tmp_path):
    text = """workload = "w"
exclude = [{background = {r = {workload = "./a"}}}]
cells = [{background = {r = {workload = "./b"}}}]
quick = {background = {r = {workload = "./c"}}}
[factors.background.r]
workload = ["./a", "./d"]
"""
    made = written(tmp_path, text)
    [excluded], [extra], quick = made.design.exclude, made.design.extra, made.quick or {}
    name = "background.r.workload"
    assert excluded[name] == made.design.levels[name][0] == str(tmp_path / "a")
    assert (extra[name], quick[name]) == (str(tmp_path / "b"), str(tmp_path / "c"))


def test_the_grid_of_single_levels_is_a_cell_beside_the_others(tmp_path):
    cells = "[[cells]]\nclients = 16\n"
    for text, expected in (
        ("[factors]\nclients = [8]\n", ["8", "16"]),
        ("clients = 8\n", ["16"]),
    ):
        design = written(tmp_path, f"workload = 'w'\n{text}{cells}").design
        assert [dict(cell.levels)["clients"] for cell in design.cells()] == expected


def test_a_variant_of_a_shipped_workload_is_no_path(tmp_path):
    assert written(tmp_path, "workload = 'garden/scripts'").workload == "garden/scripts"
    (tmp_path / "garden").mkdir()
    assert written(tmp_path, "workload = 'garden/x'").workload == str(tmp_path / "garden" / "x")


def test_a_home_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(PlanError, match="'~no-such-user' in '~no-such-user/x' is not a home"):
        written(tmp_path, "workload = '~no-such-user/x'")
    with raises(PlanError, "not-an-integer", what="quick.trials", value="²"):
        written(tmp_path, "workload = 'w'\nquick = {trials = '²'}").quickly()
