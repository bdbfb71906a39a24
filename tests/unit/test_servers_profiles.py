"""Profiles: files, names, and what fits a server."""

import pytest

from pgpaces.core.errors import PlanError
from pgpaces.server import profiles
from pgpaces.spec.design import Experiment
from tests.errors import raises


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    """The folder of the user's profiles."""
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    folder = tmp_path / "profiles"
    folder.mkdir()
    return folder


def test_the_shipped_profiles_can_all_be_read_and_say_what_they_are_for(own):
    (own / "my board.toml").write_text("[settings]\n")
    (own / "folder.toml").mkdir()
    assert profiles.names() == ["default", "pi-1gb", "pi-4gb", "small-cloud"]
    assert all(profiles.find(name).about for name in profiles.names())


def test_a_profile_of_the_users_goes_before_a_shipped_one(own):
    for name, text in {
        "pi-4gb": 'work_mem = "8MB"',
        "mine": "jit = false\nauto_explain.log_analyze = true\nrandom_page_cost = 1.5",
        "default": "jit = false",
    }.items():
        (own / f"{name}.toml").write_text(f"[settings]\n{text}\n")
    mine = {"jit": "off", "auto_explain.log_analyze": "on", "random_page_cost": "1.5"}
    assert profiles.find("pi-4gb").settings == {"work_mem": "8MB"}
    assert profiles.find("mine").settings == profiles.find(str(own / "mine.toml")).settings == mine
    assert profiles.find("default").settings == {}, "always"
    assert "mine" in profiles.names()


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("shared_buffers = '1GB'", "unknown-key", {"key": "shared_buffers"}),
        ("[settings]\nwork_mem = [1]", "bad-setting-value", {"setting": "work_mem"}),
        ("[settings]\n'a b' = 1", "bad-setting-value", {"setting": "a b"}),
        ("settings = 1", "not-a-profile", {}),
        ("[settings", "not-toml", {}),
    ],
)
def test_what_is_no_profile_is_refused(tmp_path, text, name, values):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with raises(PlanError, name, **values):
        profiles.find(str(path))


@pytest.mark.parametrize("name", ["pi-4g", "../x", "absent.toml", "a/b", ""])
def test_an_unknown_profile_is_refused_with_those_there_are(name):
    with raises(PlanError, "unknown-profile", profile=name) as caught:
        profiles.find(name)
    assert "pi-4gb" in (caught.value.hint or "")
    assert profiles.ready_made(name) is None


def experiment_of(*levels: str, own: dict[str, dict[str, str]] | None = None) -> object:
    draft = Experiment(workload="select-only", profiles=own or {})
    return draft.with_levels({"profile": levels}).checked(profiles.ready_made).profiles


def test_an_experiment_keeps_the_settings_of_the_profiles_that_it_names():
    assert experiment_of("default", "pi-1gb") == {"pi-1gb": {"shared_buffers": "250MB"}}
    mine = {"pi-1gb": {"shared_buffers": "1MB"}}
    assert experiment_of("default", "pi-1gb", own=mine) == mine
    with raises(PlanError, "undefined-profile", level="pi-9gb"):
        experiment_of("default", "pi-9gb")
