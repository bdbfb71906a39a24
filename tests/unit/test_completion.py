"""What a shell offers while a command is typed."""

from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from pgpaces.cli.main import COMMANDS, cli
from pgpaces.spec import workload

ROOT = Path(__file__).parents[2]
LISTED = ROOT / "packaging" / "data" / "data" / "share"


def offered(*words, incomplete=""):
    """What is offered behind these words; `file` stands for files."""
    found = ShellComplete(cli, {}, "pgpaces", "_X").get_completions([*words], incomplete)
    return [item.value if item.type == "plain" else item.type for item in found]


def test_commands_are_those_of_the_table():
    assert offered() == list(COMMANDS)
    assert offered(incomplete="ru") == ["run", "runs"]
    assert "--version" in offered(incomplete="--")


def test_options_and_their_choices_are_offered():
    assert offered("run", "reporting", incomplete="--rate") == ["--rate", "--rate-per-client"]
    assert offered("run", "--policy") == ["run", "skip"]
    assert offered("run", "reporting", "--output") == ["file"]
    assert offered("load") == []
    for name in COMMANDS:
        assert isinstance(offered(name), list)


def test_the_names_that_can_be_explained_are_offered():
    assert offered("explain", incomplete="generator-lat")[:1] == ["generator-late-decides"]


@pytest.mark.parametrize("command", ["run", "sweep", "capacity"])
def test_a_workload_is_a_shipped_one_or_a_folder(command):
    assert offered(command) == ["file", *workload.shipped()]
    assert offered(command, incomplete="sens") == ["file", "sensor"]


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
