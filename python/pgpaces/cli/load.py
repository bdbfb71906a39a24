"""`pgpaces load`: times a command, such as a bulk load."""

from __future__ import annotations

from typing import Any

from pgpaces.cli import options
from pgpaces.cli.run import measure, of_command

EXAMPLES = """\b
Examples:
  pgpaces load 'pgbench -i -s 10'
  pgpaces load 'pg_restore -d "$PGDATABASE" -j 4 shop.dump' --input shop.dump -t 3
  pgpaces load 'psql -Xqf load.sql' --input 'data/*.csv' --rows 'SELECT count(*) FROM item'
"""
# A command has no rate, no clients and no protocol.
_OF_TRIAL = (
    *("define", "duration", "transactions", "grace", "latency_limit", "target", "server", "set"),
    *("server_set", "data_dir", "tls", "profile", "observe_command", "node", "standbys", "pool"),
    *("pool_mode", "pool_size", "target_node", "kill_switch", "background", "seed"),
)
_DURATION = "Repeat the command for this time; the last execution is finished."


@options.command(epilog=EXAMPLES)
@options.argument("command")
@options.options(
    options.of("input", "rows", "from_database", "missed", "fail_if"),
    options.of_trial(*_OF_TRIAL, duration=_DURATION, transactions="How many times. [default: 1]"),
    options.of(*options.ANSWER, *options.RUNNING),
)
def load(**params: Any) -> int:
    """Time COMMAND, a shell command that loads data: once, or as -t and -T say.

    It runs in the current folder. PG* variables lead it to an empty database on a managed server,
    or with --target to the database that this names, as it is.
    """
    return measure(of_command(params), params | {"files": (), "scripts": (), "fresh": False})
