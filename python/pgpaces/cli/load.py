"""`pgpaces load`: times a command, such as a bulk load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pgpaces.cli import like, options
from pgpaces.cli.run import measure
from pgpaces.core.errors import PlanError
from pgpaces.core.home import is_there

# A command has no rate, no clients and no protocol.
_OF_TRIAL = (
    *("define", "duration", "transactions", "grace", "latency_limit", "target", "server", "set"),
    *("server_set", "data_dir", "tls", "profile", "observe_command", "node", "standbys", "pool"),
    *("pool_mode", "pool_size", "target_node", "guard", "background", "seed"),
)


@options.command()
@options.argument("command", required=False)
@options.options(
    options.of("like", "input", "rows", "from_database", "missed", "fail_if", "allow_fail"),
    options.of_trial(*_OF_TRIAL),
    options.of(*options.ANSWER, *options.RUNNING),
)
def load(**params: Any) -> int:
    """Time COMMAND, a shell command that loads data. It runs once, or as -t and -T specify.

    The command runs in the current directory. PG* variables point it to an empty database on a
    managed server, or to the existing database of --target.
    """
    from pgpaces.spec import workload

    spec, _ = like.spec({**params, "anyway": True})
    text = spec.get("command")
    if text is None:
        context = click.get_current_context()
        raise click.MissingParameter(ctx=context, param=context.command.params[0])
    if not text.strip():
        raise PlanError("empty-command")
    if text in workload.shipped() or is_there(Path(text, workload.FILE)):
        raise PlanError("workload-as-command", workload=text)
    command = workload.Command(text, None, tuple(spec.get("input", ())), spec.get("rows"))
    return measure(workload.of_command(command), spec, {**params, "files": ()})
