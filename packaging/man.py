"""Writes the manual pages of all commands, from their help: `make man`."""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click_man.man import ManPage

from pgpaces.cli.main import HELP, cli

FOLDER = Path(__file__).parent / "data" / "data" / "share" / "man" / "man1"


def below(context: click.Context) -> Iterator[click.Context]:
    """The commands of a group."""
    if isinstance(group := context.command, click.Group):
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            if found is not None and not found.hidden:
                yield click.Context(found, context, name)


def every(context: click.Context) -> Iterator[click.Context]:
    """The command and all that are below it."""
    yield context
    for each in below(context):
        yield from every(each)


def short(context: click.Context) -> str:
    """What a command does, in a line."""
    listed = context.parent is not None and context.parent.command is cli
    if listed and context.info_name in HELP:
        return escaped(HELP[context.info_name]["summary"])
    return escaped(inspect.cleandoc(context.command.help or "").splitlines()[0].rstrip("."))


def escaped(text: str) -> str:
    """A text as roff takes it: no line of it is a request."""
    lines = text.replace("\\", "\\e").replace("\b\n", "").splitlines()
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines)


def page(context: click.Context, version: str) -> str:
    """The manual page of a command."""
    command = context.command
    made = ManPage(context.command_path)
    made.version = version
    made.short_help = short(context)
    made.description = escaped(inspect.cleandoc(command.help or ""))
    made.synopsis = " ".join(command.collect_usage_pieces(context))
    options = [each for each in command.params if isinstance(each, click.Option)]
    records = [each.get_help_record(context) for each in options if not each.hidden]
    made.options = [(names, escaped(text)) for names, text in filter(None, records)]
    if isinstance(command, click.Group):
        made.commands = [(each.command.name, short(each)) for each in below(context)]
    return f"{made}{examples(command)}"


def examples(command: click.Command) -> str:
    """The examples of its help, line by line."""
    lines = inspect.cleandoc((command.epilog or "").replace("\b", "")).splitlines()
    if not lines:
        return ""
    title, *rest = lines
    return f".SH {title.rstrip(':').upper()}\n.nf\n{escaped(chr(10).join(rest))}\n.fi\n"


def main(version: str) -> None:
    """Replaces the pages that are there."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for context in every(click.Context(cli, info_name="pgpaces")):
        path = FOLDER / f"{context.command_path.replace(' ', '-')}.1"
        path.write_text(page(context, version), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
