"""Copies of an OpenStreetMap extract side by side: tile.py FILE COPIES CACHE LINK

Arranges COPIES of FILE in a square grid, with the original in the south-west corner, and creates
the symbolic link LINK to the result. Each copy has different ids. If COPIES is 1, LINK leads to
FILE. Results stay in the directory CACHE for the next time. The database is not involved.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

GAP = 0.0002  # degrees between two copies
EAST, NORTH = 180.0, 85.0  # the limits of a map in Mercator's projection


def main() -> None:
    """Creates LINK, and the file that it leads to if CACHE does not have the file."""
    file, copies, cache, link = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    if copies == 1:
        Path(link).symlink_to(file)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # removes the incomplete result
    with file.open("rb") as opened:
        content = hashlib.file_digest(opened, "sha256").hexdigest()
    target = cache / f"{content[:16]}-{copies}.osm.pbf"
    if not target.is_file():
        make(file, copies, target)
    Path(link).symlink_to(target)


def make(file: Path, copies: int, target: Path) -> None:
    """Writes all copies or none. Only one process writes at a time; the others use its result."""
    cache = target.parent
    folder = os.open(cache, os.O_RDONLY)  # released when the process ends
    fcntl.flock(folder, fcntl.LOCK_EX)
    for left in cache.glob(".tile-*"):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    if not target.is_file():
        with tempfile.TemporaryDirectory(dir=cache, prefix=".tile-") as scratch:
            part = Path(scratch) / "part.osm.pbf"
            tile(file, copies, part)
            with part.open("rb") as whole:
                os.fsync(whole.fileno())  # a power cut must not leave the name without the data
            part.rename(target)
    os.close(folder)


def tile(file: Path, copies: int, target: Path) -> None:
    """Writes the copies: first nodes, then ways, then relations, each by ascending id."""
    try:
        import osmium
    except ImportError:
        sys.exit(
            "several copies of a map need the package osmium: pip install 'pgpaces[osm]', or use"
            " --scale 1"
        )
    kinds = {"nodes": osmium.osm.NODE, "ways": osmium.osm.WAY, "relations": osmium.osm.RELATION}
    try:
        grid = Grid(osmium, file, copies)
    except RuntimeError as error:
        sys.exit(f"{file} cannot be read as a map: {error}")
    with osmium.SimpleWriter(str(target)) as writer:
        write: dict[str, Callable[[Any, int], None]] = {
            "nodes": lambda element, copy: writer.add_node(grid.node(element, copy)),
            "ways": lambda element, copy: writer.add_way(grid.way(element, copy)),
            "relations": lambda element, copy: writer.add_relation(grid.relation(element, copy)),
        }
        for name, kind in kinds.items():
            for copy in range(copies):
                sys.stderr.write(f"{name} of copy {copy + 1} of {copies}\n")
                for element in osmium.FileProcessor(str(file), kind):
                    write[name](element, copy)


class Grid:
    """The place of each copy and the offset of its ids. Exits if the copies do not fit."""

    def __init__(self, osmium: Any, file: Path, copies: int) -> None:
        west, south, east, north, last = EAST, NORTH, -EAST, -NORTH, 0
        for each in osmium.FileProcessor(str(file)):
            last = max(last, each.id)
            if each.is_node() and each.location.valid():
                west, east = min(west, each.location.lon), max(east, each.location.lon)
                south, north = min(south, each.location.lat), max(north, each.location.lat)
        self._mutable = osmium.osm.mutable
        self._step = 10 ** len(str(last))
        self._width, self._height = east - west + GAP, north - south + GAP
        self._columns = math.ceil(math.sqrt(copies))
        rows = math.ceil(copies / self._columns)
        wide, high = (self._columns - 1) * self._width, (rows - 1) * self._height
        if east + wide > EAST or north + high > NORTH or copies * self._step >= 2**63:
            sys.exit(f"{copies} copies of {file.name} do not fit onto the map; lower --scale")

    def node(self, element: Any, copy: int) -> Any:
        """A node of a copy."""
        row, column = divmod(copy, self._columns)
        place = (
            element.location.lon + column * self._width,
            element.location.lat + row * self._height,
        )
        return self._mutable.Node(location=place, **self._common(element, copy))

    def way(self, element: Any, copy: int) -> Any:
        """A way of a copy."""
        nodes = [node.ref + copy * self._step for node in element.nodes]
        return self._mutable.Way(nodes=nodes, **self._common(element, copy))

    def relation(self, element: Any, copy: int) -> Any:
        """A relation of a copy; the ids of members that are not in the file get the offset, too."""
        members = [(m.type, m.ref + copy * self._step, m.role) for m in element.members]
        return self._mutable.Relation(members=members, **self._common(element, copy))

    def _common(self, element: Any, copy: int) -> dict[str, Any]:
        return {"id": element.id + copy * self._step, "version": 1, "tags": element.tags}


if __name__ == "__main__":
    main()
