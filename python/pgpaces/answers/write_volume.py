"""Bytes that a server wrote to its disk, by its own counters, without other programs. Pure.

Every version counts WAL and blocks. Only the disk counts what the file system adds, but for all
programs together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from pgpaces.result import Sample

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


def by_server(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Bytes per second that the primary wrote, for each second in which it was sampled.

    A counter that never changed has no samples, so a missing counter counts as 0.

    WAL + 8 KiB x writes of WAL + temporary files + blocks of data files; blocks by pg_stat_io where
    it has samples (16 and later), else by the counters of checkpointer, background writer and
    backends.
    """
    seconds: dict[int, dict[tuple[str, str], float]] = defaultdict(dict)
    for sample in samples:
        seconds[sample.second][sample.source, sample.name] = sample.value
    by_io = any(source == "io" for row in seconds.values() for source, _ in row)
    sizes = _ALWAYS if by_io else _ALWAYS | _BLOCKS
    for second, row in sorted(seconds.items()):
        if not any(source in _READ for source, _ in row):
            continue
        total = sum(value * sizes.get(key, 0) for key, value in row.items())
        total += sum(
            value
            for (source, name), value in row.items()
            if source == "io" and name.endswith("_written")
        )
        yield Sample(second, SOURCE, NAME, float(f"{total:.7g}"), "B/s")
