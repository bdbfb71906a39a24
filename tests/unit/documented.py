"""The commands that README and docs/ show."""

import contextlib
import shlex
from pathlib import Path
from types import ModuleType

import click

from pgpaces.cli.main import cli
from pgpaces.cli.pgbench import options as pgbench_options
from tests.docs_tools import tool

BLOCKS = tool("blocks")
ROOT = BLOCKS.ROOT
PAGES = [*BLOCKS.pages(["docs"]), ROOT / "README.md"]
SHELL_WORDS = {"|", "||", "&&", "&", ";", ">", ">>", "<", "(", ")"}


def name_of(page: Path) -> str:
    return str(BLOCKS.name_of(page))


def blocks(language: str) -> list[tuple[str, str]]:
    """The code blocks of a language with the page that each is on."""
    return [
        (name_of(page), code)
        for page in PAGES
        for code in BLOCKS.texts(page.read_text(encoding="utf-8"), language)
    ]


def command_lines(shell: str) -> list[list[str]]:
    """The words behind each `pgpaces` that a shell block runs, without what the shell eats."""
    found: list[list[str]] = []
    for line in BLOCKS.shell_lines(shell):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, "#"
        current: list[str] | None = None
        before = ";"
        for word in lexer:
            if word in SHELL_WORDS or set(word) <= set("();<>|&"):
                current = None
            elif current is not None:
                current.append(word)
            elif word == "pgpaces" and (set(before) <= set("(;|&$") or "=" in before):
                current = []
                found.append(current)
            before = word
    return found


def parsed(words: list[str]) -> tuple[click.Command, dict[str, object]]:
    """The command that the words call and its parameters; nothing runs. Raises UsageError."""
    command: click.Command = cli
    context = click.Context(cli, info_name="pgpaces")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"no command {name}")
        command = found
        context = click.Context(command, info_name=name, parent=context)
    if command.name == "pgbench":
        with contextlib.suppress(pgbench_options.AnsweredError):  # --help
            pgbench_options.parse(words, {}, command="pgpaces pgbench")
        return command, {}
    try:
        return command, command.make_context(context.command_path, words).params
    except click.exceptions.Exit:  # --help, --version
        return command, {}


def all_commands() -> list[tuple[str, click.Command]]:
    return [(context.command_path, command) for context, command in generator().commands()]


def generator() -> ModuleType:
    return tool("generate")
