"""What a shell offers while a command is typed."""

from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from pgpaces.cli.main import COMMANDS, cli
from pgpaces.spec import options, workload
from tests.unit.stored import Kept, keep, opened

ROOT = Path(__file__).parents[2]
LISTED = ROOT / "packaging" / "data" / "data" / "share"


def offered(*words, incomplete=""):
    """What is offered behind these words; `file` stands for files."""
    found = ShellComplete(cli, {}, "pgpaces", "_X").get_completions([*words], incomplete)
    return [item.value if item.type == "plain" else item.type for item in found]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store with two runs, one of them tagged."""
    store = opened(tmp_path)
    keep(store, Kept("A" * 18 + "AAAA1111"))
    keep(store, Kept("B" * 18 + "BBBB2222", at=1.0))
    store.tag("good", "A" * 18 + "AAAA1111")
    path = tmp_path / "results.db"
    monkeypatch.setenv("PGPACES_STORE", str(path))
    return path


def test_commands_are_those_of_the_table():
    assert offered() == list(COMMANDS)
    assert offered(incomplete="ru") == ["run", "runs"]
    assert "--version" in offered(incomplete="--")


def test_options_and_their_choices_are_offered(store):
    assert offered("run", "reporting", incomplete="--rate") == ["--rate", "--rate-per-client"]
    assert offered("run", "--policy") == ["run", "skip"]
    assert offered("run", "reporting", "--output") == ["file"]
    assert offered("load") == []
    names = offered("compare", "--factor")
    assert {"variant", "clients"} <= set(names)
    assert all(options.BY_NAME[name].factor for name in names)
    for name in COMMANDS:
        assert isinstance(offered(name), list)


@pytest.mark.parametrize("command", ["run", "sweep", "capacity"])
def test_a_workload_is_a_shipped_one_or_a_folder(command):
    assert offered(command) == ["file", *workload.shipped()]
    assert offered(command, incomplete="sens") == ["file", "sensor"]


def test_a_run_is_one_of_the_store_by_its_id_or_tag(store):
    assert offered("show") == ["last", "BBBB2222", "good", "AAAA1111"]
    assert offered("show", incomplete="B") == ["BBBB2222"]
    assert offered("check", "--baseline", incomplete="g") == ["good"]
    assert offered("runs", "tag") == ["good"]


def test_the_store_is_the_one_that_was_named(store, tmp_path):
    assert offered("show", "--store", str(tmp_path / "other.db")) == ["last"]
    assert not (tmp_path / "other.db").exists()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PGPACES_STORE", "mysql://x"),
        ("PGPACES_STORE", f"/{'x' * 300}"),
        ("PGPACES_HOME", "~nosuch-user/x"),
    ],
)
def test_a_store_or_a_home_that_cannot_be_offers_nothing(variable, value, monkeypatch):
    monkeypatch.delenv("PGPACES_STORE", raising=False)
    monkeypatch.setenv(variable, value)
    assert set(offered("show")) <= {"last"}
    assert isinstance(offered("run", "--profile"), list)


@pytest.mark.parametrize(
    ("shell", "path"),
    [
        ("bash", "bash-completion/completions/pgpaces"),
        ("zsh", "zsh/site-functions/_pgpaces"),
        ("fish", "fish/vendor_completions.d/pgpaces.fish"),
    ],
)
def test_the_wheel_has_what_each_shell_loads(shell, path):
    script = (LISTED / path).read_text(encoding="utf-8")
    made = click.shell_completion.get_completion_class(shell)
    assert made is not None
    source = made(cli, {}, "pgpaces", "_PGPACES_COMPLETE")
    assert script.strip() == (source.source_template % source.source_vars()).strip()
