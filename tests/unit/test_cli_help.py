"""`--help`: options by group, the usual ones first, and all of them in `--help-all`."""

import re

import click
import pytest
from click.testing import CliRunner

from pgpaces.cli.main import COMMANDS, HELP, cli
from pgpaces.cli.options import Option
from pgpaces.spec import options

OURS = sorted({*COMMANDS} - {"pgbench"})
LONG = ("run", "sweep", "capacity", "compare")


def text(*words):
    return CliRunner().invoke(cli, [*words], prog_name="pgpaces", terminal_width=100).output


def groups(shown):
    return [line[:-1] for line in shown.splitlines() if line[:-1] in options.GROUPS]


def listed(shown):
    return set(re.findall(r"^  (?:-\w, )?(-[-\w]+)", shown, re.MULTILINE))


@pytest.mark.parametrize("name", OURS)
def test_help_has_few_options_by_group_and_help_all_every_one(name):
    brief, whole = text(name, "--help"), text(name, "--help-all")
    assert len(listed(brief)) <= options.SHORT
    for found in (groups(brief), groups(whole)):
        assert found == [each for each in options.GROUPS if each in found]
    command = cli.get_command(click.Context(cli), name)
    params = [each for each in command.params if isinstance(each, click.Option)]
    assert all(isinstance(each, Option) for each in params)
    assert [each.opts for each in params if not listed(whole) & {*each.opts}] == []
    rows = (*options.OPTIONS, *options.OF_COMMANDS.values())
    assert {row.group for row in rows} <= set(options.GROUPS)
    assert {row.name for row in rows} == options.texts().keys()


@pytest.mark.parametrize("name", LONG)
def test_help_of_a_long_command_shows_the_usual_groups_and_help_all_every_one(name):
    brief, whole = text(name, "--help"), text(name, "--help-all")
    others = [each for each in options.GROUPS if each != options.MIGRATION]
    assert groups(brief) == [each for each in others if each in options.USUAL]
    assert groups(whole) == others
    more = len(listed(whole)) - len(listed(brief))
    assert HELP["pgpaces"]["more"].format(command=f"pgpaces {name}", count=more) in brief
    assert "--help-all" not in whole


@pytest.mark.parametrize("name", ["runs", "server", "workload"])
def test_a_list_of_subcommands_is_wrapped_and_not_cut_off(name):
    listed = " ".join(text(name, "--help").split("Commands:")[1].split("Examples:")[0].split())
    group = cli.get_command(click.Context(cli), name)
    assert isinstance(group, click.Group)
    for each, command in group.commands.items():
        sentence = " ".join((command.help or "").split("\n\n")[0].split()).split(". ")[0]
        assert f"{each} {sentence.rstrip('.')}" in listed
    assert "..." not in listed
