"""The settings of a PostgreSQL installation, without a server: `postgres --describe-config`.

It lists what a configuration file may contain, without developer settings and settings of
extensions. So a setting that is not listed may still exist.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from pgpaces.server.binaries import Installation, output_of


def settings(installation: Installation) -> frozenset[str]:
    """Their names; empty where the program cannot list them."""
    lines = output_of(installation.program("postgres"), "--describe-config").splitlines()
    return frozenset(line.partition("\t")[0] for line in lines if "\t" in line)


def misspelled(installation: Installation, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    listed = {name.lower(): name for name in settings(installation)}
    for name in names:
        if name.lower() not in listed and "." not in name:
            near = difflib.get_close_matches(name.lower(), listed, n=1, cutoff=0.85)
            yield from ((name, listed[match]) for match in near)
