"""`pgpaces` and `python -m pgpaces`: handles Ctrl-C already while the rest is imported."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from pgpaces.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
