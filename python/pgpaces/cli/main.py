"""The command `pgpaces`: subcommands, imported when they are used, errors and exit codes."""

from __future__ import annotations

import contextlib
import importlib
import keyword
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgpaces.cli import streams
from pgpaces.core.errors import PgpacesError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# name: (module, one line for --help)
COMMANDS = {
    "run": ("run", "Run a workload and say what share was on time"),
    "load": ("load", "Time a bulk load: a command such as pg_restore"),
    "sweep": (
        "sweep",
        "Run every combination of levels and find the load at which requests start to be late",
    ),
    "capacity": ("capacity", "Find the highest load that passes"),
    "runs": ("runs", "List the runs in the store; name, copy, delete them"),
    "show": ("runs", "Show the answer of a stored run"),
    "export": ("runs", "Write a stored run as CSV or JSON"),
    "report": ("report", "Report an experiment or runs, as a page, text or data"),
    "compare": ("compare", "Say whether B is better than A, from stored runs or new pairs"),
    "check": ("compare", "Say whether a run is worse than a baseline, for CI"),
    "trend": ("trend", "Say since when stored runs of one kind are better or worse"),
    "serve": ("serve", "Serve results, and what runs, as pages for a browser"),
    "why": ("why", "Say why transactions were late, and what would confirm it"),
    "import": ("logs", "Import a run of real pgbench: its logs and its report"),
    "explain": ("explain", "Explain a finding, an error, or a metric"),
    "server": ("server", "Start, list, stop and clean managed servers"),
    "observe": ("observe", "Print what this machine does, a line of JSON a second"),
    "disk": ("disk", "Measure a disk by fio: its class, and what PostgreSQL needs of it"),
    "doctor": ("doctor", "Say what is here, and what each missing part would add"),
    "workload": ("workload", "List, show and create workloads"),
    "pgbench": ("pgbench", "pgbench's command line, logs and report, as they are"),
}

EXAMPLES = """\b
Examples:
  pgpaces run reporting --rate 1 --latency-limit 500ms
  pgpaces run ./my-workload --target postgresql://pi4/bench --users 8 --pace 1/s
  pgpaces sweep reporting --clients 1,2,4,8 --rate-per-client 1/s -L 500ms -o report.html
  pgpaces capacity reporting -L 500ms --missed 5%
  pgpaces runs
"""


# Never called: `main` passes pgbench's arguments on before click parses them.
_PGBENCH = click.Command(
    "pgbench",
    help="pgbench's command line, logs and report. `pgpaces pgbench --help` lists its options; a"
    " link to pgpaces that is called pgbench is the same.",
    add_help_option=False,
    params=[click.Argument(["arguments"], nargs=-1, metavar="[OPTION]... [DBNAME]")],
)


class Suggesting(click.Group):
    """A command of commands; the error for an unknown one has the nearest names."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but for that error."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            from pgpaces.cli import usage

            raise usage.no_command(args[0], names, ctx.command_path)
        return super().resolve_command(ctx, args)


class _Lazy(Suggesting):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name == "pgbench":
            return _PGBENCH
        module = importlib.import_module(f"pgpaces.cli.{COMMANDS[cmd_name][0]}")
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command: click.Command = getattr(module, name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names for a shell, without importing anything; as click does it for options."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(
    cls=_Lazy,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-?", "-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="pgpaces", prog_name="pgpaces")
def cli() -> None:
    """Put PostgreSQL through its paces: your workload, at your pace, against your expectation."""


def main() -> None:
    """Runs the command and ends with its exit code (docs/reference/exit-codes.md)."""
    streams.occupy()
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
        with streams.output():
            code = cli.main(prog_name="pgpaces", standalone_mode=False)
    except (PgpacesError, click.ClickException, click.Abort, KeyboardInterrupt) as error:
        code = getattr(error, "exit_code", 130)
        # If stderr cannot be written, there is still the exit code.
        with contextlib.suppress(OSError):
            if isinstance(error, PgpacesError):
                streams.fail(error)
            elif isinstance(error, click.UsageError):
                from pgpaces.cli import usage

                streams.fail(usage.explained(error))
            elif isinstance(error, click.ClickException):
                error.show()
            else:
                click.echo("interrupted", err=True)
    except SystemExit as ended:  # raised by click if the reader of --help has gone
        code = 0 if type(sys.stdout).__name__.endswith("PacifyFlushWrapper") else ended.code
    try:
        sys.stderr.flush()
    except OSError:
        streams.silence(sys.stderr)
    return code if isinstance(code, int) else 0
