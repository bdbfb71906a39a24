"""The fake server: no processes, and little CPU however many connections it has."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from place import environment
from programs import ProgramError

PROGRAM = Path(__file__).parents[1] / "target" / "release" / "pgpaces-fakeserver"
NOT_BUILT = "not measured: the fake server is not built (make bench builds it)"
PORT = 5432


def is_built() -> bool:
    """Whether it can be started."""
    return PROGRAM.exists()


@contextlib.contextmanager
def server(home: Path, *options: str) -> Iterator[dict[str, str]]:
    """The environment that leads to a fake server; leaving ends its standard input, and it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(PROGRAM), "--unix", f"{folder}/.s.PGSQL.{PORT}", *options]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            if process.stdout is None or not process.stdout.readline().startswith("listening"):
                raise ProgramError("the fake server does not listen")
            way = {"PGHOST": folder, "PGPORT": str(PORT), "PGUSER": "bench", "PGDATABASE": "bench"}
            yield {**environment(home), **way}
