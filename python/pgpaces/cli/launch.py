"""The entry point, which handles Ctrl-C already while the rest is imported."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Runs the command and ends with its exit code."""
    # What is made first are modules, none of them garbage, and a look every 700 objects takes a
    # twentieth of the time of a start.
    gc.set_threshold(100_000, 10, 10)
    try:
        from pgpaces.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
