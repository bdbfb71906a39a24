"""Bytes that a server wrote to its disk, by its own counters, without other programs. Pure.

Every version counts WAL and blocks. Only the disk counts what the file system adds, but for all
programs together.
"""

from __future__ import annotations

from collections.abc import Iterable

from pgpaces.core.series import Series

SOURCE, NAME = "server", "written"
# PostgreSQL's default, for data and WAL.
_BLOCK = 8192
_ALWAYS = {
    ("wal", "written"): 1,
    # Each write begins with a block that was partly written before.
    ("wal", "writes"): _BLOCK,
    ("database", "temp_written"): 1,
}
_BLOCKS = {
    ("checkpoints", "written"): _BLOCK,
    ("background_writer", "written"): _BLOCK,
    ("background_writer", "written_by_backends"): _BLOCK,
}

_READ = ("wal", "database", "sessions")


def by_server(series: Iterable[Series]) -> tuple[Series, ...]:
    """Bytes per second that the primary wrote, for each second in which it was sampled.

    None if it was not sampled. A counter that never changed has no samples, so a missing one counts
    as 0.

    WAL + 8 KiB x writes of WAL + temporary files + blocks of data files; blocks by pg_stat_io where
    it has samples (16 and later), else by the counters of checkpointer, background writer and
    backends.
    """
    series = tuple(series)
    by_io = any(each.source == "io" for each in series)
    sizes = _ALWAYS if by_io else _ALWAYS | _BLOCKS
    read = {second for each in series if each.source in _READ for second in each.seconds}
    totals = dict.fromkeys(sorted(read), 0.0)
    for each in series:
        of_io = each.source == "io" and each.name.endswith("_written")
        if size := 1 if of_io else sizes.get((each.source, each.name)):
            for second, value in each.pairs:
                if second in totals:
                    totals[second] += size * value
    written = Series(SOURCE, NAME, "B/s")
    for second, total in totals.items():
        written.add(second, float(f"{total:.7g}"))
    return (written,) if totals else ()
