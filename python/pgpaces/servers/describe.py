"""Which settings the programs of a PostgreSQL know, without a server: `postgres --describe-config`.

It lists what may stand in a configuration file. Settings for developers are not in it, and those of
extensions neither, so that one which is not listed may still exist.
"""

from __future__ import annotations

import difflib
import subprocess
from collections.abc import Iterable, Iterator

from pgpaces.servers.binaries import VERSION_TIMEOUT_S, Installation, server_environment


def settings(found: Installation) -> frozenset[str]:
    """Their names; empty where the programs do not tell."""
    try:
        done = subprocess.run(
            [found.program("postgres"), "--describe-config"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            env=server_environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(line.partition("\t")[0] for line in done.stdout.splitlines() if "\t" in line)


def misspelled(found: Installation, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names that it does not list, each with one that it does and that is nearly the same."""
    known = {name.lower(): name for name in settings(found)}
    for name in names:
        if name.lower() not in known and "." not in name:
            near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.85)
            yield from ((name, known[one]) for one in near)
