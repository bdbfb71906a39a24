"""The command as it is installed: so little that Ctrl-C while the rest is imported ends it well."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command and ends with its exit code."""
    try:
        from pgpaces.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
