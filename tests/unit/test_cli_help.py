"""`--help`: options by group, the usual ones first, and all of them in `--help-all`."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from pgpaces.cli.main import COMMANDS, cli
from pgpaces.cli.options import Option
from pgpaces.spec import options

# pgbench's own help is as pgbench has it.
OURS = sorted(COMMANDS.keys() - {"pgbench"})
LONG = ("run", "sweep", "capacity", "compare")


def text(*words: str) -> str:
    return CliRunner().invoke(cli, [*words], prog_name="pgpaces", terminal_width=100).output


def groups(shown: str) -> list[str]:
    return [line[:-1] for line in shown.splitlines() if line[:-1] in options.GROUPS]


def listed(shown: str) -> set[str]:
    return set(re.findall(r"^  (?:-\w, )?(-[-\w]+)", shown, re.MULTILINE))


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", OURS)
def test_help_shows_at_most_thirty_options(name: str) -> None:
    assert len(listed(text(name, "--help"))) <= options.SHORT


@pytest.mark.parametrize("name", OURS)
def test_groups_stand_in_the_order_of_the_table_and_each_once(name: str) -> None:
    for word in ("--help", "--help-all"):
        found = groups(text(name, word))
        assert found == [each for each in options.GROUPS if each in found]


@pytest.mark.parametrize("name", LONG)
def test_help_of_a_long_command_shows_the_usual_groups_and_help_all_every_one(name: str) -> None:
    brief, whole = text(name, "--help"), text(name, "--help-all")
    assert groups(brief) == list(options.USUAL)
    assert groups(whole) == list(options.GROUPS)
    more = len(listed(whole)) - len(listed(brief))
    assert f"`pgpaces {name} --help-all` shows {more} more options" in brief
    assert "more options" not in whole


@pytest.mark.parametrize("name", OURS)
def test_help_all_shows_every_option_that_there_is(name: str) -> None:
    params = [each for each in command(name).params if isinstance(each, click.Option)]
    assert all(isinstance(each, Option) for each in params)
    whole = text(name, "--help-all")
    assert [each.opts for each in params if not listed(whole) & {*each.opts}] == []


def test_each_row_of_the_table_has_a_group_that_there_is() -> None:
    rows = (*options.OPTIONS, *options.OF_COMMANDS.values())
    assert {row.group for row in rows} <= set(options.GROUPS)
