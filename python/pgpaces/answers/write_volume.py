"""What a server wrote to its disk, by its own counters: nothing of other programs is in it. Pure.

Every version counts WAL and blocks. What the file system adds is known to the disk alone, which
knows nothing of whose it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from pgpaces.result import Sample

SOURCE, NAME = "server", "written"
# PostgreSQL's, unless it was built with another one; of WAL, too.
_BLOCK = 8192
_ALWAYS = {
    ("wal", "written"): 1,
    # Each begins with a block that was written before, in part.
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
    """Bytes a second that the primary wrote, for each second in which it was read.

    A counter that never moved has no samples, so what is missing in such a second is nothing.

    WAL + 8 KiB x writes of WAL + temporary files + blocks of data files, those by pg_stat_io where
    it has moved (16 and later), else by the checkpointer's, background writer's and backends'
    counters.
    """
    found: dict[int, dict[tuple[str, str], float]] = defaultdict(dict)
    for sample in samples:
        found[sample.second][sample.source, sample.name] = sample.value
    moved = any(source == "io" for row in found.values() for source, _ in row)
    for second, row in sorted(found.items()):
        if not any(source in _READ for source, _ in row):
            continue
        sizes = _ALWAYS if moved else _ALWAYS | _BLOCKS
        total = sum(value * sizes.get(key, 0) for key, value in row.items())
        if moved:
            total += sum(
                value
                for (of, name), value in row.items()
                if of == "io" and name.endswith("_written")
            )
        yield Sample(second, SOURCE, NAME, float(f"{total:.7g}"), "B/s")
