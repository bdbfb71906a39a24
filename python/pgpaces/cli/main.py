"""The command `pgpaces`: subcommands, imported when they are used, errors and exit codes."""

from __future__ import annotations

import contextlib
import gc
import importlib
import keyword
import signal
import sys
import textwrap
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli import output
from pgpaces.core.errors import PgpacesError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HELP: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("help.toml").read_text("utf-8"))
COMMANDS = tuple(name for name, about in HELP.items() if "summary" in about)
# Those that every user needs first, as the help lists them.
_FIRST = ("run", "sweep", "capacity", "compare", "why", "rehearse", "report", "runs")
# The number of new objects after which garbage is collected.
_ALLOCATED_MAX = 300_000
# The modules of commands that are not alone in theirs.
_MODULES = {
    "load": "run", "capacity": "sweep", "check": "compare", "export": "runs", "import": "runs",
    **dict.fromkeys(("show", "report", "why", "trend", "diff", "explain", "serve"), "answers"),
    **dict.fromkeys(("doctor", "disk", "observe"), "machine"),
}  # fmt: skip


def describe(command: click.Command, path: str) -> None:
    """Adds to a command what help.toml has for this path: examples, and help of options."""
    own = HELP.get(path, {})
    if "examples" in own:
        command.epilog = f"\b\nExamples:\n{textwrap.indent(own['examples'], '  ')}"
    for each in command.params:
        if isinstance(each, click.Option):
            word = max(each.opts, key=len).removeprefix("--")
            each.help = own.get("options", {}).get(word) or each.help or HELP["options"].get(word)


# Never called: `main` passes pgbench's arguments on before click parses them.
_PGBENCH = click.Command(
    "pgbench",
    help=HELP["pgbench"]["help"],
    add_help_option=False,
    params=[click.Argument(["arguments"], nargs=-1, metavar="[OPTION]... [DBNAME]")],
)


class Suggesting(click.Group):
    """A command of commands; the error for an unknown one has the nearest names."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            from pgpaces.cli import options

            raise options.no_command(args[0], names, ctx.command_path)
        return super().resolve_command(ctx, args)


class _Lazy(Suggesting):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name == "pgbench":
            return _PGBENCH
        module = importlib.import_module(f"pgpaces.cli.{_MODULES.get(cmd_name, cmd_name)}")
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command: click.Command = getattr(module, name)
        describe(command, cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names for a shell, without importing anything; as click does it for options."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=HELP[name]["summary"])
            for name in COMMANDS
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        others = [name for name in COMMANDS if name not in _FIRST]
        for title, names in (("Commands", _FIRST), ("More commands", others)):
            with formatter.section(title):
                formatter.write_dl([(name, HELP[name]["summary"]) for name in names])


@click.command(
    cls=_Lazy,
    context_settings={"help_option_names": ["-?", "-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="pgpaces", prog_name="pgpaces")
def cli() -> None:
    """Put PostgreSQL through its paces: your workload, your pace, your latency limit."""


describe(cli, "pgpaces")


def main() -> None:
    """Runs the command and ends with its exit code (docs/reference/exit-codes.md)."""
    # Imports leave no garbage, but looking for it takes a tenth of the time of a short command.
    gc.set_threshold(_ALLOCATED_MAX)
    output.occupy()
    # Any of these signals raises KeyboardInterrupt, so that cleanup runs.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # ignored under nohup
            signal.signal(number, signal.default_int_handler)
    program = Path(sys.argv[0]).name.replace("__main__.py", "pgpaces")
    if program == "pgbench" or sys.argv[1:2] == ["pgbench"]:
        from pgpaces.cli import pgbench

        sys.exit(pgbench.main(sys.argv[1 if program == "pgbench" else 2 :], program))
    code = _exit_code()
    # The command is complete: a signal while Python exits does not change the exit code.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def _exit_code() -> int:
    code: object = 0
    try:
        with output.output():
            code = cli.main(prog_name="pgpaces", standalone_mode=False)
    except (PgpacesError, click.ClickException, click.Abort, KeyboardInterrupt) as error:
        code = getattr(error, "exit_code", 130)
        # If stderr cannot be written, there is still the exit code.
        with contextlib.suppress(OSError):
            if isinstance(error, PgpacesError):
                output.fail(error)
            elif isinstance(error, click.UsageError):
                from pgpaces.cli import options

                output.fail(options.explained(error))
            elif isinstance(error, click.ClickException):
                error.show()
            else:
                click.echo("interrupted", err=True)
    except SystemExit as ended:  # raised by click if the reader of --help has gone
        code = 0 if type(sys.stdout).__name__.endswith("PacifyFlushWrapper") else ended.code
    try:
        sys.stderr.flush()
    except OSError:
        output.silence(sys.stderr)
    return code if isinstance(code, int) else 0
